"""Prepare a client's request for a target: restored turns, selected tools, and the gateway's own tools."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import NamedTuple

from ...asgi.offload import LARGE, ClientOffload
from ...ir.request import Request
from ...net.runner import Runner
from ..retrieval.offered_client_tools import OfferedClientTools
from ..retrieval.retrieval_plan import is_stored_elsewhere
from ..retrieval.tool_ranker import ToolRanker
from .client_request import ClientRequest
from .gateway_tools import GatewayTools, with_gateway_tools
from .known_tools import KnownTools
from .outbound import OutboundRequest, make_outbound
from .routing import Target
from .turn_memory import TurnMemory

__all__ = ["RequestPreparation"]

_DEFER_MARKS = (b"defer_loading", b"tool_search")  # bytes in a request with deferred tools; cheaper than decoding


class OfferCounts(NamedTuple):
    """Numbers of declared and offered tools, and of the model's searches."""

    declared: int
    offered: int
    searches: int


class RequestPreparation:
    """The preparation of one client's request. `gateway_tools` runs the tools of the last prepared one."""

    def __init__(
        self,
        client_request: ClientRequest,
        caller: str,
        turns: TurnMemory,
        offload: ClientOffload,
        known_tools: KnownTools,
        ranker: ToolRanker,
        find_runner: Callable[[str], Runner | None],
    ) -> None:
        self.gateway_tools: GatewayTools | None = None
        self._client_request = client_request
        self._caller = caller
        self._turns = turns
        self._offload = offload
        self._known_tools = known_tools
        self._ranker = ranker
        self._find_runner = find_runner
        self._tool_count: int | None = None  # of a request whose conversation is stored elsewhere

    @property
    def offer(self) -> OfferedClientTools | None:
        """The tools that were selected for the last prepared request; None if all are offered."""
        return None if self.gateway_tools is None else self.gateway_tools.offer

    @property
    def tool_counts(self) -> OfferCounts | None:
        """The tools of the last prepared request, if they are selected, or cannot be for this conversation."""
        if self.offer is not None:
            return OfferCounts(self.offer.declared, self.offer.offered, self.offer.searches)
        return None if self._tool_count is None else OfferCounts(self._tool_count, self._tool_count, 0)

    async def prepare(self, target: Target) -> OutboundRequest:
        """Return the request for a target, prepared in a thread if it is large or its tools are new."""
        tools_key = self._known_tools.key(self._client_request, target.label)
        work_size = self._client_request.work_size if self._known_tools.has(tools_key) else LARGE + 1
        request, offer = await self._select_tools(target, work_size)
        outbound = await self._offload.run(work_size, self._make_outbound, target, request, offer)
        self._known_tools.add(tools_key, self._client_request)
        return outbound

    async def _select_tools(self, target: Target, work_size: int) -> tuple[Request | None, OfferedClientTools | None]:
        """Select among the tools of the client and of the gateway.

        Return the request with its stored turns, and the selection; None and None if all tools are offered.
        """
        self._tool_count = None
        retrieval, runner = target.row.retrieval, self._runner_for(target)
        has_tools = self._client_request.has_tools or runner is not None
        may_defer = self._may_defer(target)
        if not has_tools or (retrieval is None and not may_defer):
            return None, None
        ranker, client, offload = self._ranker, self._caller, self._offload
        request = await offload.run(work_size, self._restore, target)
        with_own = request if runner is None else with_gateway_tools(request, runner)
        offer = None
        if may_defer:
            offer = await ranker.open_hosted_search(with_own, target.endpoint.wire, client, offload, work_size)
        if offer is None and retrieval is not None:
            turn = self._client_request.turn
            earlier = None if turn is None else turn.offered
            offer = await ranker.open_offer(with_own, retrieval, client, offload, work_size, earlier)
            if offer is None and is_stored_elsewhere(with_own):
                self._tool_count = len(with_own.tools)
        return (None, None) if offer is None else (request, offer)

    def _may_defer(self, target: Target) -> bool:
        """Check whether the client may rely on the tool search of a provider that the target does not have."""
        client_request = self._client_request
        is_other_wire = target.endpoint.wire.name != client_request.wire.name
        return (
            is_other_wire and target.row.emulate is None and any(mark in client_request.body for mark in _DEFER_MARKS)
        )

    def _runner_for(self, target: Target) -> Runner | None:
        return self._find_runner(self._client_request.model) if target.row.tools else None

    def _restore(self, target: Target) -> Request:
        """Return the client's request for a target, with its stored turns."""
        return self._turns.restore(self._client_request.request_for(target.endpoint), target.endpoint)

    def _make_outbound(
        self, target: Target, restored: Request | None, offer: OfferedClientTools | None
    ) -> OutboundRequest:
        """Prepare the request for a target. `restored` has its stored turns already.

        If the gateway has nothing to add, None leaves the client's bytes untouched, so that they can be passed through.
        """
        client_request, runner = self._client_request, self._runner_for(target)
        self.gateway_tools = None
        if runner is None and offer is None:
            if not self._turns.found_any:
                return make_outbound(client_request, None, target)
            client_copy = client_request.request_for(target.endpoint)
            request = self._turns.restore(client_copy, target.endpoint)
            return make_outbound(client_request, None if request is client_copy else request, target)
        run_id = token_hex(16)  # not the request id, which a client may choose
        request = self._restore(target) if restored is None else restored
        self.gateway_tools = GatewayTools(runner, request, run_id, self._caller, offer)
        return make_outbound(client_request, self.gateway_tools.request, target, self.gateway_tools)
