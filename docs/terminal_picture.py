"""Draw the output of a terminal as SVG: selectable text, in light and dark.

A run of characters with one style is a `<tspan>` at its column, so that columns are aligned in every monospaced font. Colours are
classes, and the style sheet has values for both schemes; contrast is at least 4.5:1 on the background (WCAG 2.2, 1.4.3).
"""

import re
import unicodedata
from collections.abc import Iterator
from xml.sax.saxutils import escape

__all__ = ["draw_terminal"]

_CELL, _LINE, _MARGIN, _BAR = 8.4, 18, 16, 30  # pixels; a cell is 0.6 of the font size, as in most monospaced fonts
_SGR = re.compile(r"\x1b\[([\d;]*)m")
_OTHER_CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-ln-z]|\x1b[()][A-Z0-9]|\r")
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}
_STYLE = """\
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328;white-space:pre}
.bg{fill:#f6f8fa;stroke:#d0d7de}.h{fill:#59636e;font-size:12px}.b{font-weight:700}.d{fill:#59636e}
.r{fill:#b3261e}.g{fill:#116329}.y{fill:#7d4e00}.u{fill:#0550ae}.m{fill:#8250df}.c{fill:#0a5a66}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#161b22;stroke:#3d444d}.h,.d{fill:#9198a1}
.r{fill:#ff8a80}.g{fill:#6fdd8b}.y{fill:#e3b341}.u{fill:#79c0ff}.m{fill:#d2a8ff}.c{fill:#76e3ea}}"""


def draw_terminal(output: str, title: str, command: str, columns: int = 80) -> str:
    """Return the picture of a command and its output, which may have SGR escape sequences."""
    lines = [f"\x1b[1m$ {command}\x1b[0m", *_OTHER_CONTROL.sub("", output).rstrip("\n").split("\n")]
    width = max([columns, *(_width(_SGR.sub("", line)) for line in lines)]) * _CELL + 2 * _MARGIN
    height = len(lines) * _LINE + _MARGIN + _BAR
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" aria-labelledby="t">',
        f'<title id="t">{escape(title)}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="bg" x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8"/>',
        f'<text class="h" x="{_MARGIN}" y="20">{escape(title)}</text>',
    ]
    classes: frozenset[str] = frozenset()
    for number, line in enumerate(lines):
        spans = []
        runs = list(_runs(line, classes))
        classes = runs[-1][2]
        for column, text, style in runs:
            if text.strip():
                kind = f' class="{" ".join(sorted(style))}"' if style else ""
                spans.append(f'<tspan x="{_MARGIN + column * _CELL:g}"{kind}>{escape(text)}</tspan>')
        if spans:
            out.append(f'<text y="{_BAR + 14 + number * _LINE}">{"".join(spans)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _runs(line: str, classes: frozenset[str]) -> Iterator[tuple[int, str, frozenset[str]]]:
    """Yield the column, the text and the classes of each run; the last run has the classes that the next line begins with."""
    column = 0
    pieces = _SGR.split(line)
    for at, piece in enumerate(pieces):
        if at % 2:
            codes = piece.split(";")
            if codes == [""] or "0" in codes:
                classes = frozenset()
            classes |= {_CLASSES[code] for code in codes if code in _CLASSES}
            continue
        for text in re.findall(r" {2,}|(?:(?! {2}).)+", piece):  # a long gap begins a new run at its own column
            yield column, text, classes
            column += _width(text)
    yield column, "", classes


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
