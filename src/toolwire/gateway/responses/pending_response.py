"""A response of OpenAI Responses that is not complete yet: its input, and the stored conversation that it continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from ...ir.pointer import JSON, Object, join
from ...ir.request import Message, Request
from ...ir.text import to_bytes
from ...stream.strict import count_values, text_copies
from ..routing.upstreams import ConfiguredUpstream
from .recorder import ResponseRecorder
from .records import (
    WIRE,
    BoundMessages,
    ResponseEntry,
    ResponseStateError,
    UpstreamPin,
    decode_input,
    entry_digits,
    input_documents,
    not_found,
)
from .store import StateAccess

# The input of a Responses request: its items, with references replaced by the stored items.


FoundItems = Mapping[int, tuple[Object, BoundMessages]]
"""Stored items by the position of their reference, as documents and as messages."""


def input_items(document: Object) -> list[Object]:
    """Return the items of `input`; a string is one message."""
    given = document.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())


async def find_items(
    access: StateAccess, items: Sequence[JSON], seconds: float, max_responses: int, may_keep: Callable[[], bool]
) -> tuple[FoundItems, int]:
    """Load the items that `input` refers to, and return them with their size in bytes. Memory is reserved for them.

    Raise ResponseStateError if an item does not exist, or if there are too many. An id that the gateway did not make stays as it is if an upstream may know it (`may_keep`).
    """
    references = dict(_item_references(items))
    if not references:
        return {}, 0
    digits = {item_id: entry_digits(item_id) for item_id in references.values()}
    own_digits = sorted({known for known in digits.values() if known is not None})
    if len(own_digits) > max_responses:
        message = f"the input refers to items of {len(own_digits)} responses; the limit is {max_responses}"
        raise ResponseStateError(message, pointer="/input", hint="send the items themselves")
    entry_ids = [f"{kind}_{known}" for known in own_digits for kind in ("resp", "items")]
    loaded, loaded_bytes = await access.load_unmeasured(entry_ids, seconds)
    entries = [entry for entry in loaded.values() if isinstance(entry, ResponseEntry)]
    counts = Counter(references.values())
    stored, size, values, copies = await access.offload.run(loaded_bytes, _index_items, entries, counts)
    access.admit_items(size, values, copies)
    for number, item_id in references.items():
        if item_id not in stored and (digits[item_id] is not None or not may_keep()):
            raise not_found("item", item_id, join("input", number))
    return {number: stored[item_id] for number, item_id in references.items() if item_id in stored}, size


def resolve_input(
    items: Sequence[Object], found: FoundItems, messages: tuple[Message, ...]
) -> tuple[tuple[BoundMessages, ...], list[Object]]:
    """Return the input as messages and as documents, with the items found in place of their references.

    `messages` is the decoded input; it is used if nothing was found. Else the items between references are decoded.
    """
    if not found:
        return (BoundMessages("", messages, len(items)),), list(items)
    bound: list[BoundMessages] = []
    run: list[Object] = []  # items between two references
    for number, item in enumerate(items):
        if number not in found:
            run.append(item)
            continue
        if run:
            bound.append(BoundMessages("", decode_input(run), len(run)))
            run = []
        bound.append(found[number][1])
    if run:
        bound.append(BoundMessages("", decode_input(run), len(run)))
    return tuple(bound), [found[number][0] if number in found else item for number, item in enumerate(items)]


def _item_references(items: Sequence[JSON]) -> Iterator[tuple[int, str]]:
    for number, item in enumerate(items):
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            kind = item.get("type")
            if kind == "item_reference" or (kind is None and "role" not in item):
                yield number, item["id"]


def _index_items(
    entries: Sequence[ResponseEntry], counts: Mapping[str, int]
) -> tuple[dict[str, tuple[Object, BoundMessages]], int, int, int]:
    """Return the items with the ids in `counts`, and for all references to them the bytes, the values and `text_copies`.

    `counts` has the number of references to each id.
    """
    stored = {item_id: item for entry in entries for item_id, item in entry.find_items(counts.keys()).items()}
    size, values, copies = 0, 0, 1
    for item_id, (document, _) in stored.items():
        data = to_bytes(document)
        size += len(data) * counts[item_id]
        values += count_values(data) * counts[item_id]
        copies = max(copies, text_copies(data))
    return stored, size, values, copies


_REFERENCES = ("previous_response_id", "conversation")


def read_references(document: Object) -> tuple[str | None, str | None]:
    """Return `previous_response_id` and the id of `conversation`. Raise ResponseStateError if both are set, or no ids."""
    previous_id, conversation = document.get("previous_response_id"), document.get("conversation")
    conversation_id = conversation.get("id") if isinstance(conversation, dict) else conversation
    for name, value in (("previous_response_id", previous_id), ("conversation", conversation_id)):
        if not isinstance(value, str | None) or value == "":
            raise ResponseStateError(f"{name} must be an id", pointer=join(name), hint="such as resp_… or conv_…")
    if previous_id is not None and conversation_id is not None:
        hint = "send only one of them"
        message = "previous_response_id and conversation exclude each other"
        raise ResponseStateError(message, pointer="/previous_response_id", hint=hint)
    return previous_id, conversation_id


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
    is_background: bool = False
    is_saved: bool = False

    def continue_pinned(self, pin: UpstreamPin) -> None:
        """Continue a response that an upstream stores."""
        self.pinned, self.offered, self.last_id = pin.upstream, pin.offered, pin.last_id

    def records_at(self, upstream: ConfiguredUpstream) -> bool:
        """Check whether the gateway stores the answer of this upstream."""
        return self.stores and self.pinned is None and (self.is_rebuilt or not upstream.keeps_responses)

    def rebuild(self, request: Request, origin: str | None) -> Request:
        """Return the request with its stored history and without the references to it, for the server `origin`.

        Without a server, the artefacts of all servers are foreign. A request without stored history is returned as it is.
        """
        if not self.is_rebuilt:
            return request
        bound = (*self.history, *self.input)
        messages = [message for group in bound for message in group.for_origin(origin or "no server")]
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
        """Set `input` and `items` from the request's items, the items found for its references, and its messages."""
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
            if self.is_background:
                echo["background"] = True
            return echo if self.conversation_id is None else {**echo, "conversation": {"id": self.conversation_id}}

        return ResponseRecorder(self.digits, model, max(self.max_bytes - input_bytes, 0), make_echo)


def _merge_assistant(messages: Sequence[Message]) -> Iterator[Message]:
    """Merge consecutive messages of the model, which belong to one turn."""
    for is_assistant, group in groupby(messages, lambda message: message.role == "assistant"):
        if is_assistant:
            yield Message("assistant", tuple([part for message in group for part in message.parts]))
        else:
            yield from group
