"""The items of an encoded conversation, of which the first ones may be written already.

A long conversation grows at its end. A caller that translated its beginning before has the JSON text of those items,
and the encoder of a wire writes only the rest:

    items = ConversationItems(prefix, boundary)
    body, losses = codec.encode_onto(request, items)
    prefix = items.cut_prefix(request.messages)     # for the next request: the text up to message `boundary`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Raw

from ..ir.losses import Loss, Losses
from ..ir.pointer import JSON, Object
from ..ir.request import Message
from ..ir.text import finite_to_bytes, text_to_bytes, to_bytes

__all__ = ["ConversationItems", "WrittenPrefix", "body_to_bytes"]


class WrittenPrefix(NamedTuple):
    """The first messages of a fitted request as JSON text: items with commas between them, and their losses."""

    messages: tuple[Message, ...]
    text: bytes
    losses: tuple[Loss, ...]


class ConversationItems:
    """The list of items that an encoder fills. It begins with the text of `prefix`, if there is one.

    `boundary` is the number of messages after which the items can be cut; 0 if they are not cut. `text_blocks`: the
    text of a user message is a list of one block also where a string would do, because a cache mark requires a list,
    and the bytes must not change when the mark moves on to the next turn.
    """

    __slots__ = ("_boundary", "_losses", "_prefix", "_split", "text_blocks", "written")

    def __init__(self, prefix: WrittenPrefix | None = None, boundary: int = 0, *, text_blocks: bool = False) -> None:
        # JSON text of several items as one element: msgspec copies it into the list without a look at it
        self.written: list[JSON] = [] if prefix is None else [Raw(prefix.text)]
        self.text_blocks = text_blocks
        self._prefix = prefix
        self._boundary = boundary
        self._split = 0  # the number of elements of `written` before the boundary
        self._losses: tuple[Loss, ...] = ()

    def unwritten(self, messages: tuple[Message, ...], losses: Losses, start: int = 0) -> Iterator[tuple[int, Message]]:
        """Return the messages from `start` that are not written yet, with their indices. Losses of others are added."""
        if self._prefix is None and not self._boundary:
            return enumerate(messages[start:], start)
        return self._split_at_boundary(messages, losses, start)

    def _split_at_boundary(
        self, messages: tuple[Message, ...], losses: Losses, start: int
    ) -> Iterator[tuple[int, Message]]:
        """Yield the unwritten messages. At the boundary, note the items and the losses before it."""
        earlier = len(losses)
        if self._prefix is not None:
            losses.extend(self._prefix.losses)
            start = len(self._prefix.messages)
        boundary = self._boundary
        for index in range(start, len(messages)):
            if index == boundary:
                self._split, self._losses = len(self.written), tuple(losses)[earlier:]
            yield index, messages[index]

    def cut_prefix(self, messages: tuple[Message, ...]) -> WrittenPrefix | None:
        """Replace the items before the boundary by their text, and return it; None if there are none.

        `messages` are those of the encoded request, which was parsed from JSON: it has no NaN and no infinities.
        """
        if not self._split:
            return None
        if self._prefix is not None and len(self._prefix.messages) == self._boundary:
            return self._prefix
        text = finite_to_bytes(self.written[self._prefix is not None : self._split])[1:-1]
        if self._prefix is not None:
            text = b"%b,%b" % (self._prefix.text, text) if text else self._prefix.text
        self.written[: self._split] = [Raw(text)]
        return WrittenPrefix(messages[: self._boundary], text, self._losses)


def body_to_bytes(body: Object, field: str) -> bytes:
    """Encode a body like `to_bytes`. The items of the conversation under `field` may begin with text."""
    items = body.get(field)
    return text_to_bytes(body) if isinstance(items, list) and items and type(items[0]) is Raw else to_bytes(body)
