"""Access control for servers over HTTP: bearer tokens, hosts, origins and listening addresses."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from ..ir.errors import ConfigError, ProtocolError, ToolwireError
from ..wire.loopback import is_address, is_loopback

# A web page can make a browser send requests to servers on the user's own machine, under a name that the page's owner
# points there (DNS rebinding). So both the name that a request was sent to (Host) and the page that it comes from
# (Origin) must be known. Bearer tokens are compared in constant time. Each belongs to a principal, which separates
# idempotency keys and request states.


LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class AccessDenied(Exception):
    """A refused request, with the `status` and headers of the response."""

    def __init__(self, status: int, reason: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


class Guard:
    """Check the host, the origin and the bearer token of requests.

    `hosts` are names, with a port or for any port; "*" allows every name. `origins` are allowed besides pages on these
    hosts.

    `tokens` maps bearer tokens to their principals; without any, every client is admitted. A guard with neither
    tokens nor hosts of its own only admits connections from this machine.
    """

    def __init__(
        self, hosts: Iterable[str] = LOCAL_HOSTS, origins: Iterable[str] = (), tokens: Mapping[str, str] | None = None
    ) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._tokens = {sha256(token.encode()).digest(): owner for token, owner in (tokens or {}).items()}  # by hash
        self._is_local = not self._tokens and all(is_loopback(_without_port(host)) for host in self._hosts)

    @property
    def is_open(self) -> bool:
        """True if no token is required."""
        return not self._tokens

    def check_address(self, address: Sequence[object] | None) -> None:
        """Raise AccessDenied for a connection to an address that other machines can reach, unless a token or host is
        configured.

        `address` is the ASGI field `server`, the local end of the connection: `("192.168.1.5", 8000)`. Any client can
        send the header `Host: localhost`, so that header protects against web pages only.
        """
        host = address[0] if address else None
        if self._is_local and isinstance(host, str) and is_address(host) and not is_loopback(host):
            message = f"without a token only clients on this machine are served, but other machines can reach {host}"
            raise AccessDenied(
                403, f"{message}: configure Guard(tokens=…), or Guard(hosts=…) after another authentication"
            )

    def admit(self, headers: Mapping[str, str]) -> str:
        """Return the client's principal, "" if no token is required.

        Raise AccessDenied if the host, the origin or the token is not accepted.
        """
        host = headers.get("host", "")
        if not self._is_known_host(host):
            raise AccessDenied(403, f"host {host!r} is not allowed")
        origin = headers.get("origin")
        if origin is not None and not self._is_trusted_origin(origin):
            raise AccessDenied(403, f"origin {origin!r} is not allowed")
        return self._identify(headers.get("authorization")) if self._tokens else ""

    def _is_known_host(self, host: str) -> bool:
        host = host.lower()
        return "*" in self._hosts or host in self._hosts or _without_port(host) in self._hosts

    def _is_trusted_origin(self, origin: str) -> bool:
        """Check the Origin header: listed in `origins`, or an http(s) page on one of our own hosts."""
        origin = origin.lower()
        if origin in self._origins or "*" in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        is_own_host = parts.netloc in self._hosts or _without_port(parts.netloc) in self._hosts
        return parts.scheme in ("http", "https") and is_own_host

    def _identify(self, authorization: str | None) -> str:
        """Return the principal of the bearer token. Raise AccessDenied (401) if it is missing or unknown."""
        scheme, _, token = (authorization or "").partition(" ")
        token_digest = sha256(token.strip().encode("utf-8", "surrogatepass")).digest()
        owner = None
        for known, token_owner in self._tokens.items():  # compare all of them, so that the duration reveals nothing
            if hmac.compare_digest(known, token_digest):
                owner = token_owner
        if scheme.lower() != "bearer" or owner is None:
            raise AccessDenied(401, "missing or invalid bearer token", ((b"www-authenticate", b'Bearer realm="mcp"'),))
        return owner


def _without_port(host: str) -> str:
    """`[::1]:80` → `[::1]`, `localhost:80` → `localhost`."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


# Refuse requests that a browser was tricked into, and requests that two servers would parse differently.


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
_MAX_KNOWN_HOSTS = 64  # names and ports of one server are a few; a client may invent ports without end


class RequestRefused(ToolwireError):
    """The client is not allowed to do this."""

    default_status = 403


class OriginPolicy:
    """Checks of the Host and Origin headers, and of repeated headers.

    `hosts` are names of the gateway besides the names of this machine. `origins` are pages that may send requests.
    `open_to_all` is for a gateway with keys, where the name that a client uses for it does not matter.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str], *, open_to_all: bool) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._is_open_to_all = open_to_all
        self._known_hosts: set[bytes] = set()  # Host headers that are allowed

    def check(self, raw_headers: list[tuple[bytes, bytes]], http_version: str = "1.1") -> None:
        """Raise ProtocolError for a repeated header or no Host header, RequestRefused for an unknown host or origin.

        HTTP/1.0 needs no Host header.
        """
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
        """Return whether a Host header is allowed. Allowed headers are remembered: clients send the same ones again."""
        name = _host_name(f"//{host.decode('latin-1')}")
        is_allowed = name in self._hosts or is_loopback(name)
        if is_allowed and len(self._known_hosts) < _MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return is_allowed

    def _is_allowed_origin(self, origin: str) -> bool:
        return origin in self._origins or is_loopback(_host_name(origin))


def _check_repeated(raw_headers: list[tuple[bytes, bytes]]) -> None:
    """Raise ProtocolError if a header that must be unique is repeated."""
    seen: set[bytes] = set()
    for name, _ in raw_headers:
        if name in _UNREPEATABLE_HEADERS and name in seen:
            raise ProtocolError(f"repeated header {name.decode()}")
        seen.add(name)


def _host_name(url: str) -> str:
    """Return the host name of a URL, or an empty string if the URL contains more than an address."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return ""
    has_more = "@" in parts.netloc or parts.path or parts.query or parts.fragment
    return "" if has_more else parts.hostname or ""


# Refuse to listen on an address that other machines can reach without authentication.


def refuse_open(host: str, *, without: str, hint: str) -> None:
    """Raise ConfigError if other machines can reach `host`, an address or a name to listen on."""
    if not _is_local(host):
        exposed = host or "every interface"
        raise ConfigError(f"without {without}, {exposed} would be open to every client that can reach it", hint=hint)


def _is_local(host: str) -> bool:
    """Return True if all addresses of the host are loopback addresses: a resolver may map `x.localhost` elsewhere."""
    if not is_loopback(host):
        return False
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return True  # nothing can listen on it
    return all(is_loopback(str(address[0])) for *_, address in addresses)
