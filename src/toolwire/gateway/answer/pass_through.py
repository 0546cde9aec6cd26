"""A request between equal wires whose answer needs no change: bytes are forwarded, and observed. No I/O here.

Of a whole answer, only a summary for the accounts is read; it is decoded fully if there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NoReturn

from msgspec import Struct, field

from ...bridge.emulation.retries import RejectedAnswer
from ...bridge.restoration.repair import CallRepair
from ...ir.folding import unfold
from ...ir.losses import Losses
from ...ir.request import Request
from ...ir.response import Fault, Response, UpstreamError
from ...net.http.transport import StreamedBody
from ...net.model.endpoint import Endpoint
from ...net.model.endpoint_request import parse_or_raw, redact_secrets
from ...net.model.pass_through import ForwardedStream
from ...net.model.server_facts import SizedBody
from ...stream.strict import parse_object
from ...wire.protocol import Wire
from ..observe.answer_stats import AnswerStats
from ..request.client_request import ClientRequest
from ..responses.recorder import ResponseRecorder


class PassThroughRequest(Struct, eq=False):
    """A request between equal wires. Its answer is forwarded unchanged."""

    is_passed_through: ClassVar[bool] = True
    recorder: ClassVar[ResponseRecorder | None] = None  # the client gets the upstream's bytes, and its ids

    _client_request: ClientRequest
    endpoint: Endpoint
    body: bytes
    upload: StreamedBody | None = None  # sent instead of the body
    losses: Losses = field(default_factory=Losses)
    stats: AnswerStats = field(default_factory=AnswerStats)
    repairs: list[CallRepair] = []
    _sized_body: SizedBody | None = None  # of a client of Ollama that leaves the context to the gateway
    _data: bytes = b""  # the accepted answer
    _response: Response | None = None  # if it was decoded

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request, without the secret ones."""
        client_headers = self._client_request.headers
        return self.endpoint.merge_headers(client_headers) if client_headers else self.endpoint.headers

    def decode_fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        fault = self.endpoint.wire.decode_error(status, parse_or_raw(data), headers)
        return redact_secrets(self.endpoint.known_secrets, fault)

    @property
    def sent_request(self) -> Request | None:
        """The decoded request, or None if it cannot be decoded."""
        return self._client_request.request_or_none

    def resize_context(self, fault: Fault) -> bool:
        """Change the context of an Ollama model after a fault. Return whether to send the request again."""
        if self._sized_body is None or not self._sized_body.resize(fault):
            return False
        self.body = self._sized_body.data
        return True

    def accept(self, data: bytes) -> bool:
        """Accept a whole answer by its summary, and count it. Return False if it must be decoded with `read_answer`.

        A summary without a usage is not enough for the accounts.
        """
        summary = self.endpoint.wire.summarise(data)
        self.stats.usage = None if summary is None else summary.usage
        if summary is None or self.stats.reported_usage() is None:
            return False
        self._data = data
        self.stats.add_summary(summary)
        return True

    def reject_answer(self, data: bytes) -> RejectedAnswer | None:
        """Reject nothing: requests with emulated calls are translated."""
        return None

    def make_retry(self, rejected: RejectedAnswer, repair_target: object) -> NoReturn:
        raise AssertionError("an answer that is passed through is never rejected")

    async def run_tools(self) -> None:
        """Run nothing: requests with the gateway's tools are translated."""

    def release_events(self) -> bytes:
        """Return nothing, because no tools have run."""
        return b""

    def read_answer(self, data: bytes) -> None:
        """Decode and count a whole answer. Raise UpstreamError if it reports an error."""
        self._data = data
        self._response = self.endpoint.wire.decode_response(parse_object(data))
        if self._response.fault is not None:
            raise UpstreamError(redact_secrets(self.endpoint.known_secrets, self._response.fault))
        self.stats.add_response(self._response)

    def encode_answer(self) -> bytes:
        """Return the accepted answer for the client."""
        return self._data

    def encode_stream(self) -> bytes:
        """Encode the accepted answer as the stream that the client requested."""
        wire = self.endpoint.wire
        response = self._response or wire.decode_response(parse_object(self._data))
        encoder = wire.stream_encoder(self._client_request.cheap_request)
        return b"".join([encoder.feed(event) for event in unfold(response)])

    def open_stream(self) -> PassThroughStream:
        """Return the stream that forwards the upstream's bytes; the request is decoded only if it needs it."""
        endpoint, client_request = self.endpoint, self._client_request
        return PassThroughStream(
            endpoint.wire,
            lambda: client_request.cheap_request,
            self.stats,
            endpoint.known_secrets,
            client_request.choices,
        )


class PassThroughStream(ForwardedStream):
    """A stream between equal wires, with statistics."""

    should_stop = False
    rejected: RejectedAnswer | None = None

    def __init__(
        self,
        wire: Wire,
        find_request: Callable[[], Request | None],
        stats: AnswerStats,
        secrets: tuple[str, ...] = (),
        choices: int = 1,
    ) -> None:
        super().__init__(wire, find_request, stats.add_event, secrets, choices, stats.new_deltas.extend)
        self._stats = stats

    @property
    def content_bytes(self) -> int:
        return self._stats.content_bytes + self.part_bytes

    @property
    def item_count(self) -> int:
        count: int = getattr(self._decoder, "item_count", 0)
        return count
