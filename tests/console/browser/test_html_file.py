"""The file of `toolwire convert --html`, opened from the disk: no server, no other file, nothing runs but its own script."""

import json
import subprocess
import sys

import pytest
from console_pages import IMAGE_REQUEST
from playwright.sync_api import expect
from test_hostile_text import HOSTILE, request_with


@pytest.fixture
def open_file(browser, tmp_path):
    """Return a function that writes and opens the page of a request. The page may neither raise, log nor load anything."""
    contexts, errors = [], []

    def open_file(request, **options):
        (tmp_path / "request.json").write_text(json.dumps(request), encoding="utf-8")
        target = tmp_path / "page.html"
        command = [sys.executable, "-m", "toolwire", "convert", "request.json", "--html", "page.html"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.on("request", lambda sent: sent.url == target.as_uri() or sent.url == "data:," or errors.append(sent.url))
        page.goto(target.as_uri())
        page.locator(".column .viewer .row").first.wait_for()
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert errors == []


def test_file_links_elements_and_losses(open_file):
    page = open_file(IMAGE_REQUEST)
    page.locator(".source .t.string", has_text="Where is Paris?").hover()
    expect(page.locator(".column .lit").first).to_contain_text("Where is Paris?")
    loss = page.locator(".loss", has_text="image").first
    loss.click()
    expect(loss).to_have_attribute("aria-pressed", "true")


def test_file_needs_no_script_of_its_data(open_file):
    page = open_file(request_with([text for text in HOSTILE if "\u0000" not in text]))
    page.locator(".source .viewer").focus()
    for _ in range(20):
        page.keyboard.press("PageDown")
    assert page.evaluate("globalThis.pwned") is None
    assert page.locator("iframe, object, embed, form, base, img").count() == 0


def test_file_is_accessible(open_file, axe):
    for scheme in ("light", "dark"):
        page = open_file(IMAGE_REQUEST, color_scheme=scheme, bypass_csp=True)  # for the rules themselves
        page.evaluate(axe + "; undefined")
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
