"""The turns of one request: load those of its history, restore them, and save the turn of its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...asgi.offload import ClientOffload
from ...bridge.conversation.fitted_prefix import PrefixStore
from ...bridge.conversation.reasoning_envelope import EnvelopeReader, ModelEnvelopes, ReasoningEnvelopes
from ...bridge.conversation.restored_turns import find_turn_keys, restore_known_turns, restore_turns, turn_keys
from ...bridge.conversation.turns import MAX_TURN_BYTES, StoredTurn, TurnStore
from ...ir.request import Request
from ...net.model.endpoint import Endpoint
from ..request.client_request import ClientRequest
from ..routing.router import Target


class TurnMemory:
    """The part of the store that one request of `caller` reads and writes, and the envelopes in its history."""

    __slots__ = ("_caller", "_client_request", "_envelopes", "_offload", "_store", "_turns", "removes_envelopes")

    def __init__(
        self,
        store: TurnStore,
        client_request: ClientRequest,
        caller: str,
        offload: ClientOffload,
        envelopes: ReasoningEnvelopes,
    ) -> None:
        self._store = store
        self._envelopes = envelopes if client_request.has_envelopes else None
        self._client_request = client_request
        self._caller = caller
        self._offload = offload
        self._turns: Mapping[str, StoredTurn] = {}  # of the history, by key
        self.removes_envelopes = False  # in the last request, because its provider would refuse them

    @property
    def found_any(self) -> bool:
        """True if a turn of the history is stored, or may contain an envelope."""
        return bool(self._turns) or self.has_envelopes

    @property
    def has_envelopes(self) -> bool:
        """True if reasoning of the history may be in an envelope."""
        return self._envelopes is not None

    async def load(self, plan: Sequence[Target]) -> None:
        """Load the turns of the history, for the targets in `plan`."""
        if not self._store.has_any:
            return
        keys = await self._offload.run(self._client_request.work_size, self._find_keys, plan)
        if keys:
            self._turns = await self._store.load(self._caller, keys)

    def _find_keys(self, plan: Sequence[Target]) -> list[str]:
        """List the keys of turns that may be stored. Turns without calls matter only to a target of another wire."""
        client_request = self._client_request
        crosses_wires = any(target.endpoint.wire.name != client_request.wire.name for target in plan)
        if crosses_wires or client_request.may_have_calls():
            request = client_request.request
            return find_turn_keys(request, by_text=crosses_wires, store=client_request.translations)
        return []

    def restore(self, request: Request, endpoint: Endpoint) -> tuple[Request, PrefixStore | None]:
        """Return the request with its stored turns, and the translations of its first messages.

        On the client's own wire, it is the same object if nothing changes.
        """
        client_request = self._client_request
        translations = client_request.translations
        envelopes = None if self._envelopes is None else envelopes_for(self._envelopes, endpoint)
        self.removes_envelopes = False
        if endpoint.wire.name == client_request.wire.name:
            reader = None if envelopes is None else EnvelopeReader(envelopes)
            restored = restore_turns(request, self._turns, endpoint.turn_origin, reader)
            if reader is None or not reader.found:
                return restored, translations
            self.removes_envelopes = True
        return restore_known_turns(request, self._turns, endpoint.turn_origin, translations, envelopes)

    async def save(self, turn: StoredTurn, endpoint: Endpoint, size: int) -> None:
        """Save a turn that the client cannot return in full; `size` is that of the work.

        It is saved before the answer ends: the next request may arrive at once, at another machine.
        """
        bound, keys, data = await self._offload.run(size, _encode_turn, turn, endpoint)
        if len(data) <= MAX_TURN_BYTES:
            await self._store.save(self._caller, keys, bound, data)


def envelopes_for(envelopes: ReasoningEnvelopes, endpoint: Endpoint) -> ModelEnvelopes:
    """Return the envelopes for the reasoning of an endpoint's model."""
    return envelopes.for_model(endpoint.wire.name, endpoint.origin, endpoint.model)


def _encode_turn(turn: StoredTurn, endpoint: Endpoint) -> tuple[StoredTurn, list[str], bytes]:
    """Return the turn of an endpoint with its keys and its JSON."""
    bound = turn.bind(endpoint.model, endpoint.turn_origin)
    return bound, turn_keys(bound), bound.to_json()
