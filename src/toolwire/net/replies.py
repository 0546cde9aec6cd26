"""Read replies: the body, the losses, the rest of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from ..ir.errors import ProtocolError
from ..ir.losses import Loss
from .http import Reply

__all__ = ["LOSSES_HEADER", "drain", "loss_headers", "read_reply_body", "transport_losses"]

LOSSES_HEADER = "x-toolwire-lost"
"""The header in which a model in this process reports losses of the request."""
_GRACE = 0.25  # seconds
_LARGE_PIECE = 64 * 1024  # bytes
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
