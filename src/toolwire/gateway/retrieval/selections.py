"""The selections of recent conversations.

A selection is the same for every request of a conversation, except while vectors are being computed: then the first
request selects by keyword, and a later one would select by meaning, too. This memory keeps the first selection, unless
it is empty.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, TypeAlias

from .retrieval_plan import RetrievalPlan

__all__ = ["ConversationSelections"]

_MAX_ENTRIES = 20_000
_MAX_BYTES = 16 * 1024 * 1024
_ENTRY_OVERHEAD = 400  # bytes
_NAME_OVERHEAD = 60  # bytes

Conversations: TypeAlias = tuple[str, str, int]
"""The client, the model, and the number of tools to select."""
_SelectionKey: TypeAlias = tuple[Conversations, bytes]  # with the digest of the beginning of a conversation


class _Selection(NamedTuple):
    digest: bytes  # of the list that it was made for
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        return _ENTRY_OVERHEAD + sum(_NAME_OVERHEAD + len(name) for name in self.names)


class ConversationSelections:
    """Names of selected tools by conversation, the newest `max_entries`. A client finds only its own.

    A conversation has two entries: with its system prompt, and without.
    """

    def __init__(self, max_entries: int = _MAX_ENTRIES, max_bytes: int = _MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._selections: OrderedDict[_SelectionKey, _Selection] = OrderedDict()

    def find(self, conversations: Conversations, plan: RetrievalPlan) -> tuple[str, ...]:
        """Return the selection of a conversation, if it still fits its tools.

        Neither a list nor a system prompt that changes during a conversation changes the selection. A new conversation
        that begins with the same message and other tools, or another system prompt, has a selection of its own.
        """
        known = {tool.name for tool in plan.tools}
        for digest in (*plan.beginnings, *(plan.user_beginnings if plan.is_continued else ())):
            found = self._selections.get((conversations, digest))
            if found is None:
                continue
            if found.digest == plan.digest or (plan.is_continued and known.issuperset(found.names)):
                self._selections.move_to_end((conversations, digest))
                return found.names
        return ()

    def add(self, conversations: Conversations, plan: RetrievalPlan, number: int, names: tuple[str, ...]) -> None:
        """Keep the selection that was made for the query with this number."""
        self._put((conversations, plan.beginnings[number]), _Selection(plan.digest, names))
        if number < len(plan.user_beginnings):
            self._put((conversations, plan.user_beginnings[number]), _Selection(plan.digest, names))

    def _put(self, key: _SelectionKey, selection: _Selection) -> None:
        self._drop(key)
        self._selections[key] = selection
        self._used_bytes += selection.size
        while len(self._selections) > self._max_entries or self._used_bytes > self._max_bytes:
            self._drop(next(iter(self._selections)))

    def _drop(self, key: _SelectionKey) -> None:
        found = self._selections.pop(key, None)
        if found is not None:
            self._used_bytes -= found.size
