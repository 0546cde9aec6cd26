"""Three questions of users, answered only with what the screen shows."""

import json
import re

from console_pages import IMAGE_REQUEST, STREAM, put, show
from playwright.sync_api import expect


def test_find_why_a_call_lost_its_image(open_page):
    """The list of losses names the reason, and leads to the image in the request."""
    page = open_page()
    show(page, "translate", json.dumps(IMAGE_REQUEST))
    loss = page.locator(".loss", has_text="image").filter(has_text="dropped").first
    expect(loss).to_contain_text("Ollama accepts only inline images, not a URL")
    loss.click()
    expect(page.locator(".source .chosen").or_(page.locator(".source .band-chosen")).first).to_be_in_viewport()
    marked = "".join(page.locator(".source .row").filter(has=page.locator(".chosen")).all_inner_texts()) + "".join(
        page.locator(".source .band-chosen").all_inner_texts()
    )
    assert "https://maps.example/paris.png" in marked
    # the remedy: an inline image, and the loss is gone
    request = json.loads(json.dumps(IMAGE_REQUEST))
    request["messages"][2]["content"][0]["content"][0]["source"] = {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgo=",
    }
    show(page, "translate", json.dumps(request))
    expect(page.locator('.column[data-column="ollama"]')).to_contain_text("iVBORw0KGgo=")
    expect(page.locator(".loss", has_text="inline images")).to_have_count(0)


def test_find_which_tool_breaks_on_gemini_and_repair_its_schema(open_page):
    """The matrix shows the only cell with an error; its finding says what to change; the edit makes it clean."""
    page = open_page("tools")
    good = {
        "name": "get_map",
        "description": "Draw a map of a city.",
        "inputSchema": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city's name."}},
            "required": ["city"],
        },
    }
    bad = {**json.loads(json.dumps(good)), "name": "1st tool!"}
    show(page, "tools", json.dumps([good, bad]))
    broken = page.locator(".matrix-cell.error[data-cell$='/gemini']")
    expect(broken).to_have_count(1)
    assert broken.get_attribute("data-cell") == "1st tool!/gemini"
    broken.click()
    expect(page.locator(".findings .loss", has=page.locator(".action.error")).first).to_be_visible()
    put(page, "tools", json.dumps([good, {**bad, "name": "first_tool"}]))
    expect(page.locator(".matrix-name", has_text="first_tool")).to_be_visible()
    expect(page.locator(".matrix-cell.error")).to_have_count(0)


def test_find_the_chunk_at_which_a_stream_is_cut(open_page):
    """The verdict names the chunk and the open calls; a click selects the chunk."""
    page = open_page("streams")
    cut = STREAM[: STREAM.index("ris") + 1]
    put(page, "streams", cut)
    page.locator("#view-streams").get_by_role("button", name="Done").click()
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("Truncated")
    expect(verdict).to_contain_text("get_map")
    chunk = int(re.search(r"chunk (\d+)", verdict.inner_text())[1])
    go = page.get_by_role("button", name=re.compile("^Go to chunk"))
    if go.count():
        go.click()
    expect(page.locator(".position strong")).to_have_text(str(chunk))
    assert chunk >= cut.count("data:") - 1
    expect(page.locator(".call .action.dropped, .verdict .open-calls").first).to_be_visible()
