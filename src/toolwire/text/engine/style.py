"""What a way of writing calls has to supply, and what it is given: the text, the events, the tools on offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...ir.parts import ToolCall
from ...ir.value import Value
from .offered import Offered
from .reader import Reader, Steps
from .writer import Writer

__all__ = ["Style", "StyleBase", "Turn"]


class Turn:
    """One turn of the model, as a style sees it."""

    __slots__ = ("offered", "reader", "writer")

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self.reader = reader
        self.writer = writer
        self.offered: Offered = writer.offered

    def start_call(self, name: str, call_id: str = "") -> None:
        """From here on it is a call: what was read no longer goes back into the text."""
        self.reader.taken = None
        self.writer.start_call(self.offered.resolve(name), self.reader.position, call_id)

    def close(self, closers: tuple[str, ...]) -> Steps[None]:
        """Reads a closer. Where none comes, the white space in front of whatever does belongs to that."""
        reader = self.reader
        reader.taken = []
        yield from reader.spaces()
        found = yield from reader.one_of(closers)
        skipped, reader.taken = "".join(reader.taken), None
        if found is None:
            self.writer.text(skipped)
            self.unclosed(closers[0])

    def unclosed(self, what: str) -> None:
        self.writer.note("unclosed", self.reader.position, f"{what} is missing")


class Style(Protocol):
    """A way of writing calls. `read` begins behind an opener and ends behind the call, or raises Malformed.

    Openers are asked for once a turn. One that is weak is also everyday text (a bracket): it opens a call only where
    `read` finds one, at the start of the message, or anywhere if it is `inline`. `closers` are tags that mean nothing
    where no call is open.
    """

    def openers(self, offered: Offered) -> tuple[str, ...]: ...

    def weak(self, offered: Offered) -> tuple[str, ...]: ...

    def inline(self, offered: Offered) -> tuple[str, ...]: ...

    def closers(self) -> tuple[str, ...]: ...

    def read(self, turn: Turn, opener: str) -> Steps[None]: ...

    def write(self, calls: Sequence[ToolCall]) -> str: ...


class StyleBase(Value, frozen=True):
    """What most styles have in common: no weak openers."""

    def weak(self, offered: Offered) -> tuple[str, ...]:  # the protocol's
        return ()

    def inline(self, offered: Offered) -> tuple[str, ...]:
        return ()

    def closers(self) -> tuple[str, ...]:
        return ()
