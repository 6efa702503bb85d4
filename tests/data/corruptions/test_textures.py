import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest
import torch
from PIL import Image

from dsf.data.corruptions import corrupt
from dsf.data.corruptions.textures import find_textures, frost_textures


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An environment that has no packages but those that a test makes."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    monkeypatch.delitem(sys.modules, "imagecorruptions", raising=False)
    return tmp_path


@pytest.fixture
def package(elsewhere):
    """One whose textures have a colour each, and whose code must not run."""
    folder = elsewhere / "imagecorruptions" / "frost"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('was run')")
    names = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")
    for number, name in enumerate(names):
        Image.new("RGB", (300 + 50 * number, 200), (40 * (number + 1),) * 3).save(folder / name)
    return folder


def test_the_real_package():
    assert [path.name[:6] for path in find_textures()] == [f"frost{n}" for n in range(1, 6)]
    sheet, sizes = frost_textures(0.2, 32, 32)
    assert sizes.tolist() == [[120, 180], [63, 112], [63, 112], [70, 105], [99, 132]]
    assert sheet.shape == (5, 120, 180, 3)
    assert "imagecorruptions" not in sys.modules


def test_absent(elsewhere):
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(FileNotFoundError, match=r"imagecorruptions, which is not installed: pip "):
        corrupt(images, "frost", 1)
    assert corrupt(images, "snow", 1).any()


def test_incomplete(package):
    (package / "frost3.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"frost must hold .*; missing: frost3.png"):
        find_textures()


def test_all_five_are_used_and_no_other(package):
    images = torch.zeros(200, 3, 32, 32, dtype=torch.uint8)
    result = corrupt(images, "frost", 5)
    colours = result.view(200, -1)
    assert (colours.amax(1) == colours.amin(1)).all()
    expected = [int(0.45 * 40 * number + 1e-6) for number in range(1, 6)]
    seen, counts = colours[:, 0].unique(return_counts=True)
    assert seen.tolist() == pytest.approx(expected, abs=1)  # JPEGs may be a level off
    assert counts.min() > 20
    assert "imagecorruptions" not in sys.modules


def test_textures_are_never_smaller_than_the_images(package):
    for size, scale in (((64, 64), 0.2), ((300, 410), 1.0)):
        _, sizes = frost_textures(scale, *size)
        assert (sizes >= torch.tensor(size)).all()
    assert corrupt(torch.zeros(3, 3, 260, 330, dtype=torch.uint8), "frost", 1).any()


def test_parts_come_from_everywhere(package):
    """A texture of its own rows and columns shows where its parts were taken."""
    rows, columns = np.indices((200, 300)) // 5
    levels = np.stack([5 * rows, 4 * columns, 0 * rows], -1).astype(np.uint8)
    for path in package.iterdir():
        Image.fromarray(levels).save(path.with_suffix(".png"))
        path.with_suffix(".png").replace(path)
    result = corrupt(torch.zeros(500, 3, 32, 32, dtype=torch.uint8), "frost", 5)
    tops, lefts = result[:, 0, 0, 0].double() / 0.45 / 5, result[:, 1, 0, 0].double() / 0.45 / 4
    assert tops.round().unique().tolist() == list(range(40 - 32))
    assert lefts.max() > 26
    assert lefts.min() < 1
