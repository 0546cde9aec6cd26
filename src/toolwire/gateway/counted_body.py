"""The part of a request whose tokens are counted. Separate because it selects tools as a request to the model does.

Clients shorten their conversation by this number, so tools that are not offered must not count.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..asgi.offload import ClientOffload
from ..ir.errors import ToolwireError
from ..ir.request import Request
from ..ir.text import to_bytes
from ..ir.tools import Tool
from ..wire.protocol import Wire
from .client_request import ClientRequest
from .retrieval.tool_ranker import ToolRanker
from .routing import Router

__all__ = ["find_counted_body"]


async def find_counted_body(
    client_request: ClientRequest, router: Router, ranker: ToolRanker, client: str, offload: ClientOffload
) -> bytes:
    """Return the client's body; with the selected tools only, if the model has `retrieve`."""
    try:
        target = router.plan(client_request.model, tools=client_request.has_tools)[0]
        if target.row.retrieval is None or not client_request.has_tools:
            return client_request.body
        request = await offload.run(client_request.work_size, lambda: client_request.request)
        offer = await ranker.open_offer(request, target.row.retrieval, client, offload, client_request.work_size)
        if offer is None:
            return client_request.body
        return await offload.run(client_request.work_size, _encode, client_request.wire, request, offer.tools)
    except ToolwireError:
        return client_request.body  # an estimate is possible for every body


def _encode(wire: Wire, request: Request, tools: tuple[Tool, ...]) -> bytes:
    return to_bytes(wire.encode_request(replace(request, tools=tools))[0])
