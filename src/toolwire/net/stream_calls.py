"""Collect the stream of a response, and start its calls while the model is still generating.

Separate because it only knows events and a dispatch, not the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..ir.events import ArgumentEnd, CallEnd, CallStart, Event
from ..ir.folding import Folder
from ..ir.parts import ToolCall
from ..run.session import Session
from ..stream.scanner import ArgumentWatch
from .dispatch import Dispatch

__all__ = ["StreamCollector"]


class StreamCollector:
    """The stream received so far. Passes each call to `dispatch` as soon as it and all earlier calls are complete.

    The order of the calls is the order in which they began, also on wires that interleave them: a read must not start
    before a write that precedes it. A call that exceeds the budget is not passed to `dispatch`: the session refuses its
    response once it is complete.
    """

    def __init__(self, dispatch: Dispatch, session: Session) -> None:
        self.folder = Folder()
        self._output = session.output
        self._open_dispatch = dispatch
        self._watch = ArgumentWatch() if dispatch.may_speculate else None
        self._ids = session.call_ids()
        self._unique_ids: dict[int, str] = {}  # by key
        self._open: dict[int, CallStart] = {}  # calls of the first choice that have not been passed on, by key
        self._ended: set[int] = set()
        self._limits = session.call_limits()
        self._count = 0  # calls that have been passed on

    def feed(self, event: Event) -> Sequence[ToolCall]:
        """Add an event, and return the calls that were passed on.

        Only calls of the first choice are run; the other choices are alternatives to it.
        """
        self.folder.feed(event)
        if isinstance(event, CallStart) and event.choice == 0:
            self._unique_ids[event.key] = self._ids.make_unique(event.id)
            if not self._is_final_answer(event):
                self._open[event.key] = event
        if self._watch is not None:
            for watched in self._watch.feed(event):
                if isinstance(watched, ArgumentEnd) and watched.key == next(iter(self._open), None):
                    self._speculate(watched)
        if isinstance(event, CallEnd) and event.key in self._open:
            self._ended.add(event.key)
            return self._pass_on()
        return ()

    def call_id(self, key: int) -> str:
        """Return the id of a call that has begun, as it is passed on."""
        return self._unique_ids[key]

    def _speculate(self, argument: ArgumentEnd) -> None:
        call_id, name = self._unique_ids[argument.key], self._open[argument.key].name
        call = ToolCall(call_id, name, {argument.name: argument.value})
        if self._limits.may_start(call, self._count):
            self._open_dispatch.speculate(call)

    def _pass_on(self) -> list[ToolCall]:
        """Pass on the calls that have ended, up to the first one that has not."""
        calls: list[ToolCall] = []
        for key in list(self._open):
            if key not in self._ended:
                break
            del self._open[key]
            call = self.folder.part(key)
            if isinstance(call, ToolCall):
                if call.id != self._unique_ids[key]:
                    call = replace(call, id=self._unique_ids[key])
                if self._limits.may_start(call, self._count):
                    self._open_dispatch.add(call)
                self._count += 1
                calls.append(call)
        return calls

    def _is_final_answer(self, event: CallStart) -> bool:
        return self._output is not None and self._output.is_final_call(event.name)
