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

from ..ir.parts import Artefact, Part, Reasoning, ToolCall
from ..ir.request import Message, Request
from .seen import Continuation, call_fingerprint
from .settings import StateRow

__all__ = [
    "ContinuationStore",
    "InMemoryContinuations",
    "calls_without_artefacts",
    "open_in_memory",
    "restore_continuations",
]


class ContinuationStore(Protocol):
    @property
    def has_any(self) -> bool:
        """True if a lookup can find anything."""
        ...

    async def save(self, caller: str, kept: Mapping[str, Continuation]) -> None: ...

    async def load(self, caller: str, call_ids: list[str]) -> dict[str, Continuation]:
        """Return the stored entries of these calls."""
        ...


class InMemoryContinuations:
    """The memory of one process: the newest `most` entries, in at most `size` bytes, each for `seconds`."""

    def __init__(self, most: int, size: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._size = size
        self._used = 0
        self._seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[float, Continuation]] = OrderedDict()

    @property
    def has_any(self) -> bool:
        return bool(self._entries)

    async def save(self, caller: str, kept: Mapping[str, Continuation]) -> None:
        until = self._clock() + self._seconds
        for call_id, one in kept.items():
            self._forget((caller, call_id))
            self._entries[caller, call_id] = (until, one)
            self._used += one.size
        while len(self._entries) > self._most or self._used > self._size:
            self._forget(next(iter(self._entries)))

    def _forget(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._used -= entry[1].size

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
    """Restore what `provider` made at `origin` and the client dropped, and the gateway's calls in the client's turns.

    Return the same object if there is nothing to restore.
    """
    known = {call_id: one if one.origin == origin else one.portable() for call_id, one in known.items()}
    messages: list[Message] = []
    waiting: tuple[Part, ...] = ()  # our results, for the message after the calls
    for message in request.messages:
        if message.role == "assistant":
            completed = _completed(message, known, provider)
            waiting = _results(message, known)
        else:
            completed = replace(message, parts=(*waiting, *message.parts)) if waiting else message
            waiting = ()
        messages.append(completed)
    changed = any(new is not old for new, old in zip(messages, request.messages, strict=True))
    return replace(request, messages=tuple(messages)) if changed else request


def _results(message: Message, known: Mapping[str, Continuation]) -> tuple[Part, ...]:
    found = [_kept(part, known) for part in message.parts]
    return tuple(result for kept in found if kept is not None for result in kept.results)


def _kept(part: Part, known: Mapping[str, Continuation]) -> Continuation | None:
    """Return the entry of a part, if the part is the call that it was stored for."""
    kept = known.get(part.id) if isinstance(part, ToolCall) else None
    if kept is None or not isinstance(part, ToolCall):
        return None
    return kept if kept.call == call_fingerprint(part.name, part.arguments, part.raw) else None


def _completed(message: Message, known: Mapping[str, Continuation], provider: str) -> Message:
    parts: list[Part] = []
    signed = any(isinstance(part, Reasoning) and part.artefacts for part in message.parts)
    changed = False
    for part in message.parts:
        kept = _kept(part, known)
        if kept is None or not isinstance(part, ToolCall):
            parts.append(part)
            continue
        own = () if part.artefacts else _made_by(provider, kept.artefacts)
        thoughts = [] if signed else [one for one in kept.reasoning if _made_by(provider, one.artefacts)]
        if thoughts:
            # unsigned reasoning is of no use beside the same reasoning with a signature
            parts = [one for one in parts if not isinstance(one, Reasoning)]
        parts += [*thoughts, *kept.calls, replace(part, artefacts=own) if own else part]
        changed = changed or bool(own or thoughts or kept.calls)
    return replace(message, parts=tuple(parts)) if changed else message


def _made_by(provider: str, artefacts: tuple[Artefact, ...]) -> tuple[Artefact, ...]:
    return tuple(one for one in artefacts if one.provider == provider)
