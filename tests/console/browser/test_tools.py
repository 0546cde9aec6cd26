"""The view Tools: the matrix, findings, differences and editing."""

import json
import re

from console_pages import put, show
from playwright.sync_api import expect

PLAIN = {
    "name": "get_map",
    "description": "Draw a map of a city.",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Its name."}},
        "required": ["city"],
    },
}
DOTTED = {
    "name": "maps.draw!",
    "description": "Draw a map of a city.",
    "inputSchema": {
        "type": "object",
        "properties": {"where": {"oneOf": [{"type": "string", "pattern": "^[A-Z]"}, {"$ref": "#/$defs/p"}]}},
        "$defs": {"p": {"type": "object", "properties": {"p": {"$ref": "#/$defs/p"}}}},
    },
}


def open_tools(open_page, *tools):
    page = open_page("tools")
    show(page, "tools", json.dumps(list(tools)))
    expect(page.locator("#view-tools .matrix-row .matrix-name", has_text=tools[-1]["name"])).to_be_visible()
    return page


def test_matrix_has_a_cell_for_each_tool_and_provider(open_page, console):
    page = open_tools(open_page, PLAIN, DOTTED)
    heads = page.locator(".matrix-head .provider-name").count()
    assert heads >= 3
    expect(page.get_by_role("gridcell")).to_have_count(2 * heads)
    assert re.search(r"\d", page.get_by_role("gridcell").first.inner_text())


def test_findings_and_differences_of_a_cell(open_page):
    page = open_tools(open_page, PLAIN, DOTTED)
    page.locator('[data-cell="maps.draw!/gemini"]').click()
    expect(page.locator(".findings")).to_contain_text("maps.draw!")
    expect(page.locator(".findings .loss").first).to_be_visible()
    expect(page.get_by_label(re.compile("^Lowered for")).locator(".row").first).to_be_visible()
    page.locator(".findings .loss").first.click()


def test_arrow_keys_move_in_the_matrix(open_page):
    page = open_tools(open_page, PLAIN, DOTTED)
    page.get_by_role("gridcell").first.click()
    page.get_by_role("gridcell").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".matrix-cell.chosen")).to_have_attribute("data-cell", re.compile("^maps"))
    expect(page.locator(".matrix-cell.chosen")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".matrix-cell.chosen")).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator(".matrix-cell.chosen")).to_have_attribute("data-cell", re.compile("^get_map"))


def test_edit_is_audited_at_once(open_page):
    page = open_tools(open_page, PLAIN)
    put(page, "tools", json.dumps([PLAIN, DOTTED]))
    expect(page.locator(".matrix-name", has_text="maps.draw!")).to_be_visible()
    put(page, "tools", json.dumps([{**DOTTED, "name": "renamed"}]))
    expect(page.locator(".matrix-name", has_text="renamed")).to_be_visible()
    expect(page.locator(".matrix-name", has_text="maps.draw!")).to_have_count(0)


def test_wrong_input_is_explained(open_page):
    page = open_page("tools")
    for text in ("nonsense", "{", '{"tools": 3}'):
        put(page, "tools", text)
        expect(page.locator("#view-tools .problem")).to_be_visible()
    put(page, "tools", json.dumps([PLAIN]))
    expect(page.locator("#view-tools .problem")).to_have_count(0)
    put(page, "tools", "[]")
    expect(page.locator("#view-tools .empty, #view-tools .problem").first).to_be_visible()
