from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from dsf.data import load
from dsf.data.augment import Recipe
from dsf.data.sheet import captioned, grid, view_sheet


def test_the_grid_places_cells_row_by_row():
    cells = [
        [np.full((32, 32, 3), 10 * row + column, np.uint8) for column in range(3)]
        for row in range(2)
    ]
    sheet = grid(cells)
    assert sheet.shape == (2 * 100 + 4, 3 * 100 + 8, 3)
    for row in range(2):
        for column in range(3):
            top, left = 4 + 100 * row, 4 + 100 * column + (4 if column else 0)
            assert (sheet[top : top + 96, left : left + 96] == 10 * row + column).all()
    assert (sheet == 255).any(axis=-1).sum() == sheet[..., 0].size - 6 * 96 * 96


def test_large_cells_are_not_enlarged():
    assert grid([[np.zeros((100, 100, 3), np.uint8)]]).shape == (108, 112, 3)


def test_a_sheet_shows_images_and_their_views():
    split = load("embedded", "test")
    sheet = np.asarray(view_sheet(split, images=3, views=4, seed=5))
    assert sheet.shape == (3 * 100 + 4, 5 * 100 + 8, 3)
    cells = [
        [
            sheet[4 + 100 * row :, 4 + 100 * column + (4 if column else 0) :][:96:3, :96:3]
            for column in range(5)
        ]
        for row in range(3)
    ]
    stored = split.images().permute(0, 2, 3, 1).numpy()
    for first, *views in cells:
        assert (stored == first).all(axis=(1, 2, 3)).any()  # an image of the data set
        for view in views:
            assert view.std() > 0
            assert not np.array_equal(view, first)
    assert np.array_equal(sheet, np.asarray(view_sheet(split, images=3, views=4, seed=5)))
    assert not np.array_equal(sheet, np.asarray(view_sheet(split, images=3, views=4, seed=6)))


def test_a_recipe_may_be_changed():
    split = load("embedded", "test")
    still = Recipe(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.0)
    sheet = np.asarray(view_sheet(split, images=1, views=1, recipe=still))
    stored, view = sheet[4:100, 4:100], sheet[4:100, 108:204]
    assert np.array_equal(stored, view)


def test_a_recipe_for_each_half_of_the_views():
    split = load("embedded", "test")
    still = Recipe(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.0)
    gray = replace(still, mean=(0.1, 0.2, 0.3), grayscale=1.0)
    sheet = np.asarray(view_sheet(split, images=1, views=4, recipe=[still, gray]))
    stored, *views = (sheet[4:100, left : left + 96] for left in (4, 108, 208, 308, 408))
    for view in views[:2]:
        assert np.array_equal(view, stored)
    for view in views[2:]:
        assert not np.array_equal(view, stored)
        assert (view == view[..., :1]).all()  # whatever its normalisation
    one = np.asarray(view_sheet(split, images=1, views=1, recipe=[still, gray]))
    assert np.array_equal(one[4:100, 108:204], stored)


def test_views_may_have_another_size():
    sheet = view_sheet(load("embedded", "test"), images=1, views=2, size=48)
    assert sheet.size == (3 * 100 + 8, 104)


def lines(sheet, caption):
    """The heights at which a caption has ink, after a look at what is below it."""
    page = np.asarray(captioned(sheet, caption))
    head = page.shape[0] - sheet.height
    assert page.shape[1] == sheet.width
    assert np.array_equal(page[head:], np.asarray(sheet))
    assert (page[:head, -4:] == 255).all()  # nothing runs over the edge
    return np.flatnonzero((page[:head] < 128).any(axis=(1, 2)))


@pytest.mark.parametrize("width", [112, 208, 908])
def test_a_caption_of_as_many_lines_as_it_takes(width):
    sheet = Image.new("RGB", (width, 50), "red")
    (short,) = {row // 20 for row in lines(sheet, "embedded") - 4}
    assert short == 0
    long = {row // 20 for row in lines(sheet, "WWW " * 20) - 4}
    assert long == set(range(len(long)))
    assert len(long) >= 20 * 4 * 10 // width
    path = "folder:/" + "home/someone/" * 12  # one word that is longer than a line
    assert len({row // 20 for row in lines(sheet, path) - 4}) > 1


def test_a_caption_of_any_letters():
    sheet = Image.new("RGB", (300, 50), "red")
    for name in ("folder:\u5199\u771f", "folder:caf\udce9"):  # as os.fsdecode has other bytes
        assert len(lines(sheet, name)) > 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "nothing"}, "recipe must be one of .*; got 'nothing'"),
        ({"images": 1001}, r"images must be in \[1, 1000\]; got 1001"),
        ({"views": 0}, "views must be >= 1; got 0"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        view_sheet(load("embedded", "test"), **options)
