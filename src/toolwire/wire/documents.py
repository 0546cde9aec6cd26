"""Read documents without decoding them: detect the wire of a document, and summarise an answer.

The `documents` module of each wire has its evidence, its JSON pointers and the fields of its summaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from msgspec import UNSET, DecodeError, Struct, UnsetType
from msgspec.json import Decoder
from msgspec.structs import astuple

from ..ir.pointer import JSON, Object
from ..ir.response import StopReason, Usage
from ..ir.value import Value

# Detection of documents. A wire lists evidence for itself as (points, test) rows; the highest score wins.
#
# The rows are evidence, not proof: a Chat request and an Anthropic request with one user message do not differ in any
# field that both require.


DetectionRule: TypeAlias = tuple[int, Callable[[JSON], bool]]


def scorer(*rows: DetectionRule) -> Callable[[JSON], int]:
    """Build a scoring function. The first row is a condition: if it fails, the score is 0."""
    (points, condition), *others = rows

    def score(body: JSON) -> int:
        if not _passes(condition, body):
            return 0
        return points + sum(worth for worth, test in others if _passes(test, body))

    return score


def _passes(test: Callable[[JSON], bool], body: JSON) -> bool:
    """Return whether `test` is true; a document without the fields it reads fails this test only."""
    try:
        return test(body)
    except (AttributeError, TypeError, KeyError, IndexError):
        return False


def blocks(body: Object, key: str) -> Iterator[Object]:
    """Yield the messages under `key` and the content blocks in them."""
    for message in body.get(key) or ():
        if type(message) is dict:
            yield message
            content = message.get("content") or message.get("parts")
            yield from (block for block in content if type(block) is dict) if type(content) is list else ()


def declared_tools(body: JSON) -> list[Object]:
    """Return the declarations: a bare list, a list under `tools`, or a single one."""
    tools = body.get("tools", [body]) if type(body) is dict else body
    return [tool for tool in tools if type(tool) is dict] if type(tools) is list else []


# Summaries of whole answers, read without decoding the content.
#
# A gateway that forwards an answer unchanged accounts for it: id, model, stop reason, usage, names of the calls. Each
# wire declares the usual fields of its answers as structs, which msgspec decodes much faster than `decode_response`
# builds canonical values. A wire returns no summary for any other answer, which the caller then decodes in full: an
# error, a field that is not declared, several choices, a signature that a turn memory stores.
#
# The structs reject unknown fields, so all members of a document are known. `has_duplicate_keys` relies on that:
# msgspec keeps the last of two members with the same key, while `stream.strict` refuses the document.


T = TypeVar("T")
Scalar = str | int | float | bool | None
_MAX_BYTES = 1_000_000  # a smaller document cannot exceed the limits of `stream.strict`
_MAX_DEPTH = 64  # calls of `count_members`; a deeper document takes the slow, exact path
_MAX_TOKENS = 1_000_000_000  # a thousand times the largest context windows
_UNCOUNTABLE = -1_000_000_000  # no sum with it is the number of members of a document
_CONTAINERS = (dict, list)
_SPACED_COLON = re.compile(rb'"[ \t\r\n]* :').search
_ESCAPED_QUOTES = re.compile(rb'(?<!\\)(?:\\\\)*\\":').findall  # after an odd number of backslashes, before a colon


class AnswerSummary(Value, frozen=True):
    """The facts about an answer that a gateway accounts for; `calls` are the names of the called tools, in order.

    Equal to those of the decoded answer. A finished answer of one choice, without a fault and without signatures.
    """

    id: str
    model: str
    stop: StopReason
    usage: Usage
    calls: tuple[str, ...] = ()


class AnswerFields(Struct, forbid_unknown_fields=True, gc=False):
    """The base of the structs that declare the fields of an object; optional fields default to UNSET.

    msgspec finds a field fastest after the one before it, so the order is that of the documents.
    """


def no_summary(data: bytes) -> AnswerSummary | None:
    """Return None: every answer is decoded in full."""
    del data
    return None


def decode_fields(decoder: Decoder[T], data: bytes) -> T | None:
    """Decode a document of declared fields; None if it is invalid, has other fields, or is very large."""
    if len(data) > _MAX_BYTES:
        return None
    try:
        return decoder.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def has_duplicate_keys(data: bytes, members: int) -> bool:
    r"""Return whether a valid document has more members than the `members` of its decoded value.

    A closing quote before a colon ends a key; `\":` is inside a string, except after another backslash. A document with
    white space before the colon of a member counts as one with duplicates, because the bytes then do not show its
    number of members.
    """
    keys = data.count(b'":')
    if data.count(b":") != keys and _has_spaced_colon(data):
        return True
    escaped = data.count(b'\\":')
    if escaped and b'\\\\":' in data:
        escaped = len(_ESCAPED_QUOTES(data))
    return keys - escaped != members


def _has_spaced_colon(data: bytes) -> bool:
    """Return whether white space may be between a key and its colon."""
    if b"\n:" in data or b"\t:" in data or b"\r:" in data:  # not inside a string, where control characters are escaped
        return True
    return b" :" in data and _SPACED_COLON(data) is not None


def count_fields(value: Struct) -> int:
    """Return the number of fields of a struct that are in the document, without those of nested values."""
    fields = astuple(value)
    return len(fields) - fields.count(UNSET)


def count_members(value: JSON | UnsetType, depth: int = _MAX_DEPTH) -> int:
    """Return the number of members of all objects in a JSON value; a large negative number if it is too deep."""
    if depth == 0:
        return _UNCOUNTABLE
    if isinstance(value, dict):
        members = len(value)
        for item in value.values():
            if isinstance(item, _CONTAINERS):
                members += count_members(item, depth - 1)
        return members
    if isinstance(value, list):
        return sum([count_members(item, depth - 1) for item in value])
    return 0


def is_plausible(usage: Usage) -> bool:
    """Return whether a usage has both counts, not both zero, and no count is negative or absurdly large."""
    given, made, cached, reasoning = usage.input, usage.output, usage.cached, usage.reasoning
    if given is None or made is None or given < 0 or made < 0 or not 0 < given + made <= _MAX_TOKENS:
        return False
    return (not cached or 0 < cached <= _MAX_TOKENS) and (not reasoning or 0 < reasoning <= _MAX_TOKENS)
