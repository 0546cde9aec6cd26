"""Pictures of the docs: terminal output as selectable text. `test_generated_files_are_up_to_date` draws all of them again."""

import sys
import xml.etree.ElementTree as ET

import pytest

from places import ROOT
from tables import every_case

PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", autouse=True)
def docs_on_the_path():
    sys.path.insert(0, str(ROOT / "docs"))
    yield
    sys.path.remove(str(ROOT / "docs"))


def texts(svg):
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_text_of_a_terminal_is_selectable_with_its_colours():
    from terminal_picture import draw_terminal

    svg = draw_terminal(
        "\x1b[1mname\x1b[0m    \x1b[31m<error>\x1b[0m & more\r\n\x1b[?25lplain", "A title", "toolwire x"
    )
    assert texts(svg) == ["A title", "$ toolwire x", "name<error> & more", "plain"]
    spans = [span for span in ET.fromstring(svg).iter(f"{SVG}tspan") if "error" in span.text]
    assert spans[0].get("class") == "r"
    assert float(spans[0].get("x")) == 16 + 8 * 8.4  # at its column, whatever the font of the reader


def test_wide_characters_take_two_columns():
    from terminal_picture import draw_terminal

    spans = list(ET.fromstring(draw_terminal("日本  x", "t", "c")).iter(f"{SVG}tspan"))
    assert float(spans[-1].get("x")) == 16 + 6 * 8.4


@every_case("picture", PICTURES, ids=lambda path: path.name)
def test_picture_has_a_title_both_schemes_and_a_page_and_loads_nothing(picture):
    svg = picture.read_text(encoding="utf-8")
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text
    assert root.get("aria-labelledby").split()[0] == root.find(f"{SVG}title").get("id")
    assert "prefers-color-scheme:dark" in svg
    assert "href" not in svg
    assert "@import" not in svg
    assert "url(h" not in svg
    assert any(f"pictures/{picture.name})" in page.read_text(encoding="utf-8") for page in PAGES)
    assert len(svg) < 20_000


def test_pictures_of_the_console_are_small_and_on_a_page():
    pictures = sorted((ROOT / "docs/pictures").glob("*.png"))
    page = (ROOT / "docs/console.md").read_text(encoding="utf-8")
    assert len(pictures) == 4
    for picture in pictures:
        assert f"(pictures/{picture.name})" in page
        assert picture.stat().st_size < 120_000  # all of them are in the repository, and none is in the wheel


def test_diagram_has_no_arrow_from_or_to_an_unknown_box():
    from diagrams import DIAGRAMS

    for name, diagram in DIAGRAMS.items():
        assert {box for arrow in diagram.arrows for box in arrow[:2]} == set(diagram.boxes), name
        assert len({(box.column, box.row) for box in diagram.boxes.values()}) == len(diagram.boxes), name
