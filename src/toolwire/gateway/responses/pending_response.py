"""A response of OpenAI Responses that is not complete yet, and the stored conversation that it continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from ...ir.pointer import Object
from ...ir.request import Message, Request
from ...ir.text import to_bytes
from ..upstreams import ConfiguredUpstream
from .input_items import FoundItems, resolve_input
from .recorder import ResponseRecorder
from .records import WIRE, BoundMessages, ResponseEntry, UpstreamPin, input_documents
from .state_access import StateAccess

__all__ = ["PendingResponse"]

_REFERENCES = ("previous_response_id", "conversation")


class PendingResponse(Struct):
    """The response to one request. `history` is the conversation before its input."""

    access: StateAccess
    digits: str
    stores: bool  # the gateway stores the answer, unless the upstream does
    max_bytes: int  # of input and answer together; a larger response is not stored
    request_bytes: int  # of the client's body, and of the items that it refers to
    previous_id: str | None = None
    conversation_id: str | None = None
    pinned: str | None = None  # the upstream that stores the conversation itself
    offered: tuple[str, ...] | None = None  # tools selected for a conversation that the upstream stores
    last_id: str = ""  # the upstream's id of the previous response, if the client has another
    has_instructions: bool = False  # the first message of the request is its field `instructions`
    is_rebuilt: bool = False  # the request gets its history from the store
    history: tuple[BoundMessages, ...] = ()
    input: tuple[BoundMessages, ...] = ()
    items: tuple[Object, ...] = ()  # documents of the input
    chain: tuple[str, ...] = ()
    chain_bytes: int = 0
    found_bytes: int = 0  # of the items that the request refers to, each as often as it does
    lock_token: str = ""
    is_saved: bool = False

    def continue_pinned(self, pin: UpstreamPin) -> None:
        """Continue a response that an upstream stores."""
        self.pinned, self.offered, self.last_id = pin.upstream, pin.offered, pin.last_id

    def records_at(self, upstream: ConfiguredUpstream) -> bool:
        """Check whether the gateway stores the answer of this upstream."""
        return self.stores and self.pinned is None and (self.is_rebuilt or not upstream.keeps_responses)

    def rebuild(self, request: Request, origin: str | None) -> Request:
        """Return the request with its history, for the server `origin`; None for no server in particular."""
        if not self.is_rebuilt:
            return request
        bound = (*self.history, *self.input)
        messages = [message for one in bound for message in one.for_origin(origin or "no server")]
        instructions = request.messages[: int(self.has_instructions)]
        own_fields = request.extra.get(WIRE, {})
        kept = {name: value for name, value in own_fields.items() if name not in _REFERENCES}
        return replace(
            request,
            messages=(*instructions, *_merge_assistant(messages)),
            extra={**request.extra, WIRE: kept} if own_fields else request.extra,
        )

    def without_references(self, document: Object, encoded: Object) -> Object:
        """Return the client's document without references that were replaced by the conversation.

        `encoded` is the rebuilt request. Its instructions are an item if other system messages follow.
        """
        moved = () if "instructions" in encoded else ("instructions",)
        return {name: value for name, value in document.items() if name not in (*_REFERENCES, *moved)}

    @property
    def size(self) -> int:
        """The bytes of the request with its conversation."""
        return self.request_bytes + self.chain_bytes

    def set_input(self, items: Sequence[Object], found: FoundItems, messages: tuple[Message, ...]) -> None:
        """Set the input: the items of the request, those found for its references, and the messages of the others."""
        self.input, resolved = resolve_input(items, found, messages)
        self.items = input_documents(resolved, self.digits)

    def make_entry(self, now: int, document: Object, recorder: ResponseRecorder, origin: str) -> ResponseEntry:
        """Return the entry to store: its input, and the answer in `document` by the server `origin`."""
        return ResponseEntry(
            f"resp_{self.digits}",
            now,
            self.chain,
            self.chain_bytes,
            self.items,
            self.input,
            tuple(document.get("output") or ()),
            BoundMessages(origin, (Message("assistant", recorder.parts or ()),)),
            recorder.item_ids,
            {**document, "output": []},
        )

    def make_recorder(self, model: str) -> ResponseRecorder:
        """Return the recorder for an answer of `model`."""
        input_bytes = len(to_bytes(list(self.items)))

        def make_echo(answer_bytes: int) -> Object:
            """Return the fields of a response that describe its storage; `store` is false if it is too large."""
            is_stored = input_bytes + answer_bytes <= self.max_bytes
            echo: Object = {"store": is_stored, "previous_response_id": self.previous_id}
            return echo if self.conversation_id is None else {**echo, "conversation": {"id": self.conversation_id}}

        return ResponseRecorder(self.digits, model, max(self.max_bytes - input_bytes, 0), make_echo)


def _merge_assistant(messages: Sequence[Message]) -> Iterator[Message]:
    """Merge consecutive messages of the model, which belong to one turn."""
    for is_assistant, group in groupby(messages, lambda message: message.role == "assistant"):
        if is_assistant:
            yield Message("assistant", tuple([part for message in group for part in message.parts]))
        else:
            yield from group
