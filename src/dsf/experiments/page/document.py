"""The frame of a page: one file that needs no other."""

from collections.abc import Iterable, Mapping
from importlib.resources import files

from dsf.experiments.page.markup import Markup, join, tag
from dsf.experiments.page.vega import page_script


def document(title: str, body: Iterable[Markup], charts: bool = False) -> str:
    """A whole HTML page with the style sheet inside, and with what draws its charts.

    Its content security policy lets a browser fetch nothing, and run no other script.

    Args:
        title: of the page.
        body: the content.
        charts: whether it has any.
    """
    sheet = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    script, source = page_script() if charts else (None, "")
    # Vega makes functions of its own expressions, for which it needs eval.
    scripts = f"; script-src {source} 'unsafe-eval'" if charts else ""
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{scripts}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        # Without an icon of its own the browser would ask the server for one.
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(f"\n{sheet}\n")),
    )
    without = tag("noscript", note("The charts are drawn by JavaScript, which is switched off."))
    parts = (without, *body) if charts else tuple(body)
    content = tag("body", Markup("\n"), join(parts), Markup("\n"), script)
    return f"<!doctype html>\n{tag('html', head, content, lang='en')}\n"


def section(identifier: str, heading: str, *content: object) -> Markup:
    """A part of the page under a heading."""
    part = tag(
        "section",
        tag("h2", heading, id=identifier),
        *content,
        aria_labelledby=identifier,
    )
    return Markup(f"\n{part}")


def note(content: object) -> Markup:
    """A paragraph that says what is missing."""
    return tag("p", tag("strong", "Note."), " ", content, class_="note")


def notes(texts: Mapping[str, str]) -> list[Markup]:
    """A note for each text of runs by label, which are named where it does not hold for all."""
    labels: dict[str, list[str]] = {}
    for label, text in texts.items():
        labels.setdefault(text, []).append(label)
    return [
        note(text if len(labels) == 1 else f"{', '.join(those)}: {text}")
        for text, those in labels.items()
    ]


def figure(picture: Markup, *caption: object, heading: str | None = None) -> Markup:
    """A picture, what it is called, and what one should see."""
    title = None if heading is None else tag("h3", heading)
    return tag("figure", title, picture, tag("figcaption", *caption))
