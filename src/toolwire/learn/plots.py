"""Line and bar charts of experiments, as SVG. Equal data give equal files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError
from .run_folder import require_installed, write_atomically

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#9498a0", "#97bbf5", "#9c6b4e")
_MARKERS = "os^Dvph*"
_SETTINGS = {"svg.hashsalt": "toolwire", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 10}


def draw_lines(
    path: str | Path, title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> None:
    """Draw each of `series` as a line with a marker at every point, and write an SVG file.

    Raise ConfigError if there are no points.
    """
    if not any(series.values()):
        raise ConfigError(f"{title} has no points to draw", hint="pass at least one series with one point")

    def draw(axes: Any) -> None:
        """Draw each series with its own colour and marker, and a legend if there are several."""
        for number, (name, points) in enumerate(series.items()):
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=_COLOURS[number % len(_COLOURS)],
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=4,
                label=name,
            )
        axes.set_xlabel(x_label)
        axes.grid(alpha=0.3)
        if len(series) > 1:
            axes.legend(frameon=False)

    _write(Path(path), title, y_label, draw)


def draw_bars(path: str | Path, title: str, y_label: str, bars: Mapping[str, float]) -> None:
    """Draw one vertical bar for each entry, with its value above it, and write an SVG file.

    Raise ConfigError if there are none.
    """
    if not bars:
        raise ConfigError(f"{title} has no bars to draw", hint="pass at least one bar")

    def draw(axes: Any) -> None:
        places = range(len(bars))
        drawn = axes.bar(places, list(bars.values()), color=_COLOURS[0], width=0.6)
        axes.set_xticks(
            places, list(bars), rotation=0 if len(bars) <= 5 else 30, ha="center" if len(bars) <= 5 else "right"
        )
        axes.bar_label(drawn, [f"{value:.4g}" for value in bars.values()], padding=2)
        axes.margins(y=0.12)

    _write(Path(path), title, y_label, draw)


def _write(path: Path, title: str, y_label: str, draw: Any) -> None:
    """Draw and write the figure, without a date, so that the file changes only with the data.

    Raises `ConfigError` for a path that is not an SVG file in an existing folder.
    """
    if path.suffix.lower() != ".svg":
        raise ConfigError(f"cannot write a plot to {path}", hint="use a name that ends with .svg")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write a plot to {path}: there is no folder {path.parent}")
    require_installed("a plot", "matplotlib")
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS):  # pyplot would choose a window and keep global state
        figure = Figure(figsize=(7, 4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.set_title(title)
        axes.set_ylabel(y_label)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        target = io.BytesIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
    write_atomically(path, target.getvalue())
