"""Reasoning artefacts that a client does not keep, restored by call id.

A provider signs its reasoning and expects it back with the results. Many clients drop fields that they do not know, and
some wires cannot carry them. So the gateway stores the artefacts of a call for a while, and restores them where they
are missing. The caller is part of the key, so no client gets another client's. They are sent only to the server that
made them, for the same call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Protocol

from msgspec.structs import replace

from ...ir.parts import Artefact, Part, Reasoning, ToolCall
from ...ir.request import Message, Request
from ..answer.answer_stats import Continuation, call_fingerprint
from ..settings import StateRow

__all__ = [
    "ContinuationStore",
    "InMemoryContinuations",
    "calls_without_artefacts",
    "open_in_memory",
    "restore_continuations",
]


class ContinuationStore(Protocol):
    """A store of continuations, by caller and call id."""

    @property
    def has_any(self) -> bool:
        """True if a lookup can find anything."""
        ...

    async def save(self, caller: str, kept: Mapping[str, Continuation]) -> None: ...

    async def load(self, caller: str, call_ids: list[str]) -> dict[str, Continuation]:
        """Return the stored entries of these calls."""
        ...


class InMemoryContinuations:
    """The memory of one process: the newest `max_entries`, in at most `max_bytes`, each for `seconds`."""

    def __init__(self, max_entries: int, max_bytes: int, seconds: float, clock: Callable[[], float]) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[float, Continuation]] = OrderedDict()  # (expiry, entry)

    @property
    def has_any(self) -> bool:
        return bool(self._entries)

    async def save(self, caller: str, kept: Mapping[str, Continuation]) -> None:
        """Store entries, and drop the oldest ones beyond the limits."""
        expires_at = self._clock() + self._seconds
        for call_id, item in kept.items():
            self._drop((caller, call_id))
            self._entries[caller, call_id] = (expires_at, item)
            self._used_bytes += item.size
        while len(self._entries) > self._max_entries or self._used_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._used_bytes -= entry[1].size

    async def load(self, caller: str, call_ids: list[str]) -> dict[str, Continuation]:
        now = self._clock()
        found = {call_id: self._entries.get((caller, call_id)) for call_id in call_ids}
        return {call_id: entry[1] for call_id, entry in found.items() if entry is not None and entry[0] > now}


def open_in_memory(row: StateRow) -> InMemoryContinuations:
    return InMemoryContinuations(row.signatures, row.signature_bytes, row.signature_seconds, monotonic)


def calls_without_artefacts(request: Request) -> list[str]:
    """List the calls of the history that have no signature."""
    return [
        part.id
        for message in request.messages
        if message.role == "assistant"
        for part in message.parts
        if isinstance(part, ToolCall) and not part.artefacts and part.id
    ]


def restore_continuations(request: Request, known: Mapping[str, Continuation], provider: str, origin: str) -> Request:
    """Restore the dropped parts of `provider` at `origin`, and the gateway's calls in the client's turns.

    Return the same object if there is nothing to restore.
    """
    known = {call_id: item if item.origin == origin else item.to_portable() for call_id, item in known.items()}
    messages: list[Message] = []
    pending_results: tuple[Part, ...] = ()  # our results, for the message after the calls
    for message in request.messages:
        if message.role == "assistant":
            restored = _restore_message(message, known, provider)
            pending_results = _stored_results(message, known)
        else:
            restored = replace(message, parts=(*pending_results, *message.parts)) if pending_results else message
            pending_results = ()
        messages.append(restored)
    changed = any(new is not old for new, old in zip(messages, request.messages, strict=True))
    return replace(request, messages=tuple(messages)) if changed else request


def _stored_results(message: Message, known: Mapping[str, Continuation]) -> tuple[Part, ...]:
    found = [_matching_continuation(part, known) for part in message.parts]
    return tuple(result for kept in found if kept is not None for result in kept.results)


def _matching_continuation(part: Part, known: Mapping[str, Continuation]) -> Continuation | None:
    """Return the entry of a part, if the part is the call that it was stored for."""
    kept = known.get(part.id) if isinstance(part, ToolCall) else None
    if kept is None or not isinstance(part, ToolCall):
        return None
    return kept if kept.call == call_fingerprint(part.name, part.arguments, part.raw) else None


def _restore_message(message: Message, known: Mapping[str, Continuation], provider: str) -> Message:
    """Restore the signatures, the signed reasoning and the gateway's own calls of a message.

    Reasoning that the client has returned signed is not added again.
    """
    parts: list[Part] = []
    has_signed_reasoning = any(isinstance(part, Reasoning) and part.artefacts for part in message.parts)
    changed = False
    for part in message.parts:
        kept = _matching_continuation(part, known)
        if kept is None or not isinstance(part, ToolCall):
            parts.append(part)
            continue
        provider_artefacts = () if part.artefacts else _filter_by_provider(provider, kept.artefacts)
        reasoning_parts = (
            []
            if has_signed_reasoning
            else [item for item in kept.reasoning if _filter_by_provider(provider, item.artefacts)]
        )
        if reasoning_parts:
            # unsigned reasoning is of no use beside the same reasoning with a signature
            parts = [item for item in parts if not isinstance(item, Reasoning)]
        parts += [
            *reasoning_parts,
            *kept.calls,
            replace(part, artefacts=provider_artefacts) if provider_artefacts else part,
        ]
        changed = changed or bool(provider_artefacts or reasoning_parts or kept.calls)
    return replace(message, parts=tuple(parts)) if changed else message


def _filter_by_provider(provider: str, artefacts: tuple[Artefact, ...]) -> tuple[Artefact, ...]:
    return tuple(item for item in artefacts if item.provider == provider)
