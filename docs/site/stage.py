"""Collect the pages of the site in a folder, with the settings of MkDocs: converted, generated and static files."""

import json
import shutil
import tomllib
from pathlib import Path

from api_objects import public_names
from api_pages import api_pages
from navigation import NAVIGATION, PAGES
from page_conversion import convert, first_paragraph, title

__all__ = ["ROOT", "read_version", "site_pages", "stage"]

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
# Pages with many names and numbers come after the pages that explain them. Half of the API begins with `tool`, but `tool search` is `retrieval`.
_SEARCH_BOOSTS = {
    "api/": 0.2,
    "changes": 0.1,
    "bench/": 0.5,
    "experiments/": 0.5,
    "operations/runbook": 0.5,
    "examples": 0.5,
    "rules/": 0.2,
    "formats": 0.5,
    "parser-names": 0.5,
    "translation": 0.5,
    "upstreams": 0.5,
    "violations": 0.5,
    "approvals": 3,
    "retrieval": 3,
}
_STATIC = {"docs/architecture.svg": "architecture.svg", "docs/site/site.css": "site.css"}


def read_version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def stage(folder: Path, output: Path) -> Path:
    """Write the pages below `folder` and return the settings file that builds them into `output`."""
    version = read_version()
    texts = {**_converted(version), **api_pages(), "examples.md": _examples(version)}
    texts["llms.txt"] = _llms(texts, version)
    for path, text in texts.items():
        target = folder / "pages" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_search_settings(path) + text, encoding="utf-8")
    for source, path in _static_files().items():
        target = folder / "pages" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, target)
    for path in _example_files():
        target = folder / "pages" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    settings = {
        "INHERIT": str(SITE / "mkdocs.yml"),
        "site_name": f"toolwire {version}",
        "copyright": f"toolwire {version} · Apache-2.0",
        "docs_dir": str(folder / "pages"),
        "site_dir": str(output),
        "nav": _navigation(texts),
        "hooks": [str(SITE / "page_cache.py")],
    }
    path = folder / "mkdocs.json"  # JSON is YAML
    path.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return path


def _search_settings(path: str) -> str:
    """Return the front matter that ranks a page in searches; `searches.json` has what must be found."""
    boost = next((boost for prefix, boost in _SEARCH_BOOSTS.items() if path.startswith(prefix)), None)
    name = path.removeprefix("api/toolwire.").removesuffix(".md")
    names = public_names()
    if path.startswith("api/") and name in names["toolwire"] and f"toolwire.{name}" not in names:
        # A search matches beginnings, and ranks rare words first: without a boost, `Agent` finds `AgentConversation` first.
        longer = {other for exported in names.values() for other in exported if other.lower().startswith(name.lower())}
        boost = min(1 + len(longer), 4)  # a page of the docs with both words of `tool search` is before `Tool`
    return f"---\nsearch:\n  boost: {boost}\n---\n" if boost else ""


def site_pages() -> dict[str, str]:
    """Map each file of the repository that is on the site to its path there."""
    rules = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/rules").glob("*.md"))
    paths = {page: page.removeprefix("docs/").replace("README.md", "index.md") for page in rules}
    return {**PAGES, **paths, **_static_files()}


def _static_files() -> dict[str, str]:
    """Map each file that is copied as it is to its path on the site: pictures, and charts beside their pages."""
    found = [*(ROOT / "docs/experiments").glob("*.svg"), *(ROOT / "docs/pictures").glob("*.*")]
    charts = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return {**_STATIC, **{path: path.removeprefix("docs/") for path in charts}}


def _converted(version: str) -> dict[str, str]:
    pages = site_pages()
    return {
        path: convert((ROOT / page).read_text(encoding="utf-8"), page, pages, version)
        for page, path in pages.items()
        if page.endswith(".md")
    }


def _example_files() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


def _examples(version: str) -> str:
    lines = ["# Examples", "", f"The programs of the folder `examples`, as of version {version}.", ""]
    for path in _example_files():
        lines += [f"## {path.name}", "", f"[Download](examples/{path.name})", ""]
        lines += [
            f'```python title="examples/{path.name}, toolwire {version}"',
            path.read_text(encoding="utf-8").rstrip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def _navigation(texts: dict[str, str]) -> list[dict[str, list[object]]]:
    sections: dict[str, list[object]] = {
        section: [PAGES[page] for page in pages] for section, pages in NAVIGATION.items()
    }
    sections["Tutorials"].append("examples.md")
    sections["Reference"][:0] = [{"API": [path for path in texts if path.startswith("api/")]}]
    # The rules are in the table of their page: entries of all rules on the page of each rule took a third of the time of a build.
    sections["Reference"].append("rules/index.md")
    return [{section: paths} for section, paths in sections.items()]


def _llms(texts: dict[str, str], version: str) -> str:
    """Return the index for language models (llmstxt.org): every page with its first paragraph, as Markdown files."""
    lines = [f"# toolwire {version}", "", "> Write a tool once; call it from any model, over any wire.", ""]
    for section, pages in NAVIGATION.items():
        lines += [f"## {section}", ""]
        lines += [_llms_line(PAGES[page], texts[PAGES[page]]) for page in pages]
        lines.append("")
    lines += ["## API", ""]
    lines += [_llms_line(path, text) for path, text in texts.items() if path.startswith("api/")]
    return "\n".join([*lines, ""])


def _llms_line(path: str, text: str) -> str:
    summary = first_paragraph(text)
    return f"- [{title(text)}](markdown/{path})" + (f": {summary}" if summary else "")
