"""The beginning of a conversation as it was fitted to one target, for the next request of the same conversation.

Fitting goes from left to right, except for adjacent messages, results of earlier calls and the last message. So it can
continue at a boundary between a user message and an assistant message, if every call before it has its result:

    prefix     fitted for an earlier request: its turns, losses, names and ids are taken as they are
    boundary   the end of the prefix that this request leaves for the next one
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from operator import is_
from typing import Any, NamedTuple, TypeVar

from ...ir.losses import Loss
from ...ir.request import Message, Request
from ...wire.codec import ConversationItems, WireCodec, WrittenPrefix, WrittenSettings
from ...wire.protocol import Encoded, Wire
from .history import DraftMessage
from .outline import HistoryOutline, outline_history, outline_parts
from .turns import StoredTurn

Scanned = TypeVar("Scanned")
_MAX_TARGETS = 4  # targets for which one conversation is stored: a request and its fallbacks
_MAX_INSERTED = 2  # messages that may be inserted before a fitted prefix: instructions, an opening
_DRAFT_SIZE = 600  # bytes of a fitted turn besides its text: measured with tracemalloc
_LOSS_SIZE = 400  # bytes of a loss with its texts, as _DRAFT_SIZE
_SCANNED_SIZE = 150  # bytes of a message in a scanned value


class FittedPrefix(NamedTuple):
    """The first messages of a request, and everything that fitting them led to."""

    messages: tuple[Message, ...]
    turns: tuple[DraftMessage, ...]
    losses: tuple[Loss, ...]
    names: tuple[tuple[str | None, str], ...]
    ids: frozenset[str]
    marks: int


def begins_with(messages: tuple[Message, ...], prefix: tuple[Message, ...]) -> bool:
    """Return whether the first messages are the messages of `prefix`: the same objects, because equal values may differ.

    1 and 1.0 are equal, and not the same in JSON.
    """
    return len(messages) >= len(prefix) and all(map(is_, messages, prefix))


class RestoredPrefix(NamedTuple):
    """The first messages of a request after stored turns were put into them, and the store for the new messages."""

    source: tuple[Message, ...]
    turns: Mapping[str, StoredTurn | None]  # by all keys of the messages; None: not stored
    messages: tuple[Message, ...]
    store: PrefixStore
    opened: int = 0  # bytes of reasoning from envelopes


class PrefixStore:
    """The prefixes of one conversation, by target. `size` is the number of their bytes.

    Values are replaced, never changed, so a reader in another thread sees an old prefix or a new one.
    """

    __slots__ = ("_fitted", "_marked", "_scanned", "_written", "boundary", "on_growth", "restored")

    def __init__(self, boundary: int, earlier: PrefixStore | None = None) -> None:
        """Create the store of a conversation whose first `boundary` messages will be sent again.

        `earlier` is the store of a shorter prefix; its values are taken over, so that only the new messages cost work.
        `on_growth` is not: its owner sets it for each store.
        """
        self.boundary = boundary
        self.on_growth: Callable[[], None] | None = None
        self._fitted: dict[Hashable, FittedPrefix] = {}
        self._written: dict[Hashable, dict[tuple[Wire, bool], WrittenPrefix]] = {}
        self._marked: tuple[Message, Message] | None = None
        self._scanned: dict[Hashable, tuple[tuple[Message, ...], Any]] = {}
        self.restored: dict[str, RestoredPrefix] = {}
        """By the origin of the stored turns together with the secrets of envelopes, on which the restored messages depend."""
        if earlier is not None:  # shared, because each change replaces a dictionary
            self._fitted, self._written, self._marked = earlier._fitted, earlier._written, earlier._marked
            self._scanned, self.restored = earlier._scanned, earlier.restored

    def is_split(self, messages: tuple[Message, ...]) -> bool:
        """Return whether the boundary is between a user message and an answer to it: a caller may have changed both."""
        boundary = self.boundary
        if not 0 < boundary < len(messages):
            return False
        return messages[boundary - 1].role == "user" and messages[boundary].role == "assistant"

    def scan(
        self,
        key: Hashable,
        messages: tuple[Message, ...],
        read: Callable[[tuple[Message, ...]], Scanned],
        join: Callable[[Scanned, Scanned], Scanned],
    ) -> Scanned:
        """Return `read(messages)`, but read only the messages after the known prefix; `join` adds their value.

        The value of the messages up to the boundary is saved under `key` for the next request. Another function, or the
        same function with other settings, needs another key.
        """
        if not self.is_split(messages):
            return read(messages)
        known, value = self._scanned.get(key, ((), None))
        if not begins_with(messages, known):
            known, value = (), None
        if len(known) < self.boundary:
            added_value = read(messages[len(known) : self.boundary])
            known, value = messages[: self.boundary], join(value, added_value) if known else added_value
            self._scanned = {**self._scanned, key: (known, value)}
        tail_value = read(messages[len(known) :])
        return join(value, tail_value) if known else tail_value

    def outline(self, messages: tuple[Message, ...]) -> HistoryOutline:
        """Return the outline of a conversation."""
        if not self.is_split(messages):
            return outline_history(messages)
        return self.scan("outline", messages, outline_parts, HistoryOutline.joined)

    @property
    def size(self) -> int:
        drafts = sum(_DRAFT_SIZE * len(one.turns) + _LOSS_SIZE * len(one.losses) for one in self._fitted.values())
        texts = sum(len(one.text) for written in self._written.values() for one in written.values())
        scanned = _SCANNED_SIZE * sum(len(known) for known, _ in self._scanned.values())
        restored = sum(_DRAFT_SIZE * len(one.messages) + one.opened + one.store.size for one in self.restored.values())
        return drafts + texts + scanned + restored

    def find_fitted(self, key: Hashable, messages: tuple[Message, ...]) -> FittedPrefix | None:
        found = self._fitted.get(key)
        return found if found is not None and begins_with(messages, found.messages) else None

    def find_written(
        self, key: Hashable, form: tuple[Wire, bool], messages: tuple[Message, ...]
    ) -> WrittenPrefix | None:
        """Return the text of a prefix. `form` is the wire, and whether texts are blocks."""
        found = self._written.get(key, {}).get(form)
        return found if found is not None and begins_with(messages, found.messages) else None

    def mark_once(self, message: Message, mark: Callable[[Message], Message]) -> Message:
        """Return `mark(message)`: the same object as for an earlier request, because a prefix is found by its objects."""
        if self._marked is None or self._marked[0] is not message:
            self._marked = message, mark(message)
        return self._marked[1]

    def save_restored(self, origin: str, prefix: RestoredPrefix) -> None:
        others = {other: value for other, value in self.restored.items() if other != origin}
        self.restored = {**dict(list(others.items())[1 - _MAX_TARGETS :]), origin: prefix}

    def save_fitted(self, key: Hashable, prefix: FittedPrefix) -> None:
        others = {other: value for other, value in self._fitted.items() if other != key}
        self._fitted = {**dict(list(others.items())[1 - _MAX_TARGETS :]), key: prefix}
        self._written = {other: value for other, value in self._written.items() if other in self._fitted}

    def save_written(self, key: Hashable, form: tuple[Wire, bool], prefix: WrittenPrefix) -> None:
        if key in self._fitted:
            self._written = {**self._written, key: {**self._written.get(key, {}), form: prefix}}
            if self.on_growth is not None:
                self.on_growth()


class PrefixReuse:
    """The use of a store for one request and one target."""

    __slots__ = ("_key", "_saved", "_store", "boundary", "prefix")

    def __init__(self, store: PrefixStore, key: Hashable, messages: tuple[Message, ...]) -> None:
        self._store = store
        self._key = key
        self._saved: FittedPrefix | None = None
        self.prefix = store.find_fitted(key, messages)
        self.boundary = store.boundary

    @property
    def segments(self) -> list[tuple[int, int | None]]:
        """The ranges of messages that are fitted one after the other; the last one ends with the conversation."""
        start = 0 if self.prefix is None else len(self.prefix.messages)
        if start >= self.boundary:
            return [(start, None)]
        return [(start, self.boundary), (self.boundary, None)]

    def save(self, prefix: FittedPrefix | None) -> None:
        """Store the prefix up to the boundary, if there is a new one."""
        self._saved = self.prefix if prefix is None else prefix
        if prefix is not None:
            self._store.save_fitted(self._key, prefix)

    def encode(
        self,
        request: Request,
        turns: list[DraftMessage],
        wire: Wire,
        settings: WrittenSettings | None = None,
        *,
        text_blocks: bool = False,
    ) -> Encoded:
        """Encode a fitted request with the text of its prefix, and store the text up to the boundary."""
        boundary = self._fitted_boundary(turns)
        # nothing to reuse, or a wire that cannot continue a written text
        if not boundary or not isinstance(wire, WireCodec) or wire.encode_onto is None:
            return encode_onto(request, wire, settings, text_blocks=text_blocks)
        form = wire, text_blocks
        items = ConversationItems(
            self._store.find_written(self._key, form, request.messages),
            boundary,
            text_blocks=text_blocks,
            settings=settings,
        )
        encoded = wire.encode_onto(request, items)
        written = items.cut_prefix(request.messages)
        if written is not None:
            self._store.save_written(self._key, form, written)
        return encoded

    def _fitted_boundary(self, turns: list[DraftMessage]) -> int:
        """Return the number of fitted messages of the prefix, or 0 if a message was replaced after fitting."""
        if self._saved is None:
            return 0
        count = len(self._saved.turns)
        for inserted in range(min(_MAX_INSERTED + 1, len(turns) - count)):
            if turns[count + inserted - 1] is self._saved.turns[-1]:
                return count + inserted
        return 0


def encode_onto(
    request: Request, wire: Wire, settings: WrittenSettings | None = None, *, text_blocks: bool = False
) -> Encoded:
    """Encode a request whose `settings` may be written already, or whose marks move on with each turn (`text_blocks`)."""
    is_plain = settings is None and not text_blocks
    if is_plain or not isinstance(wire, WireCodec) or wire.encode_onto is None:
        return wire.encode_request(request)
    return wire.encode_onto(request, ConversationItems(text_blocks=text_blocks, settings=settings))
