"""Parts of a conversation that a provider stores, and to which a request only refers.

No other provider can resolve such a reference. Without it, the model would answer with only a part of the conversation,
so the request is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeAlias, TypeGuard

from msgspec.structs import replace

from ...ir.errors import StoredStateError
from ...ir.parts import Extra, Opaque, Part, Text
from ...ir.pointer import join
from ...ir.request import Request
from ...ir.value import Value
from .outline import HistoryOutline


class _Stored(Value, frozen=True):
    """One kind of reference. The fields complete an error message: a description, and what to send instead."""

    description: str
    alternative: str
    code: str | None = None


_Table: TypeAlias = Mapping[str, Mapping[str, _Stored]]
_HISTORY = "send the whole conversation in `input`"
# By wire: fields of a request, parts of a message (by their type), and fields of a message without parts.
_FIELDS: _Table = {
    "openai_responses": {
        "previous_response_id": _Stored("refers to an earlier response", _HISTORY, "previous_response_not_found"),
        "conversation": _Stored("refers to a stored conversation", _HISTORY),
        "prompt": _Stored("refers to a stored prompt template", "send its text in `instructions` and `input`"),
    },
    "anthropic": {
        "thread": _Stored(
            "refers to a conversation of the server", "send it in `messages`", "thread_unsupported_request"
        )
    },
    "gemini": {"cachedContent": _Stored("refers to stored contents", "send them in `contents`")},
    "gemini_interactions": {
        "previous_interaction_id": _Stored("refers to an earlier interaction", "send the whole conversation as steps"),
        "continuation_token": _Stored("resumes an interrupted interaction", "send the request without it"),
        "cached_content": _Stored("refers to stored contents", "send them in `input`"),
        "agent": _Stored("names an agent of the provider", "send a `model`"),
    },
}
_NEW_THREAD = {"type": "create"}  # a `thread` of Anthropic that refers to nothing yet
_PARTS: _Table = {
    "openai_responses": {
        "item_reference": _Stored(
            "refers to an item of an earlier response", "send the item itself, as most clients do with `store: false`"
        ),
        "compaction": _Stored("is an encrypted summary of earlier items", "send the items that were compacted"),
    }
}
_LONE_FIELDS: _Table = {
    "openai_chat": {"audio": _Stored("refers to an earlier answer", "send its transcript in `content`")}
}


_SPELLINGS = {"cachedContent": ("cachedContent", "cached_content")}  # Gemini accepts both
_MARKS = {
    wire: tuple(
        f'"{spelling}"'.encode()
        for table in (_FIELDS, _PARTS, _LONE_FIELDS)
        for name in table.get(wire, {})
        for spelling in _SPELLINGS.get(name, (name,))
    )
    for wire in ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat")
}
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]").search


def may_be_stored(body: bytes, wire: str) -> bool:
    """Return whether an encoded request may have a reference; a search in the bytes is cheaper than decoding them.

    The name of every reference is in the bytes, unless its letters are escaped.
    """
    marks = _MARKS.get(wire)
    if marks is None:
        return True  # OpenAI Responses, where an item may be a reference by its id alone, or a wire of a third party
    for mark in marks:
        if mark in body:
            return True
    return b"\\u00" in body and _ESCAPED_LETTER(body) is not None


def find_stored(request: Request, target: str, outline: HistoryOutline | None = None) -> StoredStateError | None:
    """Return the error for the first reference that the wire `target` cannot carry, or None.

    `outline` describes the messages; with it, most histories need no pass over them.
    """
    if _may_refer(request, outline):
        for pointer, name, source, stored in _references(request):
            if source != target:
                return _error(pointer, name, source, target, stored)
    return None


def find_new_thread(request: Request, target: str) -> StoredStateError | None:
    """Return the error for a new `thread` of Anthropic on another wire, for servers that store no conversations.

    The SDK of Anthropic sends whole conversations after this error. Without it, the next request would have only the
    new messages.
    """
    if target == "anthropic" or request.extra.get("anthropic", {}).get("thread") != _NEW_THREAD:
        return None
    return _error(join("thread"), "thread", "anthropic", target, _FIELDS["anthropic"]["thread"])


def _error(pointer: str, name: str, source: str, target: str, stored: _Stored) -> StoredStateError:
    return StoredStateError(
        f"{name} {stored.description}, which only a provider of {source} can read; it cannot be sent over {target}",
        pointer=pointer,
        hint=f"{stored.alternative}, or use a model that is served over {source}",
        code=stored.code,
    )


def continues_stored(request: Request, target: str, outline: HistoryOutline | None = None) -> bool:
    """Return whether the request continues a conversation stored at `target`, which may hold calls and results."""
    return _may_refer(request, outline) and any(source == target for _, _, source, _ in _references(request))


def drop_stored(request: Request, target: str) -> Request:
    """Return the request without references that `target` cannot carry, for callers that need only names and ids.

    A message that had only such references is dropped.
    """
    if find_stored(request, target) is None:
        return request
    messages = []
    for message in request.messages:
        parts = tuple([part for part in message.parts if not (_is_stored(part) and part.wire != target)])
        if parts or not message.parts:
            extra = message.extra if parts else _drop_fields(message.extra, _LONE_FIELDS, target)
            messages.append(replace(message, parts=parts, extra=extra))
    return replace(request, messages=tuple(messages), extra=_drop_fields(request.extra, _FIELDS, target))


def compaction_summary(part: Opaque) -> Text | None:
    """Return the plain text of an Anthropic compaction block, which replaces the conversation before it."""
    content = part.value.get("content") if part.type == "compaction" and isinstance(part.value, dict) else None
    return Text(f"[summary of the conversation so far]\n{content}") if content and isinstance(content, str) else None


def _may_refer(request: Request, outline: HistoryOutline | None) -> bool:
    """Return False if there is no reference, which is so for most requests and costs little to find out."""
    if not _FIELDS.keys().isdisjoint(request.extra):
        return True
    if outline is not None:
        return outline.may_refer
    parts = [message.parts for message in request.messages]
    return () in parts or Opaque in map(type, chain.from_iterable(parts))


def _references(request: Request) -> Iterator[tuple[str, str, str, _Stored]]:
    """Yield each reference's pointer, name, wire and kind."""
    for field, wire in _stored_fields(request.extra, _FIELDS):
        yield join(field), field, wire, _FIELDS[wire][field]
    for index, message in enumerate(request.messages):
        for number, part in enumerate(message.parts):
            if _is_stored(part):
                yield join("messages", index, "parts", number), part.type, part.wire, _PARTS[part.wire][part.type]
        if message.extra and not message.parts:
            for field, wire in _stored_fields(message.extra, _LONE_FIELDS):
                yield join("messages", index, field), field, wire, _LONE_FIELDS[wire][field]


def _stored_fields(extra: Extra, table: _Table) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for wire, fields in table.items() if extra else ():
        own_fields = extra.get(wire)
        if own_fields:
            found += [(field, wire) for field, value in own_fields.items() if field in fields and value != _NEW_THREAD]
    return found


def _drop_fields(extra: Extra, table: _Table, target: str) -> Extra:
    stored = {(field, wire) for field, wire in _stored_fields(extra, table) if wire != target}
    return {
        wire: {field: value for field, value in fields.items() if (field, wire) not in stored}
        for wire, fields in extra.items()
    }


def _is_stored(part: Part) -> TypeGuard[Opaque]:
    return type(part) is Opaque and part.type in _PARTS.get(part.wire, {})
