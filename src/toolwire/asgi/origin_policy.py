"""Refuse requests that a browser was tricked into, and requests that two servers would parse differently."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from ..ir.errors import ProtocolError, ToolwireError
from ..wire.loopback import is_loopback

__all__ = ["OriginPolicy", "RequestRefused"]

_UNREPEATABLE_HEADERS = frozenset(
    (
        b"host",
        b"origin",
        b"content-length",
        b"content-type",
        b"authorization",
        b"x-api-key",
        b"x-goog-api-key",
        b"api-key",
    )
)
_MAX_KNOWN_HOSTS = 64


class RequestRefused(ToolwireError):
    """The client is not allowed to do this."""

    default_status = 403


class OriginPolicy:
    """Checks of the Host and Origin headers, and of repeated headers.

    `hosts` are names of the gateway besides those of this machine. `origins` are pages that may send requests.
    `open_to_all` is for a gateway with keys, where the name that a client uses for it does not matter.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str], *, open_to_all: bool) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._is_open_to_all = open_to_all
        self._known_hosts: set[bytes] = set()  # Host headers that are allowed

    def check(self, raw_headers: list[tuple[bytes, bytes]], http_version: str = "1.1") -> None:
        """Check the raw headers. HTTP/1.0 needs no Host header."""
        headers = dict(raw_headers)
        if len(headers) != len(raw_headers):
            _check_repeated(raw_headers)
        host, origin = headers.get(b"host", b""), headers.get(b"origin", b"")
        if not host and http_version != "1.0":
            raise ProtocolError("the request has no Host header")
        if not self._is_open_to_all and host not in self._known_hosts and not self._is_allowed_host(host):
            raise RequestRefused(
                "the Host header names an unknown host", hint="set server.hosts to the names that clients use"
            )
        if origin and not self._is_allowed_origin(origin.decode("latin-1").lower()):
            raise RequestRefused(
                "the Origin header names an unknown origin",
                hint="set server.origins to the origins that may send requests",
            )

    def _is_allowed_host(self, host: bytes) -> bool:
        """Check a Host header. Remember those that are allowed, because clients send the same ones again."""
        name = _host_name(f"//{host.decode('latin-1')}")
        is_allowed = name in self._hosts or is_loopback(name)
        if is_allowed and len(self._known_hosts) < _MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return is_allowed

    def _is_allowed_origin(self, origin: str) -> bool:
        return origin in self._origins or is_loopback(_host_name(origin))


def _check_repeated(raw_headers: list[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in raw_headers:
        if name in _UNREPEATABLE_HEADERS and name in seen:
            raise ProtocolError(f"repeated header {name.decode()}")
        seen.add(name)


def _host_name(url: str) -> str:
    """Return the host name of a URL, or an empty string if the URL contains more than an address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return "" if "@" in parts.netloc or parts.path or parts.query else parts.hostname or ""
