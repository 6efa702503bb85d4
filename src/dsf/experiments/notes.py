"""What is worth a word before a run starts, although nothing is wrong."""

from dsf.data import Split
from dsf.data.stale import stale_note
from dsf.experiments.settings import Settings

_MANY_VIEWS = 64  # beyond what is common, by far: 2 to 16, with small crops


def notes(settings: Settings, images: Split) -> list[str]:
    """One line each.

    Args:
        settings: resolved ones.
        images: to learn from.
    """
    count = min(len(images), settings.data.limit or len(images))
    found = [*filter(None, [stale_note(settings.data.name, settings.data.size)])]
    if settings.device == "cpu" and settings.encoder.name != "resnet-small":
        found.append("no GPU is used: --dry-run tells how long the run would take")
    if settings.views.total > _MANY_VIEWS:
        found.append(
            f"{settings.views.total:,} views of each of {settings.batch_size:,} images, "
            f"{settings.views.total * settings.batch_size:,} a step, are far more than the paper's "
            "8 of each: views.count says how many"
        )
    if settings.knn.every and count <= settings.knn.k:
        found.append(
            f"kNN on the way lets all {count:,} images vote, as knn.k is {settings.knn.k}: "
            "a smaller one may tell more"
        )
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
