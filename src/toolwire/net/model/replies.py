"""Read replies of servers: body, losses, headers for a client, rest of a stream; and describe refusals.

A refusal is described with the address, and with a hint how to fix it. A loss that no caller collects is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ...ir.errors import ProtocolError
from ...ir.losses import Loss
from ...ir.response import UpstreamError
from ...ir.terminal import neutralise_line
from ..http.transport import Reply
from .endpoint import Endpoint

LOSSES_HEADER = "x-toolwire-lost"
"""The header in which a model in this process reports losses of the request."""
# Seconds; the last bytes are in the same packet or the next one, and a new connection costs less than waiting longer.
_GRACE = 0.25
_LARGE_PIECE = 64 * 1024  # bytes; reading many of them without a pause would keep the event loop from other requests
_FORWARDED = re.compile(r"(?:x|anthropic)-ratelimit-[a-z0-9_-]{1,64}").fullmatch
_MAX_FORWARDED = 32  # rate-limit headers; Anthropic sends 15
_MAX_VALUE = 200  # characters of a forwarded header; dates and request ids have fewer than 50
_UPSTREAM_REQUEST_ID = b"x-toolwire-upstream-request-id"
_losses = msgspec.json.Decoder(tuple[Loss, ...])


def loss_headers(losses: Iterable[Loss]) -> dict[str, str]:
    """Build the header that reports losses."""
    reported = list(losses)
    return {LOSSES_HEADER: msgspec.json.encode(reported).decode()} if reported else {}


def transport_losses(reply: Reply) -> tuple[Loss, ...]:
    """Return the losses that a model in this process reported."""
    header = reply.headers.get(LOSSES_HEADER)
    return () if header is None else _losses.decode(header)


async def read_reply_body(reply: Reply, limit: int, reserve: Callable[[int], None] | None = None) -> bytes:
    """Read the whole body. Raise ProtocolError if it exceeds `limit` bytes.

    `reserve` is called with the size of every part, and may raise an error.
    """
    pieces: list[bytes] = []
    total, headers = 0, reply.headers
    while data := await reply.read():
        size = len(data)
        total += size
        if total > limit:
            raise ProtocolError(f"the response exceeds {limit} bytes", hint="raise the limit", status=502)
        if reserve is not None:
            reserve(size)
        if not pieces and headers.get("content-length") == str(size) and "content-encoding" not in headers:
            return data  # it is the whole body
        pieces.append(data)
        if size > _LARGE_PIECE:
            await asyncio.sleep(0)  # compressed data yields many pieces without waiting for the network
    return b"".join(pieces)


async def drain(reply: Reply) -> None:
    """Read the rest of a complete response for a moment, so that its connection can be reused. Errors are ignored."""
    try:
        async with asyncio.timeout(_GRACE):
            while data := await reply.read():
                if len(data) > _LARGE_PIECE:
                    await asyncio.sleep(0)
    except (TimeoutError, ConnectionError):
        pass  # only the connection is lost


def forwarded_headers(reply: Reply, endpoint: Endpoint) -> list[tuple[bytes, bytes]]:
    """Select the upstream's rate limits and its request id for the client, in a safe form and number.

    Every answer of some providers has a dozen of them, so they are checked together, and one by one only if this fails.
    """
    headers = reply.headers
    names = _forwarded_names(tuple(headers))
    if not names:
        return []
    values, secrets = [headers[name] for name, _ in names], endpoint.known_secrets
    if _are_safe(values, secrets):
        return [(written, value.encode()) for (_, written), value in zip(names, values, strict=True)]
    pairs = [(written, value) for (_, written), value in zip(names, values, strict=True) if _are_safe([value], secrets)]
    return [(written, value.encode()) for written, value in pairs]


@lru_cache(128)  # an upstream sends the same names with nearly all of its answers
def _forwarded_names(names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Return the names of headers to forward, each with the name that the client gets."""
    limits = [(name, name.encode()) for name in names if _FORWARDED(name)][:_MAX_FORWARDED]
    request_id = next((name for name in ("request-id", "x-request-id") if name in names), None)
    return limits if request_id is None else [*limits, (request_id, _UPSTREAM_REQUEST_ID)]


def _are_safe(values: list[str], secrets: Iterable[str]) -> bool:
    """Check the values of headers: printable ASCII of a limited length, without a secret."""
    text = "".join(values)
    if not text.isascii() or not text.isprintable() or max(map(len, values)) > _MAX_VALUE:
        return False
    return not any(secret in text for secret in secrets)


def describe_refusal(error: UpstreamError, endpoint: Endpoint, url: str, sent: int) -> UpstreamError:
    """Add the address to a message that does not name the cause, and a hint if the caller can fix it. Return the error.

    Such a message is a bare status, or is about a server that cannot answer now. `sent` is the number of requests.
    """
    if endpoint.vendor.transport is not None:  # a model in this process
        return error
    fault, address = error.fault, _shown_address(endpoint, url)
    requests = "1 request" if sent == 1 else f"{sent} requests"
    if fault.message == f"HTTP {fault.status}":
        error.message = f"{address} answered with HTTP {fault.status}"
    elif fault.kind in ("overloaded", "rate_limit"):
        error.message = f"{fault.message} ({endpoint.origin}, {requests})"
    if not error.hint:
        error.hint = _hint(error, endpoint, address)
    return error


def refuse_web_page(reply: Reply, endpoint: Endpoint, url: str) -> None:
    """Raise ProtocolError if a server answers a request with a web page: the path belongs to no API."""
    if reply.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html":
        message = f"{_shown_address(endpoint, url)} answered with a web page instead of JSON"
        raise ProtocolError(message, hint="check base_url=…", status=502)


def _shown_address(endpoint: Endpoint, url: str) -> str:
    """Return a URL without its query and without known secrets, for a message."""
    text = urlunsplit(urlsplit(url)._replace(query="", fragment=""))
    for secret in endpoint.known_secrets:
        text = text.replace(secret, "[key]")
    return neutralise_line(text)


def _hint(error: UpstreamError, endpoint: Endpoint, address: str) -> str:
    """Return a hint for a failed connection, a refused key, an unknown model or a bare status, or else nothing."""
    fault = error.fault
    if fault.code == "connection":
        return "check that the server is running, and check base_url=…"
    if fault.kind in ("authentication", "permission"):
        return _key_hint(endpoint)
    if fault.kind == "not_found":
        where = "" if address in error.message else f" of {address}"
        return f"check the name of the model{where}, and check base_url=…"
    if fault.message != f"HTTP {fault.status}":
        return ""
    return "see the log of the server, or try again later" if fault.status >= 500 else "check base_url=…"


def _key_hint(endpoint: Endpoint) -> str:
    if endpoint.key_variable is not None:
        return f"check the key in {endpoint.key_variable}"
    if endpoint.key_command is not None:
        return "check the key command"
    if endpoint.signing is not None:
        return "check the permissions of the AWS credentials, and location=…"
    if endpoint.key is not None:
        return "check the key that you passed"
    return f"no key was sent to {endpoint.origin}; pass its key: key=…"


# Log losses that no caller collects: each distinct one once, as a warning, so that no loss is silent.
#
# A conversation repeats its losses with every request; repetitions are logged at the level DEBUG.


_MAX_DISTINCT = 1000  # losses that are remembered; details may contain values of requests, so they never end


class LossLog:
    """The losses that one client has logged."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._seen: set[tuple[str, str, str]] = set()

    def report(self, losses: Iterable[Loss]) -> None:
        """Log losses: new ones as warnings, repetitions and losses of severity `info` for debugging."""
        for loss in losses:
            key = (loss.concept, loss.action, loss.detail)
            is_new = loss.severity != "info" and key not in self._seen and len(self._seen) < _MAX_DISTINCT
            if is_new:
                self._seen.add(key)
            self._log.log(logging.WARNING if is_new else logging.DEBUG, "%s", loss)
