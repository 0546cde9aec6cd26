"""The head of the request that a connection receives: its size, its checks, its scope, and its parser.

httptools calls `on_url` and `on_header` here, and the other events of `ParserEvents` at the connection, without a step
in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from httptools import HttpRequestParser, parse_url

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from .http_exchange import HeaderPairs
    from .request import Scope

HEAD_TOO_LARGE = (431, "the head of the request is too large")
PROBE_PATHS = (b"/", b"/health", b"/healthz", b"/livez", b"/ready", b"/readyz", b"/metrics")


class Refused(Exception):
    """A request that is refused, with status and message; without them, it is dropped.

    httptools raises an error of its own, with this one as its context.
    """


class ParserEvents(Protocol):
    """The events of the parser that the connection handles."""

    def on_message_begin(self) -> None: ...

    def on_headers_complete(self) -> None: ...

    def on_body(self, body: bytes, /) -> None: ...

    def on_message_complete(self) -> None: ...


class RequestHead:
    """The URL and the headers of a request, as far as they have arrived. `limit` is the size of all in bytes."""

    __slots__ = (
        *("_limit", "_query", "_trailer_size", "client", "headers", "is_complete", "parsed_url", "parser", "path"),
        *("on_body", "on_headers_complete", "on_message_begin", "on_message_complete", "on_url"),
        *("pieces_of_url", "raw_path", "scheme", "server", "url"),
    )

    def __init__(self, events: ParserEvents, limit: int) -> None:
        self.on_message_begin = events.on_message_begin
        self.on_headers_complete = events.on_headers_complete
        self.on_body = events.on_body
        self.on_message_complete = events.on_message_complete
        self.server: tuple[str, int | None] | None = None  # it and the following belong to the connection
        self.client: tuple[str, int | None] | None = None
        self.scheme = "http"
        self._limit = limit
        self.parsed_url = b""  # the URL of the last request, and its parts
        self.path, self.raw_path, self._query = "", b"", b""
        self.pieces_of_url: list[bytes] = []
        self.on_url = self.pieces_of_url.append
        self.url = b""  # the pieces, when the head is complete
        self.parser = HttpRequestParser(self)
        self.reset()

    def reset(self) -> None:
        """Begin the head of the next request."""
        self.pieces_of_url.clear()
        self.headers: HeaderPairs = []
        self.is_complete = False
        self._trailer_size = 0

    def describe_connection(self, transport: BaseTransport, *, is_tls: bool) -> None:
        """Note the addresses of both sides, for the scopes of all requests."""
        self.scheme = "https" if is_tls else "http"
        self.server = _address(transport.get_extra_info("sockname"))
        self.client = _address(transport.get_extra_info("peername"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. A trailer, after the body, is only counted: the request has been checked without it."""
        if not self.is_complete:
            # llhttp removes the white space before a value, and leaves the white space after it (RFC 9110, 5.5)
            self.headers.append((name.lower(), value.rstrip(b" \t")))
            return
        self._trailer_size = (self._trailer_size or self._measure()) + len(name) + len(value) + 4
        if self._trailer_size > self._limit:
            raise Refused(*HEAD_TOO_LARGE)

    def check_size(self) -> None:
        """Raise Refused above the limit, by the size that most clients write, without the method and the version."""
        if self._measure() > self._limit:
            raise Refused(*HEAD_TOO_LARGE)

    def _measure(self) -> int:
        return len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])

    def check_framing(self, http_version: str) -> None:
        """Raise Refused for a version or a transfer coding that is not supported (RFC 9112, 6.1 and 6.3)."""
        if http_version not in ("1.1", "1.0"):
            raise Refused(505, "the only supported versions are HTTP/1.1 and HTTP/1.0")
        for name, value in self.headers:
            if name not in (b"transfer-encoding", b"te"):
                continue
            codings = [token.strip() for token in value.lower().split(b",")]
            if name == b"te" and any(coding.partition(b";")[0].strip() == b"chunked" for coding in codings):
                raise Refused(400, "chunked is not allowed in the header TE")
            if name == b"transfer-encoding" and http_version == "1.0":
                raise Refused(400, "a transfer coding is not allowed in HTTP/1.0")
            if name == b"transfer-encoding" and codings != [b"chunked"]:
                status = 501 if codings[-1] == b"chunked" else 400
                raise Refused(status, "the only supported transfer coding is chunked")

    def parse_url(self) -> None:
        """Find the path and the query, if the URL is not `parsed_url`: most clients send all requests to the same one."""
        parsed_url = parse_url(self.url)
        raw_path = parsed_url.path or b"/"  # of a URL with a host only
        if not raw_path.isascii():
            raise Refused(400, "the URL of the request is not ASCII")
        path = raw_path.decode("ascii")
        self.path = unquote(path) if "%" in path else path
        self.raw_path, self._query, self.parsed_url = raw_path, parsed_url.query or b"", self.url

    def make_scope(self, method: str, http_version: str, state: dict[str, object]) -> Scope:
        """Return the ASGI scope. `state` is copied."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "http_version": http_version,
            "method": method,
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self._query,
            "headers": self.headers,
            "state": state.copy(),
        }

    @property
    def is_websocket(self) -> bool:
        """True if the header `connection` asks for an upgrade, and `upgrade` names WebSocket (RFC 6455, 4.2.1)."""
        return b"upgrade" in self._tokens_of(b"connection") and b"websocket" in self._tokens_of(b"upgrade")

    def _tokens_of(self, name: bytes) -> list[bytes]:
        """Return the items of a list header, in lower case."""
        return _split_list(b",".join([value for field, value in self.headers if field == name]).lower())

    def remove_upgrade(self) -> bytes:
        """Return the head without its request for an upgrade, for a new parser, so that the body after it is read.

        A server may ignore an upgrade, such as h2c or websocket (RFC 9110, 7.8). The header `upgrade` alone requests
        nothing, so it stays for the application. The parser does not get it, and so cannot find the request again: llhttp
        also accepts it with `proxy-connection: upgrade`.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        kept = []
        for name, value in self.headers:
            if name == b"upgrade":
                kept.append((name, value))
                continue
            if name == b"connection":
                tokens = _split_list(value)
                value = b", ".join(token for token in tokens if token.lower() not in (b"upgrade", b"http2-settings"))
            if name != b"http2-settings":
                lines.append(name + b": " + value)
        self.parser = HttpRequestParser(self)
        self.reset()
        self.headers += kept
        return b"\r\n".join([*lines, b"", b""])


def _split_list(value: bytes) -> list[bytes]:
    return [item.strip() for item in value.split(b",")]


def _address(name: object) -> tuple[str, int | None] | None:
    """Return the host and the port of a socket, or the path of a Unix socket, whose clients have none."""
    if isinstance(name, tuple):
        return str(name[0]), int(name[1])
    return (name, None) if isinstance(name, str) and name else None
