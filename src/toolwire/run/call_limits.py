"""The calls of a conversation, and the limits of a budget on the calls of one response.

A run asks about its earlier calls several times per turn: which ids are taken, how often a call was made before, which
calls precede the turn. `CallHistory` reads each message once, so that a turn costs the same however long the run is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import overload

from ..ir.errors import EncodeError
from ..ir.parts import ToolCall
from ..ir.request import Message
from .keys import call_identity
from .run_state import Budget

__all__ = ["CallHistory", "CallLimits", "EarlierCalls"]


class CallHistory:
    """The calls of a conversation that grows at its end."""

    def __init__(self, calls: Iterable[ToolCall] = ()) -> None:
        self.calls: list[ToolCall] = list(calls)
        self.ids = {call.id for call in self.calls}
        self._messages: tuple[Message, ...] = ()
        self._ends: list[int] = []  # by message: the number of calls up to its end
        self._positions: dict[tuple[str, bytes], list[int]] = {}  # of identical calls
        self._identified = 0  # calls that are in `_positions`

    def read(self, messages: tuple[Message, ...]) -> CallHistory:
        """Read the messages that are new since the last time; all of them if earlier ones have changed."""
        known = self._messages
        if messages is known:
            return self
        if messages[: len(known)] != known:  # compares identical messages without reading them
            self.__init__()  # type: ignore[misc]  # rare: a response was discarded, or the system prompt replaced
            known = ()
        for message in messages[len(known) :]:
            for part in message.parts:
                if isinstance(part, ToolCall):
                    self.calls.append(part)
                    self.ids.add(part.id)
            self._ends.append(len(self.calls))
        self._messages = messages
        return self

    def before(self, message: int) -> int:
        """Return the number of calls before the message with this index."""
        return self._ends[message - 1] if message else 0

    def count(self, call: ToolCall, start: int, stop: int) -> int:
        """Count the calls from `start` to `stop` (exclusive) that are identical to `call`."""
        for position in range(self._identified, len(self.calls)):
            try:
                self._positions.setdefault(call_identity(self.calls[position]), []).append(position)
            except EncodeError:
                continue  # arguments that JSON lacks; no call that can run is identical
        self._identified = len(self.calls)
        positions = self._positions.get(call_identity(call), ())
        return bisect_left(positions, stop) - bisect_left(positions, start)


class EarlierCalls(Sequence[ToolCall]):
    """The first `stop` calls of a conversation."""

    def __init__(self, history: CallHistory, stop: int) -> None:
        self._history = history
        self._stop = stop

    def __len__(self) -> int:
        return self._stop

    def __iter__(self) -> Iterator[ToolCall]:
        return islice(self._history.calls, self._stop)

    @overload
    def __getitem__(self, index: int) -> ToolCall: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ToolCall]: ...

    def __getitem__(self, index: int | slice) -> ToolCall | Sequence[ToolCall]:
        selected = range(self._stop)[index]
        calls = self._history.calls
        return calls[selected] if isinstance(selected, int) else [calls[number] for number in selected]

    def count_identical(self, call: ToolCall) -> int:
        return self._history.count(call, 0, self._stop)


class CallLimits:
    """The number of calls that a run may still make, and how often it has made each one. The history does not count."""

    def __init__(self, budget: Budget, calls: int, history: CallHistory, first: int) -> None:
        """Create the limits of a run that has made `calls` calls. `first`: the position of its first call."""
        self._budget = budget
        self._remaining = None if budget.calls is None else budget.calls - calls
        self._history = history
        self._first, self._end = first, len(history.calls)

    def find_violation(self, calls: Sequence[ToolCall]) -> str:
        """Return the limit that the calls of a response exceed; an empty string if there is none."""
        if self._remaining is not None and len(calls) > self._remaining:
            return f"max calls reached ({self._budget.calls})"
        if any(map(self._is_repeated, calls)):
            return f"the model repeated the same call more than {self._budget.same_call} times"
        return ""

    def may_start(self, call: ToolCall, position: int) -> bool:
        """Return False for a call that exceeds a limit. `position`: the number of calls before it in the response."""
        return (self._remaining is None or position < self._remaining) and not self._is_repeated(call)

    def _is_repeated(self, call: ToolCall) -> bool:
        return self._history.count(call, self._first, self._end) >= self._budget.same_call
