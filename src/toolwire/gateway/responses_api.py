"""The requests about stored responses and conversations, in OpenAI's shapes.

A response that an upstream stores itself is read and deleted there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from secrets import token_hex
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from msgspec.structs import replace

from ..asgi.http_exchange import HeaderPairs, HttpExchange
from ..asgi.offload import ClientOffload
from ..ir.errors import ProtocolError, ToolwireError
from ..ir.pointer import JSON, Object, join
from ..ir.response import UpstreamError
from ..ir.text import to_bytes
from ..net.model.endpoint_request import parse_or_raw, redact_secrets
from ..net.model.key_command import KeyCommandError
from ..net.model.replies import read_reply_body
from ..stream.strict import parse_object
from .faults import as_gateway_fault, key_fault_of, network_fault_of
from .keys import Caller, Limiter
from .memory import MemoryReservation
from .request.dependencies import Dependencies
from .request.reader import RequestReader
from .request.routes import Route
from .responses.records import (
    BoundMessages,
    ConversationEntry,
    ResponseEntry,
    ResponseStateError,
    UpstreamPin,
    conversation_document,
    decode_input,
    input_documents,
    new_digits,
    not_found,
)
from .responses.store import StateAccess
from .routing.upstreams import UpstreamTransports

_JSON: HeaderPairs = [(b"content-type", b"application/json")]
_MAX_PAGE, _DEFAULT_PAGE = 100, 20  # items of one page, as on OpenAI
_MAX_NEW_ITEMS = 20  # as on OpenAI
_MAX_METADATA = 16  # as on OpenAI


class _StateRequest:
    """A request about stored state: the access of its client, the id in its path, its query and its body.

    `work_size` is the size of the work that its body makes.
    """

    __slots__ = ("access", "body", "entry_id", "query", "work_size")

    def __init__(
        self, access: StateAccess, entry_id: str, query: Mapping[str, str], body: bytes, work_size: int
    ) -> None:
        self.access = access
        self.entry_id = entry_id
        self.query = query
        self.body = body
        self.work_size = work_size


class ResponsesApi:
    """The routes about stored state, on one version of the settings."""

    def __init__(
        self, dependencies: Dependencies, reader: RequestReader, limiter: Limiter, transports: UpstreamTransports
    ) -> None:
        self._dependencies = dependencies
        self._state = dependencies.responses
        self._reader = reader
        self._limiter = limiter
        self._transports = transports
        self._actions: dict[str, Callable[[_StateRequest], Awaitable[bytes]]] = {
            "get_response": self._get_response,
            "delete_response": self._delete_response,
            "cancel_response": self._cancel_response,
            "list_input": self._list_input,
            "create_conversation": self._create_conversation,
            "get_conversation": self._get_conversation,
            "update_conversation": self._update_conversation,
            "delete_conversation": self._delete_conversation,
            "list_items": self._list_items,
            "create_items": self._create_items,
        }

    async def answer(
        self, http_exchange: HttpExchange, route: Route, caller: Caller, memory: MemoryReservation
    ) -> None:
        """Write the answer for a route. It counts as a request of the key.

        Raise RateLimited, the errors of reading the body, and ResponseStateError if there is no such entry, or no store.
        """
        if caller.name:
            await self._limiter.admit(caller)
        dependencies = self._dependencies
        body, work_size = await self._reader.read_document(http_exchange, memory, dependencies.limits)
        access = self._state.access(caller.name, memory, ClientOffload(dependencies.offload, caller.name))
        request = _StateRequest(access, route.entry_id, http_exchange.query, body, work_size)
        if "conversation" in route.action or route.action in ("list_items", "create_items"):
            self._require_store()
        await http_exchange.respond(200, _JSON, await self._actions[route.action](request))

    def _require_store(self) -> None:
        if not self._state.keeps_responses:
            hint = "send the whole conversation in `input`; the gateway's operator can set `responses.store`"
            raise ResponseStateError("the gateway stores no conversations", hint=hint, status=404)

    async def _get_response(self, request: _StateRequest) -> bytes:
        """Return a response, from the store or from the upstream that stores it.

        Raise ResponseStateError if its stream is requested: only the finished response is stored.
        """
        for name in ("starting_after", "stream"):
            if request.query.get(name, "false") not in ("false", ""):
                hint = "read the finished response without it"
                message = f"{name} is not supported: the stream of a stored response cannot be resumed"
                raise ResponseStateError(message, pointer=join(name), hint=hint)
        entry = await self._state.find_response(request.access, request.entry_id)
        if isinstance(entry, UpstreamPin):
            return await self._forward("GET", entry, request)
        return await request.access.offload.run(request.access.loaded_bytes, lambda: to_bytes(entry.response))

    async def _delete_response(self, request: _StateRequest) -> bytes:
        entry = await self._state.find_response(request.access, request.entry_id)
        deleted = to_bytes({"id": request.entry_id, "object": "response", "deleted": True})
        if isinstance(entry, UpstreamPin):
            deleted = await self._forward("DELETE", entry, request)
        await self._state.delete(request.access, [request.entry_id])
        return deleted

    async def _cancel_response(self, request: _StateRequest) -> bytes:
        message = "only a background response can be cancelled, and `background` is not supported"
        raise ResponseStateError(message, pointer="/background", hint="close the connection to end a response")

    async def _list_input(self, request: _StateRequest) -> bytes:
        """List the items that a response was made from: the items of the responses before it, then its own input."""
        entry = await self._state.find_response(request.access, request.entry_id)
        if isinstance(entry, UpstreamPin):
            return await self._forward("GET", entry, request, "/input_items")
        earlier = await self._state.load_entries(request.access, entry.chain)
        items = [*_entry_items(earlier), *entry.items]
        return await request.access.offload.run(request.access.loaded_bytes, _page, items, request.query)

    async def _forward(self, method: str, pin: UpstreamPin, request: _StateRequest, path: str = "") -> bytes:
        """Send the request to the upstream that stores the response, and return its answer unchanged.

        Raise UpstreamError if that fails, and ResponseStateError (404) if the settings have no such upstream any more.
        """
        upstream = self._dependencies.router.find_upstream(pin.upstream)
        if upstream is None:
            raise not_found("response", request.entry_id)
        endpoint = upstream.endpoint("any")
        base, stored_id = urlsplit(endpoint.url(stream=False)), pin.last_id or request.entry_id
        query = "&".join(filter(None, (base.query, urlencode(_public_query(request.query)))))
        url = urlunsplit((base.scheme, base.netloc, f"{base.path}/{quote(stored_id, safe='')}{path}", query, ""))
        try:
            secrets = await endpoint.authorise()
            transport = self._transports.of(upstream.name, upstream.row)
            async with transport.send(method, url, endpoint.headers, secrets, b"", upstream.row.timeout) as reply:
                data = await read_reply_body(reply, self._dependencies.limits.answer)
                if 200 <= reply.status < 300:
                    return data
                fault = endpoint.wire.decode_error(reply.status, parse_or_raw(data), dict(reply.headers))
        except (TimeoutError, ConnectionError) as error:
            fault = network_fault_of(error, upstream.name, endpoint.origin)
        except KeyCommandError as error:
            fault = key_fault_of(error, upstream.name)
        raise UpstreamError(as_gateway_fault(redact_secrets(endpoint.known_secrets, fault), upstream.name))

    async def _create_conversation(self, request: _StateRequest) -> bytes:
        metadata, entry = await request.access.offload.run(request.work_size, self._read_conversation, request.body)
        conversation = ConversationEntry(f"conv_{new_digits()}", self._state.now(), metadata)
        await self._state.save(request.access, conversation.id, conversation)
        if entry is not None:
            await self._append(request.access, conversation.id, entry, len(request.body))
        return to_bytes(conversation_document(conversation))

    def _read_conversation(self, body: bytes) -> tuple[Object, ResponseEntry | None]:
        document = parse_object(body) if body else {}
        return _read_metadata(document), self._make_entry(document.get("items") or [])

    async def _get_conversation(self, request: _StateRequest) -> bytes:
        return to_bytes(conversation_document(await self._state.find_conversation(request.access, request.entry_id)))

    async def _update_conversation(self, request: _StateRequest) -> bytes:
        """Replace the metadata of a conversation, under its lock, and return the conversation."""
        document = await request.access.offload.run(request.work_size, parse_object, request.body)
        metadata = _read_metadata(document)
        token = token_hex(16)
        await self._state.lock_conversation(request.access, request.entry_id, token)
        try:
            conversation = await self._state.find_conversation(request.access, request.entry_id)
            changed = replace(conversation, metadata=metadata)
            await self._state.save(request.access, changed.id, changed)
        finally:
            await self._state.unlock_conversation(request.access, request.entry_id, token)
        return to_bytes(conversation_document(changed))

    async def _delete_conversation(self, request: _StateRequest) -> bytes:
        """Delete a conversation and its items. Responses that were made in it stay."""
        conversation = await self._state.find_conversation(request.access, request.entry_id)
        await self._state.delete(request.access, [conversation.id, *conversation.entry_ids])
        return to_bytes({"id": conversation.id, "object": "conversation.deleted", "deleted": True})

    async def _list_items(self, request: _StateRequest) -> bytes:
        conversation = await self._state.find_conversation(request.access, request.entry_id)
        entries = await self._state.load_entries(request.access, conversation.entry_ids)
        return await request.access.offload.run(
            request.access.loaded_bytes, _page, _entry_items(entries), request.query
        )

    async def _create_items(self, request: _StateRequest) -> bytes:
        """Append items to a conversation, and return them with their ids."""
        entry = await request.access.offload.run(request.work_size, self._read_items, request.body)
        await self._append(request.access, request.entry_id, entry, len(request.body))
        return await request.access.offload.run(
            request.work_size, _page, list(entry.items), {"order": "asc", "limit": str(_MAX_PAGE)}
        )

    def _read_items(self, body: bytes) -> ResponseEntry:
        entry = self._make_entry(parse_object(body).get("items"))
        if entry is None:
            raise ProtocolError("expected at least one item", pointer="/items")
        return entry

    async def _append(self, access: StateAccess, conversation_id: str, entry: ResponseEntry, size: int) -> None:
        token = token_hex(16)
        await self._state.lock_conversation(access, conversation_id, token)
        try:
            await self._state.append_entry(access, conversation_id, token, entry, size)
        finally:
            await self._state.unlock_conversation(access, conversation_id, token)

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
            f"items_{digits}", self._state.now(), items=documents, input=(BoundMessages("", messages),)
        )


def _entry_items(entries: Sequence[ResponseEntry]) -> list[Object]:
    return [item for entry in entries for item in (*entry.items, *entry.output)]


def _page(items: Sequence[Object], query: Mapping[str, str]) -> bytes:
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


def _public_query(query: Mapping[str, str]) -> dict[str, str]:
    """Return the query without the client's key."""
    return {name: value for name, value in query.items() if name != "key"}
