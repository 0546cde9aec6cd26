"""Turn a call of a function with one argument, which replaced a freeform tool, back into a freeform call.

In a stream the text inside `{"input": "…"}` is passed on as it arrives: the text between the quotes of that JSON string
is exactly the escaped form that delta events carry.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from ..ir.events import CallDelta, CallEnd, Event
from ..ir.text import unescape
from .fit_tools import WRAPPED_INPUT

__all__ = ["FreeformUnwrapper"]

_OPENING = re.compile(r'\s*\{\s*"' + WRAPPED_INPUT + r'"\s*:\s*"')
_MAX_OPENING = 1000  # with any amount of optional space
# Text that can be passed on: no control characters, no incomplete escape, no half of a surrogate pair.
_INSIDE = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\(?:[^u\x00-\x1f]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+"
)
_MAX_ESCAPE = 12


class FreeformUnwrapper:
    """Unwrap one call of a stream: hold back the opening, pass the inside on, drop the rest."""

    __slots__ = ("_emitted", "_feed", "_key", "_pending")

    def __init__(self, key: int) -> None:
        self._key = key
        self._pending = ""  # a piece of the opening, or of an escape sequence
        self._emitted: list[bytes] = []
        self._feed = self._feed_opening

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        return self._feed(event.text)

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        """End the call; it is `invalid` if the argument is missing."""
        emitted = unescape(b"".join(self._emitted))
        full_input = None if event.arguments is None else event.arguments.get(WRAPPED_INPUT)
        if not isinstance(full_input, str) or not full_input.startswith(emitted):
            state = "truncated" if event.state == "truncated" else "invalid"
            return (replace(event, arguments=None, raw=emitted, state=state),)
        end = replace(event, arguments=None, raw=full_input)
        rest = full_input[len(emitted) :]
        return (CallDelta.of(self._key, rest), end) if rest else (end,)

    def _feed_opening(self, text: str) -> tuple[Event, ...]:
        """Hold the text back until the opening `{"input": "` is complete; give up if it is too long."""
        self._pending += text
        opening = _OPENING.match(self._pending)
        if opening is not None:
            inside, self._pending = self._pending[opening.end() :], ""
            self._feed = self._feed_inside
            return self._feed_inside(inside)
        if len(self._pending) > _MAX_OPENING:
            self._feed = self._feed_rest
        return ()

    def _feed_inside(self, text: str) -> tuple[Event, ...]:
        """Pass on the string's content, and hold back an incomplete escape sequence."""
        text = self._pending + text
        end = _INSIDE.match(text).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        self._pending = text[end:]
        if self._pending[:1] not in ("", "\\") or len(self._pending) > _MAX_ESCAPE:
            self._feed = self._feed_rest
        if not end:
            return ()
        self._emitted.append(text[:end].encode())
        return (CallDelta(self._key, self._emitted[-1]),)

    def _feed_rest(self, text: str) -> tuple[Event, ...]:
        """Ignore the closing quote and anything unexpected after it; `end` determines the remaining input."""
        return ()
