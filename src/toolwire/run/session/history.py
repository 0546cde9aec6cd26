"""The history of a run: check it, complete it, save it, and keep its calls within limits.

A history that a run continues may contain calls without a result; these get one. Every call has a unique id, and counts
towards the limits of the budget.

Path("history.json").write_text(dump_messages(answer.messages))
agent.run("…", history=load_messages(Path("history.json").read_text()))
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from operator import is_
from typing import overload

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError, EncodeError, ProtocolError
from ...ir.parts import Part, Text, ToolCall, ToolResult
from ...ir.request import Message
from ..values.keys import call_identity
from ..values.results import refusal, result_code
from .state import Budget

_HINT = "pass an Answer, its messages, or load_messages(text)"
_decode = msgspec.json.Decoder(tuple[Message, ...]).decode


def dump_messages(messages: Iterable[Message]) -> str:
    """Encode messages as JSON, including signatures and other fields that providers want back."""
    return msgspec.json.encode(tuple(messages)).decode()


def load_messages(text: str | bytes) -> tuple[Message, ...]:
    """Decode messages that `dump_messages` encoded. Raise ProtocolError for any other text."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the messages cannot be decoded: {error}", hint="pass the text of dump_messages") from None


def check_history(history: object) -> Sequence[Message]:
    """Return the history, or raise ConfigError if it does not consist of messages."""
    if isinstance(history, (str, bytes)) or not isinstance(history, Iterable):
        raise ConfigError(f"history must be messages, got a value of type {type(history).__name__}", hint=_HINT)
    messages = tuple(history)
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"history contains a value of type {type(message).__name__}", hint=_HINT)
    return messages


def replace_system(messages: Sequence[Message], system: str) -> tuple[Message, ...]:
    """Return the messages with this system prompt instead of theirs; without any if it is empty."""
    others = [message for message in messages if message.role not in ("system", "developer")]
    return (Message("system", (Text(system),)), *others) if system else tuple(others)


_NO_RESULT = (
    "No result: the call was not executed, or it was interrupted. Check whether it had an effect before you repeat it."
)


def answer_open_calls(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Add an error result for each call without a result, because providers require one result per call.

    Calls of the last message stay open: nothing follows them.
    """
    open_calls = _find_open_calls(messages[:-1], messages)
    if not open_calls:
        return messages
    completed: list[Message] = []
    missing: list[ToolResult] = []
    for index, message in enumerate(messages):
        if missing and message.role != "assistant":
            if any(isinstance(part, ToolResult) for part in message.parts):
                message = replace(message, parts=(*missing, *message.parts))
            else:
                completed.append(Message("user", tuple(missing)))
            missing = []
        completed.append(message)
        missing += [refusal(call, "cancelled", _NO_RESULT) for call in open_calls.get(index, ())]
    return tuple(completed)


def _find_open_calls(calling: Sequence[Message], messages: Sequence[Message]) -> dict[int, list[ToolCall]]:
    """Return the calls of `calling` that have no result in `messages`, by the index of their message.

    A result belongs to the first open call with its id: a model may repeat an id in a later turn.
    """
    by_id: dict[str, list[tuple[int, ToolCall]]] = {}
    for index, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and part.id and index < len(calling):
                by_id.setdefault(part.id, []).append((index, part))
            elif isinstance(part, ToolResult) and by_id.get(part.call_id):
                by_id[part.call_id].pop(0)
    open_calls: dict[int, list[ToolCall]] = {}
    for index, call in sorted((found for calls in by_id.values() for found in calls), key=lambda found: found[0]):
        open_calls.setdefault(index, []).append(call)
    return open_calls


# The calls of a conversation, and the limits of a budget on the calls of one response.
#
# A run asks about its earlier calls several times per turn: which ids are taken, how often a call was made before,
# which calls precede the turn. `CallHistory` reads each message once, so that a turn costs the same however long the
# run is.


# A call that was refused because an earlier attempt of it may be unknown to this process: the store could not be reached,
# or the attempt is still running. A model that repeats it means the same call, not a second one, so its key must be the
# same: after a take-over, the earlier attempt may have had its effect (tests/sim).
_NOT_MADE = frozenset({"store_down", "in_progress"})


class CallHistory:
    """The calls of a conversation that grows at its end."""

    def __init__(self, calls: Iterable[ToolCall] = ()) -> None:
        self.calls: list[ToolCall] = list(calls)
        self.ids = {call.id for call in self.calls}
        self._messages: tuple[Message, ...] = ()
        self._ends: list[int] = []  # by message: the number of calls up to its end
        self._positions: dict[tuple[str, bytes], list[int]] = {}  # of identical calls
        self._not_made: set[str] = set()  # ids of calls
        self._identified = 0  # calls that are in `_positions`

    def read(self, messages: tuple[Message, ...]) -> CallHistory:
        """Read the messages that are new since the last time, or all if earlier ones have changed; return itself."""
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
                elif isinstance(part, ToolResult) and result_code(part) in _NOT_MADE:
                    self._not_made.add(part.call_id)
            self._ends.append(len(self.calls))
        self._messages = messages
        return self

    def before(self, message: int) -> int:
        """Return the number of calls before the message with this index."""
        return self._ends[message - 1] if message else 0

    def count(self, call: ToolCall, start: int, stop: int) -> int:
        """Count the calls from `start` to `stop` (exclusive) that are identical to `call`."""
        positions = self._find_identical(call)
        return bisect_left(positions, stop) - bisect_left(positions, start)

    def count_made(self, call: ToolCall, stop: int) -> int:
        """Count the calls before `stop` that are identical to `call` and were made, or refused for good."""
        if not self._not_made:
            return self.count(call, 0, stop)
        positions = self._find_identical(call)
        earlier = positions[: bisect_left(positions, stop)]
        return sum(self.calls[position].id not in self._not_made for position in earlier)

    def _find_identical(self, call: ToolCall) -> Sequence[int]:
        """Return the positions of the calls that are identical to `call`."""
        for position in range(self._identified, len(self.calls)):
            try:
                self._positions.setdefault(call_identity(self.calls[position]), []).append(position)
            except EncodeError:
                continue  # arguments that JSON lacks; no call that can run is identical
        self._identified = len(self.calls)
        return self._positions.get(call_identity(call), ())


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
        return self._history.count_made(call, self._stop)


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


# Unique ids for the calls of a run.
#
# A decision and a result refer to a call by its id. Some models repeat ids, in one turn or from turn to turn; the
# second call with an id gets a new id, in the conversation as well.


_MAX_LENGTH = 40  # the limit of OpenAI's chat completions for the id of a call


class CallIds:
    """The ids of a conversation. The same ids in the same order get the same replacements."""

    def __init__(self, known: Set[str] = frozenset()) -> None:
        self._before = known  # not copied: a conversation may have many
        self._known: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last number that was added to an id

    def make_unique(self, call_id: str) -> str:
        """Return the id, or a new one if a call has it already."""
        number, unique = self._numbers.get(call_id, 1), call_id
        while unique in self._known or unique in self._before:
            number += 1
            suffix = f"_{number}"
            unique = call_id[: max(_MAX_LENGTH, len(call_id)) - len(suffix)] + suffix
        self._numbers[call_id] = number
        self._known.add(unique)
        return unique

    def rename_calls(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the parts of a response, in which each call has an id of its own; the same object if they have."""
        renamed = tuple(self._rename(part) if isinstance(part, ToolCall) else part for part in parts)
        return parts if all(map(is_, renamed, parts)) else renamed

    def _rename(self, call: ToolCall) -> ToolCall:
        unique = self.make_unique(call.id)
        return call if unique == call.id else replace(call, id=unique)
