"""Results that the runtime itself gives: refusals, failures, values of any kind. Each says in words what to do."""

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
    "code_of",
    "from_record",
    "refusal",
    "sized_result",
    "spoken",
    "to_record",
    "told",
    "untold",
    "value_result",
]

MARK = "toolwire~"
"""Under this name a result says what became of its call: never sent to a model."""

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
    """An answer to a call that was not run, or not to its end."""
    result = call.result(words, is_error=True)
    return told(result, code=code)


def untold(call: ToolCall, error: Exception) -> ToolResult:
    """The answer to a call that ran to its end, and gave what cannot be written."""
    words = f"{call.name} ran, but what it gave cannot be told: {spoken(error)}"
    return told(call.result(words, is_error=True), code="failed")


def told(result: ToolResult, **notes: Any) -> ToolResult:
    """The result with notes for the program."""
    known: Object = result.extra.get(MARK, {})
    return msgspec.structs.replace(result, extra={**result.extra, MARK: {**known, **notes}})


def code_of(result: ToolResult) -> str:
    code: str = result.extra.get(MARK, {}).get("code", "ok")
    return code


def value_result(call: ToolCall, value: Any) -> ToolResult:
    """What a function returned: text, media, parts, a result, or anything that has a meaning in JSON."""
    return sized_result(call, value)[0]


def sized_result(call: ToolCall, value: Any) -> tuple[ToolResult, int | None]:
    """The result of a value, and how many characters it has at most, where that is known without writing it again."""
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
    """Half a character cannot be sent to anybody."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def spoken(error: BaseException, *, name: bool = True) -> str:
    """An exception in words, even one that cannot say what it is."""
    try:
        words = _whole_characters(str(error))
    except Exception:  # noqa: BLE001  # the author's own __str__
        words = "it cannot say what happened"
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
    """JSON's own types; pydantic models, dataclasses and structs become objects."""
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
    """As a store keeps it."""
    return msgspec.json.encode(result).decode()


def from_record(record: str, call: ToolCall) -> ToolResult:
    """A kept result as the answer to this call."""
    result = _decode(record)
    return told(msgspec.structs.replace(result, call_id=call.id, name=call.name), replayed=True)
