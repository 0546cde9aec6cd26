"""The state of OpenAI Responses over every upstream wire: rebuild the conversation of a request, store its answer.

Two kinds of upstreams keep a conversation. One that stores responses itself gets the client's ids unchanged; the
gateway only remembers which upstream has a response (`UpstreamPin`) and sends later requests there. For all others the
gateway stores every turn, if `responses.store` is set, and sends the whole conversation with each request.

`instructions` and tools belong to one request: they are not part of the stored conversation, as on OpenAI.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from secrets import token_hex

from msgspec.structs import replace

from ...asgi.offload import ClientOffload
from ...ir.errors import ProtocolError, StoreError, ToolwireError
from ...ir.pointer import Object, join
from ...ir.request import Request
from ...ir.text import to_bytes
from ...net.endpoint import Endpoint
from ...stream.sse import SSEDecoder
from ...stream.strict import parse_object
from ..settings import LimitsRow, ResponsesRow
from ..shared.memory_bound import MemoryReservation
from ..shared.response_store import ResponseStore
from ..upstreams import ConfiguredUpstream
from .input_items import find_items, input_items
from .recorder import ResponseRecorder
from .records import (
    ConversationEntry,
    ResponseStateError,
    TurnEntry,
    UpstreamPin,
    decode_entry,
    encode_entry,
    new_digits,
    not_found,
)
from .state_access import StateAccess
from .turn import ResponseTurn

__all__ = ["ResponseState"]

_log = getLogger("toolwire.gateway")
_RESTART = "start again with a shorter conversation in `input`"
_PIN_SECONDS = 30 * 24 * 3600.0  # OpenAI keeps a response for 30 days
_MAX_OFFERED = 64 * 1024  # characters of the names of offered tools
_LOCK_SECONDS = 900.0  # renewed before the end of a turn; bounds the effect of a crash


class ResponseState:
    """The Responses state of a gateway."""

    def __init__(self, store: ResponseStore, row: ResponsesRow, limits: LimitsRow, clock: Callable[[], float]) -> None:
        self._store = store
        self.keeps_turns = row.store is not None or row.store_env is not None
        self._row = row
        self._limits = limits
        self._clock = clock

    def now(self) -> int:
        return int(self._clock())

    def access(self, owner: str, memory: MemoryReservation, offload: ClientOffload) -> StateAccess:
        """Return the access of one request."""
        limits = self._limits
        return StateAccess(self._store, owner, memory, offload, max_bytes=limits.body, max_values=limits.values)

    async def open_turn(
        self,
        access: StateAccess,
        document: Object,
        request_bytes: int,
        request: Callable[[], Request],
        may_keep: Callable[[], bool],
    ) -> ResponseTurn:
        """Resolve the references of a request; ResponseStateError if one cannot be resolved.

        `request` decodes the document, which is only needed if there is something to resolve. `may_keep` checks
        whether an upstream of the model stores responses itself.
        """
        if document.get("background"):
            hint = "leave it out: the gateway answers at once; stream the answer to get it early"
            raise ResponseStateError("background responses are not supported", pointer="/background", hint=hint)
        previous_id, conversation_id = _read_references(document)
        stores = self.keeps_turns and document.get("store") is not False
        digits = new_digits() if self.keeps_turns else ""
        turn = ResponseTurn(
            access, digits, stores, self._row.max_turn_bytes, request_bytes, previous_id, conversation_id
        )
        turn.has_instructions = bool(document.get("instructions"))
        if not self.keeps_turns:
            if previous_id is not None:
                await self._find_unstored_pin(turn, previous_id)
            return turn
        if conversation_id is not None:
            await self._open_conversation(turn, document, conversation_id)
        elif previous_id is not None:
            await self._continue_response(turn, previous_id)
        try:
            if turn.pinned is None:
                await self._read_input(turn, document, request, may_keep)
        except BaseException:
            await self.close_turn(turn)
            raise
        return turn

    async def _find_unstored_pin(self, turn: ResponseTurn, response_id: str) -> None:
        """Set the upstream of a response if it is known. Without a store, an unknown id goes on unchecked."""
        pin = (await turn.access.load([response_id], namespace="")).get(response_id)
        if not isinstance(pin, UpstreamPin):
            return
        if pin.owner != turn.access.owner:
            raise not_found("response", response_id, "/previous_response_id", "previous_response_not_found")
        turn.continue_pinned(pin)

    async def _continue_response(self, turn: ResponseTurn, previous_id: str) -> None:
        data = (await turn.access.load_bytes([previous_id])).get(previous_id, b"")
        entry = decode_entry(data)
        if isinstance(entry, UpstreamPin):
            turn.continue_pinned(entry)
        elif isinstance(entry, TurnEntry) and entry.document:
            chain, size = (*entry.chain, entry.id), entry.chain_bytes + len(data)
            await self._load_history(turn, chain, size, "/previous_response_id")
        else:
            raise not_found("response", previous_id, "/previous_response_id", "previous_response_not_found")

    async def _open_conversation(self, turn: ResponseTurn, document: Object, conversation_id: str) -> None:
        """Lock a conversation and load it. The lock is held until `close_turn`."""
        if document.get("store") is False:
            hint = "leave out `store`, or send the whole conversation in `input`"
            raise ResponseStateError(
                "a conversation stores its items, which `store: false` forbids", pointer="/store", hint=hint
            )
        token = token_hex(16)
        await self.lock_conversation(turn.access, conversation_id, token, "/conversation")
        turn.lock_token = token
        try:
            conversation = await self.find_conversation(turn.access, conversation_id, "/conversation")
            await self._load_history(turn, conversation.turns, conversation.size, "/conversation")
        except BaseException:
            await self.close_turn(turn)
            raise

    async def lock_conversation(self, access: StateAccess, conversation_id: str, token: str, pointer: str = "") -> None:
        if not await self._store.lock(access.owner, conversation_id, token, _LOCK_SECONDS):
            message = f"another request is writing to the conversation {conversation_id[:100]!r}"
            hint = "retry after that request has ended"
            raise ResponseStateError(message, pointer=pointer, hint=hint, code="conversation_locked", status=409)

    async def find_conversation(
        self, access: StateAccess, conversation_id: str, pointer: str = ""
    ) -> ConversationEntry:
        entry = (await access.load([conversation_id], self._row.seconds)).get(conversation_id)
        if not isinstance(entry, ConversationEntry):
            raise not_found("conversation", conversation_id, pointer)
        return entry

    async def _load_history(self, turn: ResponseTurn, chain: tuple[str, ...], size: int, pointer: str) -> None:
        """Load the turns of a conversation, within the limits for its length and its size."""
        self._check_length(len(chain), pointer)
        turn.access.check_bytes(size, pointer)
        turns = await self.load_turns(turn.access, chain, pointer)
        turn.chain, turn.chain_bytes, turn.is_rebuilt = chain, size, True
        turn.history = tuple(bound for stored in turns for bound in stored.messages)

    def _check_length(self, turns: int, pointer: str) -> None:
        if turns >= self._row.max_turns:
            message = f"the stored conversation has {turns} turns; the limit is {self._row.max_turns}"
            raise ResponseStateError(message, pointer=pointer, hint=_RESTART)

    async def load_turns(self, access: StateAccess, chain: Sequence[str], pointer: str = "") -> list[TurnEntry]:
        """Load turns in order, and renew them; not found if one has expired or was deleted."""
        entries = await access.load(chain, self._row.seconds)
        turns = [entry for turn_id in chain if isinstance(entry := entries.get(turn_id), TurnEntry)]
        if len(turns) < len(chain):
            missing = next(turn_id for turn_id in chain if not isinstance(entries.get(turn_id), TurnEntry))
            raise not_found("turn of the conversation", missing, pointer, "previous_response_not_found")
        return turns

    async def _read_input(
        self, turn: ResponseTurn, document: Object, request: Callable[[], Request], may_keep: Callable[[], bool]
    ) -> None:
        """Read the input of a request, with its references to items resolved."""
        access = turn.access
        try:
            decoded = await access.offload.run(turn.request_bytes, request)
        except ToolwireError:
            if turn.is_rebuilt:
                raise
            turn.stores = False  # an upstream of this wire may accept it, unchanged
            return
        items, messages = input_items(document), decoded.messages[int(turn.has_instructions) :]
        found, found_bytes = await find_items(access, items, self._row.seconds, self._row.max_turns, may_keep)
        turn.is_rebuilt = turn.is_rebuilt or bool(found)
        turn.found_bytes = found_bytes
        turn.request_bytes += found_bytes
        await access.offload.run(turn.request_bytes, turn.set_input, items, found, messages)
        if turn.conversation_id is not None:
            await access.offload.run(turn.request_bytes, self.check_size, turn.items, "/input")

    def check_size(self, items: Sequence[Object], pointer: str) -> None:
        size = len(to_bytes(list(items)))
        if size > self._row.max_turn_bytes:
            message = f"the items have {size} bytes; a stored turn may have {self._row.max_turn_bytes}"
            hint = "send smaller items, or set responses.max_turn_bytes"
            raise ResponseStateError(message, pointer=pointer, hint=hint, status=413)

    async def save_answer(
        self, turn: ResponseTurn, recorder: ResponseRecorder, endpoint: Endpoint, written: bytes
    ) -> None:
        """Store a complete answer, before its end is sent: the next request may arrive at once, at another machine.

        A failure of the store is logged; the client gets its answer.
        """
        if turn.is_saved or recorder.parts is None or not recorder.is_stored:
            return
        turn.is_saved = True
        access = turn.access
        try:
            document = await access.offload.run(len(written), _final_document, written)
            stored = turn.make_entry(self.now(), document, recorder, endpoint.origin)
            size = await self.save(access, stored.id, stored, turn.request_bytes + len(written))
            if turn.conversation_id is not None:
                await self.append_turn(access, turn.conversation_id, turn.lock_token, stored, size)
        except ToolwireError as error:
            _log.error("cannot store a response: %s", error)

    async def append_turn(
        self, access: StateAccess, conversation_id: str, token: str, turn: TurnEntry, estimate: int
    ) -> None:
        """Append a turn to a locked conversation, as an entry of its own: deleting the response does not change it.

        `estimate` is its approximate size in bytes.
        """
        await self.lock_conversation(access, conversation_id, token)
        conversation = await self.find_conversation(access, conversation_id)
        self._check_length(len(conversation.turns), "")
        segment = replace(turn, id=f"turn_{turn.id.partition('_')[2]}", document={})
        size = await self.save(access, segment.id, segment, estimate)
        changed = replace(conversation, turns=(*conversation.turns, segment.id), size=conversation.size + size)
        await self.save(access, conversation_id, changed)

    async def save(
        self, access: StateAccess, entry_id: str, entry: TurnEntry | ConversationEntry, estimate: int = 0
    ) -> int:
        """Save an entry, and return its size in bytes; a large one by the `estimate` is encoded in a thread."""
        data = await access.offload.run(estimate, encode_entry, entry)
        await self._store.save(access.owner, entry_id, data, self._row.seconds)
        return len(data)

    async def save_pin(
        self,
        turn: ResponseTurn,
        response_id: str,
        upstream: ConfiguredUpstream,
        *,
        wants_store: bool,
        offered: tuple[str, ...] | None,
        last_id: str,
    ) -> None:
        """Remember the upstream that stores a response, and the tools that were `offered`, if they were selected.

        `last_id` is the id of the last turn, if several turns made the response. Without a store, all pins share one bound.
        Without a store, the upstream's own state is also the only one there is, so it need not be known to have any.
        """
        if turn.is_saved or not response_id or not wants_store:
            return
        if self.keeps_turns and not upstream.keeps_responses:
            return
        turn.is_saved = True
        owner = turn.access.owner
        if offered is not None and sum(map(len, offered)) > _MAX_OFFERED:
            offered = None
        data = encode_entry(UpstreamPin(upstream.name, owner, offered, "" if last_id == response_id else last_id))
        try:
            await self._store.save(owner if self.keeps_turns else "", response_id, data, _PIN_SECONDS)
        except StoreError as error:
            _log.error("cannot store the upstream of a response: %s", error)

    async def close_turn(self, turn: ResponseTurn) -> None:
        """Release the conversation."""
        if turn.lock_token and turn.conversation_id is not None:
            token, turn.lock_token = turn.lock_token, ""
            await self.unlock_conversation(turn.access, turn.conversation_id, token)

    async def unlock_conversation(self, access: StateAccess, conversation_id: str, token: str) -> None:
        """Release a lock. A failure is logged: the lock expires by itself."""
        try:
            await self._store.unlock(access.owner, conversation_id, token)
        except StoreError as error:
            _log.error("cannot unlock a conversation: %s", error)

    async def find_response(self, access: StateAccess, response_id: str) -> TurnEntry | UpstreamPin:
        """Return a response of this owner, or its upstream."""
        entry = (await access.load([response_id], namespace=None if self.keeps_turns else "")).get(response_id)
        if isinstance(entry, UpstreamPin) and entry.owner == access.owner:
            return entry
        if isinstance(entry, TurnEntry) and entry.document:
            return entry
        raise not_found("response", response_id)

    async def delete(self, access: StateAccess, entry_ids: Sequence[str]) -> None:
        await self._store.delete(access.owner if self.keeps_turns else "", entry_ids)


def _read_references(document: Object) -> tuple[str | None, str | None]:
    """Return `previous_response_id` and the id of `conversation`; they exclude each other."""
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


def _final_document(written: bytes) -> Object:
    """Return the response in a complete answer, whole or at the end of a stream."""
    if written.startswith(b"{"):
        return parse_object(written)
    for _, payload in SSEDecoder().feed(written):
        event = parse_object(payload)
        if event.get("type") in ("response.completed", "response.incomplete"):
            response: Object = event["response"]
            return response
    raise ProtocolError("the answer has no final response")
