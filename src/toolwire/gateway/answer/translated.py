"""A request that is translated to another wire, or adapted on its own, and the conversion of its answer. No I/O here.

A broken stream ends in an error in the client's own protocol, never in a normal end; `fault` is then set. A stream that
breaks after the end of the answer, where only a token count and the final marker can be missing, is complete: a retry
would be billed, and would run its calls, a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from time import time

from msgspec.structs import replace

from ...bridge.conversation.fitted_prefix import PrefixStore
from ...bridge.conversation.reasoning_envelope import ENVELOPE_WIRES, AnswerSealer, ReasoningEnvelopes
from ...bridge.emulation.requests import Emulation
from ...bridge.emulation.retries import AnswerContinuation, RejectedAnswer, reject_answer
from ...bridge.emulation.settings import EmulationSettings
from ...bridge.restoration.provider_fields import AnswerReporter
from ...bridge.restoration.repair import CallRepair, CallRepairer
from ...ir.errors import ToolwireError
from ...ir.events import CallDelta, Event, ResponseEnd, ResponseStart, StreamFault, TextDelta, WholePart
from ...ir.folding import unfold
from ...ir.losses import Losses, require_lossless
from ...ir.parts import ToolCall, ToolResult
from ...ir.request import Request
from ...ir.response import Fault, Response, UpstreamError, Usage, add_usage
from ...ir.text import finite_to_bytes
from ...net.model.endpoint_request import EndpointRequest
from ...net.model.pass_through import check_choices_ended, expected_choices, stream_fault
from ...run.session.auxiliary import mark_repaired, mark_repaired_event
from ...wire.protocol import StreamEncoder, Wire
from ...wire.streaming.encoder import BaseStreamEncoder
from ..gateway_tools import GatewayTools, TurnEvents
from ..observe.answer_stats import AnswerStats
from ..request.client_request import ClientRequest
from ..responses.recorder import RecordingEncoder, ResponseRecorder
from ..routing.router import Target

_CONTENT_DELTAS = frozenset({TextDelta, CallDelta})  # no step and no loss report needs them
_MIN_MARKED = (
    2048  # bytes; no model caches a prefix below 512 tokens, and a small request is translated faster unchecked
)
_KEY, _ESCAPED = attrgetter("key"), attrgetter("escaped")


class TranslatedRequest:
    """A request to another wire, or to the same one with adaptations.

    `previous` is the request before it: of the previous turn, or of a rejected answer.
    """

    is_passed_through = False
    upload = None  # its body is held
    _spent_usage: Usage | None = None  # defaults for the first request of an answer, here and below
    _continuation: AnswerContinuation | None = None
    _is_repair = False
    _is_streamed = False
    _stream_encoder: StreamEncoder | None = None
    _events: TurnEvents | None = None
    _stream: TranslatedStream | None = None

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
        translations: PrefixStore | None = None,
        envelopes: ReasoningEnvelopes | None = None,
    ) -> None:
        """Encode the request.

        `emulation` is set for a retry, which has its prompt already. A later request shares the losses, statistics and
        stream encoder of `previous`, because the client gets one answer. `same_wire_body` is sent as it is.
        `spent_usage` is the usage of rejected answers, which `continuation` continues. `is_repair`: the target is not
        the model that the client requested, and repairs its calls. `translations` has the translated first messages.
        `envelopes` seal the reasoning of the answer.

        Raise LossError if the client accepts no losses and the translation has some.
        """
        self.endpoint = endpoint = target.endpoint
        is_same_wire = endpoint.wire.name == client_request.wire.name
        if is_same_wire:
            self.endpoint = endpoint = endpoint.with_version(client_request.wire.version or "")
        self.losses: Losses = Losses() if previous is None else previous.losses
        self.stats: AnswerStats = AnswerStats() if previous is None else previous.stats
        self.repairs: list[CallRepair] = [] if previous is None else previous.repairs
        self.recorder: ResponseRecorder | None = (
            client_request.make_recorder(target.upstream, target.model) if previous is None else previous.recorder
        )
        self._client_request = client_request
        self._request = request
        self._target = target
        self._envelopes: ReasoningEnvelopes | None = envelopes if previous is None else previous._envelopes
        self._sealer: AnswerSealer | None = None
        if self._envelopes is not None and not is_same_wire and client_request.wire.name in ENVELOPE_WIRES:
            self._sealer = AnswerSealer(
                self._envelopes.for_model(endpoint.wire.name, endpoint.origin, endpoint.model), client_request.wire.name
            )
        self._gateway_tools = gateway_tools
        if gateway_tools is not None:
            for part in (gateway_tools.offer, gateway_tools.hosted) if previous is None else ():
                if part is not None:
                    part.report(self.losses)
            self._events = TurnEvents(gateway_tools)  # removes our calls from a stream
        sizes = target.upstream.context_sizes
        self._endpoint_request = EndpointRequest(
            request,
            endpoint,
            stream=client_request.stream,
            text=_find_emulation(target, request) if emulation is None and target.row.emulate is not None else None,
            losses=self.losses,
            emulation=emulation,
            client=client_request.wire.capabilities,
            is_alias=True,
            repairer=self._make_repairer(),
            same_wire_body=same_wire_body,
            capabilities=target.capabilities,
            runs_search=gateway_tools is not None and gateway_tools.runs_hosted_search,
            store=translations,
            settings=client_request.settings,
            context_size=None if sizes is None else sizes.of(endpoint),
            keep_tools=is_same_wire and target.max_tools is None,
            mark_prefix=(
                (len(client_request.body) >= _MIN_MARKED or gateway_tools is not None or client_request.is_rebuilt)
                and target.upstream.row.cache == "auto"
                and not is_same_wire  # where marks are the client's choice
                and not endpoint.has_body_mark
            ),
        )
        if client_request.strict:
            require_lossless(self.losses)
        self.body = self._endpoint_request.body
        self.headers = self._endpoint_request.headers
        if is_same_wire:
            self.headers = endpoint.merge_headers(client_request.headers)
        self._translations = translations
        if previous is not None:
            self._spent_usage = spent_usage
            self._continuation = continuation
            self._is_repair = is_repair
            self._is_streamed = continuation is not None and continuation.is_started
            self._stream_encoder = previous._stream_encoder

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
        if client_request.pending_response is None or self.recorder is not None or is_same_wire:
            return request
        return replace(request, params=replace(request.params, store=False))

    @property
    def sent_request(self) -> Request:
        """The request with the tools that were selected for the target, before it is translated."""
        return self._request

    def decode_fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        return self._endpoint_request.decode_fault(status, data, headers)

    def resize_context(self, fault: Fault) -> bool:
        is_changed = self._endpoint_request.resize_context(fault)
        self.body = self._endpoint_request.body
        return is_changed

    def accept(self, data: bytes) -> bool:
        """Accept nothing: a summary is not enough for a translation."""
        return False

    def reject_answer(self, data: bytes) -> RejectedAnswer | None:
        emulation = self._endpoint_request.emulation
        return None if emulation is None else reject_answer(emulation, self._endpoint_request.decode_answer(data))

    def make_retry(self, rejected: RejectedAnswer, repair_target: Target | None) -> TranslatedRequest:
        """Return the request after a rejected answer, to the same model or to `repair_target`.

        The rejected answer was billed too, so its usage is added to the statistics.
        """
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
        """Decode a whole answer, parse and repair its calls, and add the usage of rejected answers to its own.

        Raise UpstreamError if the answer reports an error.
        """
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

    def release_events(self) -> bytes:
        """Return the events of a stream that waited for the gateway's tools to run."""
        if self._stream is None or self._events is None:
            return b""
        return self._stream.encode_events(self._events.release())

    async def run_tools(self) -> Callable[[], TranslatedRequest] | None:
        """Run the gateway's tools that the answer calls, whole or streamed.

        Return a function that prepares the request with their results, or None if the answer is final.
        """
        tools = self._gateway_tools
        if tools is None:
            return None
        response = self._response if self._events is None or self._events.response is None else self._events.response
        if not await tools.run(response):
            return None
        return lambda: TranslatedRequest(
            self._client_request,
            tools.request,
            self._target,
            tools,
            previous=self,
            translations=self._translations,
        )

    def encode_answer(self) -> bytes:
        """Encode the accepted answer for the client, and add its losses."""
        response = self._make_client_response()
        if self.recorder is not None:
            response = self.recorder.rewrite(response)
        document, new_losses = self._client_request.wire.encode_response(response, self._repeated_request)
        self.losses.extend(new_losses)
        return finite_to_bytes(document)

    def encode_stream(self) -> bytes:
        """Encode the accepted answer as the stream that the client requested."""
        is_started = self._continuation is not None and self._continuation.is_started
        events = AnswerContinuation(None, is_started=is_started).feed(unfold(self._make_client_response()))
        return b"".join([self._encoder.feed(event) for event in events])

    def _make_client_response(self) -> Response:
        """Record the losses and statistics of the answer, and return it for the client.

        All turns are merged. A missing time, the client's id and sealed reasoning are added.
        """
        response = (
            self._response if self._gateway_tools is None else self._gateway_tools.merged_response(self._response)
        )
        if response.created is None and self._client_request.wire.capabilities.timestamps:
            response = replace(response, created=int(time()))
        self.stats.add_response(response)
        response = AnswerReporter(self._client_request.wire.name, self.losses).report_response(response)
        make_id = self._make_id
        if make_id is not None:
            response = replace(response, id=make_id(response.id))
        return response if self._sealer is None else self._sealer.seal_response(response)

    @property
    def _make_id(self) -> Callable[[str], str] | None:
        """The function for the id of an answer, or None if the client uses the upstream's wire, and gets its ids."""
        client_request = self._client_request
        return None if self.endpoint.wire.name == client_request.wire.name else client_request.ingress.answer_id

    def open_stream(self) -> TranslatedStream:
        """Return the converter of the stream. It removes the gateway's own calls, and marks calls of a repair model."""
        steps = [] if self._events is None else [self._events.feed]
        if self._is_repair:
            steps.insert(0, lambda event: [mark_repaired_event(event, self._target.model)])
        is_first = not self._is_streamed and (self._gateway_tools is None or self._gateway_tools.turns == 0)
        self._is_streamed = True
        self._stream = TranslatedStream(
            self._endpoint_request,
            self._client_request.wire,
            self._encoder,
            self.stats,
            steps,
            is_first=is_first,
            choices=expected_choices(self._request, self.endpoint.wire),
            continuation=self._continuation,
            sealer=self._sealer,
            make_id=self._make_id,
        )
        return self._stream


def _find_emulation(target: Target, request: Request) -> EmulationSettings | None:
    """Return how calls are emulated, if the request has tools or earlier calls, or if every request is a raw prompt."""
    emulation = target.row.emulation
    if emulation is None or request.tools or emulation.via == "completions":
        return emulation
    parts = (part for message in request.messages for part in message.parts)
    return emulation if any(isinstance(part, (ToolCall, ToolResult)) for part in parts) else None


class TranslatedStream:
    """One wire in, another out. Every event goes through `steps`, each of which returns zero or more events."""

    def __init__(
        self,
        endpoint_request: EndpointRequest,
        wire: Wire,
        encoder: StreamEncoder,
        stats: AnswerStats,
        steps: Sequence[Callable[[Event], list[Event]]],
        *,
        is_first: bool,
        choices: int = 1,
        continuation: AnswerContinuation | None = None,
        sealer: AnswerSealer | None = None,
        make_id: Callable[[str], str] | None = None,
    ) -> None:
        """Create the stream.

        `choices` is the number of requested answers, if the upstream has a final marker. `continuation`: this answer
        replaces a rejected one. `sealer` seals its reasoning. `make_id` converts the id of the answer.
        """
        self.fault: Fault | None = None
        self.ended = False  # the answer is complete
        self._endpoint_request = endpoint_request
        self._answer_stream = endpoint_request.open_stream(continuation)
        self._encoder = encoder
        self._reporter = AnswerReporter(wire.name, endpoint_request.losses)
        self._adds_time = wire.capabilities.timestamps
        self._stats = stats
        self._steps = steps
        self._sealer = sealer
        self._started = not is_first  # the client has got its ResponseStart
        self._choices = choices
        self._make_id = make_id
        self._earlier_bytes = stats.content_bytes  # of earlier turns of the same answer
        self._other_bytes = 0  # of whole parts, and of events that the client does not get

    @property
    def content_bytes(self) -> int:
        """The bytes of the answer so far: of texts, arguments and whole parts."""
        return self._stats.content_bytes - self._earlier_bytes + self._other_bytes

    @property
    def item_count(self) -> int:
        """The number of texts and calls so far."""
        return max(self._answer_stream.item_count, len(self._stats.calls))  # the calls may be in one text

    @property
    def should_stop(self) -> bool:
        """True if further data is irrelevant, so that the upstream can be released."""
        return self._answer_stream.should_stop

    @property
    def rejected(self) -> RejectedAnswer | None:
        """Set at the end of an answer whose calls cannot be parsed: another request continues the client's stream."""
        return self._answer_stream.rejected

    def feed(self, data: bytes) -> bytes:
        """Convert data to the client's events. A decoding error becomes an error event, after which nothing follows."""
        if self.fault is not None:
            return b""
        try:
            events = self._answer_stream.feed(data)
            return self._write(events)
        except ToolwireError as error:
            return self.fail(stream_fault(error))

    def close(self) -> bytes:
        """End the stream; one that is truncated, or has too few answers, ends in an error event."""
        if self.fault is not None or self.ended or self.rejected is not None:
            return b""
        try:
            events = list(self._answer_stream.close())
            check_choices_ended(events, self._choices)
            return self._write(events)
        except ToolwireError as error:
            return self.fail(stream_fault(error))

    def _write(self, events: Iterable[Event]) -> bytes:
        """Encode events for the client; an error ends the output with an error event."""
        out: list[bytes] = []
        try:
            self._write_each(events, out)
        except ToolwireError as error:  # keep the output before it
            out.append(self.fail(stream_fault(error)))
        return b"".join(out)

    def _write_each(self, events: Iterable[Event], out: list[bytes]) -> None:
        """Append the encoded events to `out`, and note content deltas in the statistics.

        Content deltas skip the steps if there are none: they are the most frequent events. Runs of them are encoded
        together, but only from a list: an iterator may raise an error after some of them.
        """
        has_no_steps = not self._steps
        if type(events) is list and has_no_steps:
            for kind, run in groupby(events, type):
                if kind in _CONTENT_DELTAS:
                    self._write_deltas(list(run), out)
                else:
                    for event in run:
                        self._write_event(event, out)
            return
        for event in events:
            if has_no_steps and type(event) in _CONTENT_DELTAS:
                out.append(self._encoder.feed(event))
                self._stats.new_deltas.append(event)
            else:
                self._write_event(event, out)

    def _write_deltas(self, deltas: list[TextDelta | CallDelta], out: list[bytes]) -> None:
        """Append consecutive encoded deltas to `out`, and note them in the statistics.

        All deltas of an item after its first have the same bytes around them.
        """
        first, *others = deltas
        out.append(self._encoder.feed(first))
        frame = self._find_frame(others) if others else None
        if frame is None:
            out.extend(map(self._encoder.feed, others))
        else:
            before, after = frame
            out += before, (after + before).join(map(_ESCAPED, others)), after
        self._stats.new_deltas += deltas

    def _find_frame(self, deltas: list[TextDelta | CallDelta]) -> tuple[bytes, bytes] | None:
        """Return the bytes around each of the deltas, if they are the same for all."""
        encoder = self._encoder
        if not isinstance(encoder, BaseStreamEncoder) or len(set(map(_KEY, deltas))) > 1:
            return None
        return encoder.find_frame(deltas[0].key)

    def _write_event(self, event: Event, out: list[bytes]) -> None:
        """Pass an event through the steps, append the result to `out`, and count bytes that the statistics omit."""
        if isinstance(event, ResponseEnd):
            self.ended = True
        produced_events = self._apply_steps(event)
        if not produced_events:
            self._other_bytes += len(getattr(event, "escaped", b""))
        for produced in produced_events:
            encoded = self._encode_event(produced)
            if isinstance(produced, WholePart) or getattr(produced, "artefacts", None):
                self._other_bytes += len(encoded)
            out.append(encoded)

    def encode_events(self, events: Iterable[Event]) -> bytes:
        """Encode events that have passed the steps. Raise EncodeError if the client's wire has no place for them."""
        return b"".join([self._encode_event(event) for event in events])

    def _apply_steps(self, event: Event) -> list[Event]:
        events = [event]
        for step in self._steps:
            events = [produced for input_event in events for produced in step(input_event)]
        return events

    def _encode_event(self, event: Event) -> bytes:
        """Encode an event, and record its losses and statistics.

        The start of the answer gets the client's id, and a time if it needs one. Reasoning is sealed. The fault of a stream is sanitised before it is sent.
        """
        if isinstance(event, StreamFault):
            self.fault = fault = self._endpoint_request.sanitise_fault(event.fault)
            return self._encoder.feed(StreamFault(fault, event.end))
        self._stats.add_event(event)
        event = self._reporter.report_event(event)
        if isinstance(event, ResponseStart):
            self._started = True
            if event.created is None and self._adds_time:
                event = replace(event, created=int(time()))
            if self._make_id is not None:
                event = replace(event, id=self._make_id(event.id))
        return self._encoder.feed(event if self._sealer is None else self._sealer.seal_event(event))

    def fail(self, fault: Fault) -> bytes:
        """Set `fault`, and encode its error event, after the start of the answer if that was not sent."""
        self.fault = fault
        answer_id = "" if self._make_id is None else self._make_id("")
        start = b"" if self._started else self._encoder.feed(ResponseStart(answer_id))
        return start + self._encoder.feed(StreamFault(fault))
