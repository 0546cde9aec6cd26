"""Render only pages that changed: a hook of MkDocs that keeps rendered pages in `.docs-cache/`, and parsed search entries.

Rendering Markdown and reading the entries of the search index out of the result take most of the time of a build. Both are functions of
a page's text, of the settings, of the paths of all pages (links are resolved by them) and of the versions of the generator. An entry of the
cache is named by the hash of all of these, so a stale entry cannot be found; the links' anchors are validated at each build. A page whose
rendering logged a warning is not kept, so that the warning is repeated. A build removes the entries that it did not use.

MkDocs has no event around these two steps, so the hook replaces the two functions. The versions are pinned in pyproject.toml, and a test
compares a site that was built from the cache with one that was built without.
"""

import hashlib
import importlib.metadata
import logging
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from material.plugins.search.plugin import SearchIndex
from mkdocs.structure.pages import Page

__all__ = ["PageCache", "on_files", "on_post_build"]

_GENERATOR = ("mkdocs", "mkdocs-material", "markdown", "pymdown-extensions", "pygments")
_RENDERED = ("content", "toc", "_title_from_render", "present_anchor_ids")
_FOLDER = "TOOLWIRE_DOCS_CACHE"  # build_site.py sets it; empty for a build without a cache

_render = Page.render
_add_entries = SearchIndex.add_entry_from_context


class PageCache:
    """Values by the hash of what they depend on, one file for each."""

    def __init__(self, folder: Path, common: object) -> None:
        self.folder = folder
        self._common = repr(common)
        self._used: set[str] = set()

    def get(self, inputs: object, make: Callable[[], Any]) -> Any:
        """Return the value for `inputs`; `make` returns it, or None if it must not be kept."""
        name = hashlib.sha256(f"{self._common}\n{inputs!r}".encode()).hexdigest()
        path = self.folder / name
        self._used.add(name)
        try:
            return pickle.loads(path.read_bytes())  # noqa: S301 - written by this class
        except (OSError, EOFError, pickle.UnpicklingError):
            value = make()
        if value is not None:
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(pickle.dumps(value))
            Path(file.name).replace(path)  # a build that is interrupted leaves no half of an entry
        return value

    def remove_unused(self) -> None:
        for path in self.folder.iterdir():
            if path.name not in self._used:
                path.unlink(missing_ok=True)


class _WarningCounter(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def on_files(files: Any, *, config: Any) -> Any:
    """Begin a build: the paths of all files are known now."""
    folder = os.environ.get(_FOLDER, "")
    if not folder:
        Page.render, SearchIndex.add_entry_from_context = _render, _add_entries
        return files
    Path(folder).mkdir(exist_ok=True)
    versions = [importlib.metadata.version(name) for name in _GENERATOR]
    settings = [Path(__file__).with_name("mkdocs.yml").read_text(encoding="utf-8"), Path(__file__).read_text("utf-8")]
    paths = sorted((file.src_uri, file.url, str(file.inclusion)) for file in files)
    cache = PageCache(Path(folder), (sys.version, versions, settings, paths))
    config.extra["page_cache"] = cache

    def render(page: Any, config: Any, files: Any) -> None:
        def make() -> Any:
            counter = _WarningCounter()
            logging.getLogger("mkdocs").addHandler(counter)
            _render(page, config, files)
            logging.getLogger("mkdocs").removeHandler(counter)
            links = {file.src_uri: anchors for file, anchors in (page.links_to_anchors or {}).items()}
            return None if counter.count else ([getattr(page, name) for name in _RENDERED], links)

        found = cache.get(("page", page.file.src_uri, page.markdown), make)
        if found is not None:
            values, links = found
            for name, value in zip(_RENDERED, values, strict=True):
                setattr(page, name, value)
            page.links_to_anchors = {files.get_file_from_path(path): anchors for path, anchors in links.items()}

    def add_entries(index: Any, page: Any) -> None:
        def make() -> Any:
            before = len(index.entries)
            _add_entries(index, page)
            made = index.entries[before:]
            del index.entries[before:]
            return made

        index.entries += cache.get(("search", page.url, page.title, page.meta, page.content), make)

    Page.render, SearchIndex.add_entry_from_context = render, add_entries
    return files


def on_post_build(*, config: Any) -> None:
    if "page_cache" in config.extra:
        config.extra["page_cache"].remove_unused()
