"""Emit `ArgumentEnd` events as soon as an argument is complete, to dispatch on the first one.

    watch = ArgumentWatch()
    for event in decoder.feed(data):
        for seen in watch.feed(event):      # the event itself, then an ArgumentEnd for each argument it completed
            ...

Not part of the decoders, so forwarding a stream does not pay for it.
"""

from __future__ import annotations

from typing import TypeVar

from ..ir.errors import ProtocolError
from ..ir.events import ArgumentEnd, CallDelta, CallEnd, CallStart
from .scanner import Scanner
from .strict import parse

__all__ = ["ArgumentWatch"]

AnyItem = TypeVar("AnyItem")


class ArgumentWatch:
    """Add an ArgumentEnd after the delta that completed an argument. Freeform calls have no arguments."""

    __slots__ = ("_scanners",)

    def __init__(self) -> None:
        self._scanners: dict[int, Scanner] = {}

    def feed(self, event: AnyItem) -> list[AnyItem | ArgumentEnd]:
        """Return `event`, and after it an ArgumentEnd for each argument that it completed.

        Items that are no events, such as those of `Agent.stream`, are returned as they are.
        """
        events: list[AnyItem | ArgumentEnd] = [event]
        if isinstance(event, CallDelta):
            scanner = self._scanners.get(event.key)
            if scanner is not None:
                for name, raw in scanner.feed(event.text):
                    try:
                        events.append(ArgumentEnd(event.key, name, parse(raw)))
                    except ProtocolError:
                        scanner.invalid = True
                        break
        elif isinstance(event, CallStart):
            if event.kind != "freeform":
                self._scanners[event.key] = Scanner()
        elif isinstance(event, CallEnd):
            self._scanners.pop(event.key, None)
        return events
