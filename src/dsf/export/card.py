"""The model card: what the encoder is, what it reached, where it comes from, how to load it."""

from collections.abc import Sequence
from typing import Any

import yaml

import dsf
from dsf.data.registry import EMBEDDED
from dsf.evaluation import Geometry
from dsf.experiments.evaluations import shown_numbers, told_numbers
from dsf.experiments.exported import Source
from dsf.experiments.page.changed import image_notes
from dsf.export.target import Loading, Target

_UNTRAINED = "untrained-"
_PAPER = "https://doi.org/10.1007/978-981-92-1462-4_5"
_LOSSES = {
    "dsf": "DSF, a divergence between distributions of views",
    "cosine": "InfoNCE over cosines of two views",
    "loss-average": "InfoNCE averaged over pairs of views",
    "feature-average": "InfoNCE over averaged features",
    "poly-view": "the poly-view loss",
}


def model_card(source: Source, target: Target, hub: str | None = None) -> str:
    """The README.md of an exported folder.

    Args:
        source: what is exported.
        target: for whom.
        hub: ``user/name`` on the Hugging Face Hub, if it goes there.
    """
    settings = source.settings
    parts = [
        f"---\n{yaml.safe_dump(_metadata(source, target), sort_keys=False)}---",
        f"# {source.title}",
        f"An image encoder, {_encoder(source)}, trained without labels on {_data(source)} "
        f"for {_duration(source)} with {_LOSSES[settings.loss.name]}, by dsf, which implements "
        f"[*Divergence-Based Similarity Function for Multi-View Contrastive Learning*]({_PAPER}). "
        f"It maps images of {source.image_size} x {source.image_size} pixels to {source.features} "
        "features.",
        "## How to load it",
        target.note(source),
        *(_block(source, loading) for loading in target.loadings(source, ".")),
        f'`huggingface_hub.snapshot_download("{hub}")` brings the folder from the Hub.'
        if hub
        else "",
        _reading(source, arrays=target.loadings(source, ".")[0].arrays),
        _images(source),
        "## Results",
        _results(source),
        "## How it was trained",
        _table(("", ""), _training(source)),
        f"<details><summary>All settings</summary>\n\n```yaml\n{source.public(source.config)}```\n"
        "\n</details>",
        "## Provenance",
        _table(("", ""), _provenance(source)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(source: Source, loading: Loading) -> str:
    """Loading and using it, ready to run in the folder."""
    shape = f"(2, 3, {source.image_size}, {source.image_size})"
    if loading.arrays:
        mean, std = (_array("numpy.array", part, ', dtype="float32"') for part in _colours(source))
        code = loading.script(
            ("import numpy",),
            f'\nimages = numpy.random.rand{shape}.astype("float32")  # levels / 255\n'
            f"mean = {mean}\nstd = {std}\n"
            f"features = encode((images - mean) / std)  # (2, {source.features})\n",
        )
    else:
        mean, std = (_array("torch.tensor", part) for part in _colours(source))
        code = loading.script(
            ("import torch",),
            f"\nimages = torch.rand{shape}  # levels / 255\n"
            f"mean = {mean}\nstd = {std}\n"
            "with torch.no_grad():\n"
            f"    features = encode((images - mean) / std)  # (2, {source.features})\n",
        )
    return f"With {loading.library}, in this folder:\n\n```python\n{code}```"


def _reading(source: Source, arrays: bool) -> str:
    """How an image file becomes what the code above calls images."""
    size = source.image_size
    if source.shown_share < 1:
        what = "the central square of 7/8 of the shorter side"
        box = (
            "    side = min(image.size) * 7 // 8\n"
            "    left, top = (image.width - side) // 2, (image.height - side) // 2\n"
            "    box = (left, top, left + side, top + side)\n"
        )
    else:
        what, box = "the whole image", "    box = (0, 0, *image.size)\n"
    code = (
        "import numpy\nfrom PIL import Image\n\n\n"
        "def read(path):\n"
        '    image = Image.open(path).convert("RGB")\n'
        f"{box}"
        f"    image = image.resize(({size}, {size}), Image.Resampling.BILINEAR, box)\n"
        '    return numpy.asarray(image, dtype="float32").transpose(2, 0, 1) / 255\n'
    )
    made = 'read("photo.jpg")' if arrays else 'torch.from_numpy(read("photo.jpg"))'
    return (
        f"For an image file, of which {what} is seen, take `images = {made}[None]` with\n\n"
        f"```python\n{code}```"
    )


def _colours(source: Source) -> tuple[list[float], list[float]]:
    return list(source.mean), list(source.std)


def _array(make: str, values: Sequence[float], more: str = "") -> str:
    return f"{make}({values}{more}).reshape(3, 1, 1)"


def _encoder(source: Source) -> str:
    options = ", ".join(f"{key}={value}" for key, value in source.options.items())
    return f"`{source.name}`" + (f" ({options})" if options else "")


def _data(source: Source) -> str:
    limit = source.settings.data.limit  # which may be more than there are
    few = f"at most {limit:,} of " if limit else ""
    if source.data == EMBEDDED:
        return f"{few}the images of CIFAR-10 that come with dsf"
    return f"{few}the images of {source.data}" if few else source.data


def _duration(source: Source) -> str:
    epochs = source.settings.epochs
    text = f"{epochs} {'epoch' if epochs == 1 else 'epochs'}"
    return f"{text}, of which it has come to {source.unfinished}," if source.unfinished else text


def _images(source: Source) -> str:
    """How the evaluations showed images, where there are any."""
    text = source.test_images
    seen = f"as {text}" if text.startswith("the ") else text
    return f"In the evaluations images were seen {seen}." if seen else ""


def _accuracies(source: Source) -> dict[str, dict[str, Any]]:
    """Results of the trained encoder that are accuracies or errors."""
    return {
        name: entry
        for name, entry in source.results.items()
        if "checkpoint_sha256" in entry["protocol"]
        and not str(entry["protocol"]["name"]).startswith(Geometry.name)
    }


def _results(source: Source) -> str:
    rows = []
    for name, entry in _accuracies(source).items():
        before = dict(shown_numbers(source.results.get(f"{_UNTRAINED}{name}", {})))
        for what, value in shown_numbers(entry):
            rows.append((source.public(name), what, value, before.get(what, "")))
    if not rows:
        return "None yet: `dsf eval` adds them to the run, and another export to this card."
    head = ("evaluation", "measure", "value", "before training")
    width = len(head) if any(before for *_, before in rows) else len(head) - 1
    return "\n\n".join(
        [
            _table(head[:width], [row[:width] for row in rows]),
            *_changed(source),
            f"One run, seed {source.settings.seed}. No evaluation chose anything on test labels.",
        ]
    )


def _changed(source: Source) -> list[str]:
    """Which of the results in the table are of other images."""
    shown = {}
    for name, entry in _accuracies(source).items():
        shown[name] = entry
        if untrained := source.results.get(f"{_UNTRAINED}{name}"):
            shown[f"{_UNTRAINED}{name}"] = untrained

    def named(name: str) -> str:
        known = source.public(name.removeprefix(_UNTRAINED))
        return f"{known} before training" if name.startswith(_UNTRAINED) else known

    learned = next(iter(_learned(source.environment)), None)
    return image_notes(shown, learned, source.settings.data.split, named)


def _training(source: Source) -> list[tuple[str, str]]:
    settings = source.settings
    cost = source.results.get("training", {})
    found = [
        ("recipe", settings.recipe),
        ("method", settings.method),
        ("loss", _loss(source)),
        ("views an image", str(settings.views.total)),
        ("epochs", str(settings.epochs)),
        ("not finished", source.unfinished),
        ("batch", f"{settings.batch_size} images"),
        (
            "optimiser",
            f"{settings.optimiser.name}, learning rate {settings.optimiser.lr:g}, "
            f"weight decay {settings.optimiser.weight_decay:g}",
        ),
        ("head", settings.head),
        ("seed", str(settings.seed)),
        ("images seen", f"{cost['images']:,}" if "images" in cost else ""),
        ("device time", f"{cost['device_seconds']:,.0f} s" if "device_seconds" in cost else ""),
    ]
    return [pair for pair in found if pair[1]]


def _loss(source: Source) -> str:
    """Its name, and what of its settings matters to it."""
    loss = source.settings.loss
    if loss.name != "dsf":
        return f"{loss.name}, temperature {loss.temperature:g}"
    # At 1, its own, there is no temperature.
    changed = "" if loss.temperature == 1 else f", temperature {loss.temperature:g} instead of 1"
    return f"dsf, mode {loss.mode}{changed}"


def _provenance(source: Source) -> list[tuple[str, str]]:
    known = source.environment
    packages = known.get("packages", {})
    found = [
        ("command", f"`{source.public(known['command'])}`" if "command" in known else ""),
        ("commit", known.get("commit") or ""),
        ("dsf", known.get("dsf", "")),
        ("versions", ", ".join(f"{name} {version}" for name, version in packages.items())),
        ("device", known.get("device", "")),
        ("checkpoint", f"{source.checkpoint}, sha256 {source.sha256}"),
        ("data", ", sha256 of the images ".join([source.data, *_learned(known)])),
        ("evaluated on", _evaluated_on(source)),
        ("exported by", f"dsf {dsf.__version__}"),
    ]
    return [pair for pair in found if pair[1]]


def _learned(environment: dict[str, Any]) -> list[str]:
    found = environment.get("images_sha256")
    return [found] if isinstance(found, str) else []


def _evaluated_on(source: Source) -> str:
    """The hashes of the images, and who is of which where they are not the same for all."""
    names: dict[str, list[str]] = {}
    for name, entry in _accuracies(source).items():
        data = entry["protocol"].get("data", {})
        if data.get("name") == source.settings.data.name:
            names.setdefault(_hashes(data), []).append(source.public(name))
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(those)}: {hashes}" for hashes, those in names.items())


def _hashes(data: dict[str, Any]) -> str:
    parts = [f"{split} {hashes['images'][:16]}" for split, hashes in data["content"].items()]
    return f"sha256 of the images: {', '.join(parts)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', ' ') for cell in row)} |" for row in lines)


def _metadata(source: Source, target: Target) -> dict[str, Any]:
    """What the Hub reads of the card."""
    metrics: dict[str, list[dict[str, Any]]] = {}  # by data set
    for name, entry in _accuracies(source).items():
        data = source.public(str(entry["protocol"].get("data", {}).get("name", source.data)))
        metrics.setdefault(data, []).extend(
            _hub_metric(source.public(name), what, value)
            for what, value in told_numbers(entry).items()
        )
    found: dict[str, Any] = {
        "library_name": target.library,
        "pipeline_tag": "image-feature-extraction",
        "tags": ["self-supervised-learning", "contrastive-learning", "dsf"],
    }
    if metrics:
        results = [
            {
                "task": {"type": "image-classification"},
                "dataset": {"name": data, "type": data},
                "metrics": of_data,
            }
            for data, of_data in metrics.items()
        ]
        found["model-index"] = [{"name": source.title, "results": results}]
    return found


def _hub_metric(name: str, what: str, value: float) -> dict[str, Any]:
    kind = "accuracy" if what in ("backbone", "projection") else what  # which features kNN had
    return {
        "type": kind,
        "value": round(100 * value, 2),
        "name": f"{name}, {what.replace('_', ' ')} (%)",
    }
