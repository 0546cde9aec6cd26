"""State of a Responses stream that is being decoded: output items, and their indexes."""

from __future__ import annotations

from collections import deque

from ...ir.parts import Extra
from ...ir.pointer import JSON, Object
from ...ir.text import unescape
from .content import NAME

__all__ = ["GrowingItem", "OutputItems", "own_fields", "strip_form"]

_CALLS = ("function_call", "custom_tool_call")
_STREAMED = ("message", "reasoning", "call")


class GrowingItem:
    """An output item that is still growing. A message has a key for each of its contents, others have one."""

    __slots__ = (
        "call_id", "ended", "id", "id_bytes", "index", "is_held", "is_search", "key", "keys", "kind", "name",
        "placeholder", "texts"
    )  # fmt: skip

    def __init__(self, raw: Object) -> None:
        self.kind = str(raw.get("type", "message"))
        self.is_search = False  # a call of a search that the client runs
        item_id = raw.get("id")
        self.id: Object = {"id": item_id} if item_id else {}
        self.id_bytes = str(item_id or "").encode("utf-8", "replace")
        self.call_id, self.name = raw.get("call_id"), raw.get("name")
        self.index = 0
        self.key = -1  # none yet; a message never has one
        self.keys: dict[int, int] = {}  # of a message: by content index
        # The deltas so far, by content index or section of a summary; by None for arguments and the text of reasoning,
        # which is also by the complement (~) of its content index.
        self.texts: dict[int | None, list[bytes]] = {}
        self.placeholder = ""  # arguments from the start of a call, which count only if no others arrive
        self.is_held = False  # a call that waits for its name
        self.ended = False

    @property
    def group(self) -> str:
        return "call" if self.kind in _CALLS else self.kind

    def joined_text(self, number: int | None) -> str:
        return unescape(b"".join(self.texts.get(number, ())))

    def accepts(self, raw: Object) -> bool:
        """Return whether `raw` can be a later copy of this item: another call id or name is another call."""
        if raw.get("type", "message") != self.kind:
            return False
        if self.group != "call":  # the call id of a tool search is final only at its end
            return True
        return not (differ(self.call_id, raw.get("call_id")) or differ(self.name, raw.get("name")))

    def shares_id(self, raw: Object) -> bool:
        """Return whether `raw` has the call id or the item id of this item."""
        return bool(
            (self.call_id and self.call_id == raw.get("call_id")) or (self.id and self.id["id"] == raw.get("id"))
        )

    def is_renamed(self, raw: Object) -> bool:
        """Return whether `raw` is this call with another call id: it has its kind, name and arguments.

        A second call would run its effect twice.
        """
        text = raw.get("arguments") or raw.get("input") or ""
        if raw.get("type", "message") != self.kind or self.name != raw.get("name") or type(text) is not str:
            return False
        so_far = self.joined_text(None)
        return text == so_far if self.ended else text.startswith(so_far)

    def has_other_id(self, raw: Object) -> bool:
        return differ(self.id.get("id"), raw.get("id")) and not self.shares_id(raw)


class OutputItems:
    """The items of a stream in the order of their starts, and a search for the item of an event.

    Servers omit the output index or the item id, send the same for several items, or send other ids in every event.
    """

    def __init__(self) -> None:
        self.all: list[GrowingItem] = []
        self.by_index: dict[int, GrowingItem] = {}  # the last item with an output index
        # By group, output index and item id, each of the last two also as None: items between which they do not decide.
        # Calls are also in the group "call_id", with their call id in place of the item id.
        self._queues: dict[tuple[str, int | None, JSON], deque[GrowingItem]] = {}

    def add(self, item: GrowingItem, index: int | None) -> None:
        item.index = len(self.all) if index is None else index
        self.all.append(item)
        self.by_index[item.index] = item
        for item_id in {read_id(item.id), None}:
            self._enqueue(item, item.group, item_id)
        self.add_call_id(item, item.call_id)

    def add_call_id(self, item: GrowingItem, call_id: JSON) -> None:
        if is_id(call_id):
            item.call_id = call_id
            self._enqueue(item, "call_id", call_id)

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
            return other if other is not None and other.group not in _STREAMED else None
        return item

    def find_announced(self, raw: Object, index: int | None) -> GrowingItem | None:
        """Return the item that `output_item.added` repeats, or None if it starts a new item."""
        group, item_id = GrowingItem(raw).group, read_id(raw)
        found = self._with_call_id(raw, index)
        if index is not None:
            queue = self._queues.get((group, index, None))
            found += [queue[-1]] if queue else []
        elif item_id is not None:
            found += filter(None, [self._front(group, None, item_id)])
        elif (last := self._front(group, None, None)) and last.is_held:  # its deltas came first
            found.append(last)
        for item in found:
            if item.accepts(raw) and not item.has_other_id(raw) and (not item.ended or item.shares_id(raw)):
                return item
        return None

    def find_ended(self, raw: Object, index: int | None) -> GrowingItem | None:
        """Return the item that `output_item.done` ends, or None if it is a new item."""
        group, item_id = GrowingItem(raw).group, read_id(raw)
        found = self._with_call_id(raw, index)
        if item_id is not None:
            found += filter(None, [self._front(group, index, item_id)])
        if index is not None:
            others = [*self._with_call_id(raw, None), self._front(group, None, item_id) if item_id else None]
            found += [item for item in others if item is not None and not item.ended]
            found += filter(None, [self._front(group, index, None)])
        elif (last := self._front(group, None, None)) and not last.ended and not last.has_other_id(raw):
            found.append(last)
        for item in found:
            if item.accepts(raw) and not (item.ended and item.has_other_id(raw)):
                return item
        return next((item for item in found if not item.ended and item.is_renamed(raw)), None)

    def _with_call_id(self, raw: Object, index: int | None) -> list[GrowingItem]:
        """Return the call with the call id of `raw`, if there is one; `index`: only with this output index."""
        item = self._front("call_id", index, raw["call_id"]) if is_id(raw.get("call_id")) else None
        return [] if item is None else [item]

    def match_output(self, output: list[Object]) -> list[GrowingItem | None]:
        """Return the item of each item of the final response: by an id, or the next of its kind; None for a new one.

        Positions differ where the final response lacks an item; ids differ from event to event on some servers (GitHub
        Copilot, OpenRouter).
        """
        matches: list[GrowingItem | None] = [None] * len(output)
        by_id: dict[tuple[str, JSON], deque[GrowingItem]] = {}
        for item in self.all:
            for key in ((item.kind, read_id(item.id)), ("call_id", item.call_id if is_id(item.call_id) else None)):
                if key[1] is not None:
                    by_id.setdefault(key, deque()).append(item)
        used: set[int] = set()  # by Python's id()
        for number, raw in enumerate(output):
            for key in (("call_id", raw.get("call_id")), (str(raw.get("type", "message")), raw.get("id"))):
                queue = by_id.get(key) if is_id(key[1]) else None
                while queue and id(queue[0]) in used:
                    queue.popleft()
                if queue and matches[number] is None and queue[0].accepts(raw):
                    matches[number] = queue[0]
                    used.add(id(queue[0]))
        rest: dict[str, deque[GrowingItem]] = {}
        for item in self.all:
            if id(item) not in used:
                rest.setdefault(item.kind, deque()).append(item)
        for number, raw in enumerate(output):
            queue = rest.get(str(raw.get("type", "message")))
            if matches[number] is None and queue and (queue[0].accepts(raw) or queue[0].is_renamed(raw)):
                matches[number] = queue.popleft()
        return matches


def is_id(value: JSON) -> bool:
    return type(value) is str and value != ""


def read_id(raw: Object) -> JSON:
    """Return the item id, or None if it has none."""
    value = raw.get("id")
    return value if is_id(value) else None


def differ(value: JSON, other: JSON) -> bool:
    return is_id(value) and is_id(other) and value != other


def own_fields(scope: str, fields: Object) -> Extra:
    return {scope: fields} if fields else {}


def strip_form(extra: Extra) -> Extra:
    """Remove form, except the mark of the beginning of an item."""
    kept = {name: fields for name, fields in extra.items() if not name.endswith("~")}
    if ":item" in extra.get(f"{NAME}~", {}):
        kept[f"{NAME}~"] = {":item": True}
    return kept
