"""The entries of the Responses state, their ids, and the documents that clients see of them.

A response has an unguessable id, `resp_` and 48 hexadecimal digits. Its items have ids with the same digits, so the
entry of an `item_reference` is known without an index: `msg_DIGITS_0` is an item of the answer, `msg_DIGITS_i0` of the
input. A conversation has copies of its responses, and entries of items that a client added, both as `items_DIGITS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from secrets import token_hex
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from ...ir.errors import StoredStateError
from ...ir.parts import Artefact, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from ...ir.pointer import Object
from ...ir.request import Message
from ...ir.value import Value
from ...wire import get
from ...wire.openai_responses.item_writer import call_prefix

WIRE = "openai_responses"
_ITEM_PREFIXES = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{48})_i?[0-9]+").fullmatch


class ResponseStateError(StoredStateError):
    """A reference to stored state that cannot be used; 404 if the client has no such response."""

    def __init__(
        self, message: str, *, pointer: str = "", hint: str = "", code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message, pointer=pointer, hint=hint, code=code)
        self.status = status


class BoundMessages(Value, frozen=True):
    """Messages, and the server that made the artefacts in them; empty if they came from the client."""

    origin: str = ""
    messages: tuple[Message, ...] = ()
    item_count: int = 1  # of an input: the items that the messages were made of; a stored item is always alone

    def for_origin(self, origin: str) -> tuple[Message, ...]:
        """Return the messages for a server. Another one's artefacts and item ids are marked as foreign.

        The bridge then drops them and reports the loss.
        """
        if self.origin in ("", origin):
            return self.messages
        return tuple(
            replace(message, parts=tuple(_as_foreign(part, self.origin) for part in message.parts))
            for message in self.messages
        )


class ResponseEntry(Value, frozen=True, tag_field="kind", tag="response"):
    """One response and its own input, without the entries before it (`chain`).

    An entry is never changed, so any number of responses can continue it; only items of a conversation can be deleted. `document` is the response as the client got
    it, without its output; it is empty for items that were added to a conversation directly.
    """

    id: str
    created: int
    chain: tuple[str, ...] = ()  # ids of the entries before it, the oldest first
    chain_bytes: int = 0  # of these entries
    items: tuple[Object, ...] = ()  # documents of the input
    input: tuple[BoundMessages, ...] = ()
    output: tuple[Object, ...] = ()  # documents of the answer
    answer: BoundMessages = BoundMessages()
    answer_items: tuple[str, ...] = ()  # for each part of the answer, the id of its item
    document: Object = {}

    @property
    def messages(self) -> tuple[BoundMessages, ...]:
        return (*self.input, self.answer) if self.answer.messages else self.input

    @property
    def response(self) -> Object:
        return {**self.document, "output": list(self.output)}

    def without_item(self, item_id: str) -> ResponseEntry:
        """Return the entry without an item, or the same object if it has none with this id."""
        items = tuple(item for item in self.items if item.get("id") != item_id)
        if len(items) < len(self.items):
            kept_input = [_without_item(group, given, item_id) for group, given in self._input_groups()]
            return replace(self, items=items, input=tuple(group for group in kept_input if group.item_count))
        output = tuple(item for item in self.output if item.get("id") != item_id)
        if len(output) == len(self.output):
            return self
        parts = [part for message in self.answer.messages for part in message.parts]
        kept = [(part, owner) for part, owner in zip(parts, self.answer_items, strict=True) if owner != item_id]
        message = Message("assistant", tuple(part for part, _ in kept))
        answer = BoundMessages(self.answer.origin, (message,)) if kept else BoundMessages()
        return replace(self, output=output, answer=answer, answer_items=tuple(owner for _, owner in kept))

    def _input_groups(self) -> Iterator[tuple[BoundMessages, tuple[Object, ...]]]:
        """Return the messages of the input with the items that they were made of."""
        groups = self.input
        if sum(group.item_count for group in groups) != len(self.items):  # of an earlier version, without the counts
            origin = "an unknown server" if len(groups) > 1 else ""
            groups = (BoundMessages(origin, item_count=len(self.items)),)
        items = iter(self.items)
        return ((group, tuple(islice(items, group.item_count))) for group in groups)

    def find_items(self, wanted: Set[str]) -> dict[str, tuple[Object, BoundMessages]]:
        """Return the wanted items of this entry by id, as documents and as messages: of its input, then its answer."""
        found = {
            item["id"]: (
                item,
                group if group.messages and len(given) == 1 else BoundMessages(group.origin, decode_input([item])),
            )
            for group, given in self._input_groups()
            for item in given
            if item.get("id") in wanted
        }
        parts: dict[str, list[Part]] = {}
        for message in self.answer.messages:
            for part, item_id in zip(message.parts, self.answer_items, strict=True):
                parts.setdefault(item_id, []).append(part)
        for item in self.output:
            if item.get("id") in wanted:
                answer = Message("assistant", tuple(parts.get(item["id"], ())))
                found[item["id"]] = (item, BoundMessages(self.answer.origin, (answer,)))
        return found


class UpstreamPin(Value, frozen=True, tag_field="kind", tag="pin"):
    """A response that an upstream stores itself."""

    upstream: str
    owner: str
    offered: tuple[str, ...] | None = None  # the selected tools of its request; None for all
    last_id: str = ""  # its id at the upstream, if a stream to the client began with the id of an earlier turn


class ConversationEntry(Value, frozen=True, tag_field="kind", tag="conversation"):
    """A conversation: the ids of its entries, the oldest first."""

    id: str
    created: int
    metadata: Object = {}
    entry_ids: tuple[str, ...] = ()
    size: int = 0  # bytes of these entries


_encoder = msgspec.json.Encoder()  # MessagePack has no integers beyond 64 bits
_decoder: msgspec.json.Decoder[ResponseEntry | UpstreamPin | ConversationEntry] = msgspec.json.Decoder(
    ResponseEntry | UpstreamPin | ConversationEntry
)


StoredEntry: TypeAlias = ResponseEntry | ConversationEntry
"""An entry that the gateway replaces under a lock."""


def encode_entry(entry: ResponseEntry | UpstreamPin | ConversationEntry) -> bytes:
    return _encoder.encode(entry)


def decode_entry(data: bytes) -> ResponseEntry | UpstreamPin | ConversationEntry | None:
    """Decode an entry, or return None if another version has written it."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        return None


def new_digits() -> str:
    return token_hex(24)


def entry_digits(item_id: str) -> str | None:
    """Return the digits of an item's entry, or None for an id that the gateway did not make.

    >>> entry_digits("fc_" + "ab" * 24 + "_2") == "ab" * 24
    True
    """
    match = _ITEM_ID(item_id)
    return None if match is None else match[1]


def item_prefix(part: Part) -> str:
    """Return the prefix of the id of a part's item, as OpenAI writes it."""
    if isinstance(part, (Text, Refusal)):
        return "msg"
    if isinstance(part, ToolCall):
        return call_prefix(part.kind, part.name)
    return "rs" if isinstance(part, Reasoning) else "item"


def not_found(noun: str, given: str, pointer: str = "", code: str | None = None) -> ResponseStateError:
    """Return the error for an id. It is the same for an unknown, an expired and another client's id."""
    hint = "send the whole conversation in `input`; the gateway stores it for a limited time, for the key that made it"
    message = f"no stored {noun} has the id {given[:100]!r}"
    return ResponseStateError(message, pointer=pointer, hint=hint, code=code, status=404)


def interaction_not_stored(given: str) -> ResponseStateError:
    """Return the error for a request about an interaction: the gateway stores none, and Google knows only its own."""
    hint = "send the whole conversation as steps; to read an interaction that Google stores, ask its own API"
    message = f"no stored interaction has the id {given[:100]!r}: the gateway stores no interactions"
    return ResponseStateError(message, hint=hint, status=404)


def input_documents(items: Sequence[Object], digits: str) -> tuple[Object, ...]:
    """Return input items as OpenAI lists them: with an id, a type, and content as a list."""
    return tuple(_input_document(item, digits, number) for number, item in enumerate(items))


def _input_document(item: Object, digits: str, number: int) -> Object:
    """Return an input item with an id and a type, unless it has them. The text of a message becomes a list."""
    kind = item.get("type") or ("message" if "role" in item else "item")
    prefix = _ITEM_PREFIXES.get(kind, "item")
    made = {"id": f"{prefix}_{digits}_i{number}", "type": kind}
    out = {**made, **{name: value for name, value in item.items() if value is not None}}
    content = item.get("content")
    if kind == "message":
        out.setdefault("status", "completed")
        if isinstance(content, str):
            is_answer = item.get("role") == "assistant"
            text: Object = {"type": "output_text" if is_answer else "input_text", "text": content}
            out["content"] = [{**text, "annotations": []} if is_answer else text]
    return out


def decode_input(items: Iterable[Object]) -> tuple[Message, ...]:
    """Decode documents of input items, without the ids and the status that the gateway added."""
    plain = [
        {name: value for name, value in item.items() if name not in ("id", "status")}
        if entry_digits(str(item.get("id"))) is not None
        else item
        for item in items
    ]
    return get(WIRE).decode_request({"input": plain}).messages


def _without_item(group: BoundMessages, items: Sequence[Object], item_id: str) -> BoundMessages:
    """Return the messages without an item. If it is not in `items`, they are unchanged, with the server that made them."""
    kept = [item for item in items if item.get("id") != item_id]
    if len(kept) == len(items):
        return group
    return BoundMessages(group.origin, decode_input(kept) if kept else (), len(kept))


def with_failure(document: Object, code: str, message: str) -> Object:
    return {**document, "status": "failed", "error": {"code": code, "message": message}}


def conversation_document(conversation: ConversationEntry) -> Object:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created,
        "metadata": conversation.metadata,
    }


def _as_foreign(part: Part, origin: str) -> Part:
    """Bind the artefacts of a part to the server that made them, and remove the fields of its wire, such as ids."""
    if isinstance(part, (Text, ToolCall, Reasoning)):
        artefacts = tuple(_bind(artefact, origin) for artefact in part.artefacts)
        return replace(part, artefacts=artefacts, extra={})
    return replace(part, extra={}) if isinstance(part, Refusal) else part


def _bind(artefact: Artefact, origin: str) -> Artefact:
    return replace(artefact, provider=f"{artefact.provider} at {origin}")


def opaque_with_id(part: Opaque, item_id: str) -> Opaque:
    return replace(part, value={**part.value, "id": item_id})
