"""Reasoning artefacts that a client does not keep, put back by call id.

A provider signs what it thinks and wants it back with the results. Many clients drop fields that they do not know, and some
wires have no place for them; so the gateway remembers what belongs to a call, for a while, and puts it back where it is
missing. Nobody gets another client's: the caller is part of the key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from ..ir.parts import Artefact, Part, Reasoning, ToolCall
from ..ir.request import Message, Request
from .seen import Kept

__all__ = ["InMemory", "Memory", "calls_to_recall", "put_back"]


class Memory(Protocol):
    @property
    def has_any(self) -> bool:
        """Whether it is worth asking."""
        ...

    async def keep(self, caller: str, kept: Mapping[str, Kept]) -> None: ...

    async def recall(self, caller: str, call_ids: list[str]) -> dict[str, Kept]:
        """What is known of these calls."""
        ...


class InMemory:
    """For one process: the newest `most` entries, each for `seconds`."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[float, Kept]] = OrderedDict()

    @property
    def has_any(self) -> bool:
        return bool(self._entries)

    async def keep(self, caller: str, kept: Mapping[str, Kept]) -> None:
        until = self._clock() + self._seconds
        for call_id, one in kept.items():
            self._entries[caller, call_id] = (until, one)
            self._entries.move_to_end((caller, call_id))
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    async def recall(self, caller: str, call_ids: list[str]) -> dict[str, Kept]:
        now = self._clock()
        found = {call_id: self._entries.get((caller, call_id)) for call_id in call_ids}
        return {call_id: entry[1] for call_id, entry in found.items() if entry is not None and entry[0] > now}


def calls_to_recall(request: Request) -> list[str]:
    """The calls of the history that came without a signature."""
    return [
        part.id
        for message in request.messages
        if message.role == "assistant"
        for part in message.parts
        if isinstance(part, ToolCall) and not part.artefacts and part.id
    ]


def put_back(request: Request, known: Mapping[str, Kept], provider: str) -> Request:
    """`request` with what `provider` made and the client did not keep, and with what the gateway did in the client's turns;
    the same object where there is nothing."""
    if not known:
        return request
    messages: list[Message] = []
    waiting: tuple[Part, ...] = ()  # results of ours, for the message after the calls
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


def _results(message: Message, known: Mapping[str, Kept]) -> tuple[Part, ...]:
    found = [known[part.id].results for part in message.parts if isinstance(part, ToolCall) and part.id in known]
    return tuple(result for results in found for result in results)


def _completed(message: Message, known: Mapping[str, Kept], provider: str) -> Message:
    parts: list[Part] = []
    signed = any(isinstance(part, Reasoning) and part.artefacts for part in message.parts)
    changed = False
    for part in message.parts:
        kept = known.get(part.id) if isinstance(part, ToolCall) else None
        if kept is None or not isinstance(part, ToolCall):
            parts.append(part)
            continue
        own = () if part.artefacts else _made_by(provider, kept.artefacts)
        thoughts = [] if signed else [one for one in kept.reasoning if _made_by(provider, one.artefacts)]
        if thoughts:
            # words without proof are of no use beside the same words with it
            parts = [one for one in parts if not isinstance(one, Reasoning)]
        parts += [*thoughts, *kept.calls, replace(part, artefacts=own) if own else part]
        changed = changed or bool(own or thoughts or kept.calls)
    return replace(message, parts=tuple(parts)) if changed else message


def _made_by(provider: str, artefacts: tuple[Artefact, ...]) -> tuple[Artefact, ...]:
    return tuple(one for one in artefacts if one.provider == provider)
