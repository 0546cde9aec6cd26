"""State of a Responses stream that is being decoded: output items, and their indexes."""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from itertools import islice

from ...ir.events import CallDelta, Event, TextDelta
from ...ir.pointer import JSON, Object
from ...ir.text import dumps, unescape
from ...stream.strict import parse_arguments
from ..streaming.copies import MAX_OPEN, ArgumentsEnd, Copy, is_near, match_copies, repeats_arguments
from ..streaming.decoder import is_utf8

CALLS = ("function_call", "custom_tool_call")
_BRACE, _BRACES = ord("}"), frozenset(b"{}")
STREAMED = ("message", "reasoning", "call")


class GrowingItem:
    """An output item that is still growing. A message has a key for each of its contents, others have one."""

    __slots__ = (
        "call_id", "end", "ended", "final", "id", "id_bytes", "index", "is_again", "is_announced", "is_held", "is_search",
        "key", "keys", "kind", "late", "name", "original", "other_ids", "placeholder", "texts", "twin"
    )  # fmt: skip

    def __init__(self, raw: Object) -> None:
        self.kind = str(raw.get("type", "message"))
        self.is_search = False  # a call of a search that the client runs
        item_id = raw.get("id")
        self.id: Object = {"id": item_id} if item_id else {}
        self.id_bytes = str(item_id or "").encode("utf-8", "replace")
        self.call_id, self.name = raw.get("call_id"), raw.get("name")
        self.other_ids: set[str] = set()  # of copies that were recognised by their content or place
        self.index = 0
        self.key = -1  # none yet; a message never has one
        self.keys: dict[int, int] = {}  # of a message: by content index
        # The deltas so far, by content index or section of a summary; by None for arguments and the text of reasoning,
        # which is also by the complement (~) of its content index.
        self.texts: dict[int | None, list[bytes]] = {}
        self.placeholder = ""  # arguments from the start of a call, which count only if no others arrive
        self.end = ArgumentsEnd()
        self.late: list[bytes] = []  # arguments after the complete ones
        self.is_announced = True  # else a delta opened it
        self.is_again = False  # it was announced again after its end
        self.is_held = False  # a call that waits for its name
        self.original: GrowingItem | None = None  # the call with the same ids at another index; this one is held
        self.twin: GrowingItem | None = None  # the call with other ids that ended at the index of this one
        self.ended = False
        self.final: Object | None = None  # the copy that ended it

    @property
    def group(self) -> str:
        return "call" if self.kind in CALLS else self.kind

    def joined_text(self, number: int | None) -> str:
        return unescape(b"".join(self.texts.get(number, ())))

    def text(self) -> str:
        """Return the arguments or the text so far."""
        if self.group == "call":
            return self.joined_text(None) or self.real_placeholder
        numbers = sorted(number for number in self.texts if number is not None and number >= 0)
        return "".join([self.joined_text(number) for number in (*numbers, None)])

    @property
    def real_placeholder(self) -> str:
        """The arguments from the start of a call, unless they are an empty object, which other ones may follow."""
        return self.placeholder if self.placeholder.strip("{} \t\r\n") else ""

    @property
    def awaits_arguments(self) -> bool:
        return self.group == "call" and not self.ended and self.is_empty()

    def is_empty(self) -> bool:
        return not self.real_placeholder and not any(self.texts.values())

    def is_full(self, text: str) -> bool:
        """Return whether the arguments are complete without `text`, which is then a repetition of them."""
        if self.late or self.ended:
            return True
        pieces = self.texts[None]
        may_end = self.kind == "function_call" and bool(pieces) and pieces[-1][-1:] == b"}"
        return may_end and text[0] in "{}" and self.end.is_after(pieces)

    def repeats_late(self) -> bool:
        """Return whether the text after the complete one is the same."""
        if self.kind == "function_call":
            return repeats_arguments(self.late, parse_arguments(self.text())[0])
        return unescape(b"".join(self.late)) == self.text()

    def accepts(self, raw: Object) -> bool:
        """Return whether `raw` can be a later copy of this item: another call id or name is another call."""
        if raw.get("type", "message") != self.kind:
            return False
        # Only of a "call": the call id of a tool search is final only at its end.
        return self.group != "call" or not (self.has_other_call_id(raw) or differ(self.name, raw.get("name")))

    def shares_id(self, raw: Object) -> bool:
        """Return whether `raw` has the call id or the item id of this item."""
        return self._knows(raw.get("call_id"), self.call_id) or self.shares_item_id(raw)

    def shares_item_id(self, raw: Object) -> bool:
        return self._knows(raw.get("id"), self.id.get("id"))

    def _knows(self, value: JSON, own: JSON) -> bool:
        return is_id(value) and (value == own or value in self.other_ids)

    def has_ids(self, raw: Object) -> bool:
        """Return whether `raw` has both ids of this item."""
        return (
            bool(self.id)
            and self.id["id"] == raw.get("id")
            and self.call_id == raw.get("call_id")
            and self.name == raw.get("name")
            and self.kind == raw.get("type")
        )

    def is_same_call(self, raw: Object) -> bool:
        return self.group == "call" and self.has_ids(raw) and self.has_content(as_copy(raw))

    def has_other_id(self, raw: Object) -> bool:
        return differ(self.id.get("id"), raw.get("id")) and raw["id"] not in self.other_ids

    def has_other_call_id(self, raw: Object) -> bool:
        return differ(self.call_id, raw.get("call_id")) and raw["call_id"] not in self.other_ids

    def is_repeated(self, raw: Object) -> bool:
        """Return whether `raw` is this item, which has ended, again: a call with other arguments is another call.

        With the same call id and item id it is the same call, and the difference is reported.
        """
        if not self.accepts(raw):
            return self.is_renamed(raw) and self.has_content(as_copy(raw))
        if self.group != "call":
            return not self.has_other_id(raw)
        if self._knows(raw.get("call_id"), self.call_id) and self.shares_item_id(raw):
            return True
        if self.has_other_id(raw) and not self.shares_id(raw):
            return False
        return self.has_content(as_copy(raw))

    def repeats_original(self, raw: Object) -> bool:
        """Return whether this call, with its final copy `raw`, is the same as the call with its ids at another index."""
        return self.original is not None and self.original.has_content(
            as_copy(raw) if read_text(raw) else self.as_copy()
        )

    def is_guess(self, raw: Object) -> bool:
        """Return whether neither ids nor content show that `raw` is the end of this call."""
        return self.awaits_arguments and self.has_other_call_id(raw) and not self.shares_item_id(raw)

    def is_beside(self, raw: Object, output: list[Object]) -> bool:
        """Return whether the final response has this call and, as another call, `raw`, for which `is_guess` holds."""
        copy, other = next((as_copy(own) for own in output if self.shares_id(own)), None), GrowingItem(raw)
        if copy is None:
            return False
        return any(map(other.shares_id, output)) or (copy.text != "" and copy.content != as_copy(raw).content)

    def is_renamed(self, raw: Object) -> bool:
        """Return whether `raw` has the name and the item id of this call, and another call id."""
        return raw.get("type") == self.kind and not differ(self.name, raw.get("name")) and self.shares_item_id(raw)

    def may_continue_in(self, raw: Object, *, is_alone: bool) -> bool:
        """Return whether the content decides about `raw`.

        Without any so far, another call id is another call, unless the item id is the same or no other call is open there.
        """
        return is_alone or not self.is_empty() or not self.has_other_call_id(raw) or self.shares_item_id(raw)

    def is_near(self, copy: Copy) -> bool:
        return all(is_near(pieces, copy.text) for pieces in self.texts.values())

    def has_content(self, copy: Copy) -> bool:
        return self.is_near(copy) and copy.content == self.as_copy().content

    def as_copy(self) -> Copy:
        ids = (read_name(self.call_id), read_name(self.id.get("id")))
        copy = Copy(self.kind, read_name(self.name), ids, self.text, self.kind == "function_call")
        copy.is_open = not self.ended
        return copy


class OutputItems:
    """The items of a stream in the order of their starts, and a search for the item of an event.

    Servers omit the output index or the item id, send the same for several items, or send other ids in every event.
    """

    def __init__(self) -> None:
        self.all: list[GrowingItem] = []
        self.by_index: dict[int, GrowingItem] = {}  # the last item with an output index
        self.open: dict[str, dict[GrowingItem, None]] = {}  # by group, in the order of their starts
        # By group, output index and item id, each of the last two also as None: items between which they do not decide.
        # Calls are also in the group "call_id", with their call id in place of the item id.
        self._queues: dict[tuple[str, int | None, JSON], deque[GrowingItem]] = {}

    def add(self, item: GrowingItem, index: int | None) -> None:
        item.index = len(self.all) if index is None else index
        self.all.append(item)
        self.by_index[item.index] = item
        self.open.setdefault(item.group, {})[item] = None
        for item_id in {read_id(item.id), None}:
            self._enqueue(item, item.group, item_id)
        self.add_call_id(item, item.call_id)

    def end(self, item: GrowingItem) -> None:
        item.ended = True
        self.open[item.group].pop(item, None)

    def add_item_id(self, item: GrowingItem, raw: Object) -> None:
        """Set the item id of an item whose deltas came first, under another id."""
        if (item_id := read_id(raw)) is not None:
            item.id, item.id_bytes = {"id": item_id}, str(item_id).encode("utf-8", "replace")
            self._enqueue(item, item.group, item_id)

    def add_call_id(self, item: GrowingItem, call_id: JSON) -> None:
        if is_id(call_id):
            item.call_id = call_id
            self._enqueue(item, "call_id", call_id)

    def add_ids(self, item: GrowingItem, raw: Object) -> None:
        """Remember the ids of a copy, so that later events with them are about its item."""
        for group, value in ((item.group, raw.get("id")), ("call_id", raw.get("call_id"))):
            if value and type(value) is str and (group, None, value) not in self._queues:
                item.other_ids.add(value)
                self._enqueue(item, group, value)

    def _enqueue(self, item: GrowingItem, group: str, item_id: JSON) -> None:
        for key in ((group, item.index, item_id), (group, None, item_id)):
            queue = self._queues.setdefault(key, deque())
            if queue and (queue[-1].ended or any(queue[-1].texts.values())):
                queue.clear()  # later events are about the new item
            queue.append(item)

    def _front(self, group: str, index: int | None, item_id: JSON) -> GrowingItem | None:
        """Return the first open item of a queue: servers send the deltas of announced items in their order."""
        queue = self._queues.get((group, index, item_id))
        if queue is None:
            return None
        while len(queue) > 1 and queue[0].ended:
            queue.popleft()
        return queue[0]

    def find(self, group: str, index: int | None, item_id: JSON) -> GrowingItem | None:
        """Return the item of an event that has no copy of it, or None if there is none."""
        if item_id is not None:
            item = self._front(group, index, item_id)
            if item is None and index is not None:
                item = self._front(group, None, item_id)
                item = None if item is None or item.ended else item
            if item is not None:
                return item
        item = self._front(group, index, None)
        if item is None and index is not None:
            other = self.by_index.get(index)
            return other if other is not None and other.group not in STREAMED else None
        return item

    def find_announced(self, raw: Object, index: int | None) -> GrowingItem | None:
        """Return the item that `output_item.added` repeats or that its deltas opened; None if it starts a new item."""
        group, item_id = GrowingItem(raw).group, read_id(raw)
        candidates = self._with_call_id(raw, index)
        if index is not None:
            queue = self._queues.get((group, index, None))
            candidates += [queue[-1]] if queue else []
        else:
            candidates += filter(None, [self._front(group, None, item_id) if item_id else None])
            candidates += [item for item in islice(self.open.get(group, ()), 1) if not item.is_announced]
        for item in candidates:
            if item.ended and (item.has_other_id(raw) or not item.shares_id(raw)):
                continue
            if index is not None and not item.ended and item.is_empty() and item.is_renamed(raw):
                return item
            if item.accepts(raw) and (not item.is_announced or not item.has_other_id(raw) or item.shares_id(raw)):
                return item
        return None

    def find_ended(self, raw: Object, index: int | None) -> GrowingItem | None:
        """Return the item that `output_item.done` ends or repeats, or None if it is a new item."""
        group, item_id = GrowingItem(raw).group, read_id(raw)
        candidates = self._with_call_id(raw, index)
        if item_id is not None:
            candidates += filter(None, [self._front(group, index, item_id)])
        if index is not None:
            others = [*self._with_call_id(raw, None), self._front(group, None, item_id) if item_id else None]
            candidates += [item for item in others if item and (not item.ended or item.is_same_call(raw))]
            candidates += filter(None, [self._front(group, index, None)])
        for item in candidates:
            if item.is_repeated(raw) if item.ended else item.accepts(raw):
                return item
        # Without an index, or under another call id: the open item with this content.
        pool = list(islice(self.open.get(group, ()), MAX_OPEN)) if index is None else candidates
        copy = as_copy(raw)
        is_alone = len(self.open.get(group, ()) if index is None else self._queues.get((group, index, None), ())) == 1
        pool = [item for item in pool if not item.ended and item.may_continue_in(raw, is_alone=is_alone)]
        pool = [item for item in pool if item.is_near(copy)]
        items = [item.as_copy() for item in pool]
        for item_copy in items:
            item_copy.name = item_copy.name or copy.name  # of an item that no event announced
        number = match_copies(items, [copy], by_position=False)[0]
        if number is not None:
            return pool[number]
        last = self._front(group, None, None) if index is None else None
        is_next = last is not None and not last.ended and not last.has_other_id(raw) and last.accepts(raw)
        return last if is_next else None

    def find_original(self, raw: Object) -> GrowingItem | None:
        """Return the call with both ids of `raw`, or None: its arguments show whether `raw` repeats it."""
        return next((item for item in self._with_call_id(raw, None) if item.has_ids(raw)), None)

    def append_fast(self, fast: re.Match[bytes], events: list[Event]) -> bool:
        """Emit a delta that the fast path matched; return False if the full parser has to read the event."""
        item, fragment = self.by_index.get(int(fast[2])), fast[4]
        if item is None or item.ended or item.is_held or item.id_bytes != fast[1] or not is_utf8(fragment):
            return False
        if item.kind == "message":
            number = int(fast[3] or 0)
            if (key := item.keys.get(number)) is None:
                return False
            if fragment:
                item.texts[number].append(fragment)
                events.append(TextDelta(key, fragment))
            return True
        if item.kind != "function_call" and item.kind != "custom_tool_call":
            return False
        if fragment:
            pieces = item.texts[None]
            if pieces and pieces[-1][-1] == _BRACE and fragment[0] in _BRACES:
                return False  # the arguments may be complete
            pieces.append(fragment)
            events.append(CallDelta(item.key, fragment))
        return True

    def _with_call_id(self, raw: Object, index: int | None) -> list[GrowingItem]:
        """Return the call with the call id of `raw`, if there is one; `index`: only with this output index."""
        item = self._front("call_id", index, raw["call_id"]) if is_id(raw.get("call_id")) else None
        return [] if item is None else [item]

    def match_output(self, output: list[Object]) -> list[GrowingItem | None]:
        """Return the item of each item of the final response; None for a new one.

        Positions differ where the final response lacks an item; ids differ from event to event on some servers (GitHub
        Copilot, OpenRouter).
        """
        if len(output) == len(self.all) and all(map(GrowingItem.has_ids, self.all, output)):
            return [*self.all]
        items, copies = [item.as_copy() for item in self.all], [as_copy(raw) for raw in output]
        ids = {value for copy in items for value in copy.ids}
        others = {value: copy.ids for item, copy in zip(self.all, items, strict=True) for value in item.other_ids - ids}
        for copy in copies if others else ():
            if ids.isdisjoint(filter(None, copy.ids)):
                copy.ids = next((others[value] for value in copy.ids if value in others), copy.ids)
        numbers = match_copies(items, copies)
        return [None if number is None else self.all[number] for number in numbers]


def as_copy(raw: Object) -> Copy:
    """Return an item of an event for the comparison with the items so far."""
    kind = str(raw.get("type", "message"))
    ids = (read_name(raw.get("call_id")), read_name(raw.get("id")))
    return Copy(kind, read_name(raw.get("name")), ids, partial(read_text, raw), kind == "function_call")


def has_other_content(raw: Object, other: Copy) -> bool:
    """Return whether a copy of a call, or an event with its complete arguments, cannot be the same call as `other`."""
    copy = as_copy(raw)
    return differ(copy.name, other.name) or (copy.text != "" and copy.content != other.content)


def read_text(raw: Object) -> str:
    """Return the arguments or the text of an item."""
    value = raw.get("arguments") or raw.get("input")
    if value and raw.get("type") in CALLS:
        return value if type(value) is str else dumps(value)
    parts = [part for field in ("summary", "content") if type(raw.get(field)) is list for part in raw[field]]
    texts = [part.get("text") or part.get("refusal") for part in parts if type(part) is dict]
    return "".join([text for text in texts if type(text) is str])


def read_name(value: JSON) -> str:
    return value if type(value) is str else ""


def is_id(value: JSON) -> bool:
    return type(value) is str and value != ""


def read_id(raw: Object) -> JSON:
    """Return the item id, or None if it has none."""
    value = raw.get("id")
    return value if is_id(value) else None


def differ(value: JSON, other: JSON) -> bool:
    return is_id(value) and is_id(other) and value != other
