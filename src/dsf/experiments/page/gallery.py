"""Pictures of views, neighbours and features, and what one should see in them."""

from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dsf.experiments.page.document import figure, note, section
from dsf.experiments.page.features import Look
from dsf.experiments.page.maps import feature_map, map_legend
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.numbers import percent
from dsf.experiments.page.pictures import from_tensor, image, neighbour_strip

MAP = "map"  # the id of the legend of the maps


@dataclass(frozen=True)
class Gallery:
    """What is shown of images and features.

    Args:
        sheet: images and their views, see ``dsf.data.sheet``.
        views: how many views a row of it.
        train_images: (N, 3, H, W) in uint8.
        train_labels: (N,).
        test_images: (T, 3, H, W) in uint8.
        test_labels: (T,).
        queries: (Q,), the test images whose neighbours are shown.
        classes: the names of the labels.
        before: the untrained encoder.
        after: the trained one.
    """

    sheet: Image.Image
    views: int
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    queries: Tensor
    classes: tuple[str, ...]
    before: Look | None = None
    after: Look | None = None

    def looks(self) -> list[tuple[str, Look]]:
        """The encoders that there are, and when."""
        both = (("before training", self.before), ("after training", self.after))
        return [(name, look) for name, look in both if look is not None]


def views_section(gallery: Gallery) -> Markup:
    """The sheet of views."""
    text = (
        "Each row: a training image, then views of it as the encoder sees them, cropped, recoloured"
        " and distorted at random. The encoder learns that the views of a row belong together. You "
        "should still recognise most of them."
    )
    alternative = f"Rows of one training image and {gallery.views} random views of it each."
    picture = image(gallery.sheet, alternative)
    return section("views", "Views", tag("p", text), tag("div", picture, class_="sheet"))


def neighbours_section(gallery: Gallery) -> Markup:
    """The nearest training images of a few test images."""
    heading = "Nearest neighbours"
    there = gallery.looks()
    if not there:
        return section("neighbours", heading, note("The features were not looked at."))
    shares = " and ".join(f"{percent(look.agreement)} {name}" for name, look in there)
    k = there[0][1].neighbours.shape[1]
    rows = (_neighbours(gallery, row) for row in range(len(gallery.queries)))
    header = ("test image", *(name for name, _ in there))
    return section(
        "neighbours",
        heading,
        tag(
            "p",
            "The first test image of each class, and the training images whose features are "
            "nearest to it. \N{CHECK MARK} and a frame mark the same class, \N{MULTIPLICATION X} "
            "another. Before training the neighbours share colour and brightness; after it "
            f"more of them should show the same kind of thing. Of the {k} nearest neighbours of "
            f"all test images, {shares} have the right class.",
        ),
        tag(
            "table",
            tag("caption", "Nearest training images", class_="hidden"),
            tag("thead", tag("tr", *(tag("th", name, scope="col") for name in header))),
            tag("tbody", *rows),
            class_="neighbours",
        ),
    )


def maps_section(gallery: Gallery) -> Markup:
    """The maps of the features."""
    heading = "Map of the features"
    labels, classes = gallery.test_labels, gallery.classes
    figures = []
    for name, look in gallery.looks():
        title = name.capitalize()
        picture = feature_map(
            f"{MAP}-{name.split()[0]}",
            f"{title}: features of the test images",
            f"{len(labels)} points in {len(classes)} colours and shapes, one a class.",
            look.plane.coordinates,
            labels,
            classes,
        )
        share = (
            f"{percent(look.separation)} of the variance of all features lies between the "
            f"means of the classes; this plane shows {percent(look.plane.share)} of it all."
        )
        figures.append(figure(picture, share, heading=title))
    if not figures:
        return section("maps", heading, note("The features were not looked at."))
    text = (
        "A small mark is a test image, a large one the mean of its class; the plane is that of the "
        "two directions in which the features vary most. After training the means should lie "
        "further apart, and the variance between them should be a larger part of the whole. "
        "Classes overlap where the encoder confuses them, or where the plane does not show the "
        "difference. Choose a class to see it alone."
    )
    return section(
        "maps",
        heading,
        tag("p", text),
        tag("div", map_legend(MAP, classes), tag("div", *figures, class_="grid"), class_="maps"),
    )


def _neighbours(gallery: Gallery, row: int) -> Markup:
    query = gallery.queries[row]
    truth = gallery.classes[int(gallery.test_labels[query])]
    cells = []
    for name, look in gallery.looks():
        found = look.neighbours[row]
        names = [gallery.classes[label] for label in gallery.train_labels[found].tolist()]
        count = tag("p", f"{name}: {names.count(truth)} of {len(names)} right", class_="count")
        cells.append(tag("td", count, neighbour_strip(gallery.train_images[found], names, truth)))
    picture = image(from_tensor(gallery.test_images[query]), f"test image, {truth}")
    return tag("tr", tag("th", picture, tag("span", truth), scope="row"), *cells)
