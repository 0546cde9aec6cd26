"""Check base URLs, and join them with paths."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from ..ir.errors import ConfigError
from ..wire.loopback import is_loopback

__all__ = ["join_path", "origin_of", "parse_base_url"]

_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]").search
_HINT = "such as https://example.com/v1 or http://127.0.0.1:8000/v1"
_MAX_SHOWN = 100  # characters of a wrong URL
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://").match


def parse_base_url(url: str, *, insecure: bool) -> SplitResult:
    """Check a base URL that a key will be sent to. Credentials in it are refused and not shown."""
    if not _SCHEME(url) or _FORBIDDEN_CHARACTERS(url):
        required = "must begin with https://, or with http:// on this machine, and have no spaces"
        raise ConfigError(f"a base URL {required}, got {_display(url)}", hint=_HINT)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"invalid base URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError("a base URL must not contain a user or a password", hint="pass key=… instead")
    if not host or parts.fragment or parts.scheme not in ("http", "https"):
        raise ConfigError(f"a base URL must have the form http(s)://host/path, got {_display(url)}", hint=_HINT)
    if parts.scheme == "http" and not insecure and not is_loopback(host):
        hint = "use https, or pass insecure=True if you trust the network"
        raise ConfigError(f"keys and prompts would be sent to {host} unencrypted", hint=hint)
    return parts


def _display(url: str) -> str:
    """Return a wrong URL for a message, without its credentials, its query, and anything that looks like a key."""
    from ..run.redact import Redactor

    shown = "…" if "@" in url else url.partition("?")[0]
    return repr(Redactor()(shown)[:_MAX_SHOWN])


def origin_of(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}"


def join_path(base: str, path: str) -> str:
    """Join base and path; the base may already end with the path, or with its version."""
    version = "/" + path.split("/")[1]
    return base.rstrip("/").removesuffix(path).removesuffix(version) + path
