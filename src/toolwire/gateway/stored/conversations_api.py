"""The requests about stored conversations and their items, in OpenAI's shapes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from ...ir.errors import ProtocolError, ToolwireError
from ...ir.pointer import JSON, Object, join
from ...ir.text import to_bytes
from ...stream.strict import parse_object
from ..request.routes import Route
from ..responses.records import (
    BoundMessages,
    ConversationEntry,
    ResponseEntry,
    ResponseStateError,
    conversation_document,
    decode_input,
    encode_entry,
    input_documents,
    new_digits,
    not_found,
)
from ..responses.state import ResponseState
from ..responses.store import StateAccess

_MAX_PAGE, _DEFAULT_PAGE = 100, 20  # items of one page, as on OpenAI
_MAX_NEW_ITEMS = 20  # as on OpenAI
_MAX_METADATA = 16  # as on OpenAI


class StateRequest:
    """A request about stored state: the access of its client, the ids in its path, its query and its body.

    `work_size` is the size of the work that its body makes.
    """

    __slots__ = ("access", "body", "entry_id", "item_id", "query", "work_size")

    def __init__(
        self, access: StateAccess, route: Route, query: Mapping[str, str], body: bytes, work_size: int
    ) -> None:
        self.access = access
        self.entry_id = route.entry_id
        self.item_id = route.item_id
        self.query = query
        self.body = body
        self.work_size = work_size


class ConversationsApi:
    """The routes about conversations."""

    def __init__(self, state: ResponseState) -> None:
        self._state = state
        self.actions: dict[str, Callable[[StateRequest], Awaitable[bytes]]] = {
            "create_conversation": self._create_conversation,
            "get_conversation": self._get_conversation,
            "update_conversation": self._update_conversation,
            "delete_conversation": self._delete_conversation,
            "list_items": self._list_items,
            "create_items": self._create_items,
            "get_item": self._get_item,
            "delete_item": self._delete_item,
        }

    def require_store(self) -> None:
        if not self._state.keeps_responses:
            hint = "send the whole conversation in `input`; the gateway's operator can set `responses.store`"
            raise ResponseStateError("the gateway stores no conversations", hint=hint, status=404)

    async def _create_conversation(self, request: StateRequest) -> bytes:
        metadata, entry = await request.access.offload.run(request.work_size, self._read_conversation, request.body)
        conversation = ConversationEntry(f"conv_{new_digits()}", self._state.now(), metadata)
        await self._state.save(request.access, conversation.id, conversation)
        if entry is not None:
            await self._append(request.access, conversation.id, entry, len(request.body))
        return to_bytes(conversation_document(conversation))

    def _read_conversation(self, body: bytes) -> tuple[Object, ResponseEntry | None]:
        document = parse_object(body) if body else {}
        return _read_metadata(document), self._make_entry(document.get("items") or [])

    async def _get_conversation(self, request: StateRequest) -> bytes:
        return to_bytes(conversation_document(await self._state.find_conversation(request.access, request.entry_id)))

    async def _update_conversation(self, request: StateRequest) -> bytes:
        """Replace the metadata of a conversation, under its lock, and return the conversation."""
        document = await request.access.offload.run(request.work_size, parse_object, request.body)
        metadata = _read_metadata(document)
        async with self._state.lock_conversation(request.access, request.entry_id):
            conversation = await self._state.find_conversation(request.access, request.entry_id)
            changed = replace(conversation, metadata=metadata)
            await self._state.save(request.access, changed.id, changed)
        return to_bytes(conversation_document(changed))

    async def _delete_conversation(self, request: StateRequest) -> bytes:
        """Delete a conversation and its items, under its lock. Responses that were made in it stay.

        Without the lock, a request that appends an entry meanwhile would save the conversation again.
        """
        async with self._state.lock_conversation(request.access, request.entry_id):
            conversation = await self._state.find_conversation(request.access, request.entry_id)
            await self._state.delete(request.access, [conversation.id, *conversation.entry_ids])
        return to_bytes({"id": conversation.id, "object": "conversation.deleted", "deleted": True})

    async def _list_items(self, request: StateRequest) -> bytes:
        conversation = await self._state.find_conversation(request.access, request.entry_id)
        entries = await self._state.load_entries(request.access, conversation.entry_ids)
        return await request.access.offload.run(
            request.access.loaded_bytes, make_page, list_items_of(entries), request.query
        )

    async def _create_items(self, request: StateRequest) -> bytes:
        """Append items to a conversation, and return them with their ids."""
        entry = await request.access.offload.run(request.work_size, self._read_items, request.body)
        await self._append(request.access, request.entry_id, entry, len(request.body))
        return await request.access.offload.run(
            request.work_size, make_page, list(entry.items), {"order": "asc", "limit": str(_MAX_PAGE)}
        )

    async def _get_item(self, request: StateRequest) -> bytes:
        conversation = await self._state.find_conversation(request.access, request.entry_id)
        entries = await self._state.load_entries(request.access, conversation.entry_ids)
        for item in list_items_of(entries):
            if item.get("id") == request.item_id:
                return to_bytes(item)
        raise not_found("item", request.item_id)

    async def _delete_item(self, request: StateRequest) -> bytes:
        """Delete an item, under the lock of its conversation, and return the conversation."""
        access = request.access
        async with self._state.lock_conversation(access, request.entry_id):
            conversation = await self._state.find_conversation(access, request.entry_id)
            for entry in await self._state.load_entries(access, conversation.entry_ids):
                changed = entry.without_item(request.item_id)
                if changed is not entry:
                    size = len(await access.offload.run(access.loaded_bytes, encode_entry, entry))
                    size -= await self._state.save(access, entry.id, changed, access.loaded_bytes)
                    await self._state.save(
                        access, conversation.id, replace(conversation, size=max(conversation.size - size, 0))
                    )
                    return to_bytes(conversation_document(conversation))
        raise not_found("item", request.item_id)

    def _read_items(self, body: bytes) -> ResponseEntry:
        entry = self._make_entry(parse_object(body).get("items"))
        if entry is None:
            raise ProtocolError("expected at least one item", pointer="/items")
        return entry

    async def _append(self, access: StateAccess, conversation_id: str, entry: ResponseEntry, size: int) -> None:
        async with self._state.lock_conversation(access, conversation_id) as token:
            await self._state.append_entry(access, conversation_id, token, entry, size)

    def _make_entry(self, items: JSON) -> ResponseEntry | None:
        """Return an entry with these items, or None if there are none.

        Raise ProtocolError if they are too many, invalid or references, and ResponseStateError if they are too large.
        """
        if not isinstance(items, list) or len(items) > _MAX_NEW_ITEMS:
            raise ProtocolError(f"expected an array of at most {_MAX_NEW_ITEMS} items", pointer="/items")
        if not items:
            return None
        for number, item in enumerate(items):
            if isinstance(item, dict) and item.get("type", "") == "item_reference":
                raise ProtocolError("an item must be sent as it is, not by reference", pointer=join("items", number))
        try:
            messages = decode_input(items)
        except ToolwireError as error:
            error.pointer = error.pointer.replace("/input", "/items", 1)
            raise
        digits = new_digits()
        documents = input_documents(items, digits)
        self._state.check_size(documents, "/items")
        return ResponseEntry(
            f"items_{digits}", self._state.now(), items=documents, input=(BoundMessages("", messages, len(items)),)
        )


def list_items_of(entries: Sequence[ResponseEntry]) -> list[Object]:
    return [item for entry in entries for item in (*entry.items, *entry.output)]


def make_page(items: Sequence[Object], query: Mapping[str, str]) -> bytes:
    """Return one page of a list: `limit` items `after` an id, the newest first unless `order` is `asc`.

    Raise ProtocolError for an invalid `limit` or `order`, and ResponseStateError if no item has the id `after`.
    """
    order, limit_text = query.get("order", "desc"), query.get("limit", str(_DEFAULT_PAGE))
    if order not in ("asc", "desc"):
        raise ProtocolError(f"order must be asc or desc, got {order[:100]!r}", pointer="/order")
    limit = int(limit_text) if limit_text.isdecimal() and len(limit_text) < 5 else 0
    if not 1 <= limit <= _MAX_PAGE:
        raise ProtocolError(f"limit must be 1 to {_MAX_PAGE}, got {limit_text[:100]!r}", pointer="/limit")
    ordered = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after is not None:
        index = next((number for number, item in enumerate(ordered) if item.get("id") == after), None)
        if index is None:
            raise not_found("item", after, "/after")
        ordered = ordered[index + 1 :]
    page = ordered[:limit]
    ids = [item.get("id", "") for item in page] or [""]
    return to_bytes(
        {
            "object": "list",
            "data": page,
            "first_id": ids[0],
            "last_id": ids[-1],
            "has_more": len(ordered) > len(page),
        }
    )


def _read_metadata(document: Object) -> Object:
    """Return the metadata of a document. Raise ProtocolError if it exceeds OpenAI's limits."""
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict) or len(metadata) > _MAX_METADATA:
        raise ProtocolError(f"expected an object of at most {_MAX_METADATA} strings", pointer="/metadata")
    for name, value in metadata.items():
        if not isinstance(value, str) or len(name) > 64 or len(value) > 512:
            message = "expected a string of at most 512 characters, with a name of at most 64"
            raise ProtocolError(message, pointer=join("metadata", name))
    return metadata
