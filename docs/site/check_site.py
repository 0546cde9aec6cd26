"""Check a built site: no resource of another host, the version on every page, every public name, and a search index."""

import html.parser
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from api_pages import entries

__all__ = ["foreign_resources", "misses", "problems"]

# The elements that a browser loads without a click, and their attribute.
_LOADED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "image": "href",
    "use": "href",
}
_NOT_LOADED = {"canonical", "alternate", "prev", "next", "author", "license"}
_FOREIGN = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_CSS_URL = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s]+)""")
# With these elements, the theme's script loads a diagram library from a CDN, or figures of the repository from GitHub.
_REMOTE_COMPONENTS = ('class="mermaid"', 'data-md-component="source"')


class _Loaded(html.parser.HTMLParser):
    """Collect the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.addresses += _CSS_URL.findall(values.get("style", ""))
        if tag == "link" and set(values.get("rel", "").split()) & _NOT_LOADED:
            return
        if tag in _LOADED and values.get(_LOADED[tag]):
            self.addresses.append(values[_LOADED[tag]])
        self.addresses += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.addresses += _CSS_URL.findall(data)


def foreign_resources(text: str, *, is_css: bool = False) -> list[str]:
    """Return the addresses of other hosts that a browser loads for this page or style sheet, without a click."""
    if is_css:
        return [address for address in _CSS_URL.findall(text) if _FOREIGN.match(address)]
    page = _Loaded()
    page.feed(text)
    remote = [component for component in _REMOTE_COMPONENTS if component in text]
    return [*(address for address in page.addresses if _FOREIGN.match(address)), *remote]


def problems(site: Path, version: str) -> list[str]:
    """Return the problems of the site of one version."""
    return [
        *_resource_problems(site),
        *_version_problems(site, version),
        *_name_problems(site),
        *_search_problems(site),
        *_ranking_problems(site),
    ]


def _resource_problems(site: Path) -> Iterator[str]:
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for address in foreign_resources(path.read_text(encoding="utf-8"), is_css=path.suffix == ".css"):
            yield f"{path.relative_to(site)} loads {address}; copy the file into the site or remove the reference"


def _version_problems(site: Path, version: str) -> Iterator[str]:
    for path in sorted(site.rglob("*.html")):
        if f"toolwire {version}" not in path.read_text(encoding="utf-8"):
            yield f"{path.relative_to(site)} does not show the version {version}"


def _name_problems(site: Path) -> Iterator[str]:
    texts: dict[str, str] = {}
    for path, place in entries().items():
        page, _, anchor = place.replace(".md#", ".html#").partition("#")
        if page not in texts:
            texts[page] = (site / page).read_text(encoding="utf-8") if (site / page).exists() else ""
        if f'id="{anchor}"' not in texts[page]:
            yield f"{page} has no entry for {path}"


def _search_problems(site: Path) -> Iterator[str]:
    index = site / "search/search_index.json"
    if not index.exists():
        yield "search/search_index.json is missing; enable the plugin search"
        return
    found = {entry["location"].partition("#")[0] for entry in json.loads(index.read_text(encoding="utf-8"))["docs"]}
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site).as_posix()
        if page not in found and page != "404.html" and not (page == "index.html" and "" in found):
            yield f"{page} is not in the search index"


_SEARCHES = Path(__file__).with_name("searches.json")
_MISSES = 4  # of forty searches


def _ranking_problems(site: Path) -> list[str]:
    """Run the site's own search in Node, if it is installed, and compare it with searches.json."""
    node = shutil.which("node")
    if node is None or not (site / "assets/javascripts/workers").exists():
        return []
    searches: dict[str, list[str]] = json.loads(_SEARCHES.read_text(encoding="utf-8"))
    done = subprocess.run(  # noqa: S603 - a command without user input
        [node, Path(__file__).with_name("search.mjs"), site],
        input="\n".join(searches),
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(zip(searches, map(json.loads, done.stdout.splitlines()), strict=True))
    missed = misses(searches, found)
    return missed if len(missed) > _MISSES else []


def misses(searches: dict[str, list[str]], found: dict[str, list[str]]) -> list[str]:
    """Return the searches that have none of their pages among the first three results, at any part of a page without a #."""
    return [
        f"the search {query!r} finds {', '.join(found[query][:3])} before {' or '.join(pages)}"
        for query, pages in searches.items()
        if not any(place in pages or place.partition("#")[0] in pages for place in found[query][:3])
    ]
