"""The state of OpenAI Responses over every upstream wire: rebuild the conversation of a request, store its answer.

Two kinds of upstreams keep a conversation. One that stores responses itself gets the client's ids unchanged; the
gateway only remembers which upstream has a response (`UpstreamPin`) and sends later requests there. For all others the
gateway stores every response, if `responses.store` is set, and sends the whole conversation with each request.

`instructions` and tools belong to one request: they are not part of the stored conversation, as on OpenAI.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from logging import getLogger
from secrets import token_hex

from msgspec.structs import replace

from ...asgi.offload import ClientOffload
from ...ir.errors import StoreError, ToolwireError
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.text import to_bytes
from ...net.model.endpoint import Endpoint
from ..config.settings import LimitsRow, ResponsesRow
from ..memory import MemoryReservation
from ..routing.upstreams import ConfiguredUpstream
from .pending_response import PendingResponse, find_items, input_items, read_references
from .recorder import ResponseRecorder, final_document
from .records import (
    ConversationEntry,
    ResponseEntry,
    ResponseStateError,
    StoredEntry,
    UpstreamPin,
    decode_entry,
    encode_entry,
    new_digits,
    not_found,
    with_failure,
)
from .store import SAVE_PAUSES, HeldLock, ResponseStore, StateAccess, save_with_retries

_log = getLogger("toolwire.gateway")
_RESTART = "start again with a shorter conversation in `input`"
_PIN_SECONDS = 30 * 24 * 3600.0  # OpenAI keeps a response for 30 days
_MAX_OFFERED = 64 * 1024  # characters of the names of offered tools: 1,000 names of the maximum 64
RUNNING = ("queued", "in_progress")
"""The states of a background response that has not ended."""
_UNFINISHED = (*RUNNING, "failed", "cancelled")  # without an answer to continue
_TOO_LARGE = ("server_error", "the response is too large to be stored; responses.max_response_bytes limits it")
_LOCK_SECONDS = 900.0  # renewed before the end of a response; bounds the effect of a crash


class ResponseState:
    """The Responses state of a gateway."""

    def __init__(self, store: ResponseStore, row: ResponsesRow, limits: LimitsRow, clock: Callable[[], float]) -> None:
        self._store = store
        self.keeps_responses = row.store is not None or row.store_env is not None
        self._row = row
        self._limits = limits
        self._clock = clock

    def now(self) -> int:
        return int(self._clock())

    def access(self, owner: str, memory: MemoryReservation, offload: ClientOffload) -> StateAccess:
        """Return the access of one request."""
        limits = self._limits
        return StateAccess(self._store, owner, memory, offload, max_bytes=limits.body, max_values=limits.values)

    async def open_response(
        self,
        access: StateAccess,
        document: Object,
        request_bytes: int,
        request: Callable[[], Request],
        may_keep: Callable[[], bool],
        background_id: str = "",
    ) -> PendingResponse:
        """Load the stored state that a request refers to, and lock its conversation until `close_response`.

        Raise ResponseStateError if a reference cannot be resolved. `background_id`: of a background response. `request` decodes the document, which is only needed if there is something to resolve. `may_keep` checks
        whether an upstream of the model stores responses itself.
        """
        previous_id, conversation_id = read_references(document)
        stores = self.keeps_responses and document.get("store") is not False
        digits = background_id.partition("_")[2] or (new_digits() if self.keeps_responses else "")
        pending = PendingResponse(
            access, digits, stores, self._row.max_response_bytes, request_bytes, previous_id, conversation_id
        )
        pending.has_instructions = bool(document.get("instructions"))
        pending.is_background = bool(background_id)
        if not self.keeps_responses:
            if previous_id is not None:
                await self._find_unstored_pin(pending, previous_id)
            return pending
        if conversation_id is not None:
            await self._open_conversation(pending, document, conversation_id)
        elif previous_id is not None:
            await self._continue_response(pending, previous_id)
        try:
            if pending.pinned is None:
                await self._read_input(pending, document, request, may_keep)
        except BaseException:
            await self.close_response(pending)
            raise
        return pending

    async def _find_unstored_pin(self, pending: PendingResponse, response_id: str) -> None:
        """Set the upstream of a response if it is known. Without a store, an unknown id goes on unchecked.

        Raise ResponseStateError (404) if it is another client's response.
        """
        pin = (await pending.access.load([response_id], namespace="")).get(response_id)
        if not isinstance(pin, UpstreamPin):
            return
        if pin.owner != pending.access.owner:
            raise not_found("response", response_id, "/previous_response_id", "previous_response_not_found")
        pending.continue_pinned(pin)

    async def find_previous(self, access: StateAccess, response_id: str) -> ResponseEntry | UpstreamPin | None:
        """Return a response of this owner; None for an unknown one, which goes on unchecked without a store.

        Raise ResponseStateError (404) if it is another client's response, or unknown to the store.
        """
        entry = (await access.load([response_id], namespace=None if self.keeps_responses else "")).get(response_id)
        if isinstance(entry, UpstreamPin) and entry.owner == access.owner:
            return entry
        if isinstance(entry, ResponseEntry) and entry.document:
            return entry
        if entry is None and not self.keeps_responses:
            return None
        raise not_found("response", response_id, "/previous_response_id", "previous_response_not_found")

    async def _continue_response(self, pending: PendingResponse, previous_id: str) -> None:
        """Load the conversation up to a response, or set the upstream that stores it.

        Raise ResponseStateError (404) if there is no such response.
        """
        data = (await pending.access.load_bytes([previous_id])).get(previous_id, b"")
        entry = decode_entry(data)
        if isinstance(entry, UpstreamPin):
            pending.continue_pinned(entry)
        elif isinstance(entry, ResponseEntry) and entry.document.get("status") in _UNFINISHED:
            message = f"the previous response is {entry.document['status']}"
            hint = "continue a response that is completed or incomplete"
            raise ResponseStateError(message, pointer="/previous_response_id", hint=hint)
        elif isinstance(entry, ResponseEntry) and entry.document:
            chain, size = (*entry.chain, entry.id), entry.chain_bytes + len(data)
            await self._load_history(pending, chain, size, "/previous_response_id")
        else:
            raise not_found("response", previous_id, "/previous_response_id", "previous_response_not_found")

    async def _open_conversation(self, pending: PendingResponse, document: Object, conversation_id: str) -> None:
        """Lock a conversation and load it. The lock is held until `close_response`.

        Raise ResponseStateError if it is locked or unknown, or if the request forbids storing.
        """
        if document.get("store") is False:
            hint = "leave out `store`, or send the whole conversation in `input`"
            raise ResponseStateError(
                "a conversation stores its items, which `store: false` forbids", pointer="/store", hint=hint
            )
        pending.lock_token = token_hex(16)  # a cancelled task may have got the lock, so it is released in any case
        try:
            await self._lock_conversation(pending.access, conversation_id, pending.lock_token, "/conversation")
            conversation = await self.find_conversation(pending.access, conversation_id, "/conversation")
            await self._load_history(pending, conversation.entry_ids, conversation.size, "/conversation")
        except BaseException:
            await self.close_response(pending)
            raise

    async def try_lock(self, access: StateAccess, entry_id: str, token: str, seconds: float) -> bool:
        """Lock an entry, or extend the lock. Return False if another request has it."""
        return await self._store.lock(access.owner, entry_id, token, seconds)

    async def change_running(
        self, access: StateAccess, response_id: str, change: Callable[[ResponseEntry], ResponseEntry], estimate: int = 0
    ) -> tuple[ResponseEntry | None, int]:
        """Change a background response if it is in progress: its end, or its cancellation.

        Return the response that is stored afterwards, or None if it was deleted, and the size in bytes of the change, or
        0 if nothing was stored.
        """
        async with access.lock_status(response_id) as lock:
            current = (await access.load([response_id])).get(response_id)
            if not isinstance(current, ResponseEntry):
                return None, 0
            if current.document.get("status") not in RUNNING:
                return current, 0
            changed = change(current)
            return changed, await self.save(access, response_id, changed, estimate, lock)

    async def fail_running(self, access: StateAccess, response_id: str, code: str, message: str) -> None:
        """Store a background response as failed if it is in progress."""
        await self.change_running(
            access, response_id, lambda entry: replace(entry, document=with_failure(entry.document, code, message))
        )

    @asynccontextmanager
    async def lock_conversation(self, access: StateAccess, conversation_id: str) -> AsyncIterator[str]:
        """Hold the lock of a conversation, and return its token. Raise ResponseStateError if another request has it."""
        token = token_hex(16)
        try:  # a cancelled task may have got the lock; without it, unlocking has no effect
            await self._lock_conversation(access, conversation_id, token)
            yield token
        finally:
            await self.unlock(access, conversation_id, token)

    async def _lock_conversation(
        self, access: StateAccess, conversation_id: str, token: str, pointer: str = ""
    ) -> None:
        """Lock a conversation, or extend its lock. Raise ResponseStateError if another request has the lock."""
        if not await self._store.lock(access.owner, conversation_id, token, _LOCK_SECONDS):
            message = f"another request is writing to the conversation {conversation_id[:100]!r}"
            hint = "retry after that request has ended"
            raise ResponseStateError(message, pointer=pointer, hint=hint, code="conversation_locked", status=409)

    async def find_conversation(
        self, access: StateAccess, conversation_id: str, pointer: str = ""
    ) -> ConversationEntry:
        """Return a stored conversation. Raise ResponseStateError if there is none."""
        entry = (await access.load([conversation_id], self._row.seconds)).get(conversation_id)
        if not isinstance(entry, ConversationEntry):
            raise not_found("conversation", conversation_id, pointer)
        return entry

    async def _load_history(self, pending: PendingResponse, chain: tuple[str, ...], size: int, pointer: str) -> None:
        """Set the history of a response to the entries of its conversation. From now on the request is rebuilt from it.

        Raise ResponseStateError beyond the limits for length and size, and for an entry that has expired.
        """
        self._check_length(len(chain), pointer)
        pending.access.check_bytes(size, pointer)
        entries = await self.load_entries(pending.access, chain, pointer)
        pending.chain, pending.chain_bytes, pending.is_rebuilt = chain, size, True
        pending.history = tuple(bound for entry in entries for bound in entry.messages)

    def _check_length(self, length: int, pointer: str) -> None:
        if length >= self._row.max_responses:
            message = f"the stored conversation has {length} responses; the limit is {self._row.max_responses}"
            raise ResponseStateError(message, pointer=pointer, hint=_RESTART)

    async def load_entries(self, access: StateAccess, chain: Sequence[str], pointer: str = "") -> list[ResponseEntry]:
        """Load entries in order, and renew them. Raise ResponseStateError (404) if one has expired or was deleted."""
        loaded = await access.load(chain, self._row.seconds)
        entries = [entry for entry_id in chain if isinstance(entry := loaded.get(entry_id), ResponseEntry)]
        if len(entries) < len(chain):
            missing = next(entry_id for entry_id in chain if not isinstance(loaded.get(entry_id), ResponseEntry))
            raise not_found("response of the conversation", missing, pointer, "previous_response_not_found")
        return entries

    async def _read_input(
        self, pending: PendingResponse, document: Object, request: Callable[[], Request], may_keep: Callable[[], bool]
    ) -> None:
        """Set the input of a response, with the request's references to items resolved.

        A request that cannot be decoded is not stored. If it has stored history, or its items are unknown or too large
        for the conversation, raise the error.
        """
        access = pending.access
        try:
            decoded = await access.offload.run(pending.request_bytes, request)
        except ToolwireError:
            if pending.is_rebuilt:
                raise
            pending.stores = False  # an upstream of this wire may accept it, unchanged
            return
        items, messages = input_items(document), decoded.messages[int(pending.has_instructions) :]
        found, found_bytes = await find_items(access, items, self._row.seconds, self._row.max_responses, may_keep)
        pending.is_rebuilt = pending.is_rebuilt or bool(found)
        pending.found_bytes = found_bytes
        pending.request_bytes += found_bytes
        await access.offload.run(pending.request_bytes, pending.set_input, items, found, messages)
        if pending.conversation_id is not None:
            await access.offload.run(pending.request_bytes, self.check_size, pending.items, "/input")

    def check_size(self, items: Sequence[Object], pointer: str) -> None:
        """Raise ResponseStateError if the items of a conversation are too large."""
        size = len(to_bytes(list(items)))
        if size > self._row.max_response_bytes:
            message = f"the items have {size} bytes; a stored response may have {self._row.max_response_bytes}"
            hint = "send smaller items; the gateway's operator can raise responses.max_response_bytes"
            raise ResponseStateError(message, pointer=pointer, hint=hint, status=413)

    async def save_answer(
        self, pending: PendingResponse, recorder: ResponseRecorder, endpoint: Endpoint, written: bytes
    ) -> None:
        """Store a complete answer and unlock its conversation, before its end is sent.

        The next request may arrive at once, at another machine. A failure of the store is logged; the client gets its
        answer. A background response waits for the store, because its client reads it later.
        """
        if pending.is_saved or not (recorder.is_stored or recorder.is_too_large):
            return
        pending.is_saved = True
        try:
            if recorder.is_stored:
                pauses = SAVE_PAUSES if pending.is_background else ()
                await save_with_retries(pauses, self._save_entry, pending, recorder, endpoint, written)
            elif pending.is_background:
                await self.fail_running(pending.access, f"resp_{pending.digits}", *_TOO_LARGE)
        except ToolwireError as error:
            _log.error("cannot store a response: %s", error)
        await self.close_response(pending)

    async def _save_entry(
        self, pending: PendingResponse, recorder: ResponseRecorder, endpoint: Endpoint, written: bytes
    ) -> None:
        """Store a response, and append it to its conversation, unless it was cancelled or deleted meanwhile."""
        access = pending.access
        document = await access.offload.run(len(written), final_document, written)
        stored = pending.make_entry(self.now(), document, recorder, endpoint.origin)
        estimate = pending.request_bytes + len(written)
        if pending.is_background:
            _, size = await self.change_running(access, stored.id, lambda _: stored, estimate)
        else:
            size = await self.save(access, stored.id, stored, estimate)
        if size and pending.conversation_id is not None:
            await self.append_entry(access, pending.conversation_id, pending.lock_token, stored, size)

    async def append_entry(
        self, access: StateAccess, conversation_id: str, token: str, entry: ResponseEntry, estimate: int
    ) -> None:
        """Append a copy of an entry to a conversation that `token` locks: deleting the response does not change it.

        The lock is extended. `estimate` is the approximate size in bytes. Raise ResponseStateError if the lock is lost, or
        the conversation is unknown or too long.
        """
        await self._lock_conversation(access, conversation_id, token)
        conversation = await self.find_conversation(access, conversation_id)
        self._check_length(len(conversation.entry_ids), "")
        copied = replace(entry, id=f"items_{entry.id.partition('_')[2]}", document={})
        size = await self.save(access, copied.id, copied, estimate)
        changed = replace(conversation, entry_ids=(*conversation.entry_ids, copied.id), size=conversation.size + size)
        await self.save(access, conversation_id, changed)

    async def save(
        self, access: StateAccess, entry_id: str, entry: StoredEntry, estimate: int = 0, lock: HeldLock | None = None
    ) -> int:
        """Save an entry, encoded in a thread if `estimate` is large. Return its bytes, or raise LockLost."""
        data = await access.offload.run(estimate, encode_entry, entry)
        await self._store.save(access.owner, entry_id, data, self._row.seconds, lock)
        return len(data)

    async def save_pin(
        self,
        pending: PendingResponse,
        response_id: str,
        upstream: ConfiguredUpstream,
        *,
        wants_store: bool,
        offered: tuple[str, ...] | None,
        last_id: str,
    ) -> None:
        """Remember the upstream that stores a response, and the tools that were `offered`, if they were selected.

        `last_id` is the id of the last turn, if several turns made the response. Without a store, all pins share one
        bound, and the upstream need not be known to store responses: no other state could continue them. A failure of the
        store is logged.
        """
        if pending.is_saved or not response_id or not wants_store:
            return
        if self.keeps_responses and not upstream.keeps_responses:
            return
        pending.is_saved = True
        owner = pending.access.owner
        if offered is not None and sum(map(len, offered)) > _MAX_OFFERED:
            offered = None
        data = encode_entry(UpstreamPin(upstream.name, owner, offered, "" if last_id == response_id else last_id))
        try:
            await self._store.save(owner if self.keeps_responses else "", response_id, data, _PIN_SECONDS)
        except StoreError as error:
            _log.error("cannot store the upstream of a response: %s", error)

    async def close_response(self, pending: PendingResponse) -> None:
        """Release the conversation. Call it again if it was cancelled, by a client that disconnects meanwhile."""
        if pending.lock_token and pending.conversation_id is not None:
            await self.unlock(pending.access, pending.conversation_id, pending.lock_token)
            pending.lock_token = ""

    async def unlock(self, access: StateAccess, entry_id: str, token: str) -> None:
        await self._store.unlock(access.owner, entry_id, token)

    async def find_response(self, access: StateAccess, response_id: str) -> ResponseEntry | UpstreamPin:
        """Return a response of this owner, or its upstream. Raise ResponseStateError (404) if there is none."""
        entry = (await access.load([response_id], namespace=None if self.keeps_responses else "")).get(response_id)
        if isinstance(entry, UpstreamPin) and entry.owner == access.owner:
            return entry
        if isinstance(entry, ResponseEntry) and entry.document:
            return entry
        raise not_found("response", response_id)

    async def delete(self, access: StateAccess, entry_ids: Sequence[str], lock: HeldLock | None = None) -> None:
        await self._store.delete(access.owner if self.keeps_responses else "", entry_ids, lock)
