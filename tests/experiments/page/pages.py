"""What the tests of pages share: a run folder written by hand, pictures, and a strict reader."""

import json
from html.parser import HTMLParser

import torch
from PIL import Image

from dsf.experiments.page import Gallery, Pictures, Seen, Sheet, look
from dsf.experiments.page.features import first_of_each_class

VOID = {"br", "hr", "img", "input", "link", "meta", "wbr"}
CLASSES = ("plane", "<b>cat</b>", 'a "dog" & more')


def metrics(epochs=4):
    for epoch in range(1, epochs + 1):
        for part in (0.25, 0.5, 0.75, 1.0):
            at = epoch - 1 + part
            yield {"kind": "step", "step": int(40 * at), "epoch": at, "lr": 0.06} | _values(at)
        yield {"kind": "epoch", "epoch": epoch, "step": 40 * epoch, "seconds": 7.5} | _values(epoch)
        if epoch % 2 == 0:
            knn = {"backbone": 0.3 + epoch / 80, "projection": 0.28 + epoch / 90}
            yield {"kind": "knn", "epoch": epoch, "step": 40 * epoch} | knn


def _values(at):
    return {"loss": 6.93 - at / 3, "margin": 0.011 * at, "kappa_mean": 12.5 + at**2}


RESULTS = {
    "untrained-knn": {"protocol": {"k": 200}, "backbone": 0.2871, "projection": 0.2514},
    "knn": {"protocol": {"k": 200, "temperature": 0.1}, "backbone": 0.4129, "projection": 0.3906},
    "untrained-linear": {"protocol": {"seed": 0}, "accuracy": 0.3337},
    "linear": {"protocol": {"seed": 0}, "accuracy": 0.4871},
}
CONFIG = "epochs: 4\nbatch_size: 64\nviews: {count: 8, recipe: cifar}\nname: '<script>'\n"
ENVIRONMENT = {"python": "3.11.2", "torch": "2.15.0", "gpu": None, "commit": "0123abc"}


def write_run(folder, leave_out=(), lines=None):
    """A run folder of four epochs."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = list(metrics()) if lines is None else lines
    files = {
        "config.yaml": CONFIG,
        "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
        "results.json": json.dumps(RESULTS),
        "environment.json": json.dumps(ENVIRONMENT),
    }
    for name, content in files.items():
        if name not in leave_out:
            (folder / name).write_text(content)
    return folder


def make_gallery(seed=0):
    """Pictures of noise in three classes."""
    generator = torch.Generator().manual_seed(seed)

    def noise(count):
        return torch.randint(0, 256, (count, 3, 8, 8), generator=generator, dtype=torch.uint8)

    train_images, train_labels = noise(30), torch.arange(30) % 3
    test_images, test_labels = noise(12), torch.arange(12) % 3
    queries = first_of_each_class(test_labels)

    def seen(name, spread):
        centres = torch.randn(3, 16, generator=generator)
        train, test = (
            centres[labels] + spread * torch.randn(len(labels), 16, generator=generator)
            for labels in (train_labels, test_labels)
        )
        found = look(train, train_labels, test, test_labels, queries, k=5)
        near = found.neighbours
        return Seen(name, found, train_images[near], train_labels[near])

    return Gallery(
        "noise",
        CLASSES,
        test_images[queries],
        test_labels[queries],
        test_labels,
        (seen("before training", 9.0), seen("after training", 0.05)),
    )


def make_pictures(label="run", **changes):
    """All the pictures of one run."""
    made = {
        "sheets": (Sheet(Image.new("RGB", (40, 20), "teal"), 4, (label,)),),
        "galleries": (make_gallery(),),
        "classes": {label: CLASSES},
    }
    return Pictures(**(made | changes))


class Element:
    """A tag with what is below it."""

    def __init__(self, name, attributes, parent):
        self.name, self.attributes, self.parent, self.children = name, attributes, parent, []

    @property
    def text(self):
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def find(self, name, **attributes):
        """All elements below of this name and these attributes; class_ finds one among several."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if child.name == name and all(
                    value in child.attributes.get(key.rstrip("_"), "").split()
                    for key, value in attributes.items()
                ):
                    found.append(child)
                found += child.find(name, **attributes)
        return found


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = self.here = Element("", {}, None)

    def handle_starttag(self, name, attributes):
        names = [key for key, _ in attributes]
        assert len(names) == len(set(names)), f"{name} has an attribute twice"
        element = Element(name, dict(attributes), self.here)
        self.here.children.append(element)
        if name not in VOID:
            self.here = element

    def handle_endtag(self, name):
        assert self.here.name == name, f"</{name}> ends <{self.here.name}>"
        self.here = self.here.parent

    def handle_data(self, data):
        self.here.children.append(data)


def read(html):
    """The tree of a page; every tag must be closed in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.here is reader.root, f"<{reader.here.name}> is not closed"
    return reader.root


def everything(element):
    """All elements below."""
    for child in element.children:
        if isinstance(child, Element):
            yield child
            yield from everything(child)


def section(tree, name):
    """The part of a page under a heading of this id."""
    return next(s for s in tree.find("section") if s.attributes["aria-labelledby"] == name)


def notes(tree):
    """What is said to be missing."""
    return [note.text.removeprefix("Note. ") for note in tree.find("p", class_="note")]


def charts(tree):
    """The specs of the charts of a page, by name."""
    return {
        script.attributes["data-chart"]: json.loads(script.text)
        for script in tree.find("script")
        if "data-chart" in script.attributes
    }


def layers(spec, mark):
    """The layers of a chart that draw with a mark."""
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def tips(spec):
    """What a line chart shows where the pointer is, from left to right."""
    (hover,) = layers(spec, "rect")
    return [row["tip"] for row in hover["data"]["values"]]
