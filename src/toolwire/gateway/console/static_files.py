"""The page of the console: its files with their hashes, and the headers that confine it."""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

CSP_REPORTS = "/csp-report"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    f"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; report-uri {CSP_REPORTS}"
)
"""Only the page's own files: no inline script or style, no other host, no frame around it."""

SECURITY_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
_HASH_LENGTH = 16  # hexadecimal digits, as many as no two versions of a file share by chance


class StaticFile(NamedTuple):
    """A file of the page. `hash` names its content in its address and its ETag."""

    body: bytes
    zipped: bytes
    type: str
    hash: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Read the files of the page, by their paths below `static/`. Their number is fixed, so no path is ever resolved."""
    return dict(sorted(_read_folder(files(__package__) / "static", "")))


def _read_folder(folder: Traversable, prefix: str) -> list[tuple[str, StaticFile]]:
    found: list[tuple[str, StaticFile]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _read_folder(entry, f"{prefix}{entry.name}/")
            continue
        kind = _TYPES.get(f".{entry.name.rpartition('.')[2]}")
        if kind is not None:
            body = entry.read_bytes()
            digest = sha256(body).hexdigest()[:_HASH_LENGTH]
            found.append((prefix + entry.name, StaticFile(body, gzip.compress(body, mtime=0), kind, digest)))
    return found
