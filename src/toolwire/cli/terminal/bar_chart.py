"""Draw values as horizontal bars: as text in a terminal, as SVG, or as an HTML page. Nothing needs to be installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from ...ir.errors import ConfigError
from ...ir.terminal import neutralise_line
from ...ir.text import shorten
from .output import terminal_width

_EIGHTHS = " ▏▎▍▌▋▊▉"
_MAX_LABEL = 40  # characters; half of an 80-column terminal is left for bar and value
_MIN_BAR = 10  # characters; with eighths still 80 different lengths
_MAX_BAR = 50  # characters; longer bars do not compare better
_COLOURS = ("#4269d0", "#efb118", "#6cc5b0", "#ff725c", "#a463f2", "#9498a0")
_ROW = 20  # pixels
_LABEL_WIDTH = 300  # pixels; _MAX_LABEL characters of 12-pixel text
_BAR_WIDTH = 460  # pixels; with label and value 920, which fits into a page without scaling
_VALUE_WIDTH = 160  # pixels for the value after the longest bar
_STYLE = "text{font:12px system-ui,sans-serif;fill:currentColor}.title{font-weight:bold;font-size:14px}.group{font-weight:bold}"


class Bar(NamedTuple):
    """One bar. `text` is printed after it; `kind` selects its colour."""

    label: str
    value: float
    text: str
    kind: int = 0


class BarGroup(NamedTuple):
    """Bars under a title."""

    title: str
    bars: Sequence[Bar]


def draw_bar(value: float, largest: float, width: int) -> str:
    """Return a bar of at most `width` characters, drawn in eighths of a character."""
    eighths = round(8 * width * max(min(value / largest, 1), 0)) if largest > 0 else 0
    rest = _EIGHTHS[eighths % 8] if eighths % 8 else ""
    return "█" * (eighths // 8) + rest


def draw_bars(groups: Iterable[BarGroup], largest: float) -> list[str]:
    """Return the lines of a chart for a terminal. A bar of `largest` has the full width."""
    groups = list(groups)
    every = [bar for group in groups for bar in group.bars]
    labels = max((len(_label(bar)) for bar in every), default=0)
    texts = max((len(bar.text) for bar in every), default=0)
    room = terminal_width() - labels - texts - 6
    width = min(max(room, _MIN_BAR), _MAX_BAR)
    lines: list[str] = []
    for group in groups:
        lines += [neutralise_line(group.title)] if group.title else []
        for bar in group.bars:
            drawn = draw_bar(bar.value, largest, width).ljust(width)
            lines.append(f"  {_label(bar).ljust(labels)}  {drawn}  {bar.text}")
    return lines


def render_svg(title: str, groups: Iterable[BarGroup], largest: float) -> str:
    """Return the chart as an SVG document. Labels are escaped."""
    parts: list[str] = [_svg_text(0, 16, title, "title")]
    y = _ROW * 2
    for group in groups:
        if group.title:
            parts.append(_svg_text(0, y + 13, group.title, "group"))
            y += _ROW
        for bar in group.bars:
            length = _BAR_WIDTH * max(min(bar.value / largest, 1), 0) if largest > 0 else 0
            colour = _COLOURS[bar.kind % len(_COLOURS)]
            parts += [
                _svg_text(12, y + 13, _label(bar)),
                f'<rect x="{_LABEL_WIDTH}" y="{y + 2}" width="{length:.1f}" height="{_ROW - 6}" fill="{colour}"/>',
                _svg_text(_LABEL_WIDTH + length + 6, y + 13, bar.text),
            ]
            y += _ROW
        y += _ROW // 2
    size = f'width="{_LABEL_WIDTH + _BAR_WIDTH + _VALUE_WIDTH}" height="{y}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{_escape(title)}</title>\n<style>{_STYLE}</style>",
            *parts,
            "</svg>\n",
        ]
    )


def check_plot_path(path: str | None) -> None:
    """Raise ConfigError for a name with another extension, or in a folder that does not exist, before work is done."""
    if path is None:
        return
    if Path(path).suffix.lower() not in (".svg", ".html"):
        raise ConfigError(f"cannot write a plot to {path}", hint="use a name that ends with .svg or .html")
    if not Path(path).parent.is_dir():
        raise ConfigError(f"cannot write a plot to {path}: there is no folder {Path(path).parent}")


def render_plot(path: str, title: str, groups: Sequence[BarGroup], largest: float) -> str:
    """Return the chart for a file: SVG or HTML, by its extension."""
    picture = render_svg(title, groups, largest)
    return picture if path.lower().endswith(".svg") else _html_page(title, picture)


def _html_page(title: str, picture: str) -> str:
    """Return a page without scripts and external resources."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{_escape(title)}</title>\n<style>:root{{color-scheme:light dark}}body{{margin:2rem}}</style>",
            f"</head>\n<body>\n{picture}</body>\n</html>\n",
        ]
    )


def _label(bar: Bar) -> str:
    return shorten(neutralise_line(bar.label), _MAX_LABEL)


def _svg_text(x: float, y: float, text: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{name}>{_escape(text)}</text>'


def _escape(text: str) -> str:
    return escape(neutralise_line(text))
