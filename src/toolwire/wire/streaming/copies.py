"""Match the copies of items and calls that a later event of a stream repeats with the stream so far.

Both OpenAI wires repeat an answer at its end: Responses in `output_item.done` and in the final response, Chat servers in a
last `message`. The copy of a call may have another id (vllm-project/vllm#47916), other formatting or an object as its
arguments, another place, or no id. A copy that is not recognised would run its call twice, so a copy is, in this order,

1. the item with its id; where several items have that id, the item with equal content,
2. the item with equal content: kind, name, and parsed arguments or text,
3. the open item whose content so far begins the copy,
4. the next item of its kind and name, unless both have an id and the copy has content: then it is another call.

Each step takes the first free item from queues, so the cost is linear in the number of items and copies.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice

from ...ir.errors import EncodeError
from ...ir.pointer import JSON
from ...ir.text import to_bytes, unescape
from ...stream.scanner import Scanner
from ...stream.strict import parse_arguments

MAX_ESCAPED = 12  # bytes of a character that is written as an escaped surrogate pair
_MAX_SPACE = 1000  # bytes of white space that other formatting may add to short arguments
MAX_OPEN = 16  # items that are compared with a copy without a common id: models open fewer at once; bounds the cost
_DECODER = json.JSONDecoder()
_skip_space = re.compile(r"\s*+").match
_MAX_EXACT = 2**53  # a double beyond it is not one integer


class Copy:
    """An item or call, as it is so far or as a later event repeats it.

    `ids` are the call id and the item id, or empty texts. `read_text` returns the arguments or the text.
    """

    __slots__ = (
        "_content",
        "_text",
        "has_partial_name",
        "ids",
        "is_call",
        "is_far",
        "is_open",
        "kind",
        "name",
        "read_text",
    )

    def __init__(self, kind: str, name: str, ids: tuple[str, ...], read_text: Callable[[], str], is_call: bool) -> None:
        """Create a copy; its text is read once, when it is compared."""
        self.kind = kind
        self.name = name
        self.ids = ids
        self.read_text = read_text
        self.is_call = is_call  # of a function: its text is JSON
        self.is_open = False  # more text may follow
        self.is_far = False  # too long to be equal to a copy: not compared with it
        self.has_partial_name = False
        self._text: str | None = None
        self._content: Hashable = None

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = self.read_text()
        return self._text

    @property
    def call(self) -> Hashable:
        """The kind, name and content, which are equal for the same call."""
        return self.kind, self.name, self.content

    @property
    def content(self) -> Hashable:
        """The text in a form that is equal for other formatting of the same arguments."""
        if self._content is None:
            self._content = _normalize(self.text) if self.is_call else self.text
        return self._content


def equal_arguments(arguments: str, other: str) -> bool:
    """Return whether two texts are the same arguments, perhaps formatted differently."""
    return arguments == other or _normalize(arguments) == _normalize(other)


class ArgumentsEnd:
    """Find the end of a call's arguments in its escaped pieces. Each piece is scanned once."""

    __slots__ = ("_count", "_scanner")

    def __init__(self) -> None:
        self._count = 0  # of the pieces so far
        self._scanner: Scanner | None = None

    def is_after(self, pieces: list[bytes]) -> bool:
        """Return whether the pieces are complete arguments; `pieces` are the earlier ones and perhaps more."""
        if self._scanner is None:
            self._scanner = Scanner()
        if len(pieces) > self._count:
            self._scanner.feed(unescape(b"".join(pieces[self._count :])))
            self._count = len(pieces)
        return self._scanner.complete


def repeats_arguments(pieces: Sequence[bytes], arguments: JSON) -> bool:
    """Return whether escaped pieces after complete arguments are the same arguments, perhaps several times."""
    text, position = unescape(b"".join(pieces)).rstrip(), 0
    try:
        while position < len(text):
            value, position = _DECODER.raw_decode(text, _skip_space(text, position).end())  # type: ignore[union-attr]
            if value != arguments:
                return False
    except (ValueError, RecursionError):
        return False
    return True


def is_near(pieces: Sequence[bytes], text: str) -> bool:
    """Return whether escaped pieces are short enough to begin or equal `text`.

    Longer ones are not joined, so that many short copies of a long item cost no more than their own length.
    """
    limit = MAX_ESCAPED * len(text) + _MAX_SPACE
    return len(pieces) <= limit and sum(map(len, pieces)) <= limit


def match_copies(items: Sequence[Copy], copies: Sequence[Copy], *, by_position: bool = True) -> list[int | None]:
    """Return for each copy the number of the item that it repeats, or None if it is new; each item is used once.

    Without `by_position`, the last step (4) of the module docstring is left out.
    """
    matches: list[int | None] = [None] * len(copies)
    free = dict.fromkeys(range(len(items)))
    for keys, accepts, tries in _STEPS if by_position else _STEPS[:-2]:
        if keys is _shared_id_keys and not (_share_ids(items) or _share_ids(copies)):
            continue
        unmatched = [number for number, item in enumerate(matches) if item is None]
        if not unmatched or not free:
            break
        queues: dict[Hashable, deque[int]] = {}
        for number in free:
            for key in keys(items[number]):
                queues.setdefault(key, deque()).append(number)
        for number in unmatched:
            item = _take(queues, keys(copies[number]), items, copies[number], free, accepts, tries)
            if item is not None:
                matches[number] = item
                del free[item]
    return matches


def _take(
    queues: dict[Hashable, deque[int]],
    keys: Iterable[Hashable],
    items: Sequence[Copy],
    copy: Copy,
    free: dict[int, None],
    accepts: Callable[[Copy, Copy], bool] | None,
    tries: int,
) -> int | None:
    """Return a free item from the queues of `keys` that `accepts` the copy, or None; of several, the longest one."""
    for key in keys:
        queue = queues.get(key)
        while queue and queue[0] not in free:
            queue.popleft()
        candidates = [
            item
            for item in islice(queue or (), tries)
            if item in free and (accepts is None or accepts(items[item], copy))
        ]
        if candidates:
            return candidates[0] if len(candidates) == 1 else max(candidates, key=lambda item: len(items[item].text))
    return None


def _share_ids(copies: Sequence[Copy]) -> bool:
    ids = [key for copy in copies for key in _id_keys(copy)]
    return len(set(ids)) < len(ids)


def _id_keys(copy: Copy) -> list[Hashable]:
    return [(copy.kind, place, name) for place, name in enumerate(copy.ids) if name]


def _shared_id_keys(copy: Copy) -> list[Hashable]:
    return [] if copy.is_far else [(key, copy.name, copy.content) for key in _id_keys(copy)]


def _content_keys(copy: Copy) -> list[Hashable]:
    return [] if copy.is_far else [copy.call]


def _name_keys(copy: Copy) -> list[Hashable]:
    return [(copy.kind, copy.name)]


def _kind_keys(copy: Copy) -> list[Hashable]:
    return [copy.kind]


def _has_fitting_name(item: Copy, copy: Copy) -> bool:
    """Return whether the names may be the same: Chat servers send names in pieces, and copies without a name."""
    if not item.name or not copy.name or item.name == copy.name:
        return True
    return item.has_partial_name and copy.name.startswith(item.name)


def _begins(item: Copy, copy: Copy) -> bool:
    return item.is_open and not item.is_far and copy.text.startswith(item.text)


def _may_be_same(item: Copy, copy: Copy) -> bool:
    # A copy without text has nothing to run; as another call it would be one with empty arguments.
    has_other_id = bool(item.ids[0] and copy.ids[0]) and item.ids[0] != copy.ids[0] and copy.text != ""
    return not has_other_id and _has_fitting_name(item, copy)


# For each step: the queues, a further condition, and the number of items to try.
_STEPS: tuple[tuple[Callable[[Copy], list[Hashable]], Callable[[Copy, Copy], bool] | None, int], ...] = (
    (_shared_id_keys, None, 1),
    (_id_keys, _has_fitting_name, 1),
    (_content_keys, None, 1),
    (_name_keys, _begins, MAX_OPEN),
    (_name_keys, _may_be_same, 1),
    (_kind_keys, _may_be_same, 1),
)


def _normalize(arguments: str) -> Hashable:
    value, state = parse_arguments(arguments)
    try:
        return to_bytes(_unify_numbers(value), sort_keys=True) if state == "complete" else arguments
    except EncodeError:  # an integer beyond 64 bits
        return arguments


def _unify_numbers(value: JSON) -> JSON:
    """Replace 1.0 by 1, as JavaScript writes it."""
    if type(value) is dict:
        return {key: _unify_numbers(inner) for key, inner in value.items()}
    if type(value) is list:
        return [_unify_numbers(inner) for inner in value]
    return int(value) if type(value) is float and value.is_integer() and abs(value) < _MAX_EXACT else value
