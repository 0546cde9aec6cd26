"""Read replies: the body, the losses, the headers for a client, the rest of a stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from ..ir.errors import ProtocolError
from ..ir.losses import Loss
from .endpoint import Endpoint
from .http import Reply

__all__ = ["LOSSES_HEADER", "drain", "forwarded_headers", "loss_headers", "read_reply_body", "transport_losses"]

LOSSES_HEADER = "x-toolwire-lost"
"""The header in which a model in this process reports losses of the request."""
_GRACE = 0.25  # seconds
_LARGE_PIECE = 64 * 1024  # bytes
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
    pieces, total = [], 0
    while data := await reply.read():
        size = len(data)
        total += size
        if total > limit:
            raise ProtocolError(f"the response exceeds {limit} bytes", hint="raise the limit", status=502)
        if reserve is not None:
            reserve(size)
        pieces.append(data)
        if size > _LARGE_PIECE:
            await asyncio.sleep(0)  # compressed data yields many pieces without waiting for the network
    return b"".join(pieces)


async def drain(reply: Reply) -> None:
    """Read the rest of a complete response, so that its connection can be reused."""
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
