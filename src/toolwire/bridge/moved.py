"""Move media that the target does not allow in a result, an assistant or a system message to a user message.

The user message comes later: between calls and the last of their results no other message is allowed.
"""

from __future__ import annotations

from ..ir.parts import Media, Part, Text
from ..ir.request import Message
from .history import DraftMessage
from .places import PartLocation

__all__ = ["DeferredMedia"]


class DeferredMedia:
    """Media that wait for the next place where a user message is allowed."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Part, PartLocation]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, media: Media, place: PartLocation, origin: str) -> None:
        self._waiting.append((Text(f"[{media.kind} from {origin}]"), place))
        self._waiting.append((media, place))

    def turn(self) -> DraftMessage:
        """Return all waiting media as a message."""
        waiting, self._waiting = self._waiting, []
        parts = tuple([part for part, _ in waiting])
        return DraftMessage(Message("user", parts), parts, [place for _, place in waiting])
