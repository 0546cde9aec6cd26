"""The view Text formats: detection, spans, other formats and wrong input."""

import json
import re

from console_pages import MODEL_TEXT, put, show
from playwright.sync_api import expect


def open_text(open_page, text=MODEL_TEXT):
    page = open_page("formats")
    show(page, "formats", text)
    return page


def test_format_calls_and_reasoning_are_detected(open_page):
    page = open_text(open_page)
    expect(page.locator(".part.call strong")).to_have_text("get_map")
    expect(page.locator(".part.call .part-text")).to_contain_text("Paris")
    expect(page.locator(".part.reasoning")).to_contain_text("A map is needed.")
    expect(page.locator(".part.text")).to_contain_text("Here it is.")
    expect(page.locator(".read-as")).to_contain_text("detected")


def test_each_part_has_its_place_in_the_text(open_page):
    page = open_text(open_page)
    page.locator(".part.call").hover()
    expect(page.locator("#view-formats .viewer .lit, #view-formats .viewer .band-lit").first).to_be_visible()
    page.locator("#view-formats .viewer .span-name").first.hover()
    expect(page.locator(".part.call")).to_have_class(re.compile("lit-part"))


def test_another_format_can_be_tried(open_page, console):
    page = open_text(open_page)
    detected = page.locator(".read-as strong").inner_text()
    page.locator("#view-formats").get_by_label("Format").select_option("llama3_json")
    expect(page.locator(".read-as strong")).not_to_have_text(detected)
    expect(page.locator(".part.call")).to_have_count(0)
    page.locator("#view-formats").get_by_label("Format").select_option("")
    expect(page.locator(".read-as strong")).to_have_text(detected)


def test_unfinished_output_is_truncated_not_called(open_page):
    page = open_text(open_page, MODEL_TEXT[:-25])
    page.get_by_role("switch", name="Finished").click()
    expect(page.locator("#view-formats .part .action.dropped, #view-formats .diagnostics").first).to_be_visible()


def test_declared_tools_are_used(open_page):
    page = open_text(open_page, 'get_map(city="Paris")')
    page.locator("#view-formats").get_by_role("radio", name="Tools").click()
    tools = [{"name": "get_map", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    page.get_by_label("Declared tools").fill(json.dumps(tools))
    page.locator("#view-formats").get_by_label("Format").select_option("pythonic")
    expect(page.locator("#view-formats .part").first).to_be_visible()


def test_diagnostic_moves_to_its_place(open_page):
    page = open_text(open_page, MODEL_TEXT.replace('"Paris"}}', '"Paris",}'))
    diagnostic = page.locator(".diagnostics .loss").first
    diagnostic.click()
    expect(diagnostic).to_have_attribute("aria-pressed", "true")


def test_wrong_input_is_plain_text_or_explained(open_page):
    page = open_page("formats")
    for text in ("just a sentence", "<tool_call>", "<tool_call>{}</tool_call>" * 50, "\u0000\u202e"):
        put(page, "formats", text)
        expect(
            page.locator("#view-formats .part, #view-formats .problem, #view-formats .diagnostics").first
        ).to_be_visible()
    page.locator("#view-formats").get_by_role("radio", name="Tools").click()
    page.get_by_label("Declared tools").fill("not tools")
    expect(page.locator("#view-formats .problem")).to_be_visible()
    page.get_by_label("Declared tools").fill("")
    expect(page.locator("#view-formats .problem")).to_have_count(0)
