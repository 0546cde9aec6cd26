"""One request of an SDK for a model's answer, and the encoding of the answer on the SDK's wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import token_hex
from time import time

from msgspec.structs import replace

from ..bridge.conversation.turns import TurnRecorder
from ..bridge.restoration.provider_fields import AnswerReporter
from ..ir.errors import ProtocolError, ToolwireError
from ..ir.events import Event, ResponseEnd, ResponseStart, StreamFault
from ..ir.losses import Losses
from ..ir.parts import Part
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.response import Response
from ..ir.value import Value
from ..net.model.client import ModelClient
from ..net.model.endpoint_settings import NO_DEFAULTS
from ..net.model.pass_through import accepts_request, has_valid_ids
from ..stream.strict import parse_object
from ..wire import get
from ..wire.protocol import Wire
from ..wire.streaming.encoder import framing_of
from .sdk_memory import ResponseChains, new_answer_id
from .sdk_routes import SdkRoute

__all__ = ["AnswerEncoding", "SdkCall", "SdkRequest"]

_SAME_WIRE_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")


class SdkRequest(Value, frozen=True):
    """An HTTP request of an SDK. `read_timeout` limits the wait for each piece of the answer, in seconds."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    read_timeout: float | None = None


class SdkCall:
    """A request for a model's answer, decoded on the wire of the SDK."""

    def __init__(
        self,
        request: SdkRequest,
        route: SdkRoute,
        chains: ResponseChains,
        find_client: Callable[[str], ModelClient],
    ) -> None:
        self.wire = _codec(route.wire, request.headers)
        self.body = request.body
        self.original = parse_object(request.body)
        self.losses = Losses()
        self.headers = {name: request.headers[name] for name in _SAME_WIRE_HEADERS if name in request.headers}
        name = route.model if route.model is not None else self.original.get("model")
        if not isinstance(name, str):
            raise ProtocolError("the request names no model", pointer="/model")
        self.client = find_client(name)
        is_other_wire = self.client.endpoint.wire.name != self.wire.name
        self.answer_id = new_answer_id(route.wire, self.original) if is_other_wire else ""
        self.document = chains.expand(self.original) if self.answer_id else self.original
        decoded, decode_error = self._decode()
        self.stream = bool(decoded.stream) if route.stream is None else route.stream
        self.request = replace(decoded, model=name, stream=self.stream or None)
        if decode_error is not None and not self.is_forwarded:
            raise decode_error

    def _decode(self) -> tuple[Request, ToolwireError | None]:
        """Decode the document. One that is only forwarded need not be valid: the server will answer."""
        try:
            return self.wire.decode_request(self.document), None
        except ToolwireError as error:
            return Request(stream=True if self.document.get("stream") is True else None), error

    @property
    def is_forwarded(self) -> bool:
        """True if the endpoint accepts the body as it is."""
        endpoint, document = self.client.endpoint, self.document
        return (
            not self.client.emulates_calls
            and not endpoint.changes_body
            and endpoint.defaults is NO_DEFAULTS
            and accepts_request(
                endpoint,
                self.wire.name,
                document.__contains__,
                lambda: document.get("tool_choice"),
                lambda limit: len(self.request.tools) > limit,
            )
            and (endpoint.vendor.id is None or has_valid_ids(self.request, endpoint.wire.limits))
        )


class AnswerEncoding:
    """The encoding of one answer for the SDK."""

    def __init__(self, call: SdkCall, reporter: AnswerReporter) -> None:
        self.call = call
        self.recorder = TurnRecorder()
        self._reporter = reporter
        self._encoder = call.wire.stream_encoder(call.request)
        self._encoder.losses = call.losses
        self._adds_time = call.wire.capabilities.timestamps

    def headers(self) -> dict[str, str]:
        """Return the headers of the answer: its request id, and the number of losses so far."""
        request_id = f"req_{token_hex(12)}"
        return {
            "x-request-id": request_id,
            "request-id": request_id,
            "x-toolwire-losses": str(len(self.call.losses)),
        }

    def stream_headers(self) -> dict[str, str]:
        return {"content-type": framing_of(self.call.wire.name).media_type, **self.headers()}

    def encode_response(self, response: Response) -> Object:
        call = self.call
        if response.created is None and self._adds_time:
            response = replace(response, created=int(time()))
        response = self._reporter.report_response(response)
        return self.encode_document(replace(response, id=call.answer_id or response.id))

    def encode_document(self, response: Response) -> Object:
        document, losses = self.call.wire.encode_response(response, self.call.request)
        self.call.losses.extend(losses)
        return document

    def encode_turn(self, parts: tuple[Part, ...]) -> Object:
        """Encode the parts of a streamed answer as a document, without its losses, which the stream has reported."""
        return self.call.wire.encode_response(Response(self.call.answer_id, parts=parts), self.call.request).body

    def encode_event(self, event: Event) -> bytes:
        if isinstance(event, ResponseStart):
            created = int(time()) if event.created is None and self._adds_time else event.created
            event = replace(event, id=self.call.answer_id or event.id, created=created)
        if not isinstance(event, (ResponseEnd, StreamFault)):
            self.recorder.feed(event)
        return self._encoder.feed(self._reporter.report_event(event))


def _codec(name: str, headers: Mapping[str, str]) -> Wire:
    """Return the codec for the API version that the SDK names; the newest one if it is unknown."""
    codec = get(name)
    version = headers.get("anthropic-version", "") if codec.version else ""
    return get(f"{name}@{version}") if version in getattr(codec, "versions", {}) else codec
