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
_LONGEST_OPENING = 1000  # with all the space that anyone may put into it
# what can be passed on: no control characters, no half of an escape, no half of a surrogate pair
_INSIDE = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\(?:[^u\x00-\x1f]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+"
)
_LONGEST_ESCAPE = 12


def unwrap_call(call: ToolCall) -> ToolCall:
    """The freeform call that `call` stands for."""
    unwrapper = Unwrapper(0)
    unwrapper.feed(CallDelta.of(0, call.text))
    *_, end = unwrapper.end(CallEnd(0, call.arguments, call.raw, call.state))
    assert isinstance(end, CallEnd)
    return replace(call, kind="freeform", arguments=None, raw=end.raw, state=end.state)


class Unwrapper:
    """One call of a stream: the opening is held back, the inside passed on, what does not belong there kept."""

    __slots__ = ("_feed", "_held", "_key", "_odd", "_passed")

    def __init__(self, key: int) -> None:
        self._key = key
        self._held = ""  # a piece of the opening, or of an escape sequence
        self._passed: list[bytes] = []
        self._odd: list[str] = []
        self._feed = self._before

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        return self._feed(event.text)

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        """The end of the call; where it was not the one argument asked for, the rest of the text is input, too."""
        passed = unescape(b"".join(self._passed))
        arguments = event.arguments
        if arguments is not None and arguments.keys() == {WRAPPED_INPUT} and arguments[WRAPPED_INPUT] == passed:
            return (replace(event, arguments=None, raw=passed),)
        state = "truncated" if event.state == "truncated" else "invalid"
        rest = "".join([*self._odd, self._held])
        end = replace(event, arguments=None, raw=passed + rest, state=state)
        return (CallDelta.of(self._key, rest), end) if rest else (end,)

    def _before(self, text: str) -> tuple[Event, ...]:
        self._held += text
        opening = _OPENING.match(self._held)
        if opening is not None:
            inside, self._held = self._held[opening.end() :], ""
            self._feed = self._inside
            return self._inside(inside)
        if len(self._held) > _LONGEST_OPENING:
            self._turn_odd()
        return ()

    def _inside(self, text: str) -> tuple[Event, ...]:
        text = self._held + text
        end = _INSIDE.match(text).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        self._held = text[end:]
        if self._held[:1] not in ("", "\\") or len(self._held) > _LONGEST_ESCAPE:
            self._turn_odd()
        if not end:
            return ()
        self._passed.append(text[:end].encode())
        return (CallDelta(self._key, self._passed[-1]),)

    def _turn_odd(self) -> None:
        """From here on, nothing is input until the end says otherwise: the closing quote, or something unexpected."""
        self._odd.append(self._held)
        self._held = ""
        self._feed = self._behind

    def _behind(self, text: str) -> tuple[Event, ...]:
        self._odd.append(text)
        return ()
