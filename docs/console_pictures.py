"""Take the pictures of the console for docs/console.md: docs/pictures/console-*.png, in Debian's Chromium.

python docs/console_pictures.py       needs the dependency group `console` and Chromium (`make test-console` installs the group)

No test compares them, because each version of a browser draws text slightly differently.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

try:
    from playwright.sync_api import Page, sync_playwright
except ModuleNotFoundError:
    sys.exit(
        "playwright is missing; install it with: pip install --group console (and Chromium: apt-get install chromium)"
    )

PICTURES = Path(__file__).with_name("pictures")
VIEWS = {"translate": "Translate", "streams": "Streams", "formats": "Text formats", "tools": "Tools"}
_SIZE = {
    "width": 1120,
    "height": 630,
}  # a picture has about 80 kB, and its text is readable in a column of the documentation


def main() -> None:
    command = [sys.executable, "-m", "toolwire", "console", "--port", "0"]
    with subprocess.Popen(  # noqa: S603 - a command without user input
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as console:
        assert console.stdout
        address = next(found[0] for line in console.stdout if (found := re.search(r"http://\S+#token=\S+", line)))
        try:
            _take_pictures(address)
        finally:
            console.terminate()


def _take_pictures(address: str) -> None:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, title in VIEWS.items():
            scheme = "dark" if name == "streams" else "light"
            context = browser.new_context(viewport=_SIZE, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(address)
            _open_view(page, name, title)
            path = PICTURES / f"console-{name}.png"
            page.screenshot(path=path)
            print(path, path.stat().st_size)
            context.close()
        browser.close()


def _open_view(page: Page, name: str, title: str) -> None:
    page.get_by_role("tab", name=title, exact=True).click()
    page.locator(f"#view-{name} .view").wait_for()
    page.locator(f"#view-{name} .viewer .row").first.wait_for()
    if name == "translate":
        page.locator(".column .viewer .row").first.wait_for()  # the first translation has arrived
    if name == "streams":  # in the middle of the call, where each pane has something to show
        page.get_by_role("slider").fill("8")


if __name__ == "__main__":
    main()
