"""Pictures of views, neighbours and features, and what one should see in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from PIL import Image
from torch import Tensor

from dsf.experiments.page.document import figure, note, section
from dsf.experiments.page.features import Look
from dsf.experiments.page.figures import Figures
from dsf.experiments.page.maps import feature_map
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.numbers import percent
from dsf.experiments.page.pictures import image, neighbour_strip, thumbnail
from dsf.experiments.page.run import slug


@dataclass(frozen=True)
class Sheet:
    """Images and their views, see ``dsf.data.sheet``.

    Args:
        picture: of them.
        views: how many a row.
        runs: whose views they are.
    """

    picture: Image.Image
    views: int
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What one encoder makes of a gallery.

    Args:
        name: of the encoder, such as "after training".
        look: at its features.
        images: (Q, k, 3, H, W) in uint8, the training images nearest to each query.
        labels: (Q, k), theirs.
    """

    name: str
    look: Look
    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Gallery:
    """What is shown of a data set's test images, or of training images if it has no others.

    Args:
        data: its name.
        classes: the names of the labels.
        queries: (Q, 3, H, W) in uint8, the test images whose neighbours are shown.
        query_labels: (Q,), theirs.
        test_labels: (T,), of all test images that were looked at.
        seen: by each encoder.
        tests: whether they are test images; otherwise training images, each left out of its own
            neighbours.
    """

    data: str
    classes: tuple[str, ...]
    queries: Tensor
    query_labels: Tensor
    test_labels: Tensor
    seen: tuple[Seen, ...]
    tests: bool = True

    @property
    def kind(self) -> str:
        """Of images: test or training."""
        return "test" if self.tests else "training"


@dataclass(frozen=True)
class Pictures:
    """All that needs images or weights.

    Args:
        sheets: of views.
        galleries: one a data set.
        classes: the names of classes, by run.
        no_views: why there are none, by run.
        no_features: why they were not looked at, by run.
        changed: that the images are others than a run learned from, in words, by run.
    """

    sheets: tuple[Sheet, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    no_views: Mapping[str, str] = field(default_factory=dict)
    no_features: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)


def views_section(pictures: Pictures, figures: Figures, several: bool) -> Markup:
    """The sheets of views."""
    text = (
        "Each row: a training image, then views of it as the encoder sees them, cropped, recoloured"
        " and distorted at random. The encoder learns that the views of a row belong together. You "
        "should still recognise most of them."
    )
    parts = []
    for number, sheet in enumerate(pictures.sheets, 1):
        figures.pictures["views" if len(pictures.sheets) == 1 else f"views-{number}"] = (
            sheet.picture
        )
        alternative = f"Rows of one training image and {sheet.views} random views of it each."
        if several:
            parts.append(tag("h3", ", ".join(sheet.runs)))
        parts.append(tag("div", image(sheet.picture, alternative), class_="sheet"))
    content = [tag("p", text), *parts] if parts else []
    return section("views", "Views", *content, *_notes(pictures, pictures.no_views, several))


def neighbours_section(pictures: Pictures, several: bool) -> Markup:
    """The nearest training images of a few test images, or of others among them."""
    parts = []
    for gallery in pictures.galleries:
        shares = ", ".join(f"{percent(part.look.agreement)} {part.name}" for part in gallery.seen)
        k = gallery.seen[0].labels.shape[1]
        kind = gallery.kind
        header = (f"{kind} image", *(part.name for part in gallery.seen))
        others, alone = "", ""
        if not gallery.tests:
            others = "other "
            alone = (
                f" {gallery.data} has no labelled test images: these were learned from, though "
                "without their labels."
            )
        text = (
            f"The first {kind} image of each class, and the {others}training images whose features "
            "are nearest to it. \N{CHECK MARK} and a frame mark the same class, "
            "\N{MULTIPLICATION X} another. An untrained encoder finds the same colours and "
            "brightness, a trained one should find more of the same kind of thing. Share of the "
            f"{k} nearest neighbours of all {kind} images that have the right class: {shares}."
            f"{alone}"
        )
        body = (_neighbours(gallery, row) for row in range(len(gallery.queries)))
        whole = tag(
            "table",
            tag("caption", f"Nearest training images, {gallery.data}", class_="hidden"),
            tag("thead", tag("tr", *(tag("th", name, scope="col") for name in header))),
            tag("tbody", *body),
            class_="neighbours",
        )
        title = tag("h3", gallery.data) if len(pictures.galleries) > 1 else None
        parts += [title, tag("p", text), tag("div", whole, class_="wide")]
    notes = _notes(pictures, pictures.no_features, several)
    return section("neighbours", "Nearest neighbours", *parts, *notes)


def maps_section(pictures: Pictures, figures: Figures, several: bool) -> Markup:
    """The maps of the features."""
    charts = []
    for gallery in pictures.galleries:
        for part in gallery.seen:
            title = part.name if several else part.name.capitalize()
            shown = len(gallery.test_labels)
            chart = feature_map(
                f"map-{slug(part.name)}",
                f"{title}: features of the {gallery.kind} images",
                f"{shown:,} points in {len(gallery.classes)} colours and shapes, one a class.",
                part.look.plane.coordinates,
                gallery.test_labels,
                gallery.classes,
            )
            share = (
                f"{percent(part.look.separation)} of the variance of all features lies between the "
                "means of the classes; this plane shows "
                f"{percent(part.look.plane.share)} of it all."
            )
            charts.append(figure(figures.draw(chart), share, heading=title))
    kinds = " or ".join(dict.fromkeys(f"a {gallery.kind} image" for gallery in pictures.galleries))
    text = (
        f"A small mark is {kinds}, a large one the mean of its class; the plane is that of the "
        "two directions in which the features vary most. Training should move the means "
        "further apart, and make the variance between them a larger part of the whole. "
        "Classes overlap where the encoder confuses them, or where the plane does not show the "
        "difference. Choose a class in the legend to see it alone; a double click shows all."
    )
    content = [tag("p", text), tag("div", *charts, class_="grid")] if charts else []
    notes = _notes(pictures, pictures.no_features, several)
    return section("maps", "Map of the features", *content, *notes)


def _notes(pictures: Pictures, missing: Mapping[str, str], several: bool) -> list[Markup]:
    """A note for each reason why pictures are missing, or changed, with the runs it holds for."""
    changed = {label: why for label, why in pictures.changed.items() if label not in missing}
    by_reason: dict[str, list[str]] = {}
    for label, why in [*changed.items(), *missing.items()]:
        by_reason.setdefault(why, []).append(label)
    return [
        note(f"{', '.join(labels)}: {why}" if several else why) for why, labels in by_reason.items()
    ]


def _neighbours(gallery: Gallery, row: int) -> Markup:
    truth = gallery.classes[int(gallery.query_labels[row])]
    cells = []
    for part in gallery.seen:
        names: Sequence[str] = [gallery.classes[label] for label in part.labels[row].tolist()]
        right = [name for name in names if name == truth]
        count = tag("p", f"{part.name}: {len(right)} of {len(names)} right", class_="count")
        cells.append(tag("td", count, neighbour_strip(part.images[row], names, truth)))
    picture = thumbnail(gallery.queries[row], f"{gallery.kind} image, {truth}")
    return tag("tr", tag("th", picture, tag("span", truth), scope="row"), *cells)
