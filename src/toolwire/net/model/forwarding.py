"""Send a body that is already in the form of the endpoint, and return the answer's bytes unchanged.

For a client of the endpoint's own wire. Errors, retries and limits are as for `ModelClient`; an answer that its wire
does not allow is an error here too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from ...ir.errors import ToolwireError
from ...ir.folding import unfold
from ...ir.losses import Losses
from ...ir.request import Request
from ...ir.response import UpstreamError
from ...ir.value import Value
from ..http.transport import Reply
from .client import ModelClient
from .endpoint_request import EndpointRequest
from .interface import check_request
from .pass_through import ForwardedStream, stream_fault
from .upstream_exchange import NetworkError


class ForwardedAnswer(Value, frozen=True):
    """A whole answer, and the headers of its reply."""

    body: bytes
    headers: dict[str, str]


async def forward(client: ModelClient, request: Request, body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
    """Send `body`, whose decoded form is `request`, with the client's protocol headers. Return the whole answer.

    Raise UpstreamError if it reports an error.
    """
    outbound = _make_outbound(client, request, body, headers, stream=False)
    async with client.open_reply(outbound, client.new_deadline()) as (reply, _):
        data = await client.read_body(reply)
        response = outbound.decode_answer(data)
        if response.fault is not None:
            raise UpstreamError(outbound.sanitise_fault(response.fault))
        return ForwardedAnswer(data, dict(reply.headers))


async def forward_stream(
    client: ModelClient, request: Request, body: bytes, headers: Mapping[str, str]
) -> AsyncGenerator[Mapping[str, str] | bytes, None]:
    """Like `forward`, for a stream: yield the headers of the reply, then the bytes of whole events as they arrive.

    A failure after the headers is the last event. A whole answer is encoded as a stream. Raise UpstreamError for an
    error before the headers.
    """
    outbound = _make_outbound(client, request, body, headers, stream=True)
    async with client.open_reply(outbound, client.new_deadline()) as (reply, meaning):
        if meaning == "whole":  # a server that does not stream, or that sends an error with status 200
            response = outbound.decode_answer(await client.read_body(reply))
            if response.fault is not None:
                raise UpstreamError(outbound.sanitise_fault(response.fault))
            yield reply.headers
            encoder = client.endpoint.wire.stream_encoder(request)
            yield b"".join([encoder.feed(event) for event in unfold(response)])
            return
        yield reply.headers
        wire, secrets = client.endpoint.wire, client.endpoint.known_secrets
        stream = ForwardedStream(wire, lambda: request, secrets=secrets, choices=request.params.n or 1)
        async with aclosing(_forward_events(client, reply, stream)) as pieces:
            async for piece in pieces:
                yield piece


async def _forward_events(client: ModelClient, reply: Reply, stream: ForwardedStream) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of whole events. A failure in transit is the last event, and is not raised."""
    try:
        async for data in client.read_chunks(reply):
            if output := stream.feed(data):
                yield output
            if stream.fault is not None:
                return
    except NetworkError as error:
        yield stream.fail(error.fault)
        return
    except ToolwireError as error:
        yield stream.fail(stream_fault(error))
        return
    if output := stream.close():
        yield output


def _make_outbound(
    client: ModelClient, request: Request, body: bytes, headers: Mapping[str, str], *, stream: bool
) -> EndpointRequest:
    check_request(client)
    endpoint = client.endpoint
    outbound = EndpointRequest(request, endpoint, stream=stream, text=None, losses=Losses(), same_wire_body=body)
    outbound.headers = endpoint.merge_headers(headers)
    return outbound
