import re
from importlib.resources import files

import pytest

from dsf.experiments.page import maps
from dsf.experiments.page.vega import COLOURS

SHEET = files("dsf.experiments.page").joinpath("style.css").read_text()
TEXT = ("ink", "soft", "accent", "right", "wrong")
MARKS = ("accent", "second", "third", "fourth", "faint", *(f"c{number}" for number in range(10)))


def luminance(colour):
    levels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in levels]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(one, other):
    """WCAG's ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_suffices(scheme):
    light, dark = re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)[:2]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", light if scheme == "light" else dark))
    for name in TEXT:
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
        assert contrast(colours[name], colours["card"]) >= 4.5, name
    for name in MARKS:
        assert contrast(colours[name], colours["card"]) >= 3, name
    assert contrast(colours["ink"], colours["note"]) >= 4.5


def test_classes_differ_by_colour_or_shape():
    marks = [(number % 10, maps._shape(number)) for number in range(50)]
    assert len(set(marks)) == 50
    assert len({shape for _, shape in marks[:10]}) == 5


def test_all_colours_are_there_in_both_schemes():
    light, dark = re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)[:2]
    for colour in (*COLOURS, "var(--faint)", "var(--quiet)", "var(--card)", "var(--c9)"):
        name = re.fullmatch(r"var\((--[\w-]+)\)", colour)[1]
        assert f"{name}: #" in light
        assert f"{name}: #" in dark


def test_it_cannot_end_in_the_middle():
    assert "</" not in SHEET


def test_all_variables_are_defined():
    used = set(re.findall(r"var\((--[\w-]+)\)", SHEET))
    assert used <= set(re.findall(r"(--[\w-]+): #", SHEET))
