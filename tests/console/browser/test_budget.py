"""Size and requests of the first view, and nodes of the page for large documents."""

import gzip
import json

from console_pages import count_nodes
from playwright.sync_api import expect

from conftest import ROOT

STATIC = ROOT / "src/toolwire/gateway/console/static"
NODES = 3000  # elements of the page, whatever is shown


def test_first_view_has_few_small_answers(browser, console):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    requests = []
    page.on("requestfinished", lambda request: requests.append(request))
    page.goto(console.address)
    page.locator(".column .viewer .row").first.wait_for()
    page.wait_for_load_state("networkidle")
    hosts = {
        request.url.partition("/#")[0][: len(console.origin)]
        for request in requests
        if not request.url.startswith("data:")
    }
    bodies = {request.url: request.response().body() for request in requests if not request.url.startswith("data:")}
    sizes = {url: len(gzip.compress(body)) for url, body in bodies.items()}
    context.close()
    assert hosts == {console.origin}
    assert len(sizes) <= 15, sorted(sizes)
    assert sum(sizes.values()) <= 250_000, sizes


def test_files_are_small():
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) <= 1_000_000


def test_body_of_ten_megabytes_keeps_few_elements(open_page, tmp_path):
    messages = [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"{at} " + "word " * 80} for at in range(24_000)
    ]
    text = json.dumps({"model": "gpt-5", "messages": messages}, indent=1)
    assert len(text) > 10_000_000
    path = tmp_path / "large.json"
    path.write_text(text, encoding="utf-8")
    page = open_page()
    page.locator("#view-translate input[type=file]").set_input_files(path)
    expect(page.get_by_label("Sample")).to_contain_text("large.json")
    expect(page.locator(".column .viewer .row").first).to_be_visible()
    expect(page.locator(".source .viewer")).to_contain_text("0 word")
    assert count_nodes(page) <= NODES
    page.locator(".source .viewer").focus()
    page.keyboard.press("End")
    expect(page.locator(".source .viewer")).to_contain_text("23999 word")
    assert count_nodes(page) <= NODES


def test_one_line_of_ten_megabytes_keeps_few_elements(open_page, tmp_path):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2_500_000}}
    text = json.dumps(
        {"model": "gpt-5", "messages": [{"role": "user", "content": [picture, {"type": "text", "text": "after it"}]}]}
    )
    path = tmp_path / "picture.json"
    path.write_text(text, encoding="utf-8")
    page = open_page()
    page.locator("#view-translate input[type=file]").set_input_files(path)
    expect(page.get_by_label("Sample")).to_contain_text("picture.json")
    expect(page.locator(".source .viewer")).to_contain_text("QUJD")
    expect(page.locator(".column .viewer .row").first).to_be_visible()
    assert count_nodes(page) <= NODES
    page.locator(".source .viewer").focus()
    page.keyboard.press("End")
    expect(page.locator(".source .viewer")).to_contain_text("after it")
    expect(page.locator(".source .viewer")).to_contain_text("more characters")


def test_five_thousand_tools_keep_few_elements(open_page, tmp_path):
    tools = [
        {
            "name": f"tool_{at}",
            "description": "Do it.",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
        }
        for at in range(5000)
    ]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools), encoding="utf-8")
    page = open_page("tools")
    page.locator("#view-tools input[type=file]").set_input_files(path)
    expect(page.locator("#view-tools .toolbar [role=status]")).to_contain_text("5,000 tools")
    assert count_nodes(page) <= NODES
    page.get_by_role("gridcell").first.click()
    page.get_by_role("gridcell").first.focus()
    page.keyboard.press("End")
    expect(page.locator(".matrix-name", has_text="tool_4999")).to_be_visible()
    expect(page.get_by_label("Lowered for", exact=False)).to_contain_text("properties")
    assert count_nodes(page) <= NODES


def test_all_formats_side_by_side_keep_few_elements(open_page):
    page = open_page()
    page.get_by_role("radio", name="All", exact=True).click()
    expect(page.locator(".column").nth(20)).to_be_attached()
    assert count_nodes(page) <= NODES
    page.locator(".column").last.scroll_into_view_if_needed()
    expect(page.locator(".column").last.locator(".row, .problem").first).to_be_visible()
    assert count_nodes(page) <= NODES
