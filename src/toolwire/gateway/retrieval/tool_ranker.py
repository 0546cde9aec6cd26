"""Find the best of a client's tools for a text: by keyword at once, and by meaning once the list has been encoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...asgi.offload import LARGE, ClientOffload, Offload
from ...ir.tools import Tool
from ...run.word_choice import rank_by_words
from ..settings import RetrieveRow
from .offered_client_tools import OfferedClientTools
from .retrieval_plan import RetrievalPlan, plan_hosted_search, plan_retrieval
from .selections import ConversationSelections

if TYPE_CHECKING:
    from ...ir.request import Request
    from ...retrieve.encoder import Encoder
    from ...retrieve.index import ToolIndex
    from ...retrieve.search_hit import SearchHit
    from ...wire.protocol import Wire
    from .list_indexes import ToolListIndexes

__all__ = ["ToolRanker"]

_MAX_SECONDS = 0.5  # that a request waits for the encoder
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
        stored_id: str | None = None,
    ) -> OfferedClientTools | None:
        """Select the tools that a request offers; None if these are all.

        `work_size` is that of the request, for `offload`. `stored_id`: the response or conversation of the upstream that
        the request continues. Its tools are offered again; all tools, if they are not known.
        """
        plan = await offload.run(work_size, plan_retrieval, request, retrieval)
        if plan is None:
            return None
        if stored_id is None:
            selected = await self._select(plan, (client, request.model, plan.k), offload)
        else:
            known = self._selections.find_stored((client, request.model, plan.k, stored_id))
            if known is None:
                return None
            plan, selected = plan.continue_offer(known), ()
        rank = partial(self.rank, plan, client, offload)
        return await offload.run(work_size, OfferedClientTools, plan, selected, rank, offload)

    def keep_offer(
        self, offer: OfferedClientTools, retrieval: RetrieveRow, client: str, model: str, ids: Iterable[str]
    ) -> None:
        """Keep the offered tools for requests that continue a response or conversation of the upstream."""
        for stored_id in ids:
            self._selections.add((client, model, retrieval.k, stored_id), b"", offer.names)

    async def _select(
        self, plan: RetrievalPlan, owner: tuple[str, str, int], offload: ClientOffload
    ) -> tuple[str, ...]:
        """Select the tools of a conversation. A selection without tools is not kept: vectors may find some later."""
        openings = plan.openings if plan.is_continued else plan.openings[:1]
        kept = (self._selections.find((*owner, opening), plan) for opening in openings)
        selected = next(filter(None, kept), ())
        queries = iter(() if selected else plan.queries)
        while not selected and (query := next(queries, None)) is not None:
            ranked = await self.rank(plan, owner[0], offload, query, plan.k + len(plan.pinned))
            selected = tuple([tool.name for tool in ranked if tool.name not in plan.pinned][: plan.k])
        if selected:
            for opening in plan.openings:
                self._selections.add((*owner, opening), plan.digest, selected)
        return selected

    async def open_hosted_search(
        self, request: Request, wire: Wire, client: str, offload: ClientOffload, work_size: int
    ) -> OfferedClientTools | None:
        """Open the search for a client that relies on the search of a provider; None if the target has one."""
        plan = await offload.run(work_size, plan_hosted_search, request, wire)
        if plan is None:
            return None
        rank = partial(self.rank, plan, client, offload)
        return await offload.run(work_size, OfferedClientTools, plan, (), rank, offload)

    async def rank(
        self, plan: RetrievalPlan, client: str, offload: ClientOffload, query: str, k: int
    ) -> Sequence[Tool]:
        """Return the best tools for a text. A list without vectors, or a busy encoder, means: by keyword."""
        index = None if self.indexes is None else self.indexes.find(client, plan.digest)
        if index is not None and query.strip():
            hits = await self._search(index, offload, query, k)
            if hits is not None:
                by_name = {tool.name: tool for tool in plan.tools}  # of this request, not of the index
                return [by_name[hit.tool.name] for hit in hits if hit.tool.name in by_name]
        elif self.indexes is not None:
            self.indexes.request(client, plan)
        size = LARGE + 1 if len(plan.tools) > _FEW_TOOLS else 0
        repeated = len(plan.tools) - len({tool.name for tool in plan.tools})
        ranked = await offload.run(size, rank_by_words, query, plan.tools, k + repeated)
        return list({tool.name: tool for tool in ranked}.values())[:k]

    async def _search(self, index: ToolIndex, offload: ClientOffload, query: str, k: int) -> list[SearchHit] | None:
        """Search by meaning, too; return None if the encoder is too slow. A search that has begun ends in its thread."""
        search = asyncio.ensure_future(offload.run(LARGE + 1, index.search, query, k))
        try:
            done, _ = await asyncio.wait({search}, timeout=self.max_seconds)
        finally:
            search.cancel()
        return search.result() if done else None

    async def aclose(self) -> None:
        if self.indexes is not None:
            await self.indexes.aclose()
