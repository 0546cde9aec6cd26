"""Charts are valid SVG, contain their labels as shapes, and do not change without the data."""

import xml.etree.ElementTree as ET

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.learn.plots import draw_bars, draw_lines

SERIES = {"free": [(50, 0.2), (100, 0.4)], "masked": [(50, 0.5), (100, 0.75)]}


def paths_of(file, prefix):
    return [one for one in ET.parse(file).iter() if one.get("id", "").startswith(prefix)]


def test_equal_data_give_equal_files(tmp_path):
    for name in ("one.svg", "two.svg"):
        draw_lines(tmp_path / name, "Valid calls", "examples", "share", SERIES)
    draw_lines(tmp_path / "other.svg", "Valid calls", "examples", "share", {**SERIES, "free": [(50, 0.3), (100, 0.4)]})
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.svg").read_bytes() != (tmp_path / "other.svg").read_bytes()
    assert b"<dc:date>" not in (tmp_path / "one.svg").read_bytes()


def test_every_series_is_a_line_and_has_a_legend(tmp_path):
    draw_lines(tmp_path / "lines.svg", "Valid calls", "examples", "share", SERIES)
    assert paths_of(tmp_path / "lines.svg", "legend_1")
    draw_lines(tmp_path / "single.svg", "Valid calls", "examples", "share", {"free": SERIES["free"]})
    assert not paths_of(tmp_path / "single.svg", "legend_1")


def test_every_bar_is_drawn(tmp_path):
    draw_bars(tmp_path / "few.svg", "Top-1", "percent", {"BM25": 36.4})
    draw_bars(tmp_path / "many.svg", "Top-1", "percent", {f"method {number}": number for number in range(1, 8)})
    few, many = (len(paths_of(tmp_path / name, "patch_")) for name in ("few.svg", "many.svg"))
    assert many - few == 6


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda folder: draw_bars(folder / "a.png", "t", "y", {"a": 1}), r"a\.png"),
        (lambda folder: draw_bars(folder / "missing" / "a.svg", "t", "y", {"a": 1}), "there is no folder"),
        (lambda folder: draw_bars(folder / "a.svg", "t", "y", {}), "no bars"),
        (lambda folder: draw_lines(folder / "a.svg", "t", "x", "y", {"a": []}), "no points"),
    ],
)
def test_plot_that_cannot_be_written_is_refused(tmp_path, draw, message):
    with pytest.raises(ConfigError, match=message):
        draw(tmp_path)
    assert not list(tmp_path.iterdir())
