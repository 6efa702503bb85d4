"""What the site's build does besides Markdown: formulas, and files of the repository."""

import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
# Where files of the repository that pages link to lie in the site.
FOLDER = "repository"
_LINK = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)\s#]+)")
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<formula>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_files(files, config):
    """Add the files outside docs/ that pages link to, so that links work on a disk too."""
    for page in list(files.documentation_pages()):
        for link in _LINK.finditer(Path(page.abs_src_path).read_text(encoding="utf-8")):
            path = repository_path(page.src_uri, link["path"])
            if path is not None and files.get_file_from_path(f"{FOLDER}/{path}") is None:
                source = str(ROOT / path)
                files.append(File.generated(config, f"{FOLDER}/{path}", abs_src_path=source))
    return files


def on_page_markdown(markdown, page, config, files):
    """Point links that leave docs/ at the copies."""

    def copied(link):
        path = repository_path(page.file.src_uri, link["path"])
        if path is None:
            return link["path"]
        return posixpath.relpath(f"{FOLDER}/{path}", posixpath.dirname(page.file.src_uri) or ".")

    return _LINK.sub(copied, markdown)


def on_page_content(content, page, config, files):
    """Formulas as MathML, which browsers draw by themselves."""

    def drawn(found):
        display = "block" if found["tag"] == "div" else "inline"
        return convert(html.unescape(found["formula"]), display=display)

    return _FORMULA.sub(drawn, content)


def repository_path(page: str, link: str) -> str | None:
    """The file of the repository that a link leads to; None if it stays in docs/ or leads nowhere.

    >>> repository_path("howto/report.md", "../../results/benchmarks/step.json")
    'results/benchmarks/step.json'
    >>> repository_path("howto/report.md", "../idea.md")
    """
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    # The scripts of the site are no pages.
    outside = path.startswith("docs/tools/") or not path.startswith(("docs/", ".."))
    return path if outside and not path.endswith(".md") and (ROOT / path).is_file() else None
