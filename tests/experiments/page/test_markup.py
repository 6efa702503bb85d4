from dsf.experiments.page.markup import Markup, join, tag, text


def test_text_is_escaped_and_markup_is_not():
    nasty = "<script>alert('1 & \"2\"')</script>"
    escaped = "&lt;script&gt;alert(&#x27;1 &amp; &quot;2&quot;&#x27;)&lt;/script&gt;"
    assert tag("p", nasty) == f"<p>{escaped}</p>"
    assert tag("p", title=nasty) == f'<p title="{escaped}"></p>'
    assert tag("p", tag("b", nasty)) == f"<p><b>{escaped}</b></p>"
    assert text(Markup("<i>")) == "<i>"
    assert text(1.5) == "1.5"


def test_attributes():
    made = tag("input", checked=True, disabled=False, id=None, class_="a", aria_label="b", value=0)
    assert made == '<input checked class="a" aria-label="b" value="0">'


def test_nothing_is_left_out():
    assert join(["a", None, 0, Markup("<br>")]) == "a0<br>"
    assert tag("p", None) == "<p></p>"
