"""Read and write JSON objects without loss.

Reading: a decoder takes the fields it knows and leaves the rest to `read_extra`, which sorts it into `extra`: fields
with content are kept under the wire's name, empty ones (null, [], {}, "") under `name~`, as form. Writing:
`write_extra` puts both back; the fields of the value override form, and content overrides the fields of the value. A
key that begins with a colon is not a field: under `name~` it records how fields were written, under the wire's name the
meaning of an absent field. Values of an answer that have another JSON type than the wire defines, and that were converted or
ignored, are kept under `name?`: they are written back, and a translation reports them.

Errors carry a pointer that is extended as they propagate (`ToolwireError.within`), so that valid input pays nothing
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import compress
from math import floor, isfinite
from operator import contains, length_hint, not_
from typing import NamedTuple, TypeVar

from ..ir.errors import ProtocolError
from ..ir.losses import Losses, Severity
from ..ir.parts import Extra
from ..ir.pointer import JSON, Object, join
from ..ir.response import StopReason, Usage
from ..ir.tools import Tool
from ..stream.strict import type_label

T = TypeVar("T")
_MAX_NUMBER_TEXT = 40  # characters; a longer text is no count and no time
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_INDEX_DIGITS = 9  # more would be no index, and Python limits the digits of an integer
# Stop reasons that servers use on a wire of another provider: compatible servers keep the names of
# their own engine (text-generation-inference: eos_token), gateways the names of the provider that answers
# (BerriAI/litellm#2195, songquanpeng/one-api#1408), DeepSeek and Zhipu add names to OpenAI's.
_STOP_NAMES: dict[str, StopReason] = {
    **dict.fromkeys(
        ("stop", "eos", "eos_token", "end_turn", "end", "end_of_turn", "complete", "completed", "done", "finished"),
        "stop",
    ),
    **dict.fromkeys(("stop_sequence", "stop_token"), "stop_sequence"),
    **dict.fromkeys(
        ("tool_calls", "tool_call", "tool_use", "tools", "function_call", "function_calls", "function"), "tool_calls"
    ),
    **dict.fromkeys(("length", "max_tokens", "max_length", "max_output_tokens", "token_limit"), "length"),
    **dict.fromkeys(("model_length", "model_context_window_exceeded", "context_length"), "context_window"),
    **dict.fromkeys(("content_filter", "content_filtered", "safety", "sensitive", "recitation"), "content_filter"),
    **dict.fromkeys(("refusal",), "refusal"),
    **dict.fromkeys(("error", "network_error", "abort", "insufficient_system_resource"), "error"),
}


# Fields of a tool that some wires lack: a call is the same without a schema of its result or a mark of the cache.
_TOOL_SEVERITIES: dict[str, Severity] = {"output_schema": "info", "cache": "info"}


def report_tool_fields(names: Iterable[str], label: str, losses: Losses, path: str) -> None:
    """Report the fields of a tool that its declaration on the wire `label` does not have."""
    for name in names:
        detail = f"{label} declarations have no field for it"
        losses.add(f"{path}/{name}", name, "dropped", detail, _TOOL_SEVERITIES.get(name, "warning"))


def write_builtin(tool: Tool, wire: str, label: str, losses: Losses, path: str) -> Object | None:
    """Return the declaration of a built-in tool of this wire; report a tool of another provider, which runs there."""
    if wire not in tool.extra:
        losses.add(path, "built-in tool", "dropped", f"{label} has no built-in tool {tool.name!r}", "error")
    return tool.extra.get(wire)


def type_error(expected: str, value: JSON, *pointer: str | int) -> ProtocolError:
    return ProtocolError(f"expected {expected}, got {type_label(value)}", pointer=join(*pointer))


def require_object(value: JSON, *pointer: str | int) -> Object:
    if type(value) is dict:
        return value
    raise type_error("an object", value, *pointer)


def read_string(raw: Object, key: str) -> str:
    """Return the required string under `key`. Raise ProtocolError if there is none."""
    value = raw.get(key)
    if type(value) is str:
        return value
    if key not in raw:
        raise ProtocolError(f"{key!r} is missing")
    raise type_error("a string", value, key)


def read_optional_string(raw: Object, key: str) -> str | None:
    """Return the string under `key`, or None. Raise ProtocolError for another type."""
    value = raw.get(key)
    if value is None or type(value) is str:
        return value
    raise type_error("a string", value, key)


def read_integer(raw: Object, key: str) -> int | None:
    """Return the integer under `key`, or None; a float without a fraction (`5.0`) is accepted.

    Raise ProtocolError for any other value.
    """
    value = raw.get(key)
    if value is None or type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise type_error("an integer", value, key)


def read_index(raw: Object, key: str) -> int | None:
    """Return the index under `key`, or None if there is none; digits in a string are accepted."""
    value = raw.get(key)
    if type(value) is str and value.isdecimal() and len(value) <= _MAX_INDEX_DIGITS:
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def read_stop_reason(word: str, own: Mapping[str, StopReason]) -> StopReason:
    """Return the reason for a finish reason: `own` has the names of the wire, `_STOP_NAMES` the names of other servers."""
    return own.get(word) or _STOP_NAMES.get(word.lower().removeprefix("finish_reason_"), "unknown")


def read_number(raw: Object, key: str) -> float | None:
    """Return the number under `key`, or None. Raise ProtocolError for another type."""
    value = raw.get(key)
    if value is None or type(value) is int or type(value) is float:
        return value
    raise type_error("a number", value, key)


def read_timestamp(raw: Object, key: str) -> int | None:
    """Read a Unix time in whole seconds. Servers that copy Python's `time.time()` send fractions of a second."""
    value = raw.get(key)
    if type(value) is int:
        return value
    number = _as_number(value)
    return None if number is None else floor(number)


def parse_time(text: str) -> int | None:
    """Return the seconds of a time such as 2026-11-15T09:00:00Z; None for any other text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(seconds=1)


def format_time(seconds: int) -> str:
    """Return a time as RFC 3339 text; raise OverflowError if it is out of range."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def read_count(raw: Object, key: str, scope: str, extra: Extra) -> int | None:
    """Return the token count under `key`, or None. A value that is no count is kept in `extra` under `scope`.

    A wrong count must not cost the answer, which has been paid for: OpenRouter sends fractions (BerriAI/litellm#28024),
    gateways send text.
    """
    value = raw.get(key)
    if value is None or (type(value) is int and value >= 0):
        return value
    number = _as_number(value)
    if type(value) is not float or not value.is_integer():
        extra.setdefault(f"{scope}?", {})[key] = value
    return None if number is None or number < 0 else floor(number)


def _as_number(value: JSON) -> float | None:
    """Return a number, or the number in a text; None for any other value, and for a boolean."""
    if type(value) is str and len(value) <= _MAX_NUMBER_TEXT:
        try:
            value = float(value)
        except ValueError:
            return None
    return value if (type(value) is int or type(value) is float) and isfinite(value) else None


def read_details(raw: Object, key: str, scope: str, extra: Extra) -> Object:
    """Return the object under `key`; empty if there is none. Any other value is kept in `extra` under `scope`."""
    value = raw.get(key)
    if type(value) is dict:
        return value
    if not is_empty(value):
        extra.setdefault(f"{scope}?", {})[key] = value
    return {}


def read_label(raw: Object, key: str) -> str:
    """Return the id or the name under `key`; a number as text, and no text for any other value."""
    value = raw.get(key)
    if type(value) is str:
        return value
    return str(value) if type(value) is int or type(value) is float else ""


class UsualFields(NamedTuple):
    """The fields of usual documents of a kind, by name, with the type of their values.

    A document with exactly these fields, without an empty text, list or object, has nothing that a decoder must keep.
    """

    types: Mapping[str, type]

    def are_in(self, raw: Object) -> bool:
        types = self.types
        if len(raw) != len(types) or [*map(type, map(raw.get, types))] != [*types.values()]:
            return False
        values = [*raw.values()]
        return not ("" in values or [] in values or {} in values)


def odd_values(raw: Object, types: Mapping[str, tuple[type, ...]], wire: str) -> Extra:
    """Return the fields whose value has another type than the wire defines, as an `extra`."""
    if all(map(contains, types.values(), map(type, map(raw.get, types)))):
        return {}
    values = {key: raw.get(key) for key, kinds in types.items() if type(raw.get(key)) not in kinds}
    odd = {key: value for key, value in values.items() if not is_empty(value)}
    return {f"{wire}?": odd} if odd else {}


def read_boolean(raw: Object, key: str) -> bool | None:
    """Return the boolean under `key`, or None. Raise ProtocolError for another type."""
    value = raw.get(key)
    if value is None or type(value) is bool:
        return value
    raise type_error("a boolean", value, key)


def decode_list(raw: Object, key: str, decode: Callable[[JSON], T]) -> list[T]:
    """Decode every element of the list under `key`; an absent list and null are empty.

    Raise ProtocolError with the position of the element that cannot be decoded.
    """
    values = raw.get(key)
    if values is None:
        return []
    if type(values) is not list:
        raise type_error("an array", values, key)
    following = iter(values)
    try:
        return list(map(decode, following))
    except ProtocolError as error:
        failed = len(values) - length_hint(following) - 1  # the index of the element that `decode` refused
        raise error.within(key, failed) from None


def wrap_object(raw: Object, key: str) -> Object:
    """Return `raw` with a list under `key`, where servers send a single object (form `:single`)."""
    return {**raw, key: [raw[key]]} if type(raw.get(key)) is dict and raw[key] else raw


def read_extra(raw: Object, known: Collection[str], wire: str, into: Extra | None = None) -> Extra:
    """Return `into`, or a new `extra`, with the fields of `raw` that the decoder did not take.

    Unknown fields with content go under `wire`; empty fields, also known ones, go under `wire~`, as form.
    """
    extra: Extra = {} if into is None else into
    keys: Iterable[str] = raw
    if all(map(known.__contains__, raw)):  # then only empty fields are left over
        keys = compress(raw, map(not_, raw.values()))
    for key in keys:
        value = raw[key]
        if key not in known:
            if value or value == 0:  # false is content here, as is 0
                extra.setdefault(wire, {})[key] = value
                continue
        elif value or (value == 0 and value is not False):
            continue
        extra.setdefault(f"{wire}~", {})[key] = value
    return extra


def remember_form(raw: Object, always: Collection[str], form: Object) -> Object:
    """Record in `form` which of the fields in `always` are absent from `raw`, and times with fractions."""
    if not all(map(raw.__contains__, always)):
        form[":absent"] = [key for key in always if key not in raw]
    if float in map(type, raw.values()):
        for key in always:
            if type(raw.get(key)) is float:
                form[key] = raw[key]
    return form


def restore_form(out: Object, form: Object, derived: Collection[str] = ()) -> Object:
    """Restore fields that were absent, empty, a fraction or one object in place of a list, unless they have changed.

    `out` is changed and returned. `derived`: fields whose value follows from the others.
    """
    if not form:
        return out
    for key in form.get(":single", ()):
        if type(out.get(key)) is list and len(out[key]) == 1:
            out[key] = out[key][0]
    for key in form.get(":absent", ()):
        if key in derived or not out.get(key):
            out.pop(key, None)
    for key, value in form.items():
        is_fraction = type(value) is float and out.get(key) == floor(value)
        if key in out and (key in derived or not out[key] or is_fraction):
            out[key] = value
    return out


def read_unknown(raw: Object, known: Collection[str], wire: str) -> Extra:
    """Collect fields like `read_extra`, but without form: events are never written back in their original form."""
    if all(map(known.__contains__, raw)):
        return {}
    fields = {key: value for key, value in raw.items() if key not in known and not is_empty(value)}
    return {wire: fields} if fields else {}


def is_empty(value: JSON) -> bool:
    return value is None or value == [] or value == {} or value == ""


def write_extra(out: Object, extra: Extra, wire: str) -> Object:
    """Return `out` with the form and the other fields of the wire; `out` itself may be changed.

    Fields of `out` override the form; fields of the wire and odd values (`wire?`) override `out`.
    """
    if not extra:
        return out
    form, own_fields = extra.get(f"{wire}~"), extra.get(wire)
    if form:
        out = {**{key: value for key, value in form.items() if key[:1] != ":"}, **out}
    if own_fields:
        out.update((key, value) for key, value in own_fields.items() if key[:1] != ":")
    if odd := extra.get(f"{wire}?"):
        out.update(odd)
    return out


INPUT_DETAILS, OUTPUT_DETAILS = ("cached_tokens", "cache_write_tokens"), ("reasoning_tokens",)
"""Counts of both OpenAI wires, inside the counts of the input and of the output."""


def read_counts(wire: str, raw: Object, given: tuple[str, Object], made: tuple[str, Object], extra: Extra) -> Usage:
    """Read the counts of an OpenAI wire; `given` and `made` are its names of input and output, and their details.

    Unknown fields, and a total that is not the sum, go into `extra`.
    """
    (given_name, input_details), (made_name, output_details) = given, made
    read_extra(input_details, INPUT_DETAILS, f"{wire}/{given_name}", extra)
    read_extra(output_details, OUTPUT_DETAILS, f"{wire}/{made_name}", extra)
    usage = Usage(
        read_count(raw, f"{given_name}_tokens", wire, extra),
        read_count(raw, f"{made_name}_tokens", wire, extra),
        read_count(input_details, "cached_tokens", f"{wire}/{given_name}", extra),
        read_count(input_details, "cache_write_tokens", f"{wire}/{given_name}", extra),
        read_count(output_details, "reasoning_tokens", f"{wire}/{made_name}", extra),
        extra=extra,
    )
    if raw.get("total_tokens", usage.total) != usage.total:
        extra.setdefault(wire, {})["total_tokens"] = raw["total_tokens"]
    return usage
