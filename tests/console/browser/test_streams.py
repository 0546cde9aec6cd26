"""The view Streams: steps, cuts and wrong input."""

import re

from console_pages import STREAM, chat_stream, put, show, wait_until_shown
from playwright.sync_api import expect


def open_stream(open_page, text=STREAM, **options):
    page = open_page("streams", **options)
    show_stream(page, text)
    return page


def show_stream(page, text):
    put(page, "streams", text)
    page.locator("#view-streams").get_by_role("button", name="Done").click()
    wait_until_shown(page, "streams")


def test_arrow_keys_step_through_the_chunks(open_page):
    page = open_stream(open_page)
    page.locator("main").focus()
    page.keyboard.press("Home")
    expect(page.locator(".position strong")).to_have_text("1")
    for step in range(2, 6):
        page.keyboard.press("ArrowRight")
        expect(page.locator(".position strong")).to_have_text(str(step))
    expect(page.locator(".call pre")).to_contain_text('{"ci')
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".position strong")).to_have_text("4")


def test_partial_arguments_grow_and_targets_follow(open_page):
    page = open_stream(open_page)
    slider = page.get_by_role("slider", name="Step")
    seen = []
    for step in range(int(slider.get_attribute("max")) + 1):
        slider.fill(str(step))
        expect(page.locator(".position strong")).to_have_text(str(step + 1))
        seen.append(page.locator(".call pre").inner_text() if page.locator(".call").count() else "")
    assert seen[-1].replace(" ", "") == '{"city":"Paris"}'
    assert [len(text) for text in seen] == sorted(len(text) for text in seen)
    expect(page.locator(".verdict")).to_contain_text("complete")
    names = page.get_by_role("tablist", name="Translated stream").get_by_role("tab")
    assert names.count() >= 3
    for name in names.all():
        name.click()
        expect(
            page.get_by_role("tabpanel", name="Streams").locator(".step-panes .pane").last.locator(".row").first
        ).to_be_visible()


def test_equal_chunks(open_page):
    page = open_stream(open_page)
    page.get_by_role("radio", name="Equal chunks").click()
    page.get_by_label("Bytes per chunk").fill("100")
    page.get_by_label("Bytes per chunk").press("Enter")
    expect(page.locator(".position")).to_contain_text(
        re.compile(rf"of {-(-len(STREAM) // 100)}|of {-(-len(STREAM) // 100) + 1}")
    )


def test_click_on_a_byte_cuts_there_and_the_cut_is_undone(open_page):
    page = open_stream(open_page)
    page.locator(".step-panes .viewer").first.locator(".t", has_text="get_map").first.click()
    expect(page.locator(".verdict")).to_contain_text("Truncated")
    cut = int(page.get_by_label("Cut at byte").input_value())
    assert STREAM.index("get_map") - 2 <= cut <= STREAM.index("get_map") + 8
    page.get_by_role("button", name="Undo the cut").click()
    expect(page.locator(".verdict")).to_contain_text("complete")


def test_cut_inside_a_character_is_a_cut(open_page):
    text = chat_stream("{}", text="Grüße 🌍")
    text = text.replace("\\u00fc", "ü").replace("\\u00df", "ß").replace("\\ud83c\\udf0d", "🌍")
    page = open_stream(open_page, text)
    place = len(text[: text.index("🌍")].encode()) + 2
    page.get_by_label("Cut at byte").fill(str(place))
    page.get_by_label("Cut at byte").press("Enter")
    expect(page.locator(".verdict")).to_contain_text(f"{place:,}")
    expect(page.locator(".verdict")).to_have_class(re.compile("bad"))


def test_stream_of_another_view_is_opened(open_page):
    page = open_page()
    show(page, "translate", STREAM)
    page.get_by_role("button", name="Step through").click()
    expect(page.locator("#view-streams .position")).to_contain_text(f"of {len(STREAM):,}")


def test_wrong_input_is_explained(open_page):
    page = open_page("streams")
    put(page, "streams", "this is no stream")
    expect(page.locator("#view-streams .problem")).to_be_visible()
    put(page, "streams", STREAM)
    expect(page.locator("#view-streams .problem")).to_have_count(0)
    put(page, "streams", STREAM[:-40].replace('"choices"', '"choi', 1))
    page.locator("#view-streams").get_by_role("button", name="Done").click()
    expect(page.locator("#view-streams .verdict.bad, #view-streams .problem").first).to_be_visible()
    show_stream(page, STREAM)
    page.get_by_label("Cut at byte").fill("-5")
    page.get_by_label("Cut at byte").press("Enter")
    expect(page.get_by_label("Cut at byte")).to_have_value("0")
