import browser
import numpy as np
import pytest
from pages import make_gallery, read, write_run
from PIL import Image

from dsf.experiments.page import read_run, run_page

pytestmark = pytest.mark.browser


@pytest.fixture
def chromium(tmp_path):
    return browser.find(tmp_path)


@pytest.fixture
def page(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    path = tmp_path / "page.html"
    path.write_text(run_page("A <run> & more", "What was done.", run, make_gallery()))
    return path


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_the_page_opens_without_a_message(chromium, page):
    assert chromium.console(page) == []
    tree = read("".join(chromium.dom(page).split("<!DOCTYPE html>")))
    assert [title.text for title in tree.find("head")[0].find("title")] == ["A <run> & more"]
    assert len(tree.find("svg", class_="chart")) == 4
    assert len(tree.find("svg", class_="map")) == 2


def test_messages_would_be_seen(chromium, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text("<!doctype html><title>x</title><script>nothing.at.all()</script>")
    assert any("nothing is not defined" in message for message in chromium.console(broken))


def test_the_page_is_drawn_in_light_and_dark(chromium, page):
    light, dark = (pixels(chromium.screenshot(page, scheme=scheme)) for scheme in ("light", "dark"))
    for shown in (light, dark):
        assert shown.shape == (2000, 1100, 3)
        colours, counts = np.unique(shown.reshape(-1, 3), axis=0, return_counts=True)
        assert len(colours) > 200  # text and curves have smooth edges
        assert counts.max() < 0.8 * counts.sum()
    assert light.mean() > 200
    assert dark.mean() < 60


def test_charts_show_their_lines(chromium, page):
    light = pixels(chromium.screenshot(page))
    blue, orange = (
        (np.abs(light - colour).sum(axis=-1) < 12).sum()
        for colour in ((0x0B, 0x5C, 0xAD), (0xB3, 0x47, 0x00))
    )
    assert blue > 2000  # curves and bars
    assert orange > 200  # the projection's dashes


def test_a_phone_shows_it_without_scrolling_aside(chromium, page):
    """What sticks out to the right would widen the page: its margin stays empty."""
    shown = pixels(chromium.screenshot(page, width=500, height=6000))
    background = shown[0, 0]
    assert (shown[:, -8:] == background).all()


def test_choosing_a_class_fades_the_others(chromium, page):
    html = page.read_text()
    chosen = page.with_name("chosen.html")
    chosen.write_text(
        html.replace('id="map-all" checked', 'id="map-all"').replace(
            'id="map-0"', 'id="map-0" checked'
        )
    )

    def coloured(path, colour):
        shown = pixels(chromium.screenshot(path, height=4000))
        return (np.abs(shown - colour).sum(axis=-1) < 12).sum()

    first, second = (0x21, 0x34, 0xF2), (0xA9, 0x89, 0x09)
    assert coloured(chosen, first) == coloured(page, first) > 100
    # Of the second class the mark in the legend is left.
    assert 20 < coloured(chosen, second) < 0.5 * coloured(page, second)
