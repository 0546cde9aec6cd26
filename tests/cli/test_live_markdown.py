"""Markdown on a terminal: the rendering does not depend on chunks, is bounded, and adds only its own styles."""

import re

import pytest

from tables import every_case
from toolwire.cli.agent.live import MarkdownRenderer
from toolwire.cli.terminal.layout import StreamWrap, text_width

TEXT = """# Title **x**
Some **bold** and *it* and `co*de*` and snake_case_name, 2 * 3 * 4, [link](http://x.y).
- item one
* item **two**
  1. nested
> quote `x`
---
```python
def f(): return "**no**"
```
**unclosed
\\*escaped\\* a\tb __bold__ _it_
| a | b |
~~~
# no heading
~~~
end `x"""
SHOWN = """Title x
Some bold and it and co*de* and snake_case_name, 2 * 3 * 4, link (http://x.y).
• item one
• item two
  1. nested
│ quote x
────────────────────────────────────────
```python
def f(): return "**no**"
```
**unclosed
*escaped* a\tb bold it
| a | b |
~~~
# no heading
~~~
end `x"""


def render(text, size):
    renderer = MarkdownRenderer()
    pieces = [renderer.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join(pieces) + renderer.close()


def cells(written):
    """Return each character with its style."""
    style, out = "", []
    for found in re.finditer(r"\x1b\[([\d;]*)m|(.)", written, re.DOTALL):
        if found[2] is None:
            style = "" if found[1] == "0" else found[1]
        else:
            out.append((found[2], style))
    return out


def test_marks_are_replaced_by_styles():
    written = render(TEXT, len(TEXT))
    assert "".join(char for char, _ in cells(written)) == SHOWN
    styles = dict(cells(written.partition("\n")[0]))
    assert styles["T"] == "1;4"
    assert "\x1b[1mbold\x1b[0m" in written
    assert "\x1b[36mco*de*\x1b[0m" in written


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 50])
def test_rendering_does_not_depend_on_chunks(size):
    assert cells(render(TEXT, size)) == cells(render(TEXT, len(TEXT)))


def test_text_appears_before_its_line_is_complete():
    renderer = MarkdownRenderer()
    assert renderer.feed("Hello wor") == "Hello wor"
    assert renderer.feed("ld and **bo") == "ld and "
    assert renderer.feed("ld** text") == "\x1b[1mbold\x1b[0m text"


@every_case("unit", ["*", "[a", "`a", "**a ", "_a", "# ", "\\", "> ", "- ", "1", "```a", "~"])
def test_few_characters_are_held_back(unit):
    renderer = MarkdownRenderer()
    text = unit * (3000 // len(unit))
    for at in range(0, len(text), 7):
        renderer.feed(text[at : at + 7])
        assert len(renderer._held) <= 410
    renderer.close()


def test_every_style_is_reset():
    written = render(TEXT, 4)
    for on, off in re.findall(r"\x1b\[([\d;]+)m[^\x1b]*\x1b\[(\d+)m", written):
        assert (on != "0", off) == (True, "0")


LONG = """1. The **weather** in Paris will be mild for the next two days
- take an `umbrella` for Thursday, and leave the sunglasses at home

See https://example.com/a/page/with/a/very/long/address for it.
```
code = ("is not wrapped, because its lines are copied")
```
"""


@pytest.mark.finding("NU1")
@every_case("size", [1, 3, 7, 1000])
def test_lines_wrap_at_spaces_while_the_text_arrives(size):
    renderer = MarkdownRenderer(StreamWrap(30))
    pieces = [renderer.feed(LONG[at : at + size]) for at in range(0, len(LONG), size)]
    shown = re.sub(r"\x1b\[[\d;]*m", "", "".join(pieces) + renderer.close())
    assert shown.splitlines()[:5] == [
        "1. The weather in Paris will",
        "   be mild for the next two",
        "   days",
        "• take an umbrella for",
        "  Thursday, and leave the",
    ]
    too_wide = [line for line in shown.splitlines() if text_width(line) > 30]
    assert too_wide == [
        "https://example.com/a/page/with/a/very/long/address",
        'code = ("is not wrapped, because its lines are copied")',
    ]


@pytest.mark.finding("NU1")
@every_case("size", [1, 2, 5, 1000])
def test_arguments_wrap_after_separators_while_they_arrive(size):
    line = '→ pay {"invoice":"2026-0117","amount":149.5,"to":"reports/2026/first-quarter/sales.pdf","x":"%s"}' % (
        "y" * 90
    )
    wrap = StreamWrap(40, hang=2, splits_words=True)
    shown = "".join(wrap.feed(line[at : at + size]) for at in range(0, len(line), size)) + wrap.flush()
    assert shown.replace("\n  ", "").replace(" ", "") == line.replace(" ", "")
    first, *others = shown.splitlines()
    assert all(text_width(part) <= 40 for part in (first, *others) if "yy" not in part)
    assert all(part.startswith("  ") for part in others)
    assert "149.5," in shown
