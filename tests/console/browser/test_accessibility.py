"""Rules of axe-core in light and dark, on a desktop and a phone; and each view with the keyboard alone."""

import json

import pytest
from console_pages import IMAGE_REQUEST, MODEL_TEXT, VIEWS, show
from playwright.sync_api import expect

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}


def violations(page, axe):
    page.evaluate(axe + "; undefined")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']} ({each['impact']}): {node['target']} {node['failureSummary'][:300]}"
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"][:3]
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_no_serious_problem(open_page, axe, view, scheme, size):
    page = open_page(view, scheme=scheme, size=SIZES[size])
    if view == "translate":
        show(page, view, json.dumps(IMAGE_REQUEST))
        page.locator(".loss").first.click()  # marks, the chosen loss and a lit element, too
        page.locator(".source .t.string", has_text="maps.example").first.hover()
    if view == "streams":
        page.get_by_role("button", name="Next step").click()
    assert violations(page, axe) == []
    page.locator("main").focus()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert violations(page, axe) == []


def test_axe_finds_no_serious_problem_in_errors_and_without_token(open_page, axe):
    page = open_page()
    page.locator("#view-translate").get_by_role("button", name="Edit", exact=True).click()
    page.locator("#view-translate textarea").fill("nonsense")
    page.get_by_role("alert").wait_for()
    assert violations(page, axe) == []
    page = open_page(fragment="", settle=False)
    page.get_by_role("heading", level=1).wait_for()
    assert violations(page, axe) == []


def tab_to(page, target, most=80):
    """Press Tab until the target has the focus; fail if it never has it."""
    for _ in range(most):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{most} tab stops, and none is {target}")


def has_visible_focus(page):
    return page.evaluate(
        """() => { const style = getComputedStyle(document.activeElement);
        return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1; }"""
    )


def test_skip_link_tabs_and_help_with_the_keyboard_alone(open_page):
    page = open_page()
    page.reload()  # so that the next Tab is the first
    page.locator(".column .row").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for key, view in zip("234", ("streams", "formats", "tools"), strict=True):
        page.keyboard.press(key)
        expect(page.locator(f"#view-{view} .view")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    tabs = page.get_by_role("tablist", name="Views").get_by_role("tab")
    tab_to(page, tabs.nth(3))
    page.keyboard.press("ArrowRight")
    expect(tabs.first).to_be_focused()
    expect(page.locator("#view-translate .view")).to_be_visible()
    expect(tabs.first).to_have_attribute("aria-selected", "true")


def test_every_tab_stop_shows_its_focus(open_page):
    page = open_page()
    for view in VIEWS:
        page.get_by_role("tab", name=VIEWS[view], exact=True).click()
        page.locator(f"#view-{view} .viewer .row").first.wait_for()
        first = None
        for _ in range(60):
            page.keyboard.press("Tab")
            now = page.evaluate(
                "document.activeElement === document.body ? '' : document.activeElement.outerHTML.slice(0, 200)"
            )
            if now == "" or now == first:
                break
            first = first or now
            assert has_visible_focus(page), now


def test_translate_with_the_keyboard_alone(open_page):
    page = open_page()
    page.locator("main").focus()
    page.keyboard.press("e")
    expect(page.locator("#view-translate textarea")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(json.dumps(IMAGE_REQUEST))
    expect(page.locator('.column[data-column="gemini"]')).to_contain_text("Where is Paris?")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")  # Done
    viewer = page.locator(".source .viewer")
    viewer.wait_for()
    tab_to(page, viewer)
    page.keyboard.press("Home")
    for _ in range(8):
        page.keyboard.press("ArrowDown")
    active = viewer.get_attribute("aria-activedescendant")
    expect(page.locator(f'[id="{active}"]')).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator(".column .pin, .column .band-pin").first).to_be_visible()
    loss = page.locator(".loss").first
    tab_to(page, loss)
    page.keyboard.press("Enter")
    expect(loss).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("n")
    expect(page.locator(".loss").nth(1)).to_have_attribute("aria-pressed", "true")


def test_stream_with_the_keyboard_alone(open_page):
    page = open_page("streams")
    page.locator("main").focus()
    page.keyboard.press("End")
    last = page.locator(".position strong").inner_text()
    page.keyboard.press("Home")
    expect(page.locator(".position strong")).to_have_text("1")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".position strong")).to_have_text("2")
    assert int(last.replace(",", "")) > 2
    cut = page.get_by_role("button", name="Cut after this chunk")
    tab_to(page, cut)
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("Truncated")
    undo = page.get_by_role("button", name="Undo the cut")
    tab_to(page, undo)
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("complete")


def test_formats_with_the_keyboard_alone(open_page):
    page = open_page("formats")
    page.locator("main").focus()
    page.keyboard.press("e")
    area = page.locator("#view-formats textarea")
    tab_to(page, area)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(MODEL_TEXT)
    expect(page.locator(".part.call")).to_have_count(1)
    expect(page.locator(".part.call strong")).to_have_text("get_map")
    part = page.locator(".part.call")
    tab_to(page, part)
    page.keyboard.press("Enter")
    expect(part).to_be_focused()


def test_tools_with_the_keyboard_alone(open_page):
    page = open_page("tools")
    cell = page.locator('.matrix [tabindex="0"]')
    tab_to(page, cell)
    before = cell.get_attribute("data-cell")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".matrix-cell.chosen")).to_be_focused()
    assert page.locator(".matrix-cell.chosen").get_attribute("data-cell") != before


def test_reduced_motion_and_theme_switch(open_page):
    page = open_page(scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Use light colours").click()
    page.wait_for_function("old => getComputedStyle(document.body).backgroundColor !== old", arg=dark)
    page.reload()
    page.locator(".column").first.wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    assert page.evaluate(
        "[...document.querySelectorAll('*')].every(each => parseFloat(getComputedStyle(each).transitionDuration) === 0)"
    )


def test_phone_needs_no_sideways_scrolling(open_page):
    page = open_page(size=SIZES["phone"])
    for view in VIEWS:
        page.get_by_role("tab", name=VIEWS[view], exact=True).click()
        page.locator(f"#view-{view} .viewer .row").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"][0], view


def test_loss_on_a_phone_scrolls_up_to_its_place(open_page):
    page = open_page(size=SIZES["phone"])
    show(page, "translate", json.dumps(IMAGE_REQUEST))
    page.locator(".loss", has_text="inline images").click()
    expect(page.locator(".source .chosen, .source .band-chosen").first).to_be_in_viewport()
    expect(page.get_by_role("tab", name="Ollama")).to_have_attribute("aria-selected", "true")
