"""Build tool results: refusals, failures, return values and marks of untrusted output.

The text of an error instructs the model how to proceed. Untrusted output is marked, and found again in a conversation
that a run continues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, ItemsView, Iterable, KeysView, Mapping, ValuesView
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from ...ir.errors import EncodeError
from ...ir.parts import Media, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import dumps, to_bytes
from ...ir.tools import SEARCH_TOOLS

# Build tool results: refusals, failures and return values. The text of an error instructs the model how to proceed.


NOTES_KEY = "toolwire~"
"""The `extra` field of a result with the notes of the runtime, such as its code; never sent to a model."""

Code: TypeAlias = Literal[
    "ok",
    "unknown_tool",
    "not_offered",
    "withdrawn",
    "truncated",
    "invalid_arguments",
    "denied",
    "needs_approval",
    "suspended",
    "key_conflict",
    "in_progress",
    "outcome_unknown",
    "store_down",
    "timeout",
    "failed",
    "cancelled",
    "over_budget",
    "dry_run",
]
# Below it, the size of the text is known without writing it, and below 2**53, so that clients read it exactly.
_MAX_INTEGER = 10**15
_MAX_INTEGER_DIGITS = 16  # including the sign
_PART_MARK = b'"part":"'  # in the JSON of every `Text` and `Media`; a value without it need not be searched for them
RESULT_METHOD = "__toolwire_result__"
"""A method of a return value that builds the result of the call, such as for an agent that takes over."""

_ITERABLES = (deque, KeysView, ValuesView, ItemsView)
_LISTS = (list, tuple, *_ITERABLES)
_decode = msgspec.json.Decoder(ToolResult).decode


def refusal(call: ToolCall, code: Code, message: str) -> ToolResult:
    """Build the result of a call that was not run, or did not finish."""
    result = call.result(message, is_error=True)
    return annotate(result, code=code)


def exception_result(call: ToolCall, code: Code, message: str, error: BaseException) -> ToolResult:
    """Build the result of a call that ended with an exception. Its text is noted, so that a server can remove it."""
    text = error_text(error)
    return annotate(refusal(call, code, f"{message}: {text}"), exception=text)


def hide_exception(result: ToolResult, replacement: str) -> ToolResult:
    """Replace the text of the exception in a result; return the same object if it has none."""
    text = exception_text(result)
    if text is None:
        return result
    return msgspec.structs.replace(result, parts=(Text(result.text.replace(text, replacement)),))


def exception_text(result: ToolResult) -> str | None:
    """Return the text of the exception with which a call ended, if it did."""
    text: str | None = result.extra.get(NOTES_KEY, {}).get("exception")
    return text


def unserialisable_result(call: ToolCall, error: Exception) -> ToolResult:
    """Build the result of a call that finished with a value that cannot be encoded."""
    return exception_result(call, "failed", f"{call.name} ran, but its return value cannot be encoded", error)


def annotate(result: ToolResult, **notes: Any) -> ToolResult:
    """Add notes for the program to a result."""
    known: Object = result.extra.get(NOTES_KEY, {})
    return msgspec.structs.replace(result, extra={**result.extra, NOTES_KEY: {**known, **notes}})


def note_edit(result: ToolResult, arguments: Object) -> ToolResult:
    """Add the arguments of a person to the result of a call that ran with them: the conversation has the model's."""
    if result_note(result, "edited") is not None:
        return result
    note = Text(f"[A person changed the arguments of this call to {dumps(arguments)}]\n")
    parts = result.parts or (() if result.structured is None else (Text(result.text),))
    return annotate(msgspec.structs.replace(result, parts=(note, *parts)), edited=arguments)


def result_note(result: ToolResult, name: str) -> Any:
    """Return a note of the runtime; None if the result does not have it."""
    return result.extra.get(NOTES_KEY, {}).get(name)


def result_code(result: ToolResult) -> str:
    code: str = result.extra.get(NOTES_KEY, {}).get("code", "ok")
    return code


def value_result(call: ToolCall, value: Any) -> ToolResult:
    """Build a result from a return value: text, media, parts, a result, or any value with a JSON representation."""
    return sized_result(call, value)[0]


def sized_result(call: ToolCall, value: Any) -> tuple[ToolResult, int | None]:
    """Build a result from any return value, with the upper bound of its length in characters; None if not known.

    Media become parts; other values become JSON, or text if JSON does not have them. Raise ValueError for a value
    without either.
    """
    kind = type(value)
    if kind is str:
        return call.result(_replace_surrogates(value)), len(value)
    if value is None:
        return call.result(), 0
    if kind is bool or (kind is int and -_MAX_INTEGER < value < _MAX_INTEGER):
        return ToolResult(call.id, call.name, (), value, False, call.kind, call.namespace), _MAX_INTEGER_DIGITS
    if kind is int or kind is float:
        json_value = value
    elif (build := getattr(kind, RESULT_METHOD, None)) is not None:
        return build(value, call), None
    elif isinstance(value, ToolResult):
        value = _without_runtime_notes(value, call)
        return msgspec.structs.replace(value, call_id=call.id, name=call.name, kind=call.kind), None
    elif _begins_with_part(value):
        return msgspec.structs.replace(call.result(), parts=_split_parts(value)), None
    else:
        try:
            json_value = _to_json_types(value)
        except ValueError:
            # pydantic refuses to serialise a model with media, or any other object that it does not know
            if (parts := _split_parts(value)) is None:
                raise
            return msgspec.structs.replace(call.result(), parts=parts), None
    try:
        encoded = to_bytes(json_value)
        size, may_have_parts = len(encoded), _PART_MARK in encoded or isinstance(json_value, str)
    except EncodeError:
        json_value, size, may_have_parts = _replace_surrogates(str(value)), None, True
    if may_have_parts and (parts := _split_parts(value)) is not None:
        return msgspec.structs.replace(call.result(), parts=parts), None
    return call.result("" if json_value is None else json_value), size


_RUNTIME_NOTES = frozenset({"waiting", "deferred", "transfer", "agent", "edited"})


def _without_runtime_notes(result: ToolResult, call: ToolCall) -> ToolResult:
    """Remove the marks of suspended, transferred and edited calls from a result of a tool: only the runtime sets them.

    Only `search_tools` loads tools.
    """
    if result.found and call.name != SEARCH_TOOLS:
        result = msgspec.structs.replace(result, found=())
    notes = result.extra.get(NOTES_KEY)
    if not isinstance(notes, dict) or _RUNTIME_NOTES.isdisjoint(notes):
        return result
    rest = {name: note for name, note in notes.items() if name not in _RUNTIME_NOTES}
    return msgspec.structs.replace(result, extra={**result.extra, NOTES_KEY: rest})


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def error_text(error: BaseException, *, name: bool = True) -> str:
    """Describe an exception, even one whose `__str__` raises."""
    try:
        message = _replace_surrogates(str(error))
    except Exception:  # noqa: BLE001  # a user-defined __str__
        message = "the exception has no readable message"
    if not name:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _begins_with_part(value: Any) -> bool:
    """Recognise the usual form of parts without encoding their data."""
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return isinstance(first, (Text, Media))


def _split_parts(value: Any) -> tuple[Text | Media, ...] | None:
    """Split a value that contains media, or a list with texts, into parts; return None for any other value.

    The items of a list, tuple, deque or view of a dictionary become parts in their order. Everything else is JSON text,
    in which media that follow it are replaced by their kind and number: `{"note": "see", "image": "[image 1]"}`.
    """
    parts: list[Text | Media] = []
    lines: list[str] = []
    count, has_parts = 0, False

    def end_text() -> None:
        if lines:
            parts.append(Text("\n".join(lines)))
            lines.clear()

    for item in value if isinstance(value, _LISTS) else (value,):
        if isinstance(item, (Text, Media)):
            end_text()
            parts.append(item)
            count, has_parts = count + isinstance(item, Media), True
            continue
        found: list[Media] = []
        plain = _replace_media(item, found, count)
        lines.append(_json_text(_to_json_types(plain if found else item)))
        if found:
            end_text()
            parts += found
            count += len(found)
    end_text()
    return tuple(parts) if count or has_parts else None


def _replace_media(value: Any, found: list[Media], count: int) -> Any:
    """Replace media in containers, dataclasses, structs and models by their kind and number, and texts by strings.

    The media are appended to `found`; `count` is the number of media before them.
    """
    if isinstance(value, Media):
        found.append(value)
        return f"[{value.kind} {count + len(found)}]"
    if isinstance(value, Text):
        return value.text
    if isinstance(value, Mapping):
        return {name: _replace_media(item, found, count) for name, item in value.items()}
    if isinstance(value, (*_LISTS, set, frozenset)):
        return [_replace_media(item, found, count) for item in value]
    if isinstance(value, msgspec.Struct):
        return _replace_media(msgspec.structs.asdict(value), found, count)
    members = getattr(type(value), "__attrs_attrs__", ()) or (fields(value) if _is_dataclass(value) else ())
    if members:
        return _replace_media({member.name: getattr(value, member.name) for member in members}, found, count)
    if callable(getattr(value, "model_dump", None)):
        return _replace_media(dict(value), found, count)
    return value


def _is_dataclass(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _json_text(value: JSON) -> str:
    """Return a string as it is, and other values as JSON."""
    try:
        return _replace_surrogates(value if isinstance(value, str) else dumps(value))
    except EncodeError:
        return _replace_surrogates(str(value))


def _to_json_types(value: Any) -> Any:
    """Convert a value to JSON types; pydantic models, dataclasses and structs become objects."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    try:
        return msgspec.to_builtins(value, enc_hook=_encode_unknown)
    except (TypeError, RecursionError, ValueError):
        return str(value)


def _encode_unknown(value: Any) -> Any:
    """Convert a value that msgspec does not know. A range and other lazy sequences are not expanded."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, _ITERABLES):
        return list(value)
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def to_record(result: ToolResult) -> str:
    """Encode a result for a store."""
    return msgspec.json.encode(result).decode()


def from_record(record: str, call: ToolCall) -> ToolResult:
    """Decode a stored result as the result of this call."""
    result = _decode(record)
    return annotate(msgspec.structs.replace(result, call_id=call.id, name=call.name), replayed=True)


def is_untrusted(result: ToolResult) -> bool:
    """Return True for a result that was marked as untrusted output when its call ran."""
    return result_note(result, "untrusted") is True


def mark_untrusted(
    calls: Iterable[ToolCall], results: Iterable[ToolResult], untrusted: Collection[str]
) -> tuple[ToolResult, ...]:
    """Mark the results of untrusted tools. The mark stays in the history, which other agents may read."""
    return tuple(
        annotate(result, untrusted=True) if call.name in untrusted else result
        for call, result in zip(calls, results, strict=True)
    )


def has_untrusted_output(messages: Iterable[Message], untrusted: Collection[str]) -> bool:
    """Return True if a conversation contains a marked result, or a result of a tool in `untrusted`."""
    call_ids: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.name in untrusted:
                    call_ids.add(part.id)
            elif isinstance(part, ToolResult):
                if is_untrusted(part) or part.name in untrusted or part.call_id in call_ids:
                    return True
    return False


def text_of_edited(result: ToolResult) -> ToolResult:
    """Return an edited result as text only: where a wire sends the structured value, the note about it is lost."""
    return result if result_note(result, "edited") is None else msgspec.structs.replace(result, structured=None)
