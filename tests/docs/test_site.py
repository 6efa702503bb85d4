import os
import re
import runpy
import subprocess
import sys

import browser
import pytest
from blocks import ROOT

HOOKS = runpy.run_path(str(ROOT / "docs" / "tools" / "hooks.py"))
LINKS = runpy.run_path(str(ROOT / "docs" / "tools" / "links.py"))
DOCSTRINGS = runpy.run_path(str(ROOT / "docs" / "tools" / "docstrings.py"))
PAGES = ("index.html", "idea.html", "math.html", "results.html", "api/losses.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    # Without --quiet, under which --strict counts no warnings.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return folder


def test_every_page_is_built_and_asks_for_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^"\s>]+)', text)
        loaded += re.findall(r'<link[^>]* rel="?(?:stylesheet|preload|icon)[^>]*', text)
        assert not [source for source in loaded if "//" in source], page
        assert "arithmatex" not in text, page


def test_formulas_are_drawn_by_the_browser(site):
    text = (site / "math.html").read_text()
    assert text.count("<math") > 20
    assert not re.search(r"\\(?:frac|kappa|mathrm)", text)


def test_files_of_the_repository_lie_beside_the_pages(site):
    """Numbers link to the files they come from."""
    linked = site / HOOKS["FOLDER"] / "results" / "benchmarks" / "special.json"
    assert linked.read_bytes() == (ROOT / "results" / "benchmarks" / "special.json").read_bytes()


def test_references_have_what_the_packages_export(site):
    for package, name in (("vmf", "fit_views"), ("losses", "DSFLoss"), ("experiments", "train")):
        assert f'id="dsf.{package}.{name}"' in (site / "api" / f"{package}.html").read_text()
    assert "one_minus_cos" in (site / "api" / "vmf.html").read_text()  # what all divergences take


def test_examples_of_docstrings_are_code(site):
    text = (site / "api" / "vmf.html").read_text()
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text
    assert "blockquote" not in text
    assert ":class:" not in text
    indented = "Example:\n    >>> a\n    >>> b\n    1\n\nMore."
    assert DOCSTRINGS["markdown"](indented) == (
        "Example:\n    ```pycon\n    >>> a\n    >>> b\n    1\n    ```\n\nMore."
    )


@pytest.mark.parametrize(
    ("page", "link", "path"),
    [
        ("idea.md", "../results/README.md", None),  # would become a page
        ("idea.md", "../results/nothing.json", None),
        ("idea.md", "figures/idea/sphere.svg", None),
        ("howto/own-loop.md", "../../examples/lightly_moco.py", "examples/lightly_moco.py"),
        ("howto/own-loop.md", "../../../elsewhere.json", None),
    ],
)
def test_links_that_leave_the_pages(page, link, path):
    assert HOOKS["repository_path"](page, link) == path


def test_external_links_are_listed():
    found = LINKS["external_links"]()
    assert "README.md" in found["https://doi.org/10.1007/978-981-92-1462-4_5"]
    assert all(address.startswith("http") and pages for address, pages in found.items())


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_pages_in_a_browser(site, name, tmp_path):
    found = browser.find(tmp_path)
    assert found.requests(site / name) == []
    assert found.console(site / name) == []
