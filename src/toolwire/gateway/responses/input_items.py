"""The input of a Responses request: its items, with references replaced by the stored items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...ir.pointer import JSON, Object, join
from ...ir.request import Message
from ...ir.text import to_bytes
from ...stream.strict import count_values
from ..shared.memory_bound import text_copies
from .records import BoundMessages, ResponseEntry, ResponseStateError, decode_input, entry_digits, not_found
from .state_access import StateAccess

__all__ = ["FoundItems", "find_items", "input_items", "resolve_input"]

FoundItems = Mapping[int, tuple[Object, BoundMessages]]
"""Stored items by the position of their reference, as documents and as messages."""


def input_items(document: Object) -> list[Object]:
    """Return the items of `input`; a string is one message."""
    given = document.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())


async def find_items(
    access: StateAccess, items: Sequence[JSON], seconds: float, max_responses: int, may_keep: Callable[[], bool]
) -> tuple[FoundItems, int]:
    """Find the items that `input` refers to, and return them with their size in bytes; not found if one does not exist.

    An id that the gateway did not make stays as it is if an upstream may know it (`may_keep`).
    """
    references = dict(_item_references(items))
    if not references:
        return {}, 0
    digits = {item_id: entry_digits(item_id) for item_id in references.values()}
    own = sorted({known for known in digits.values() if known is not None})
    if len(own) > max_responses:
        message = f"the input refers to items of {len(own)} responses; the limit is {max_responses}"
        raise ResponseStateError(message, pointer="/input", hint="send the items themselves")
    entry_ids = [f"{kind}_{known}" for known in own for kind in ("resp", "items")]
    loaded, loaded_bytes = await access.load_unmeasured(entry_ids, seconds)
    entries = [entry for entry in loaded.values() if isinstance(entry, ResponseEntry)]
    counts = Counter(references.values())
    stored, size, values, copies = await access.offload.run(loaded_bytes, _index_items, entries, counts)
    access.admit_items(size, values, copies)
    for number, item_id in references.items():
        if item_id not in stored and (digits[item_id] is not None or not may_keep()):
            raise not_found("item", item_id, join("input", number))
    return {number: stored[item_id] for number, item_id in references.items() if item_id in stored}, size


def resolve_input(
    items: Sequence[Object], found: FoundItems, messages: tuple[Message, ...]
) -> tuple[tuple[BoundMessages, ...], list[Object]]:
    """Return the input as messages and as documents, with the items found in place of their references.

    `messages` is the decoded input without them.
    """
    if not found:
        return (BoundMessages("", messages),), list(items)
    bound: list[BoundMessages] = []
    run: list[Object] = []  # items between two references
    for number, item in enumerate(items):
        if number not in found:
            run.append(item)
            continue
        if run:
            bound.append(BoundMessages("", decode_input(run)))
            run = []
        bound.append(found[number][1])
    if run:
        bound.append(BoundMessages("", decode_input(run)))
    return tuple(bound), [found[number][0] if number in found else item for number, item in enumerate(items)]


def _item_references(items: Sequence[JSON]) -> Iterator[tuple[int, str]]:
    for number, item in enumerate(items):
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            kind = item.get("type")
            if kind == "item_reference" or (kind is None and "role" not in item):
                yield number, item["id"]


def _index_items(
    entries: Sequence[ResponseEntry], counts: Mapping[str, int]
) -> tuple[dict[str, tuple[Object, BoundMessages]], int, int, int]:
    """Return the items with the given ids; and for all references to them, the bytes, the values and `text_copies`."""
    stored = {item_id: item for entry in entries for item_id, item in entry.find_items(counts.keys()).items()}
    size, values, copies = 0, 0, 1
    for item_id, (document, _) in stored.items():
        data = to_bytes(document)
        size += len(data) * counts[item_id]
        values += count_values(data) * counts[item_id]
        copies = max(copies, text_copies(data))
    return stored, size, values, copies
