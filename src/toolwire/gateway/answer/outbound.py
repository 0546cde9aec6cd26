"""A client's request to one target, and the conversion of the answer: bytes in, bytes out. No I/O here.

`PassThroughRequest` if client and upstream use the same wire and the answer needs no change: bytes are forwarded and
observed. `TranslatedRequest` for everything else. Between equal wires both keep the client's headers, API version and
unknown fields; only the conversation changes, if a stored turn is restored in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import Protocol

from msgspec.structs import replace

from ...bridge.emulate_retry import AnswerContinuation, RejectedAnswer, reject_answer
from ...bridge.emulation import Emulation
from ...bridge.emulation_settings import EmulationSettings
from ...bridge.repair import CallRepair, CallRepairer
from ...bridge.report_answer import AnswerReporter
from ...ir.errors import ProtocolError
from ...ir.folding import unfold
from ...ir.losses import Losses, require_lossless
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON
from ...ir.request import Request
from ...ir.response import Fault, Response, UpstreamError, Usage, add_usage
from ...ir.text import finite_to_bytes, to_bytes
from ...net.body_settings import NO_DEFAULTS, RequestDefaults
from ...net.endpoint import Endpoint
from ...net.endpoint_request import EndpointRequest, redact_secrets
from ...net.forwarded_stream import expected_choices
from ...net.same_wire import accepts_document, has_valid_ids, replace_model
from ...run.repaired_calls import mark_repaired, mark_repaired_event
from ...stream.strict import parse_object
from ...wire.protocol import Limits, StreamEncoder
from .answer_stats import AnswerStats
from .client_request import ClientRequest
from .gateway_tools import GatewayTools, TurnEvents
from .response_recorder import RecordingEncoder, ResponseRecorder
from .routing import Target
from .streams import PassThroughStream, Stream, TranslatedStream

__all__ = ["OutboundRequest", "PassThroughRequest", "TranslatedRequest", "make_outbound"]


class OutboundRequest(Protocol):
    """A request for one target, and the methods to convert its answer. Its two implementations are below."""

    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def losses(self) -> Losses: ...
    @property
    def stats(self) -> AnswerStats: ...
    @property
    def repairs(self) -> list[CallRepair]: ...
    @property
    def recorder(self) -> ResponseRecorder | None:
        """The recording of the answer, if the gateway stores it."""
        ...

    def decode_fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault: ...

    def reject_answer(self, data: bytes) -> RejectedAnswer | None:
        """Reject a whole answer whose calls cannot be parsed, at most once."""
        ...

    def make_retry(self, rejected: RejectedAnswer, repair_target: Target | None) -> OutboundRequest:
        """Return the request to send instead of accepting an answer, to the same model or to `repair_target`."""
        ...

    def read_answer(self, data: bytes) -> None:
        """Accept a whole answer."""
        ...

    async def run_tools(self) -> Callable[[], OutboundRequest] | None:
        """Run the gateway's tools that the answer calls, whole or streamed.

        Return a function that prepares the request with their results, or None if the answer is final.
        """
        ...

    def encode_answer(self) -> bytes:
        """Encode the accepted answer for the client."""
        ...

    def encode_stream(self) -> bytes:
        """Encode the accepted answer as the stream that the client requested."""
        ...

    def open_stream(self) -> Stream:
        """Convert the upstream's stream to the client's."""
        ...


def make_outbound(
    client_request: ClientRequest, modified: Request | None, target: Target, gateway_tools: GatewayTools | None = None
) -> OutboundRequest:
    """Prepare a request.

    `modified` is the request with additions of the gateway, if there are any; `gateway_tools` runs the gateway's tools.
    """
    endpoint = target.endpoint
    if modified is None and client_request.is_rebuilt:
        modified = client_request.request_for(endpoint)
    keeps_body = _keeps_body(client_request, target, endpoint)
    if gateway_tools is None and keeps_body:
        body = _same_wire_body(client_request, modified, endpoint)
        if target.row.repair is None and not client_request.records_at(target.upstream):
            return PassThroughRequest(client_request, endpoint, body)  # which need not be decodable
    else:
        body = None
    request = client_request.request if modified is None else modified
    return TranslatedRequest(client_request, request, target, gateway_tools, same_wire_body=body)


def _same_wire_body(client_request: ClientRequest, restored: Request | None, endpoint: Endpoint) -> bytes:
    """Return the client's body for the target's model, with the conversation of `restored` if it is given."""
    document = client_request.document
    if restored is None and not endpoint.changes_body:
        return replace_model(client_request.body, document, endpoint.model)
    if restored is not None:
        conversation = client_request.wire.conversation
        encoded, _ = client_request.wire.encode_request(restored)
        document = {**document, conversation: encoded[conversation]}
        if client_request.turn is not None and client_request.is_rebuilt:
            document = client_request.turn.without_references(document, encoded)
    if "model" in document:
        document = {**document, "model": endpoint.model}
    return to_bytes(endpoint.finish_body(document, client_request.headers.get("anthropic-version")))


def _keeps_body(client_request: ClientRequest, target: Target, endpoint: Endpoint) -> bool:
    """Check that the wires are equal and that neither the settings nor the vendor change the request."""
    vendor = endpoint.vendor
    return (
        target.row.emulate is None
        and accepts_document(endpoint, client_request.wire.name, client_request.document, target.capabilities)
        and (vendor.id is None or _has_valid_ids(client_request, endpoint.wire.limits))
        and (endpoint.defaults is NO_DEFAULTS or _has_every_default(client_request, endpoint.defaults))
    )


def _has_valid_ids(client_request: ClientRequest, limits: Limits) -> bool:
    """Check that the vendor accepts the ids of the calls in the history."""
    request = client_request.request_or_none if client_request.may_have_calls() else None
    return request is None or has_valid_ids(request, limits)


def _has_every_default(client_request: ClientRequest, defaults: RequestDefaults) -> bool:
    request = client_request.request
    return defaults.apply(request) is request


class PassThroughRequest:
    """A request between equal wires. Its answer is forwarded unchanged."""

    def __init__(self, client_request: ClientRequest, endpoint: Endpoint, body: bytes) -> None:
        self.endpoint = endpoint
        self.body = body
        self.headers = endpoint.merge_headers(client_request.headers)
        self.losses = Losses()
        self.stats = AnswerStats()
        self.repairs: list[CallRepair] = []
        self.recorder: ResponseRecorder | None = None  # the client gets the upstream's bytes, and its ids
        self._client_request = client_request

    def decode_fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        fault = self.endpoint.wire.decode_error(status, _parse_or_raw(data), headers)
        return redact_secrets(self.endpoint.known_secrets, fault)

    def reject_answer(self, data: bytes) -> RejectedAnswer | None:
        return None

    def make_retry(self, rejected: RejectedAnswer, repair_target: Target | None) -> OutboundRequest:
        raise NotImplementedError("an answer that is passed through is never rejected")

    def read_answer(self, data: bytes) -> None:
        self._data = data
        self._response = self.endpoint.wire.decode_response(parse_object(data))
        if self._response.fault is not None:
            raise UpstreamError(redact_secrets(self.endpoint.known_secrets, self._response.fault))
        self.stats.add_response(self._response)

    async def run_tools(self) -> None:
        """Run nothing: requests with gateway tools are translated."""

    def encode_answer(self) -> bytes:
        return self._data

    def encode_stream(self) -> bytes:
        encoder = self.endpoint.wire.stream_encoder(self._client_request.request_or_none)
        return b"".join([encoder.feed(event) for event in unfold(self._response)])

    def open_stream(self) -> Stream:
        endpoint, client_request = self.endpoint, self._client_request
        return PassThroughStream(
            endpoint.wire,
            client_request.request_or_none,
            self.stats,
            endpoint.known_secrets,
        )


class TranslatedRequest:
    """A request to another wire, or to the same one with adaptations.

    `previous` is the request before it: that of the previous turn, or of a rejected answer.
    """

    def __init__(
        self,
        client_request: ClientRequest,
        request: Request,
        target: Target,
        gateway_tools: GatewayTools | None = None,
        *,
        emulation: Emulation | None = None,
        previous: TranslatedRequest | None = None,
        same_wire_body: bytes | None = None,
        spent_usage: Usage | None = None,
        continuation: AnswerContinuation | None = None,
        is_repair: bool = False,
    ) -> None:
        """Encode the request.

        `emulation` is set for a retry, which has its prompt already. A later request shares the losses, statistics and
        stream encoder of `previous`, because the client gets one answer. `same_wire_body` is sent as it is.
        `spent_usage` is that of rejected answers, which `continuation` continues. `is_repair`: the target is another
        model than that of the client, and repairs its calls.
        """
        self.endpoint = target.endpoint
        if self.endpoint.wire.name == client_request.wire.name:
            self.endpoint = self.endpoint.with_version(client_request.wire.version or "")
        self.losses: Losses = Losses() if previous is None else previous.losses
        self.stats: AnswerStats = AnswerStats() if previous is None else previous.stats
        self.repairs: list[CallRepair] = [] if previous is None else previous.repairs
        self.recorder: ResponseRecorder | None = (
            client_request.make_recorder(target.upstream, target.model) if previous is None else previous.recorder
        )
        self._client_request = client_request
        self._request = request
        self._target = target
        self._gateway_tools = gateway_tools
        if gateway_tools is not None and gateway_tools.offer is not None and previous is None:
            gateway_tools.offer.report(self.losses)
        self._events = None if gateway_tools is None else TurnEvents(gateway_tools)  # removes our calls from a stream
        self._endpoint_request = EndpointRequest(
            request,
            self.endpoint,
            stream=client_request.stream,
            text=_find_emulation(target, request) if emulation is None else None,
            losses=self.losses,
            emulation=emulation,
            client=client_request.wire.capabilities,
            is_alias=True,
            repairer=self._make_repairer(),
            same_wire_body=same_wire_body,
            capabilities=target.capabilities,
            runs_search=gateway_tools is not None and gateway_tools.runs_hosted_search,
        )
        if client_request.strict:
            require_lossless(self.losses)
        self.body = self._endpoint_request.body
        self.headers = self._endpoint_request.headers
        if self.endpoint.wire.name == client_request.wire.name:
            self.headers = self.endpoint.merge_headers(client_request.headers)
        self._spent_usage = spent_usage
        self._continuation = continuation
        self._is_repair = is_repair
        self._is_streamed = continuation is not None and continuation.is_started
        self._stream_encoder: StreamEncoder | None = None if previous is None else previous._stream_encoder

    def _make_repairer(self) -> CallRepairer | None:
        if self._target.row.repair is None:
            return None
        tools = self._request.tools if self._gateway_tools is None else self._gateway_tools.callable_tools
        repairer = CallRepairer(tools, policy=self._target.row.repair)
        repairer.repairs = self.repairs
        return repairer

    @property
    def _encoder(self) -> StreamEncoder:
        if self._stream_encoder is None:
            encoder = self._client_request.wire.stream_encoder(self._repeated_request)
            encoder.losses = self.losses
            self._stream_encoder = encoder if self.recorder is None else RecordingEncoder(encoder, self.recorder)
        return self._stream_encoder

    @property
    def _repeated_request(self) -> Request:
        """The request as the answer repeats it: `store` is false in an answer of Responses that is stored nowhere."""
        client_request = self._client_request
        request = client_request.decoded
        is_same_wire = self.endpoint.wire.name == client_request.wire.name
        if client_request.turn is None or self.recorder is not None or is_same_wire:
            return request
        return replace(request, params=replace(request.params, store=False))

    def decode_fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        return self._endpoint_request.decode_fault(status, data, headers)

    def reject_answer(self, data: bytes) -> RejectedAnswer | None:
        emulation = self._endpoint_request.emulation
        return None if emulation is None else reject_answer(emulation, self._endpoint_request.decode_answer(data))

    def make_retry(self, rejected: RejectedAnswer, repair_target: Target | None) -> OutboundRequest:
        """Prepare the retry. The rejected answer was billed too, so its usage is added."""
        spent_usage = add_usage(self._spent_usage, rejected.usage)
        earlier_usage = None if self._gateway_tools is None else self._gateway_tools.usage
        self.stats.usage = add_usage(earlier_usage, spent_usage)
        return TranslatedRequest(
            self._client_request,
            self._request if repair_target is None else rejected.make_repair_request(),
            self._target if repair_target is None else repair_target,
            self._gateway_tools,
            emulation=rejected.make_retry() if repair_target is None else None,
            previous=self,
            spent_usage=spent_usage,
            continuation=AnswerContinuation(spent_usage, is_started=self._is_streamed),
            is_repair=repair_target is not None,
        )

    def read_answer(self, data: bytes) -> None:
        """Decode a whole answer, parse and repair its calls, and add the usage of rejected answers to its own."""
        endpoint_request = self._endpoint_request
        response = endpoint_request.restore(endpoint_request.decode_answer(data))
        if response.fault is not None:
            raise UpstreamError(endpoint_request.sanitise_fault(response.fault))
        if self._is_repair:
            response = mark_repaired(response, self._target.model)
        if self._spent_usage is not None:
            response = replace(response, usage=add_usage(self._spent_usage, response.usage))
        self._response = response
        self.stats.usage = response.usage if self._gateway_tools is None else self._gateway_tools.total_usage(response)

    async def run_tools(self) -> Callable[[], OutboundRequest] | None:
        tools = self._gateway_tools
        if tools is None:
            return None
        response = self._response if self._events is None or self._events.response is None else self._events.response
        if not await tools.run(response):
            return None
        return lambda: TranslatedRequest(self._client_request, tools.request, self._target, tools, previous=self)

    def encode_answer(self) -> bytes:
        response = self._make_client_response()
        if self.recorder is not None:
            response = self.recorder.rewrite(response)
        document, new_losses = self._client_request.wire.encode_response(response, self._repeated_request)
        self.losses.extend(new_losses)
        return finite_to_bytes(document)

    def encode_stream(self) -> bytes:
        is_started = self._continuation is not None and self._continuation.is_started
        events = AnswerContinuation(None, is_started=is_started).feed(unfold(self._make_client_response()))
        return b"".join([self._encoder.feed(event) for event in events])

    def _make_client_response(self) -> Response:
        """Return the client's response: all turns merged, with its losses and statistics recorded."""
        response = (
            self._response if self._gateway_tools is None else self._gateway_tools.merged_response(self._response)
        )
        if response.created is None and self._client_request.wire.capabilities.timestamps:
            response = replace(response, created=int(time()))
        AnswerReporter(self._client_request.wire.name, self.losses).report_response(response)
        self.stats.add_response(response)
        return response

    def open_stream(self) -> Stream:
        """Convert the stream; the gateway's own calls are removed from it."""
        steps = [] if self._events is None else [self._events.feed]
        if self._is_repair:
            steps.insert(0, lambda event: [mark_repaired_event(event, self._target.model)])
        is_first = not self._is_streamed and (self._gateway_tools is None or self._gateway_tools.turns == 0)
        self._is_streamed = True
        return TranslatedStream(
            self._endpoint_request,
            self._client_request.wire,
            self._encoder,
            self.stats,
            steps,
            is_first=is_first,
            choices=expected_choices(self._request, self.endpoint.wire),
            continuation=self._continuation,
        )


def _find_emulation(target: Target, request: Request) -> EmulationSettings | None:
    """Return how calls are emulated, if the request has tools or earlier calls, or if every request is a raw prompt."""
    emulation = target.row.emulation
    if emulation is None or request.tools or emulation.via == "completions":
        return emulation
    said = (part for message in request.messages for part in message.parts)
    return emulation if any(isinstance(part, (ToolCall, ToolResult)) for part in said) else None


def _parse_or_raw(data: bytes) -> JSON:
    try:
        return parse_object(data)
    except ProtocolError:
        return data
