"""A freeform call comes back as a call of a function with one argument; here it becomes freeform again.

In a stream the text inside `{"input": "…"}` is passed on while it arrives: what stands between the quotes of that JSON string
is, letter for letter, the escaped form that delta events carry.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from ..ir.events import CallDelta, CallEnd, Event
from ..ir.parts import ToolCall
from ..ir.text import unescape
from .fit_tools import WRAPPED_INPUT

__all__ = ["Unwrapper", "unwrap_call"]

_OPENING = re.compile(r'\s*\{\s*"' + WRAPPED_INPUT + r'"\s*:\s*"')
# what can be passed on: no control characters, no half of an escape, no half of a surrogate pair
_INSIDE = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\(?:[^u\x00-\x1f]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"
)


def unwrap_call(call: ToolCall) -> ToolCall:
    """The freeform call that `call` stands for."""
    unwrapper = Unwrapper(0)
    unwrapper.feed(CallDelta.of(0, call.text))
    *_, end = unwrapper.end(CallEnd(0, call.arguments, call.raw, call.state))
    assert isinstance(end, CallEnd)
    return replace(call, kind="freeform", arguments=None, raw=end.raw, state=end.state)


class Unwrapper:
    """One call of a stream."""

    __slots__ = ("_held", "_key", "_open", "_passed")

    def __init__(self, key: int) -> None:
        self._key = key
        self._held = ""
        self._open = False
        self._passed: list[bytes] = []

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        self._held += event.text
        if not self._open:
            opening = _OPENING.match(self._held)
            if opening is None:
                return ()
            self._open = True
            self._held = self._held[opening.end() :]
        inside = _INSIDE.match(self._held)
        if inside is None or not inside.end():
            return ()
        self._held = self._held[inside.end() :]
        self._passed.append(inside.group().encode())
        return (CallDelta(self._key, self._passed[-1]),)

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        """The end of the call; where it was not the one argument asked for, the rest of the text is input, too."""
        passed = unescape(b"".join(self._passed))
        arguments = event.arguments
        if arguments is not None and arguments.keys() == {WRAPPED_INPUT} and arguments[WRAPPED_INPUT] == passed:
            return (replace(event, arguments=None, raw=passed),)
        state = "truncated" if event.state == "truncated" else "invalid"
        end = replace(event, arguments=None, raw=passed + self._held, state=state)
        return (CallDelta.of(self._key, self._held), end) if self._held else (end,)
