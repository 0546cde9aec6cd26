"""Draw docs/architecture.svg: the packages in their layers, from the import contracts and the packages' docstrings."""

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
    for number, packages in enumerate(rows):
        top = MARGIN + number * (ROW + GAP)
        width = (WIDTH - 2 * MARGIN - (len(packages) - 1) * GAP) / len(packages)
        for column, package in enumerate(packages):
            out += box(package, MARGIN + column * (width + GAP), top, width)
    caption = "imports point down only; siblings do not import each other"
    out.append(
        f'<text x="{WIDTH / 2:g}" y="{height - MARGIN + 4}" font-size="13" fill="#666" {CENTRED}>{caption}</text>'
    )
    return "\n".join([*out, "</svg>", ""])


CENTRED = 'text-anchor="middle"'


def layers() -> list[list[str]]:
    """Return the packages that exist, highest layer first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = [layer.replace("(", "").replace(")", "").split(" | ") for layer in contracts[0]["layers"]]
    named = [[package.removeprefix("toolwire.") for package in row] for row in rows]
    present = [[package for package in row if (ROOT / "src/toolwire" / package).is_dir()] for row in named]
    return [row for row in present if row]


def box(package: str, left: float, top: float, width: float) -> list[str]:
    middle = left + width / 2
    fill = FILLS.get(package, "#f3efe2")
    return [
        f'<rect x="{left:g}" y="{top}" width="{width:g}" height="{ROW}" rx="8" fill="{fill}" stroke="#888"/>',
        f'<text x="{middle:g}" y="{top + 26}" font-size="17" font-weight="bold" {CENTRED}>{package}</text>',
        f'<text x="{middle:g}" y="{top + 47}" font-size="13" fill="#333" {CENTRED}>{escape(first_line(package))}</text>',
    ]


def first_line(package: str) -> str:
    source = (ROOT / "src/toolwire" / package / "__init__.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return docstring.partition("\n")[0]
