"""State of a Responses stream that is being decoded: output items, and their indexes."""

from __future__ import annotations

from ...ir.parts import Extra
from ...ir.pointer import JSON, Object
from ...ir.text import unescape
from .content import NAME

__all__ = ["GrowingItem", "own_fields", "strip_form"]


class GrowingItem:
    """An output item that is still growing. A message has a key for each of its contents, others have one."""

    __slots__ = ("ended", "id", "is_search", "key", "keys", "kind", "texts")

    def __init__(self, kind: str, item_id: JSON) -> None:
        self.kind = kind
        self.is_search = False  # a call of a search that the client runs
        self.id: Object = {"id": item_id} if item_id else {}
        self.key = -1  # none yet; a message never has one
        self.keys: dict[int, int] = {}  # of a message: by content index
        # the deltas so far, by content index or section of a summary; by None for arguments and the text of reasoning
        self.texts: dict[int | None, list[bytes]] = {}
        self.ended = False

    def joined_text(self, number: int | None) -> str:
        return unescape(b"".join(self.texts.get(number, ())))


def own_fields(scope: str, fields: Object) -> Extra:
    return {scope: fields} if fields else {}


def strip_form(extra: Extra) -> Extra:
    """Remove form, except the mark of the beginning of an item."""
    kept = {name: fields for name, fields in extra.items() if not name.endswith("~")}
    if ":item" in extra.get(f"{NAME}~", {}):
        kept[f"{NAME}~"] = {":item": True}
    return kept
