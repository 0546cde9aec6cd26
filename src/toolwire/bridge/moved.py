"""Media that cannot stay where they are (in a result, in what the model or the system said) follow in a user message.

Not at once: between calls and the last of their results there is room for nothing else.
"""

from __future__ import annotations

from ..ir.parts import Media, Part, Text
from ..ir.request import Message
from .history import Turn
from .places import Place

__all__ = ["Moved"]


class Moved:
    """What waits for the next place where a user message may stand."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Part, Place]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, media: Media, place: Place, origin: str) -> None:
        self._waiting.append((Text(f"[{media.kind} from {origin}]"), place))
        self._waiting.append((media, place))

    def turn(self) -> Turn:
        """All that waits, as a message."""
        waiting, self._waiting = self._waiting, []
        parts = tuple([part for part, _ in waiting])
        return Turn(Message("user", parts), parts, [place for _, place in waiting])
