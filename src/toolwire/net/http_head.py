"""Write the head of an HTTP/1.1 request: its target, its Host and its headers."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from ..ir.errors import ConfigError

__all__ = ["Origin", "build_head"]

_DEFAULT_HEADERS = {"user-agent": "toolwire", "accept-encoding": "identity"}
_FRAMING_HEADERS = frozenset({"content-length", "transfer-encoding"})  # they follow from the body
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_has_forbidden_character = re.compile(r"[\r\n\0]").search
_is_token = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch  # RFC 9110, 5.6.2


class Origin(NamedTuple):
    """The server of a URL."""

    host: str
    port: int
    tls: bool

    @property
    def authority(self) -> str:
        """Host and port, as in CONNECT; an IPv6 address is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def build_head(method: str, url: str, fields: tuple[tuple[str, str], ...]) -> tuple[Origin, bytes]:
    """Return the origin of a request, and its head without the headers that describe the body.

    ConfigError if the URL or a header is invalid. The message contains no value, which may be a secret.
    """
    origin, target, host = _split_url(url)
    given = {name.lower() for name, _ in fields}
    headers = [(name, value) for name, value in {"host": host, **_DEFAULT_HEADERS}.items() if name not in given]
    for name, value in fields:
        _check_field(name, value)
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in (*headers, *fields)), ""]
    return origin, "\r\n".join(lines).encode("latin-1", "replace")


def _check_field(name: str, value: str) -> None:
    if not _is_token(name):
        raise ConfigError(f"invalid header name: {name[:100]!r}")
    if name.lower() in _FRAMING_HEADERS:
        raise ConfigError(f"the header {name} is set by the client", hint="remove it")
    if _has_forbidden_character(value):
        raise ConfigError(f"the header {name} must not contain a line break or a NUL character")


def _split_url(url: str) -> tuple[Origin, str, str]:
    """Split a URL into origin, request target and Host header."""
    if _has_forbidden_character(url) or " " in url:
        raise ConfigError("invalid URL: it contains a space, a line break or a NUL character")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna" if not url.isascii() else "ascii").decode()
    except ValueError as error:
        raise ConfigError(f"invalid URL: {error}") from None
    if not host or parts.scheme not in ("http", "https"):
        raise ConfigError("invalid URL", hint="use http(s)://host/path")
    tls = parts.scheme == "https"
    origin = Origin(host, port or (443 if tls else 80), tls)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    bracketed = f"[{host}]" if ":" in host else host
    return origin, quote(target, safe=_PRINTABLE), bracketed if port is None else f"{bracketed}:{port}"
