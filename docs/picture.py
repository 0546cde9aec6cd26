"""Draws docs/architecture.svg: the rooms in their layers, as the import contracts and the rooms' own first lines say."""

import ast
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
PICTURE = Path(__file__).with_name("architecture.svg")
WIDTH, ROW, GAP, MARGIN = 860, 62, 12, 20
FILLS = {"cli": "#e8e4f3", "testing": "#e8e4f3", "bridge": "#dcebdd", "wire": "#d9e6f2"}


def draw() -> str:
    rows = layers()
    height = 2 * MARGIN + len(rows) * (ROW + GAP) + 18
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, rooms in enumerate(rows):
        top = MARGIN + number * (ROW + GAP)
        width = (WIDTH - 2 * MARGIN - (len(rooms) - 1) * GAP) / len(rooms)
        for column, room in enumerate(rooms):
            out += box(room, MARGIN + column * (width + GAP), top, width)
    words = "imports point down only; siblings do not import each other"
    out.append(f'<text x="{WIDTH / 2:g}" y="{height - MARGIN + 4}" font-size="13" fill="#666" {CENTRED}>{words}</text>')
    return "\n".join([*out, "</svg>", ""])


CENTRED = 'text-anchor="middle"'


def layers() -> list[list[str]]:
    """The rooms that have something in them, highest layer first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = [layer.replace("(", "").replace(")", "").split(" | ") for layer in contracts[0]["layers"]]
    named = [[room.removeprefix("toolwire.") for room in row] for row in rows]
    present = [[room for room in row if (ROOT / "src/toolwire" / room).is_dir()] for row in named]
    return [row for row in present if row]


def box(room: str, left: float, top: float, width: float) -> list[str]:
    middle = left + width / 2
    fill = FILLS.get(room, "#f3efe2")
    return [
        f'<rect x="{left:g}" y="{top}" width="{width:g}" height="{ROW}" rx="8" fill="{fill}" stroke="#888"/>',
        f'<text x="{middle:g}" y="{top + 26}" font-size="17" font-weight="bold" {CENTRED}>{room}</text>',
        f'<text x="{middle:g}" y="{top + 47}" font-size="13" fill="#333" {CENTRED}>{escape(first_line(room))}</text>',
    ]


def first_line(room: str) -> str:
    source = (ROOT / "src/toolwire" / room / "__init__.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return docstring.partition("\n")[0]
