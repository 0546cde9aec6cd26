"""Reuse the translation of a long conversation for its next request.

A coding agent sends its whole conversation with every request, and all but the last turn was translated a moment ago:

    cache = TranslationCache(64 * 1024 * 1024)
    reading = cache.open(owner, wire, body)
    request = reading.decode()                          # the same as wire.decode_request(parse_object(body))
    EndpointRequest(request, endpoint, …, store=reading.store)

The beginning of a conversation is found by its bytes, which are compared in full: nothing is reused for a document that
differs in one of them. Results, losses and errors are the same as without the cache. An owner never gets the
conversations of another one.

A full cache drops the conversation that was not used for the longest time, but not for a new conversation of the same owner if it
was used a moment ago. Agents take turns, so with more of them than fit each would drop the conversation of the agent that
comes next, and none would find its own: with the least recently used dropped always, 300 agents in turn had no hits
in 64 MiB. Now those that fit keep their conversations (`bench/translation_cache.py` compares policies).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import count
from threading import Lock
from time import monotonic
from typing import NamedTuple
from weakref import ref

from ...bridge.conversation.reading import ConversationPrefix, RequestReading, find_items
from ...wire.codec import WireCodec
from ...wire.protocol import Wire

_SMALL = 8 * 1024  # bytes; a smaller document is translated faster than it is looked up and stored
_STEP = 4096  # bytes between the offsets at which a prefix can be looked up: 25 look-ups for 100 kB
# Bytes before such an offset, which are the key of the prefix: long enough to differ between most conversations.
_WINDOW = 256
_MAX_CANDIDATES = 8  # conversations with one key, which are compared byte by byte
_MIN_IDLE = 30.0  # seconds after which a new conversation replaces another; most tools and models need less for a turn
# A conversation of more than this part of the cache is not stored: it would evict conversations of many clients.
_LARGEST_SHARE = 4

# The name of a wire, the last offset of a prefix, and the bytes before it. The offset makes each prefix a candidate at one
# offset of a request only: a long repetitive text has the same bytes at every offset, and comparing all of them is quadratic.
_PrefixKey = tuple[str, int, bytes]


class _CachedPrefix(NamedTuple):
    prefix: ConversationPrefix
    key: _PrefixKey
    size: int
    used_at: float
    is_new: bool  # it continues no conversation that was stored


class _OwnerEntries:
    """The conversations of one owner by number, the least recently used first, and the numbers by key."""

    __slots__ = ("by_key", "entries", "size")

    def __init__(self) -> None:
        self.entries: OrderedDict[int, _CachedPrefix] = OrderedDict()
        self.by_key: dict[_PrefixKey, list[int]] = {}
        self.size = 0


class TranslationCache:
    """Conversations in at most `max_bytes`. If there are too many, the owner of most bytes loses its oldest ones.

    `events` counts lookups that were a `hit` or a `miss`, and conversations that were dropped (`eviction`) or not kept
    (`refusal`) for lack of room. All methods may be called from any thread.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float] = monotonic) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        self.events = dict.fromkeys(("hit", "miss", "eviction", "refusal"), 0)
        self._clock = clock
        self._owners: dict[str, _OwnerEntries] = {}
        self._lock = Lock()
        self._numbers = count(1)

    def __len__(self) -> int:
        with self._lock:
            return sum(len(owner.entries) for owner in self._owners.values())

    def open(self, owner: str, wire: Wire, body: bytes) -> RequestReading:
        """Return a reading of a request, with the longest conversation that it continues, and count a hit or a miss.

        Nothing is parsed yet, and nothing is stored before `decode`.
        """
        if len(body) < _SMALL or not isinstance(wire, WireCodec):
            return RequestReading(wire, body)
        start = find_items(body, wire.conversation)
        if start < 0:
            return RequestReading(wire, body)
        with self._lock:
            number, prefix = self._find(owner, wire, body, start) or (0, None)
            self.events["hit" if number else "miss"] += 1
        return RequestReading(wire, body, start, prefix, partial(self._save, owner, number))

    def clear(self) -> None:
        """Drop all conversations."""
        with self._lock:
            self._owners.clear()
            self.size = 0

    def _find(self, owner: str, wire: WireCodec, body: bytes, start: int) -> tuple[int, ConversationPrefix] | None:
        """Return the longest stored conversation that the items at `start` continue, and its number. It counts as used.

        Return None if there is none.
        """
        own = self._owners.get(owner)
        if own is None:
            return None
        for offset in range(_last_offset(len(body) - start), 0, -_STEP):
            numbers = own.by_key.get((wire.name, offset, body[start + offset - _WINDOW : start + offset]), ())
            known = [(len(own.entries[number].prefix.text), number) for number in numbers]
            for _, number in sorted(known, reverse=True):
                prefix = own.entries[number].prefix
                if body.startswith(prefix.text, start) and prefix.fits(wire):
                    own.entries[number] = own.entries[number]._replace(used_at=self._clock())
                    own.entries.move_to_end(number)
                    return number, prefix
        return None

    def _save(self, owner: str, replaced: int, prefix: ConversationPrefix) -> None:
        """Store a conversation in place of number `replaced`, which it continues, unless it is too small or too large."""
        with self._lock:
            is_new = not self._drop(owner, replaced)
            if len(prefix.text) < _STEP or prefix.size > self.max_bytes // _LARGEST_SHARE:
                return
            key = _key_of(prefix)
            for other in self._crowded_out(owner, key, prefix):
                self._drop(owner, other)
            number = next(self._numbers)
            found = self._owners.setdefault(owner, _OwnerEntries())
            found.entries[number] = _CachedPrefix(prefix, key, 0, self._clock(), is_new)
            found.by_key.setdefault(key, []).append(number)
            # no reference from the store to the cache or to the conversation, which would be a cycle
            prefix.store.on_growth = partial(_resize, ref(self), owner, number)
            self._account(owner, number)

    def _crowded_out(self, owner: str, key: _PrefixKey, prefix: ConversationPrefix) -> list[int]:
        """Return the numbers that a conversation with this key replaces: of the same text, or the oldest of too many."""
        found = self._owners.get(owner)
        numbers = [] if found is None else found.by_key.get(key, [])
        same = [number for number in numbers if found and found.entries[number].prefix.text == prefix.text]
        return same or numbers[: max(len(numbers) - _MAX_CANDIDATES + 1, 0)]

    def _account(self, owner: str, number: int) -> None:
        """Count the bytes of a conversation that is new or has grown, and drop it, or others, if there are too many."""
        found = self._owners.get(owner)
        entry = None if found is None else found.entries.get(number)
        if found is None or entry is None:
            return  # dropped before its translation was stored
        size = entry.prefix.size
        found.entries[number] = entry._replace(size=size)
        found.size += size - entry.size
        self.size += size - entry.size
        if size > self.max_bytes // _LARGEST_SHARE:
            self._drop(owner, number)
        self._make_room(owner, number)

    def _make_room(self, owner: str, number: int) -> None:
        """Drop conversations until the others fit, and count that.

        The oldest conversation of the owner with most bytes is dropped, or the growing one if it is new and that owner has
        no idle one.
        """
        while self.size > self.max_bytes:
            largest = max(self._owners, key=lambda name: self._owners[name].size)
            entries = self._owners[largest].entries
            oldest = next(iter(entries))
            growing = entries.get(number) if largest == owner else None
            is_idle = self._clock() - entries[oldest].used_at >= _MIN_IDLE
            if growing is not None and growing.is_new and not is_idle:
                self.events["refusal"] += 1
                self._drop(owner, number)
            else:
                self.events["eviction"] += 1
                self._drop(largest, oldest)

    def _drop(self, owner: str, number: int) -> bool:
        """Drop a conversation. Return whether it was stored."""
        found = self._owners.get(owner)
        entry = None if found is None else found.entries.pop(number, None)
        if found is None or entry is None:
            return False
        found.size -= entry.size
        self.size -= entry.size
        found.by_key[entry.key].remove(number)
        if not found.by_key[entry.key]:
            del found.by_key[entry.key]
        if not found.entries:
            del self._owners[owner]
        return True


def _resize(cache: ref[TranslationCache], owner: str, number: int) -> None:
    """Count the size of a conversation again, which its translation to a target has changed, if the cache exists."""
    found = cache()
    if found is not None:
        with found._lock:
            found._account(owner, number)


def _last_offset(size: int) -> int:
    return size - size % _STEP


def _key_of(prefix: ConversationPrefix) -> _PrefixKey:
    offset = _last_offset(len(prefix.text))
    return prefix.wire_name, offset, prefix.text[offset - _WINDOW : offset]
