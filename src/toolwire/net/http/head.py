"""The head of an HTTP/1.1 request: base URLs and headers from settings, and their encoding.

Settings are checked when they are read, so that an invalid URL or header is an error of the configuration, not of a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from ...ir.errors import ConfigError
from ...ir.value import Value
from ...wire.loopback import is_loopback

_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]").search
_HINT = "such as https://example.com/v1 or http://127.0.0.1:8000/v1"
_MAX_SHOWN = 100  # characters of a wrong URL: enough to recognise it, on one line of a message
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://").match


def parse_base_url(url: str, *, insecure: bool) -> SplitResult:
    """Split a base URL that a key will be sent to.

    Raise ConfigError if it is invalid, contains credentials, which are not shown, or sends them unencrypted to another
    machine, unless `insecure`.
    """
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
    from ...run.traces.redact import Redactor

    shown = "…" if "@" in url else url.partition("?")[0]
    return repr(Redactor()(shown)[:_MAX_SHOWN])


def origin_of(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}"


def join_path(base: str, path: str) -> str:
    """Join base and path; the base may already end with the path, or with its version."""
    version = "/" + path.split("/")[1]
    return base.rstrip("/").removesuffix(path).removesuffix(version) + path


is_header_value = re.compile(r"[\x21-\x7e]+").fullmatch
_is_header_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_is_printable = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?").fullmatch
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# set by the transport, or by the wire
_RESERVED = frozenset(
    "host content-length content-type content-encoding transfer-encoding connection keep-alive upgrade te trailer "
    "expect accept-encoding".split()
)


class CustomHeaders(Value, frozen=True):
    """Headers from settings: literal values, and values with an environment variable, which are secrets."""

    literal: dict[str, str] = {}
    secret: dict[str, str] = {}


def expand_headers(headers: Mapping[str, str], environment: Mapping[str, str], key_header: str) -> CustomHeaders:
    """Replace `${NAME}` by environment variables. Values with a variable are secrets.

    Raise ConfigError for an invalid, reserved or repeated header, and a missing variable. Errors do not show values.
    `key_header` is the header of the key, which has settings of its own.
    """
    literal: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, template in headers.items():
        lower = name.lower()
        if not _is_header_name(name):
            raise ConfigError(f"headers: {name!r} is not a valid name of a header")
        if lower in _RESERVED:
            raise ConfigError(f"headers: {name!r} cannot be set", hint="it is set for each request")
        if lower == key_header.lower():
            hint = "set the key with key_env, key_file or key_command (in Python: key or key_command)"
            raise ConfigError(f"headers: {name!r} is the header of the key", hint=hint)
        if lower in literal or lower in secret:
            raise ConfigError(f"headers: {name!r} is set twice")
        value = _expand_variables(template, name, environment)
        if not _is_printable(value):
            raise ConfigError(f"the value of header {name!r} is empty or has characters that are not allowed")
        (literal if value == template else secret)[lower] = value
    return CustomHeaders(literal, secret)


def _expand_variables(template: str, header: str, environment: Mapping[str, str]) -> str:
    def value_of(found: re.Match[str]) -> str:
        value = environment.get(found[1], "").strip()
        if not value:
            raise ConfigError(f"headers: environment variable {found[1]} of {header!r} is not set")
        return value

    return _VARIABLE.sub(value_of, template)


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

    Raise ConfigError if the URL or a header is invalid. The message contains no value, which may be a secret.
    """
    origin, target, host = _split_url(url)
    given = {name.lower() for name, _ in fields}
    headers = [(name, value) for name, value in {"host": host, **_DEFAULT_HEADERS}.items() if name not in given]
    for name, value in fields:
        _check_field(name, value)
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in (*headers, *fields)), ""]
    return origin, "\r\n".join(lines).encode("latin-1", "replace")


def _check_field(name: str, value: str) -> None:
    """Raise ConfigError for a header that is invalid, or that the client sets itself."""
    if not _is_token(name):
        raise ConfigError(f"invalid header name: {name[:100]!r}")
    if name.lower() in _FRAMING_HEADERS:
        raise ConfigError(f"the header {name} is set by the client", hint="remove it")
    if _has_forbidden_character(value):
        raise ConfigError(f"the header {name} must not contain a line break or a NUL character")


def _split_url(url: str) -> tuple[Origin, str, str]:
    """Split a URL into origin, request target and Host header. Raise ConfigError if it is invalid."""
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
