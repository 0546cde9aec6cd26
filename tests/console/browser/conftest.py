"""The console in a real browser: Debian's Chromium, driven by Playwright. `make test-console` installs what it needs."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from console_pages import SAFETY, VIEWS

ROOT = Path(__file__).parents[3]

if importlib.util.find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]  # not installed: `make test-console`


class Console:
    """A running `toolwire console`: its address, and what it counted."""

    def __init__(self, address):
        self.address = address
        self.origin, _, fragment = address.partition("/#")
        self.token = re.search(r"token=([^&]+)", fragment)[1]

    def get(self, path):
        request = urllib.request.Request(self.origin + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=SAFETY / 1000) as answer:
            return json.load(answer)


def start_console(*arguments):
    command = [sys.executable, "-m", "toolwire", "console", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    for line in process.stdout:
        if found := re.search(r"http://\S+#token=\S+", line):
            return process, Console(found[0])
    raise AssertionError(f"`toolwire console` ended with {process.wait()} and printed no address")


@pytest.fixture(scope="session")
def console():
    process, found = start_console()
    yield found
    process.terminate()
    process.wait(timeout=SAFETY / 1000)
    process.stdout.close()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=SAFETY)

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "install Chromium (Debian: apt-get install chromium), or set CHROMIUM to its path"
    with sync_playwright() as playwright:
        # without a sandbox, because tests may run as root; the page under test is ours
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser, console):
    """Return a function that opens a view. No page of a test may raise an error, log one, or violate the content policy."""
    contexts, errors = [], []
    before = console.get("/api/csp-reports")["count"]

    def open_page(view="translate", *, scheme="light", size=(1440, 900), fragment=None, settle=True):
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=console.origin)
        contexts.append(context)
        context.set_default_timeout(SAFETY)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        # a refused request is shown in the page; Chromium logs it, too
        page.on(
            "console",
            lambda message: (
                message.type == "error"
                and not message.text.startswith("Failed to load")
                and errors.append(message.text)
            ),
        )
        page.goto(console.address if fragment is None else f"{console.origin}/{fragment}")
        if settle:
            page.get_by_role("tab", name=VIEWS[view], exact=True).click()
            page.locator(f"#view-{view} .view").wait_for()
            page.locator(f"#view-{view} .viewer .row").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert console.get("/api/csp-reports")["count"] == before


@pytest.fixture(scope="session")
def axe():
    path = ROOT / ".console/node_modules/axe-core/axe.min.js"
    assert path.exists(), "run `make .console/installed`: axe-core comes from npm"
    return path.read_text(encoding="utf-8")
