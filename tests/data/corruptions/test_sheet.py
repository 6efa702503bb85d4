import numpy as np
import pytest

from dsf.data import load
from dsf.data.corruptions import corrupt, corruption_sheet

IMAGE = load("embedded", "test").images()[5]


def test_cells_are_the_corruptions():
    names = ("contrast", "fog", "snow")
    sheet = np.asarray(corruption_sheet(IMAGE, names, (1, 4), seed=3, blocks=2))
    assert sheet.shape == (24 + 2 * 100, 2 * (140 + 3 * 100 + 8), 3)
    for number, name in enumerate(names):
        left, top = (number // 2) * 448 + 140, 24 + (number % 2) * 100
        expected = [IMAGE, *(corrupt(IMAGE[None], name, s, seed=3)[0] for s in (1, 4))]
        for place, image in enumerate(expected):
            cell = sheet[top : top + 96 : 3, left + 100 * place :][:, :96:3]
            assert np.array_equal(cell, image.permute(1, 2, 0).numpy())
        label = sheet[top : top + 96, left - 140 : left - 8]
        assert (label < 100).any()  # something is written there


def test_by_default_it_shows_everything():
    assert corruption_sheet(IMAGE).size == (2 * (140 + 6 * 100 + 8), 24 + 10 * 100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": IMAGE[None]}, r"image must be uint8 of shape \(3, H, W\); got .*1, 3, 32, 32"),
        ({"names": ()}, "names, severities and blocks must not be empty"),
        ({"names": ("rain",)}, "corruption must be one of"),
        ({"severities": (7,)}, "severity must be one of"),
    ],
)
def test_wrong_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        corruption_sheet(**({"image": IMAGE} | arguments))
