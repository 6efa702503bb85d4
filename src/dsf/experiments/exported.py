"""What is exported: the encoder of a run, and what there is to say about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from dsf.data.folder import PREFIX
from dsf.experiments import build
from dsf.experiments.page import read_run
from dsf.experiments.page.run import as_mapping
from dsf.experiments.run import CONFIG, ENVIRONMENT, RESULTS
from dsf.experiments.settings import Settings
from dsf.experiments.sources import has_own_size
from dsf.experiments.subjects import load_run, shown_size
from dsf.experiments.unfinished import unfinished
from dsf.files import read_json
from dsf.models import create_encoder, feature_dimension
from dsf.models.pretrained import FETCHING, FORMAT
from dsf.training.checkpoints import checksum

Colours = tuple[float, float, float]


@dataclass(frozen=True)
class Source:
    """An encoder that is to be exported.

    Args:
        run: the folder it comes from.
        trained: the encoder as the run has it, for comparisons.
        encoder: the same without what only training needs, on the CPU in fp32.
        name: what ``dsf.models.create_encoder`` calls it.
        options: and with what it makes it.
        image_size: of the images it is to see.
        mean: of these images, of levels divided by 255.
        std: likewise.
        settings: of the run.
        config: the run's config.yaml.
        checkpoint: its name.
        sha256: of the checkpoint's tensors.
        results: those that the run has for this checkpoint, and those before training.
        environment: where it was trained.
        unfinished: where the run stands that is not at its end, in words; empty if it is.
    """

    run: Path
    trained: nn.Module
    encoder: nn.Module
    name: str
    options: dict[str, Any]
    image_size: int
    mean: Colours
    std: Colours
    settings: Settings
    config: str
    checkpoint: str
    sha256: str
    results: dict[str, dict[str, Any]]
    environment: dict[str, Any]
    unfinished: str = ""

    @property
    def features(self) -> int:
        """F, the number of features."""
        return feature_dimension(self.encoder)

    @property
    def title(self) -> str:
        """What to call it."""
        return self.run.resolve().name

    @property
    def data(self) -> str:
        """The data set, without the way to a folder, which is nobody's business."""
        return _public_name(self.settings.data.name)

    @property
    def test_images(self) -> str:
        """How evaluations showed images to it, the one of a run's own data first; or empty."""
        protocols = [entry.get("protocol", {}) for entry in self.results.values()]
        of_this = [found for found in protocols if found.get("checkpoint_sha256") == self.sha256]
        own = self.settings.data.name
        of_this.sort(key=lambda found: found.get("data", {}).get("name") != own)
        return next((str(found["test_images"]) for found in of_this if "test_images" in found), "")

    @property
    def shown_share(self) -> float:
        """The share of an image that is seen: as evaluations did, or as is usual for its size."""
        if self.test_images:
            return 1.0 if self.test_images.startswith("whole") else 0.875
        return 1.0 if self.image_size <= 64 else 0.875

    def section(self) -> dict[str, Any]:
        """What ``dsf.from_pretrained`` needs to know."""
        return {
            "format": FORMAT,
            "encoder": {"name": self.name, "options": self.options},
            "image_size": self.image_size,
            "mean": list(self.mean),
            "std": list(self.std),
            "num_features": self.features,
            "checkpoint_sha256": self.sha256,
        }

    def public(self, text: str) -> str:
        """A text without the ways to the folders of images and of the run."""
        text = text.replace(str(self.run.resolve()), self.title)
        seen = (entry.get("protocol", {}).get("data", {}) for entry in self.results.values())
        names = {self.settings.data.name, *(str(data["name"]) for data in seen if "name" in data)}
        for name in sorted(names, key=len, reverse=True):  # one may begin as another does
            text = text.replace(name, _public_name(name))
        return text


def _public_name(data: str) -> str:
    if not data.startswith(PREFIX):
        return data
    path = Path(data.removeprefix(PREFIX))
    return f"{PREFIX}{path.name or path.absolute().name}"  # folder:. has no name of its own


def read_source(run: Path | str) -> Source:
    """The encoder of a run as its newest whole checkpoint has it."""
    run = Path(run)
    settings, method, checkpoint = load_run(run, "cpu")
    name = settings.encoder.name
    options = {
        key: value
        for key, value in build.encoder_options(settings).items()
        if key not in FETCHING  # the weights are the run's own
    }
    encoder = create_encoder(name, **options)
    encoder.load_state_dict(method.encoder.state_dict())
    digest = checksum(checkpoint)
    results = _results(run, digest)
    recipe = build.view_recipe(settings)
    return Source(
        run,
        method.encoder.float().eval(),
        encoder.float().eval(),
        name,
        options,
        _image_size(settings, encoder, results),
        recipe.mean,
        recipe.std,
        settings,
        (run / CONFIG).read_text(encoding="utf-8"),
        checkpoint.name,
        digest,
        results,
        read_json(run / ENVIRONMENT) if (run / ENVIRONMENT).is_file() else {},
        unfinished(read_run(run), checkpoint.name) or "",
    )


def _results(run: Path, digest: str) -> dict[str, dict[str, Any]]:
    """Those of this checkpoint, and those that are of none."""
    if not (run / RESULTS).is_file():
        return {}
    return {
        name: entry
        for name, entry in read_json(run / RESULTS).items()
        if entry.get("protocol", {}).get("checkpoint_sha256") in (digest, None)
    }


def _image_size(settings: Settings, encoder: nn.Module, results: dict[str, dict[str, Any]]) -> int:
    """That of the encoder, or else that it is evaluated with on its own data."""
    if has_own_size(encoder):
        side: int = encoder.patch_embed.img_size[0]  # type: ignore[union-attr, index, assignment]
        return side
    data = settings.data
    if data.evaluation_size:
        return data.evaluation_size
    protocols = (
        as_mapping(entry.get("protocol"))
        for name, entry in results.items()
        if "size=" not in name  # which was asked for
    )
    for found in protocols:
        if "image_size" in found and as_mapping(found.get("data")).get("name") == data.name:
            return int(found["image_size"])
    try:
        split = build.load_split(settings, data.split)
    except (OSError, ValueError):  # it is not on this machine
        return settings.views.size
    squashed = split.sizes() is not None
    return shown_size(split.image_size, squashed, settings.views.size)
