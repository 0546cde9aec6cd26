"""Examples as they are: the canonical values in JSON. Nothing is lost."""

from __future__ import annotations

from typing import Any

import msgspec

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.pointer import Object
from ..examples import EncodedRow, Example, TrainingFormat, make_example


def _decode(row: Object) -> Example:
    """Return a row as an example.

    Raises `ProtocolError` for invalid fields, and unless each assistant message has a weight of 0 or 1, or none has.
    """
    if "messages" not in row:
        raise ProtocolError("'messages' is missing")
    try:
        given = msgspec.convert(row, Example)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(f"not an example of toolwire: {error}") from None
    assistants = sum(message.role == "assistant" for message in given.messages)
    if given.weights and (len(given.weights) != assistants or not {0, 1}.issuperset(given.weights)):
        raise ProtocolError(
            f"expected 0 or 1 for each of the {assistants} assistant messages, got {list(given.weights)[:20]}",
            pointer="/weights",
        )
    return make_example(
        given.messages,
        given.tools,
        parallel=given.parallel,
        weights=given.weights,
        id=given.id,
        source=given.source,
        extra=given.extra,
    )


def _encode(example: Example) -> EncodedRow:
    row: Object = msgspec.to_builtins(example)
    return EncodedRow(row, Losses())


def _matches(row: Object) -> int:
    messages: Any = row.get("messages")
    if not isinstance(messages, list):
        return 0
    return 10 if any(isinstance(message, dict) and "parts" in message for message in messages) else 0


FORMAT = TrainingFormat(
    name="toolwire", title="canonical examples of toolwire", decode=_decode, encode=_encode, matches=_matches
)
