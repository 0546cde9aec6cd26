"""Requests whose body is changed before it is read: decompressed, or with the model of the path as a field.

Everything after this reads a plain body of a usual path. The bytes are changed as they are read, and so after the key of the
client was checked, and within the limits on the changed body.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from ...asgi.body_decoding import BodyDecoder
from ...asgi.http_exchange import BodyTooLarge, HttpExchange
from ...ir.text import to_bytes
from ...stream.strict import parse_object

_LARGE = 64 * 1024  # bytes that are parsed in a thread: more than a millisecond
_DROPPED = ("anthropic_version",)  # of Vertex AI's bodies: other servers of Anthropic's API have a header


def change_body(http_exchange: HttpExchange, model: str, max_bytes: int) -> None:
    """Let a compressed body be read decompressed, and a body without the model of its path with it.

    `max_bytes` limits a body that gets a model. Call it before anything of the body is read.
    """
    headers = http_exchange.headers
    encoding = headers.pop("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        http_exchange.change_body(partial(_decoded, encoding=encoding))
    if model and not headers.get("content-type", "").lower().startswith("multipart/"):  # whose SDKs write the field
        http_exchange.change_body(partial(_with_model, model=model, max_bytes=max_bytes))


async def _decoded(pieces: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Yield decompressed pieces. Raise ProtocolError for an unknown encoding, an invalid body or a bomb."""
    decoder = BodyDecoder(encoding)
    async for piece in pieces:
        for decoded in decoder.decode(piece):
            yield decoded
            await asyncio.sleep(0)  # other requests run between two steps of a large body
    decoder.close()


async def _with_model(pieces: AsyncIterator[bytes], model: str, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body with the model of the path."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > max_bytes:
            raise BodyTooLarge(f"the body has more than {max_bytes} bytes")
    data = bytes(body)
    yield _set_model(data, model) if len(data) <= _LARGE else await asyncio.to_thread(_set_model, data, model)


def _set_model(body: bytes, model: str) -> bytes:
    """Return a body that names a model. Raise ProtocolError if it is not a JSON object."""
    document = parse_object(body)
    return to_bytes({"model": model} | {k: v for k, v in document.items() if k != "model" and k not in _DROPPED})
