"""Turn a call of a function with one argument, which replaced a freeform tool, back into a freeform call.

In a stream the text inside `{"input": "…"}` is passed on as it arrives: the text between the quotes of that JSON string
is exactly the escaped form that delta events carry.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from ..ir.events import CallDelta, CallEnd, Event
from ..ir.parts import ToolCall
from ..ir.text import unescape
from .fit_tools import WRAPPED_INPUT

__all__ = ["FreeformUnwrapper", "unwrap_call"]

_OPENING = re.compile(r'\s*\{\s*"' + WRAPPED_INPUT + r'"\s*:\s*"')
_LONGEST_OPENING = 1000  # with any amount of optional space
# Text that can be passed on: no control characters, no incomplete escape, no half of a surrogate pair.
_INSIDE = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\(?:[^u\x00-\x1f]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+"
)
_LONGEST_ESCAPE = 12


def unwrap_call(call: ToolCall) -> ToolCall:
    """Return the freeform call that `call` encodes."""
    *_, end = FreeformUnwrapper(0).end(CallEnd(0, call.arguments, call.raw, call.state))
    assert isinstance(end, CallEnd)
    return replace(call, kind="freeform", arguments=None, raw=end.raw, state=end.state)


class FreeformUnwrapper:
    """Unwrap one call of a stream: hold back the opening, pass the inside on, drop the rest."""

    __slots__ = ("_feed", "_held", "_key", "_passed")

    def __init__(self, key: int) -> None:
        self._key = key
        self._held = ""  # a piece of the opening, or of an escape sequence
        self._passed: list[bytes] = []
        self._feed = self._before

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        return self._feed(event.text)

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        """End the call; it is `invalid` if the argument is missing."""
        passed = unescape(b"".join(self._passed))
        whole = None if event.arguments is None else event.arguments.get(WRAPPED_INPUT)
        if not isinstance(whole, str) or not whole.startswith(passed):
            state = "truncated" if event.state == "truncated" else "invalid"
            return (replace(event, arguments=None, raw=passed, state=state),)
        end = replace(event, arguments=None, raw=whole)
        rest = whole[len(passed) :]
        return (CallDelta.of(self._key, rest), end) if rest else (end,)

    def _before(self, text: str) -> tuple[Event, ...]:
        self._held += text
        opening = _OPENING.match(self._held)
        if opening is not None:
            inside, self._held = self._held[opening.end() :], ""
            self._feed = self._inside
            return self._inside(inside)
        if len(self._held) > _LONGEST_OPENING:
            self._feed = self._after_input
        return ()

    def _inside(self, text: str) -> tuple[Event, ...]:
        text = self._held + text
        end = _INSIDE.match(text).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        self._held = text[end:]
        if self._held[:1] not in ("", "\\") or len(self._held) > _LONGEST_ESCAPE:
            self._feed = self._after_input
        if not end:
            return ()
        self._passed.append(text[:end].encode())
        return (CallDelta(self._key, self._passed[-1]),)

    def _after_input(self, text: str) -> tuple[Event, ...]:
        """Ignore the closing quote and anything unexpected after it; `end` determines the remaining input."""
        return ()
