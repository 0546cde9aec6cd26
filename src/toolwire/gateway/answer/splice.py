"""Replace the model in a request, and keep everything else byte for byte as the client wrote it."""

from __future__ import annotations

import re

from ...ir.pointer import Object
from ...ir.text import to_bytes

__all__ = ["replace_model"]

# at the start of an object, members with plain values, up to the model
_LEADING_MODEL = re.compile(
    rb'\s*+\{(?:\s*+"(?!model")[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[-+.\w]++)\s*+,)*+\s*+"model"\s*+:\s*+("(?:[^"\\]|\\.)*+")'
)


def replace_model(body: bytes, document: Object, model: str) -> bytes:
    """Replace the model in `body`, whose parsed form is `document`.

    If the model comes before any nested value, as clients write it, only its name is replaced. Otherwise the document
    is encoded again.
    """
    if document.get("model") == model:
        return body
    if "model" not in document:
        return body  # it is in the path
    match = _LEADING_MODEL.match(body)
    if match is None:
        return to_bytes({**document, "model": model})
    return body[: match.start(1)] + to_bytes(model) + body[match.end(1) :]
