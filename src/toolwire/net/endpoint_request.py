"""Prepare one request for one endpoint and restore its response. No I/O.

endpoint_request = EndpointRequest(request, endpoint, stream=True, text=None, losses=losses)
endpoint_request.body                            # the body to post
endpoint_request.decode_answer(data)             # a whole response, with the names of the request
stream = endpoint_request.open_stream()          # … or a stream, restored as it arrives
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ..bridge.emulation import Emulation, emulate
from ..bridge.exchange import Exchange
from ..bridge.preparation import prepare
from ..ir.errors import ProtocolError
from ..ir.events import Event
from ..ir.losses import Losses
from ..ir.pointer import JSON
from ..ir.request import Request
from ..ir.response import Fault, Response
from ..ir.text import to_bytes
from ..stream.strict import parse, parse_object
from ..text.engine.format import Format
from ..wire.protocol import Capabilities
from .endpoint import Endpoint

__all__ = ["AnswerStream", "EndpointRequest", "redact_key"]

_MIN_KEY_LENGTH = 8  # characters; a shorter key is not a secret, and occurs by chance in many texts


class EndpointRequest:
    """A request in the form of its endpoint, and the inverse conversion of its answer. Losses are added to `losses`."""

    def __init__(
        self,
        request: Request,
        endpoint: Endpoint,
        *,
        stream: bool,
        text: Format | str | None,
        losses: Losses,
        emulation: Emulation | None = None,
        client: Capabilities | None = None,
        is_alias: bool = False,
        same_wire_body: bytes | None = None,
    ) -> None:
        """Prepare the request.

        `client`: the capabilities of the wire on which the response will be written, if there is one. `is_alias`: the
        request names this model by an alias. `same_wire_body`: the body as the client wrote it for this wire, which is
        sent without changes; `request` is then its decoded form.
        """
        self.endpoint = endpoint
        self._client = client
        self.stream = stream
        self.losses = losses
        if same_wire_body is not None:
            self.body, self.emulation, self._exchange = same_wire_body, None, Exchange(request=request)
            return
        sent_request = replace(request, model=endpoint.model, stream=True if stream else None)
        if stream and endpoint.wire.capabilities.counts_on_request and sent_request.params.include_usage is None:
            sent_request = replace(sent_request, params=replace(sent_request.params, include_usage=True))
        if emulation is None and text is not None:
            emulation = emulate(sent_request, text)
        self.emulation = emulation
        history_model = request.model if request.model not in ("", endpoint.model) and not is_alias else None
        prepared = prepare(
            sent_request if emulation is None else emulation.request, endpoint.wire, history_model=history_model
        )
        self._exchange = prepared.exchange
        body, more = endpoint.wire.encode_request(prepared.request)
        if emulation is not None:
            losses.extend(emulation.losses)
        losses.extend(prepared.losses)
        for loss in more:
            losses.add(prepared.origin(loss.path), loss.concept, loss.action, loss.detail, loss.severity)
        self.body = to_bytes({endpoint.vendor.fields.get(name, name): value for name, value in body.items()})

    def decode_answer(self, data: bytes) -> Response:
        """Decode a whole response, with the names of the request; `restore_calls` parses the calls in its text."""
        response = self.endpoint.wire.decode_response(parse_object(data))
        return self._exchange.restore(response, self.losses, self._client)

    def restore_calls(self, response: Response) -> Response:
        return response if self.emulation is None else self.emulation.restore(response)

    def open_stream(self) -> AnswerStream:
        return AnswerStream(self)

    def decode_fault(self, status: int, data: bytes, headers: dict[str, str]) -> Fault:
        """Decode an error response, with the names of the request and without the key."""
        body: JSON
        try:
            body = parse(data)
        except ProtocolError:
            body = data
        return self.sanitise_fault(self.endpoint.wire.decode_error(status, body, headers))

    def sanitise_fault(self, fault: Fault) -> Fault:
        return redact_key(self.endpoint.key, self._exchange.restore_fault(fault))


class AnswerStream:
    """Decodes a stream as it arrives: the wire's decoder, the names of the request, the calls in the text."""

    def __init__(self, endpoint_request: EndpointRequest) -> None:
        self._decoder = endpoint_request.endpoint.wire.stream_decoder()
        self._decoder.losses = endpoint_request.losses
        self._names = endpoint_request._exchange.make_restorer(endpoint_request.losses, endpoint_request._client)
        self._calls = None if endpoint_request.emulation is None else endpoint_request.emulation.make_restorer()

    @property
    def should_stop(self) -> bool:
        """True if the rest of the stream is ignored."""
        return self._calls is not None and self._calls.should_stop

    def feed(self, data: bytes) -> Iterator[Event]:
        return self._restore_events(self._decoder.feed(data))

    def close(self) -> Iterator[Event]:
        """End the stream. Raise TruncatedStream if it is truncated."""
        if self._calls is not None and self._calls.should_stop:
            return iter(self._calls.close())
        return self._restore_events(self._decoder.close())

    def _restore_events(self, events: list[Event]) -> Iterator[Event]:
        """Restore the names of the request, then parse the emulated calls in the text."""
        for event in events:
            for restored in self._names.feed(event):
                if self._calls is None:
                    yield restored
                else:
                    yield from self._calls.feed(restored)


def redact_key(key: str | None, fault: Fault) -> Fault:
    """Remove the key from a fault: some servers repeat an invalid key in the error."""
    if key is None or len(key) < _MIN_KEY_LENGTH or key not in repr(fault):
        return fault
    cleaned_fields = {
        field: _replace_key(getattr(fault, field), key) for field in ("message", "code", "param", "request_id", "extra")
    }
    return replace(fault, breach=None, **cleaned_fields)


def _replace_key(value: JSON, key: str) -> JSON:
    if isinstance(value, str):
        return value.replace(key, "[key]")
    if isinstance(value, dict):
        return {_replace_key(name, key): _replace_key(item, key) for name, item in value.items()}
    return [_replace_key(item, key) for item in value] if isinstance(value, list) else value
