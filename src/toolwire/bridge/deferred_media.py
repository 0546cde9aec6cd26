"""Move media that the target does not allow in a result, an assistant or a system message to a user message.

The user message comes later: between calls and the last of their results no other message is allowed.
"""

from __future__ import annotations

from ..ir.parts import Media, Part, Text
from ..ir.request import Message
from .history import DraftMessage
from .locations import PartLocation

__all__ = ["DeferredMedia"]


class DeferredMedia:
    """Media that wait for the next place where a user message is allowed."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[tuple[Part, PartLocation]] = []

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, media: Media, location: PartLocation, origin: str) -> None:
        self._pending.append((Text(f"[{media.kind} from {origin}]"), location))
        self._pending.append((media, location))

    def take_message(self) -> DraftMessage:
        """Return all waiting media as a message."""
        pending, self._pending = self._pending, []
        parts = tuple([part for part, _ in pending])
        return DraftMessage(Message("user", parts), parts, [location for _, location in pending])
