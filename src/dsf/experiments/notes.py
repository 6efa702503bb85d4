"""What is worth a word before a run starts, although nothing is wrong."""

from dsf.data import Split
from dsf.experiments.settings import Settings


def notes(settings: Settings, images: Split) -> list[str]:
    """One line each.

    Args:
        settings: resolved ones.
        images: to learn from.
    """
    count = min(len(images), settings.data.limit or len(images))
    found = []
    if settings.device == "cpu" and settings.encoder.name != "resnet-small":
        found.append("no GPU is used: --dry-run tells how long the run would take")
    if settings.views.size < images.image_size / 2:
        found.append(
            f"views of {settings.views.size} pixels are made of images of {images.image_size}: "
            "views.size is what the encoder sees"
        )
    if settings.loss.queue > count:
        found.append(
            f"the queue holds {settings.loss.queue:,} keys of {count:,} images, so that images "
            "contrast with older views of themselves: loss.queue makes it shorter"
        )
    left_out = count % settings.batch_size
    if left_out > 0.1 * count:
        found.append(
            f"{left_out:,} of {count:,} images, others each epoch, make no full batch and are "
            f"left out: batch_size is {settings.batch_size}"
        )
    return found
