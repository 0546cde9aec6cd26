"""The state of the conversations of one transport: turns that an SDK cannot return in full, and stored responses.

Both are limited in number and in bytes; the oldest entries are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from secrets import token_hex
from time import monotonic

from ..bridge.conversation.restored_turns import find_turn_keys, restore_turns, turn_is_incomplete, turn_keys
from ..bridge.conversation.turns import MAX_TURN_BYTES, InMemoryTurns, StoredTurn
from ..ir.parts import Part
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.text import to_bytes
from ..ir.value import Value
from ..net.model.endpoint import Endpoint
from ..stream.strict import parse

__all__ = ["ConversationMemory", "ResponseChains", "new_answer_id"]

_MAX_ENTRIES = 4096
_MAX_BYTES = 64 * 1024 * 1024
_MAX_SECONDS = 24 * 3600.0
_MAX_CHAIN = 1000  # responses in one conversation
_OWNER = ""  # a transport has one user


class ConversationMemory:
    """Turns with signatures, encrypted reasoning or parts of the provider's own, for requests on another wire."""

    def __init__(self) -> None:
        self._turns = InMemoryTurns(_MAX_ENTRIES, _MAX_BYTES, _MAX_SECONDS, monotonic)

    async def restore(self, request: Request, endpoint: Endpoint) -> Request:
        """Return the request with its stored turns in place of the SDK's copies."""
        if not self._turns.has_any:
            return request
        known = await self._turns.load(_OWNER, find_turn_keys(request, by_text=True))
        return restore_turns(request, known, endpoint.turn_origin) if known else request

    async def save(self, parts: tuple[Part, ...], endpoint: Endpoint) -> None:
        """Save a turn if the SDK's copy will lack something."""
        turn = StoredTurn(parts)
        if not turn_is_incomplete(turn, same_wire=False):
            return
        bound = turn.bind(endpoint.model, endpoint.turn_origin)
        data = bound.to_json()
        if len(data) <= MAX_TURN_BYTES:
            await self._turns.save(_OWNER, turn_keys(bound), bound, data)


class _StoredResponse(Value, frozen=True):
    """The items of one response of OpenAI Responses, input and output, as JSON, and the response before it."""

    items: bytes
    previous: str | None


def new_answer_id(wire: str, document: Object) -> str:
    """Return the id of an answer that a later request may refer to; nothing if none can."""
    if wire == "openai_responses":
        return f"resp_{token_hex(24)}"
    return f"msg_{token_hex(12)}" if wire == "anthropic" and isinstance(document.get("thread"), dict) else ""


class ResponseChains:
    """Answers of models without a store of their own.

    `previous_response_id` of OpenAI, and `thread` of Anthropic, which its tool runner sends, continue a conversation.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _StoredResponse] = OrderedDict()
        self._used_bytes = 0

    def expand(self, document: Object) -> Object:
        """Return the request with the items of earlier responses; the same object if one of them is not stored here."""
        previous = _previous_id(document)
        chain = self._chain(previous)
        if not chain and (previous is not None or not isinstance(document.get("thread"), dict)):
            return document
        items = [item for entry in reversed(chain) for item in _parse_items(entry.items)]
        expanded = {name: value for name, value in document.items() if name not in ("previous_response_id", "thread")}
        return {**expanded, _items_field(document): [*items, *_input_items(document)]}

    def _chain(self, response_id: str | None) -> list[_StoredResponse]:
        """List the responses from the newest to the first; nothing if one is missing: no part may be left out."""
        chain: list[_StoredResponse] = []
        while response_id is not None:
            entry = self._entries.get(response_id)
            if entry is None or len(chain) == _MAX_CHAIN:
                return []
            chain.append(entry)
            response_id = entry.previous
        return chain

    def save(self, answer_id: str, document: Object, answer: Object) -> None:
        """Store the encoded answer to `document`, unless the request forbids it."""
        if document.get("store") is False or not answer_id:
            return
        turn = answer["output"] if "output" in answer else [{"role": "assistant", "content": answer.get("content")}]
        items = to_bytes([*_input_items(document), *turn])
        self._entries[answer_id] = _StoredResponse(items, _previous_id(document))
        self._used_bytes += len(items)
        while len(self._entries) > _MAX_ENTRIES or self._used_bytes > _MAX_BYTES:
            self._used_bytes -= len(self._entries.popitem(last=False)[1].items)


def _previous_id(document: Object) -> str | None:
    """Return the id of the answer that a request continues."""
    thread = document.get("thread")
    previous = thread.get("previous_message_id") if isinstance(thread, dict) else document.get("previous_response_id")
    return previous if isinstance(previous, str) else None


def _items_field(document: Object) -> str:
    return "messages" if "messages" in document else "input"


def _input_items(document: Object) -> list[JSON]:
    """Return the input as a list of items; a string is one message of the user."""
    items = document.get(_items_field(document))
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    return list(items) if isinstance(items, list) else []


def _parse_items(data: bytes) -> list[JSON]:
    items = parse(data)
    return items if isinstance(items, list) else []
