import base64
import io

import pytest
import tiny
import torch
from PIL import Image
from torch import nn

from dsf.evaluation import LabelledImages, Subject, Task
from dsf.experiments import build, looks
from dsf.experiments.page.pictures import data_uri, from_tensor, thumbnail
from dsf.random import some


class Means(nn.Module):
    """The mean colour of an image: neighbours are images of the same colour."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images):
        return self.scale * images.mean(dim=(2, 3))


def coloured(labels, side, generator):
    """Images of one channel a class, with a little noise."""
    images = torch.randint(0, 20, (len(labels), 3, side, side), generator=generator)
    images[torch.arange(len(labels)), labels] += 200
    return images.to(torch.uint8)


def make_subject(train=40, test=9, side=128, tests=True):
    generator = torch.Generator().manual_seed(0)
    parts = [
        LabelledImages(coloured(torch.arange(n) % 3, side, generator), torch.arange(n) % 3)
        for n in (train, test)
    ]
    if not tests:
        parts[1] = None
    return Subject(Means(), Task(*parts, 3, names=("red", "green", "blue")), size=32)


def test_neighbours_and_their_pictures():
    gallery = looks.make_gallery("colours", [("mean", make_subject())])
    assert gallery.query_labels.tolist() == [0, 1, 2]
    assert gallery.classes == ("red", "green", "blue")
    (seen,) = gallery.seen
    assert seen.labels.tolist() == [[0] * 5, [1] * 5, [2] * 5]
    assert seen.look.agreement == 1
    # Large images are made as small as they are shown, and keep their colours.
    assert gallery.queries.shape == (3, 3, 96, 96)
    assert seen.images.shape == (3, 5, 3, 96, 96)
    assert seen.images.float().mean(dim=(1, 3, 4)).argmax(dim=1).tolist() == [0, 1, 2]


def test_fewer_images_than_neighbours():
    gallery = looks.make_gallery("colours", [("mean", make_subject(train=3, side=8))])
    assert gallery.seen[0].labels.shape == (3, 3)
    assert gallery.queries.shape == (3, 3, 8, 8)


def test_training_images_where_there_are_no_others(monkeypatch):
    """None is its own neighbour: of a class of two images the other one is the nearest."""
    monkeypatch.setattr(looks, "TEST", 4)
    subject = make_subject(train=6, side=8, tests=False)
    gallery = looks.make_gallery("colours", [("mean", subject)])
    assert not gallery.tests
    assert len(gallery.test_labels) == 4
    (seen,) = gallery.seen
    chosen = some(6, 4)
    assert gallery.test_labels.equal(chosen % 3)
    queries = [int(chosen[chosen % 3 == label][0]) for label in gallery.query_labels.tolist()]
    for query, near in zip(queries, seen.look.neighbours.tolist(), strict=True):
        assert sorted([query, *near]) == list(range(6))  # all others, of which there are five
        assert near[0] == (query + 3) % 6
    assert seen.look.agreement == pytest.approx(1 / 5)
    assert gallery.queries.equal(subject.task.train.source[torch.tensor(queries)])


def test_large_data_sets_are_looked_at_in_part(monkeypatch):
    monkeypatch.setattr(looks, "TRAIN", 20)
    monkeypatch.setattr(looks, "TEST", 100)
    task = make_subject().task
    few, again = looks._limited(task), looks._limited(task)
    assert (len(few.train), len(few.test)) == (20, 9)
    assert few.train.labels.equal(again.train.labels)  # the same for every run
    assert few.train.labels.unique().tolist() == [0, 1, 2]
    alone = looks._limited(make_subject(tests=False).task)
    assert alone.test is None
    assert alone.train.labels.equal(few.train.labels)


def test_views_of_a_run():
    settings = build.resolve(tiny.settings())
    sheet = looks.view_picture(settings)
    assert sheet.views == 8
    assert sheet.picture.width > sheet.picture.height


@pytest.mark.parametrize(("side", "exact"), [(64, True), (1600, False)])
def test_pictures_are_kept_without_loss_where_that_is_small(side, exact):
    noise = torch.randint(0, 256, (side, side, 3), dtype=torch.uint8).numpy()
    picture = Image.fromarray(noise)
    address = data_uri(picture)
    found = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
    assert (found.tobytes() == picture.tobytes()) is exact
    assert found.width <= 1200
    assert len(address) < 2e6


def test_large_thumbnails_take_little_room():
    noise = torch.randint(0, 256, (3, 96, 96), dtype=torch.uint8)
    assert len(thumbnail(noise, "noise")) < 0.6 * len(data_uri(from_tensor(noise)))
    assert 'class="large"' in thumbnail(noise, "noise")
    small = noise[:, :32, :32]
    assert data_uri(from_tensor(small)) in thumbnail(small, "noise")
