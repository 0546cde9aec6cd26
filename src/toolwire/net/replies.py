"""What one does with a reply, whoever asked."""

from __future__ import annotations

import asyncio

from ..ir.errors import ProtocolError
from .http import Reply

__all__ = ["drain", "is_document", "whole_body"]

_GRACE = 0.25  # seconds


async def whole_body(reply: Reply, limit: int) -> bytes:
    """All of it; ProtocolError where it is more than `limit` bytes."""
    pieces, size = [], 0
    while data := await reply.read():
        size += len(data)
        if size > limit:
            raise ProtocolError(f"an answer of more than {limit} bytes", hint="raise the limit", status=502)
        pieces.append(data)
    return b"".join(pieces)


async def drain(reply: Reply) -> None:
    """The rest of an answer that is whole, so that its connection can be used again."""
    try:
        async with asyncio.timeout(_GRACE):
            while await reply.read():
                pass
    except (TimeoutError, ConnectionError):
        pass  # only the connection is lost


def is_document(reply: Reply) -> bool:
    """A JSON document, and not a stream."""
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
