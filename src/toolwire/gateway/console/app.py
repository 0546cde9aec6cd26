"""The ASGI application of the console: its page, and its API for clients with the token.

The token is in the fragment of the address that `toolwire console` prints, which browsers send to no server, and in the
`Authorization` header of API requests. A cookie would be sent to every port of this machine, so there is none. Host and
Origin are checked against DNS rebinding: a page of another origin cannot read an answer, even one that knows the token.

Requests run in threads, because a document of 10 MB takes seconds. Their number is bounded.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import asynccontextmanager
from logging import getLogger
from typing import TYPE_CHECKING

from ...asgi.access import LOCAL_HOSTS, AccessDenied, Guard
from ...asgi.admission import Admission
from ...asgi.http_exchange import ClientGone, HeaderPairs, HttpExchange
from ...asgi.offload import LARGE, Offload
from ...asgi.request import SLOW_CLIENT, Receive, Scope, Send, parse_headers, serve_lifespan
from ...ir.errors import ProtocolError, ToolwireError
from ...stream.strict import parse
from ..faults import Overloaded
from .api import (
    MAX_BODY,
    META,
    OPERATIONS,
    REPORTS,
    describe_console,
    encode,
    encode_error,
    openapi_bytes,
    run_operation,
)
from .messages import ApiError, ErrorAnswer, OpenedFile, ReportsAnswer
from .static_files import CSP_REPORTS, SECURITY_HEADERS, StaticFile, static_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ...ir.pointer import JSON

_log = getLogger("toolwire.gateway.console")
_MAX_REQUESTS = 32  # in flight: a page has one per target, and a browser opens six connections
_MAX_WAIT = 10.0  # seconds for a thread; a person would rather see an error than wait longer
_MAX_REPORT = 16 * 1024  # bytes of a policy report; browsers send about 1 kB
_MAX_REPORTS = 20  # kept; the first ones show the cause
_CLIENT = "console"  # all requests are of one person


class _NotFound(ToolwireError):
    default_status = 404


class _WrongMethod(ToolwireError):
    default_status = 405


class Console:
    """The application. `token` is required for the API; `opened` is the document that the page shows first."""

    def __init__(self, token: str, opened: OpenedFile | None = None) -> None:
        self._page_guard = Guard(LOCAL_HOSTS)
        self._guard = Guard(LOCAL_HOSTS, tokens={token: _CLIENT})
        self._opened = opened
        self._offload = Offload(max_delay=_MAX_WAIT)
        self._admission = Admission(_MAX_REQUESTS, _MAX_WAIT, time.monotonic)
        self._reports: deque[JSON] = deque(maxlen=_MAX_REPORTS)
        self._report_count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(self._lifespan(), receive, send)
        elif scope["type"] == "http":
            exchange = HttpExchange(scope, receive, send)
            try:
                await self._answer(exchange, scope)
            except ClientGone:
                pass
        else:
            await send({"type": "websocket.close", "code": 1008})

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        static_files()  # read before the first request
        yield

    async def _answer(self, exchange: HttpExchange, scope: Scope) -> None:
        """Answer a request; every failure is an error document."""
        try:
            headers = parse_headers(scope["headers"])
            await self._route(exchange, headers, scope)
        except AccessDenied as error:
            extra = [(b"www-authenticate", b"Bearer")] if error.status == 401 else []
            hint = "open the address that `toolwire console` printed" if error.status in (401, 403) else ""
            details = ApiError("AccessDenied", None, error.reason, "", hint)
            await self._respond(exchange, error.status, encode(ErrorAnswer(details)), extra)
        except ToolwireError as error:
            status, body = encode_error(error)
            await self._respond(exchange, status, body, [(b"retry-after", b"1")] if status == 503 else [])
        except ClientGone:
            raise
        except Exception:  # noqa: BLE001  # a client gets an answer also for our own mistakes
            _log.exception("a request to %s failed", exchange.path)
            details = ApiError("InternalError", None, "the console failed; its log has the cause", "", "")
            await self._respond(exchange, 500, encode(ErrorAnswer(details)))

    async def _route(self, exchange: HttpExchange, headers: dict[str, str], scope: Scope) -> None:
        path = exchange.path
        self._page_guard.check_address(scope.get("server"))
        if not path.startswith("/api/"):
            self._check_page(headers)
            await self._serve_page(exchange, path)
            return
        self._check_origin(headers)
        self._guard.admit(headers)
        if path == META:
            _require(exchange, "GET")
            body = await self._offload.run(_CLIENT, LARGE + 1, lambda: encode(describe_console(self._opened)))
            await self._respond(exchange, 200, body)
        elif path == REPORTS:
            _require(exchange, "GET")
            await self._respond(exchange, 200, encode(ReportsAnswer(self._report_count, list(self._reports))))
        elif path in OPERATIONS:
            _require(exchange, "POST")
            await self._run(exchange, headers, path)
        else:
            raise _NotFound(f"no such path: {path}", hint="see GET /openapi.json")

    async def _run(self, exchange: HttpExchange, headers: dict[str, str], path: str) -> None:
        """Run an operation in a thread: also a short document may have many targets."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ProtocolError(f"expected application/json, got {kind or 'no content-type'}", status=415)
        if self._admission.in_flight >= _MAX_REQUESTS or self._offload.is_late(_CLIENT, LARGE + 1):
            self._admission.refuse_excess()
            raise Overloaded
        self._admission.in_flight += 1
        try:
            body = await exchange.read_body(MAX_BODY, SLOW_CLIENT)
            answer = await self._offload.run(_CLIENT, LARGE + len(body) + 1, run_operation, OPERATIONS[path], body)
        finally:
            self._admission.in_flight -= 1
        await self._respond(exchange, 200, answer)

    async def _serve_page(self, exchange: HttpExchange, path: str) -> None:
        if path == CSP_REPORTS:
            _require(exchange, "POST")
            await self._take_report(exchange)
        elif path == "/openapi.json":
            _require(exchange, "GET", "HEAD")
            await self._respond(exchange, 200, openapi_bytes())
        else:
            name = "index.html" if path == "/" else path.removeprefix("/static/")
            file = static_files().get(name) if path == "/" or path.startswith("/static/") else None
            if file is None:
                raise _NotFound(f"no such path: {path}", hint="the page is at /")
            _require(exchange, "GET", "HEAD")
            await self._send_file(exchange, file)

    async def _send_file(self, exchange: HttpExchange, file: StaticFile) -> None:
        """Send a file, compressed if the client accepts that. An address with the hash of a file is valid forever."""
        etag = f'"{file.hash}"'
        is_fixed = exchange.query.get("v") == file.hash
        headers: HeaderPairs = [
            *SECURITY_HEADERS,
            (b"content-type", file.type.encode()),
            (b"etag", etag.encode()),
            (b"vary", b"accept-encoding"),
            (b"cache-control", b"public, max-age=31536000, immutable" if is_fixed else b"no-cache"),
        ]
        known = [tag.strip().removeprefix("W/") for tag in exchange.headers.get("if-none-match", "").split(",")]
        if etag in known:
            await exchange.respond(304, headers, b"")
            return
        encodings = [part.partition(";")[0].strip() for part in exchange.headers.get("accept-encoding", "").split(",")]
        if "gzip" in encodings:
            await exchange.respond(200, [*headers, (b"content-encoding", b"gzip")], file.zipped)
        else:
            await exchange.respond(200, headers, file.body)

    async def _take_report(self, exchange: HttpExchange) -> None:
        """Keep a report of the content security policy, which a browser sends without a token."""
        body = await exchange.read_body(_MAX_REPORT, SLOW_CLIENT)
        self._report_count += 1
        try:
            self._reports.append(parse(body))
        except ToolwireError:
            self._reports.append(None)
        await exchange.respond(204, [*SECURITY_HEADERS], b"")

    def _check_page(self, headers: dict[str, str]) -> None:
        self._check_origin(headers)
        self._page_guard.admit(headers)

    @staticmethod
    def _check_origin(headers: dict[str, str]) -> None:
        """Refuse pages of other origins, also of other ports of this machine, which the guard would accept."""
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{headers.get('host', '')}".lower():
            raise AccessDenied(403, f"origin {origin!r} is not the console's own")

    @staticmethod
    async def _respond(exchange: HttpExchange, status: int, body: bytes, headers: HeaderPairs | None = None) -> None:
        """Answer with JSON, unless an answer has begun."""
        if exchange.started or exchange.disconnected:
            return
        common = [*SECURITY_HEADERS, (b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await exchange.respond(status, [*common, *(headers or [])], body)


def _require(exchange: HttpExchange, *methods: str) -> None:
    if exchange.method not in methods:
        exchange.answer_headers.append((b"allow", ", ".join(methods).encode()))
        raise _WrongMethod(f"{exchange.path} does not support {exchange.method}", hint=f"use {methods[0]}")
