"""Hold back the deltas of a call whose text is not known to be right before the end of the call."""

from __future__ import annotations

from ..ir.events import CallDelta, CallEnd, Event
from ..ir.text import dumps
from .lift import ArgumentLifter

__all__ = ["HeldArguments", "NullGuard", "argument_events"]


def argument_events(end: CallEnd) -> tuple[Event, ...]:
    """Return the arguments of `end` as one delta, then `end`."""
    text = end.raw if end.raw is not None else dumps(end.arguments or {})
    return (CallDelta.of(end.key, text), end) if text else (end,)


class HeldArguments:
    """Hold a call until its end, because a repair may replace its text. `lifter` then lifts the arguments."""

    __slots__ = ("_lifter",)

    def __init__(self, lifter: ArgumentLifter | None) -> None:
        self._lifter = lifter

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        return ()

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        return argument_events(event) if self._lifter is None else self._lifter.end(event)


class NullGuard:
    """Hold `null`, which some models write for "no arguments", so that a client that expects an object gets one.

    Everything else passes with its first fragment that cannot become `null`.
    """

    __slots__ = ("_held", "is_open")

    def __init__(self) -> None:
        self._held = ""
        self.is_open = False  # the text is not `null`; later deltas need no guard

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        if not self._held and event.escaped[:1] == b"{":
            self.is_open = True
            return (event,)
        text = self._held + event.text
        if "null".startswith(text.strip()):
            self._held = text
            return ()
        self.is_open = True
        held, self._held = self._held, ""
        return (CallDelta.of(event.key, text),) if held else (event,)

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        return argument_events(event) if self._held else (event,)
