"""The selections of recent conversations.

A selection is the same for every request of a conversation, except while vectors are being computed: then the first
request selects by keyword, and a later one would select by meaning, too. This memory keeps the first selection.

A conversation that the upstream stores is not known here: its requests have only the new messages. This memory keeps
its offered tools by the id of the response that the next request continues.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, TypeAlias

from .retrieval_plan import RetrievalPlan

__all__ = ["ConversationSelections"]

_MAX_CONVERSATIONS = 10_000
_MAX_BYTES = 16 * 1024 * 1024
_ENTRY_OVERHEAD = 400  # bytes
_NAME_OVERHEAD = 60  # bytes

SelectionKey: TypeAlias = tuple[str, str, int, bytes | str]
"""The client, the model, the number of tools to select, and the digest of the beginning of the conversation.

For a conversation that the upstream stores, the last value is the id of a response or of the conversation.
"""


class _Selection(NamedTuple):
    digest: bytes  # of the list that it was made for
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        return _ENTRY_OVERHEAD + sum(_NAME_OVERHEAD + len(name) for name in self.names)


class ConversationSelections:
    """Names of selected tools by conversation, the newest `max_conversations`. A client finds only its own."""

    def __init__(self, max_conversations: int = _MAX_CONVERSATIONS, max_bytes: int = _MAX_BYTES) -> None:
        self._max_conversations = max_conversations
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._selections: OrderedDict[SelectionKey, _Selection] = OrderedDict()

    def find(self, key: SelectionKey, plan: RetrievalPlan) -> tuple[str, ...] | None:
        """Return the selection of a conversation, if it still fits its tools.

        A list that changes during a conversation does not change the selection. A new conversation that begins with the
        same message and other tools has a selection of its own.
        """
        found = self._selections.get(key)
        if found is None:
            return None
        is_usable = found.digest == plan.digest or (
            plan.is_continued and {tool.name for tool in plan.tools}.issuperset(found.names)
        )
        if not is_usable:
            return None
        self._selections.move_to_end(key)
        return found.names

    def find_stored(self, key: SelectionKey) -> tuple[str, ...] | None:
        """Return the tools that a conversation of the upstream offered."""
        found = self._selections.get(key)
        return None if found is None else found.names

    def add(self, key: SelectionKey, digest: bytes, names: tuple[str, ...]) -> None:
        self._drop(key)
        self._selections[key] = selection = _Selection(digest, names)
        self._used_bytes += selection.size
        while len(self._selections) > self._max_conversations or self._used_bytes > self._max_bytes:
            self._drop(next(iter(self._selections)))

    def _drop(self, key: SelectionKey) -> None:
        found = self._selections.pop(key, None)
        if found is not None:
            self._used_bytes -= found.size
