"""Build tool results: refusals, failures and return values. The text of an error instructs the model how to proceed."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ..ir.errors import EncodeError
from ..ir.parts import Media, Opaque, Text, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.text import to_bytes

__all__ = [
    "MARK",
    "Code",
    "annotate",
    "code_of",
    "error_text",
    "from_record",
    "refusal",
    "sized_result",
    "to_record",
    "unserialisable_result",
    "value_result",
]

MARK = "toolwire~"
"""The `extra` field of a result with the notes of the runtime, such as its code; never sent to a model."""

Code: TypeAlias = Literal[
    "ok",
    "unknown_tool",
    "withdrawn",
    "truncated",
    "invalid_arguments",
    "denied",
    "needs_approval",
    "key_conflict",
    "in_progress",
    "outcome_unknown",
    "store_down",
    "timeout",
    "failed",
    "cancelled",
    "over_budget",
]
_SCALARS = frozenset({int, float, bool, type(None)})
_decode = msgspec.json.Decoder(ToolResult).decode


def refusal(call: ToolCall, code: Code, words: str) -> ToolResult:
    """Build the result of a call that was not run, or did not finish."""
    result = call.result(words, is_error=True)
    return annotate(result, code=code)


def unserialisable_result(call: ToolCall, error: Exception) -> ToolResult:
    """Build the result of a call that finished with a value that cannot be encoded."""
    words = f"{call.name} ran, but its return value cannot be encoded: {error_text(error)}"
    return annotate(call.result(words, is_error=True), code="failed")


def annotate(result: ToolResult, **notes: Any) -> ToolResult:
    """Add notes for the program to a result."""
    known: Object = result.extra.get(MARK, {})
    return msgspec.structs.replace(result, extra={**result.extra, MARK: {**known, **notes}})


def code_of(result: ToolResult) -> str:
    code: str = result.extra.get(MARK, {}).get("code", "ok")
    return code


def value_result(call: ToolCall, value: Any) -> ToolResult:
    """Build a result from a return value: text, media, parts, a result, or any value with a JSON representation."""
    return sized_result(call, value)[0]


def sized_result(call: ToolCall, value: Any) -> tuple[ToolResult, int | None]:
    """Build a result from a value, with the upper bound of its length in characters; None if not known."""
    if type(value) is str:
        return call.result(_whole_characters(value)), len(value)
    if type(value) in _SCALARS:
        plain = value
    elif isinstance(value, ToolResult):
        return msgspec.structs.replace(value, call_id=call.id, name=call.name, kind=call.kind), None
    elif (parts := _parts(value)) is not None:
        return msgspec.structs.replace(call.result(), parts=parts), None
    else:
        plain = _plain(value)
    try:
        size = len(to_bytes(plain))
    except EncodeError:
        plain, size = _whole_characters(str(value)), None
    return call.result("" if plain is None else plain), size


def _whole_characters(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def error_text(error: BaseException, *, name: bool = True) -> str:
    """Describe an exception, even one whose `__str__` raises."""
    try:
        words = _whole_characters(str(error))
    except Exception:  # noqa: BLE001  # a user-defined __str__
        words = "the exception has no readable message"
    if not name:
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _parts(value: Any) -> tuple[Text | Media | Opaque, ...] | None:
    if isinstance(value, (Text, Media)):
        return (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, (Text, Media)) for item in value):
        return tuple(value)
    return None


def _plain(value: Any) -> Any:
    """Convert a value to JSON types; pydantic models, dataclasses and structs become objects."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    try:
        return msgspec.to_builtins(value, enc_hook=_hook)
    except (TypeError, RecursionError, ValueError):
        return str(value)


def _hook(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def to_record(result: ToolResult) -> str:
    """Encode a result for a store."""
    return msgspec.json.encode(result).decode()


def from_record(record: str, call: ToolCall) -> ToolResult:
    """Decode a stored result as the result of this call."""
    result = _decode(record)
    return annotate(msgspec.structs.replace(result, call_id=call.id, name=call.name), replayed=True)
