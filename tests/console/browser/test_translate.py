"""The view Translate, from a newcomer's clicks to wrong input."""

import json
import re

from console_pages import IMAGE_REQUEST, MODEL_TEXT, STREAM, VIEWS, put, show, wait_for_clipboard
from playwright.sync_api import expect

TOOL = {
    "name": "lookup",
    "description": "Look up.",
    "input_schema": {"type": "object", "properties": {"key": {"type": "string", "pattern": "^[a-z]+$"}}},
}


def test_sample_is_translated_into_every_other_wire(open_page, console):
    page = open_page()
    columns = page.locator(".column")
    expect(columns.first).to_be_visible()
    names = columns.evaluate_all("all => all.map(each => each.dataset.column)")
    kind = page.locator(".source .sub").inner_text().split(" ")[0]
    wires = [wire["name"] for wire in console.get("/api/meta")["wires"] if kind in wire["kinds"]]
    assert 3 <= len(names) <= len(wires)
    assert set(names) <= set(wires)


def test_element_below_the_pointer_is_lit_in_all_panes(open_page):
    page = open_page()
    show(page, "translate", json.dumps(IMAGE_REQUEST))
    page.locator(".source .t.string", has_text="Where is Paris?").hover()
    expect(page.locator(".source .lit")).to_have_text('"Where is Paris?"')
    for column in page.locator(".column:has(.viewer)").all():
        expect(column.locator(".lit").first).to_contain_text("Where is Paris?")
    page.locator(".top .brand").hover()
    expect(page.locator(".lit")).to_have_count(0)


def test_click_pins_an_element_and_scrolls_the_other_panes_to_it(open_page):
    page = open_page(size=(1440, 500))
    show(page, "translate", json.dumps(IMAGE_REQUEST))
    page.locator(".source .t.string", has_text="Draw a map.").click()
    for column in page.locator(".column").all()[:2]:  # the others are beside
        expect(column.locator(".pin").first).to_be_in_viewport()
        expect(column.locator(".pin").first).to_contain_text("Draw")


def test_strict_shows_the_loss_as_an_error_with_its_place(open_page):
    page = open_page()
    show(page, "translate", json.dumps(IMAGE_REQUEST))
    column = page.locator('.column[data-column="ollama"]')
    expect(column.locator("header")).to_contain_text("loss")
    page.get_by_role("switch", name="Strict").click()
    expect(column.get_by_role("alert")).to_contain_text("image")
    page.get_by_role("switch", name="Strict").click()
    expect(column.locator(".viewer")).to_be_attached()


def test_losses_of_one_target_can_be_listed_alone(open_page):
    page = open_page()
    show(page, "translate", json.dumps(IMAGE_REQUEST))
    page.locator('.column[data-column="ollama"] .text-button').click()
    expect(page.locator(".loss .names").first).to_contain_text("Ollama")
    assert all("Ollama" in name for name in page.locator(".loss .names").all_inner_texts())
    page.locator(".losses").get_by_text("show all").click()
    expect(page.locator(".losses").get_by_text("show all")).to_have_count(0)


def test_shared_link_has_no_secret_and_opens_the_same_document(open_page, console):
    page = open_page()
    secret = "sk-ant-api03-" + "a1B2" * 12
    show(
        page,
        "translate",
        json.dumps(
            {"system": f"Use {secret}.", "db_password": "hunter2", "x": '{"token": "hunter2"}', **IMAGE_REQUEST}
        ),
    )
    page.get_by_role("button", name="Share").click()
    expect(page.get_by_label("Link")).to_have_value(re.compile("#/translate"))
    page.get_by_role("button", name="Copy link").click()
    link = wait_for_clipboard(page, "http")
    assert console.token not in link
    other = open_page()
    other.goto(link)  # the same document: only the fragment changes
    expect(other.locator(".source .viewer")).to_contain_text("Use [redacted].")
    text = other.locator(".source .viewer").inner_text()
    assert secret not in text
    assert "hunter2" not in text
    expect(other.locator(".source .viewer")).to_contain_text("Where is Paris?")


def test_every_view_is_shared_with_its_settings_and_without_secrets(open_page, console):
    """A link also opens where a view is open already, and when it is pasted into the first view."""
    secret = "sk-ant-api03-" + "a1B2" * 12
    inputs = {
        "streams": STREAM.replace("Let me look.", f"Use {secret}."),
        "formats": MODEL_TEXT.replace("Here it is.", f"Use {secret}."),
        "tools": json.dumps([{"name": "lookup", "description": f"Use {secret}.", "inputSchema": {"type": "object"}}]),
    }
    page = open_page()
    for view, text in inputs.items():
        page.get_by_role("tab", name=VIEWS[view], exact=True).click()
        panel = page.locator(f"#view-{view}")
        panel.locator(".viewer .row").first.wait_for()
        put(page, view, text)
        if view == "streams":
            panel.get_by_role("button", name="Done").click()
            panel.get_by_role("radio", name="Equal chunks").click()
        if view == "formats":
            panel.get_by_role("switch", name="Finished").click()
            panel.get_by_role("radio", name="Tools").click()
            panel.locator("textarea").fill(
                json.dumps([{"name": "get_map", "inputSchema": {}, "api_key": "hunter2hunter2"}])
            )
        panel.get_by_role("button", name="Share").click()
        expect(page.get_by_label("Link")).to_have_value(re.compile(f"#/{view}"))
        expect(page.locator("dialog .note")).to_contain_text("key")
        link = page.get_by_label("Link").input_value()
        assert console.token not in link
        page.keyboard.press("Escape")
        page.goto(link)
        expect(panel.locator(".viewer").first).to_contain_text("Use [redacted].")
        assert secret not in panel.inner_text()
    page.get_by_role("tab", name="Streams", exact=True).click()
    expect(page.get_by_role("radio", name="Equal chunks")).to_have_attribute("aria-checked", "true")
    page.get_by_role("tab", name="Text formats", exact=True).click()
    expect(page.get_by_role("switch", name="Finished")).to_have_attribute("aria-checked", "false")
    page.locator("#view-formats").get_by_role("radio", name="Tools").click()
    expect(page.locator("#view-formats textarea")).to_have_value(re.compile(r"\[redacted\]"))
    other = open_page()
    other.evaluate("text => navigator.clipboard.writeText(text)", link)
    other.locator("main").focus()
    other.keyboard.press("Control+v")
    expect(other.locator("#view-tools .viewer").first).to_contain_text("Use [redacted].")


def test_cut_link_is_explained(open_page):
    page = open_page()
    page.goto(page.url.partition("#")[0] + "#/translate?s=zAAAA")
    expect(page.locator(".announcer")).to_contain_text("cannot be opened")


def test_copies_as_curl_python_and_typescript(open_page):
    page = open_page()
    show(page, "translate", json.dumps(IMAGE_REQUEST))
    column = page.locator('.column[data-column="openai_chat"]')
    for name, start in (("curl", "curl"), ("Python", "import"), ("TypeScript", "")):
        column.get_by_role("button", name=f"as {name}").click()
        expect(page.locator(".announcer")).to_contain_text(f"{name} copied")
        text = wait_for_clipboard(page, start)
        assert "Where is Paris?" in text
        assert "OPENAI_API_KEY" in text
    column.get_by_role("button", name=re.compile("^Copy OpenAI Chat[^ ]*$|^Copy .* document$")).or_(
        column.locator(".copies button").first
    ).first.click()
    assert json.loads(wait_for_clipboard(page, "{"))["model"]


def test_pasted_text_is_translated(open_page):
    page = open_page()
    page.evaluate("text => navigator.clipboard.writeText(text)", json.dumps(TOOL))
    page.locator("main").focus()
    page.keyboard.press("Control+v")
    expect(page.locator(".source .viewer")).to_contain_text("lookup")
    expect(page.locator('.column[data-column="gemini"]')).to_contain_text("lookup")


def test_text_formats_are_columns_too(open_page, console):
    page = open_page()
    page.get_by_role("radio", name="Text formats").click()
    expect(page.locator(".column")).to_have_count(len(console.get("/api/meta")["formats"]))


def test_wrong_input_is_explained_and_corrected_while_typing(open_page):
    page = open_page()
    put(page, "translate", '{"model": "gpt-5", "messages": [')
    expect(page.get_by_role("alert")).to_be_visible()
    assert len(page.get_by_role("alert").inner_text()) > 10
    put(page, "translate", json.dumps(IMAGE_REQUEST))
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator('.column[data-column="gemini"]')).to_contain_text("Where is Paris?")


def test_wrong_kind_of_text_is_explained(open_page):
    page = open_page()
    for text in ("hello", "[]", "{}", "42", '{"messages": 3}', "\u0000", "<html>"):
        put(page, "translate", text)
        expect(page.locator("#view-translate .problem, #view-translate .column").first).to_be_visible()
    put(page, "translate", "")
    expect(page.locator(".empty")).to_contain_text("every format")


def test_page_without_token_says_what_to_do(open_page, console):
    page = open_page(fragment="", settle=False)
    expect(page.get_by_role("heading", level=1)).to_contain_text("no key")
    expect(page.locator("main")).to_contain_text("toolwire console")
    page = open_page(fragment="#token=wrong", settle=False)
    expect(page.get_by_role("heading", level=1)).to_contain_text("no key")
    page.goto(console.address)
    expect(page.locator(".column").first).to_be_visible()


def test_token_leaves_the_address_and_the_history(open_page, console):
    page = open_page()
    assert console.token not in page.url
    assert page.evaluate("history.state") is None
    assert console.token not in page.evaluate(
        "JSON.stringify([document.cookie, {...localStorage}, document.body.innerText])"
    )
    page.reload()
    expect(page.locator(".column").first).to_be_visible()
