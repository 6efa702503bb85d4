import browser
import numpy as np
import pytest
from pages import make_pictures, read, write_run
from PIL import Image

from dsf.experiments.page import make_page, read_run

pytestmark = pytest.mark.browser


@pytest.fixture
def chromium(tmp_path):
    return browser.find(tmp_path)


@pytest.fixture
def page(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    path = tmp_path / "page.html"
    made = make_page("A <run> & more", "What was done.", {"run": run}, make_pictures())
    path.write_text(made.html)
    return path


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_the_page_opens_without_a_message(chromium, page):
    assert chromium.console(page) == []
    tree = read("".join(chromium.dom(page).split("<!DOCTYPE html>")))
    assert [title.text for title in tree.find("head")[0].find("title")] == ["A <run> & more"]
    drawn = [place for place in tree.find("div", class_="chart") if place.find("svg")]
    assert [place.attributes["id"] for place in drawn] == [
        "chart-loss",
        "chart-knn",
        "chart-margin",
        "chart-kappa-mean",
        "chart-map-before-training",
        "chart-map-after-training",
    ]
    labels = [place.attributes["aria-label"] for place in drawn]
    assert labels[0].startswith("Loss. First and last values: ")


def test_messages_would_be_seen(chromium, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text("<!doctype html><title>x</title><script>nothing.at.all()</script>")
    assert any("nothing is not defined" in message for message in chromium.console(broken))


def test_the_page_asks_the_network_for_nothing(chromium, page, tmp_path):
    assert chromium.requests(page) == []
    asking = tmp_path / "asking.html"
    asking.write_text('<!doctype html><title>x</title><img src="http://example.invalid/a.png">')
    assert chromium.requests(asking) == ["GET http://example.invalid/a.png HTTP/1.1"]
    # And if a mistake put such an image into a page, its policy would hold it back.
    policed = page.read_text().replace("<main>", '<main><img src="http://example.invalid/a.png">')
    asking.write_text(policed)
    assert chromium.requests(asking) == []
    assert any("Content Security Policy" in message for message in chromium.console(asking))


def test_values_show_where_the_pointer_is(chromium, page):
    script = """
    setTimeout(() => {
      const chart = document.querySelector("#chart-loss svg");
      chart.scrollIntoView();
      const box = chart.getBoundingClientRect();
      const at = { bubbles: true, clientX: box.right - 40, clientY: box.top + 60 };
      const strip = document.elementFromPoint(at.clientX, at.clientY);
      strip.dispatchEvent(new PointerEvent("pointerover", at));
      strip.dispatchEvent(new PointerEvent("pointermove", at));
    }, 1000);
    """
    tree = read("".join(chromium.dom_after(page, script).split("<!DOCTYPE html>")))
    (tip,) = (div for div in tree.find("div") if div.attributes.get("id") == "vg-tooltip-element")
    assert "visible" in tip.attributes["class"].split()
    cells = [cell.text for cell in tip.find("td")]
    assert cells == ["epoch", "4", "mean of the epoch", "5.597"]


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
    assert blue > 1500  # curves and bars
    assert orange > 150  # the projection's dashes


def test_a_phone_shows_it_without_scrolling_aside(chromium, page):
    """What sticks out to the right would widen the page: its margin stays empty."""
    shown = pixels(chromium.screenshot(page, width=390, height=6000))[:, :390]
    background = shown[0, 0]
    assert (shown[:, -8:] == background).all()


def test_choosing_a_class_fades_the_others(chromium, page):
    script = """
    setTimeout(() => {
      const legend = document.querySelector("#chart-map-after-training .mark-group.role-legend");
      const label = legend.querySelector(".role-legend-label text");
      label.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    }, 1000);
    """

    def opacities(html):
        tree = read("".join(html.split("<!DOCTYPE html>")))
        wanted = "chart-map-after-training"
        place = next(d for d in tree.find("div") if d.attributes.get("id") == wanted)
        marks = place.find("g", class_="mark-symbol")
        points = next(g for g in marks if "layer_0_marks" in g.attributes["class"].split())
        return sorted(path.attributes["opacity"] for path in points.find("path"))

    assert opacities(chromium.dom(page)) == ["0.7"] * 12
    assert opacities(chromium.dom_after(page, script)) == ["0.05"] * 8 + ["0.7"] * 4
