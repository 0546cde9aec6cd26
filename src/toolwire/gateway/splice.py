"""Another model in a request, and everything else byte for byte as the client wrote it."""

from __future__ import annotations

import re

from ..ir.pointer import Object
from ..ir.text import to_bytes

__all__ = ["with_model"]

# at the beginning of an object, members whose values are plain, up to the model
_EARLY = re.compile(
    rb'\s*+\{(?:\s*+"(?!model")[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[-+.\w]++)\s*+,)*+\s*+"model"\s*+:\s*+("(?:[^"\\]|\\.)*+")'
)


def with_model(body: bytes, document: Object, model: str) -> bytes:
    """`body`, which says `document`, asking for `model`.

    Where the model comes before anything nested, as clients write it, only its name is exchanged; else the document is
    written anew.
    """
    if document.get("model") == model:
        return body
    if "model" not in document:
        return body  # it stands in the path
    found = _EARLY.match(body)
    if found is None:
        return to_bytes({**document, "model": model})
    return body[: found.start(1)] + to_bytes(model) + body[found.end(1) :]
