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

__all__ = ["AnswerStream", "EndpointRequest", "redact_secrets"]

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
    ) -> None:
        """Prepare the request.

        `client`: the capabilities of the wire on which the response will be written, if there is one. `is_alias`: the
        request names this model by an alias.
        """
        self.endpoint = endpoint
        self._client = client
        self.stream = stream
        self.losses = losses
        request = endpoint.defaults.apply(request)
        sent_request = replace(request, model=endpoint.model, stream=True if stream else None)
        sent_request = _fit_usage_request(sent_request, endpoint.wire.capabilities)
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
        self.body = to_bytes(endpoint.finish_body(body))

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
        return redact_secrets(self.endpoint.known_secrets, self._exchange.restore_fault(fault))


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


def _fit_usage_request(request: Request, can: Capabilities) -> Request:
    """Ask for the usage of a stream if it is only reported on request; do not ask a server without that option."""
    include_usage = request.params.include_usage
    if can.counts_on_request and request.stream and include_usage is None:
        return replace(request, params=replace(request.params, include_usage=True))
    if not can.counts_on_request and include_usage is not None:
        return replace(request, params=replace(request.params, include_usage=None))
    return request


def redact_secrets(secrets: tuple[str, ...], fault: Fault) -> Fault:
    """Remove keys and secret headers from a fault: some servers repeat an invalid key in the error."""
    for secret in secrets:
        if len(secret) >= _MIN_KEY_LENGTH and secret in repr(fault):
            cleaned_fields = {
                field: _replace_secret(getattr(fault, field), secret)
                for field in ("message", "code", "param", "request_id", "extra")
            }
            fault = replace(fault, breach=None, **cleaned_fields)
    return fault


def _replace_secret(value: JSON, secret: str) -> JSON:
    if isinstance(value, str):
        return value.replace(secret, "[key]")
    if isinstance(value, dict):
        return {_replace_secret(name, secret): _replace_secret(item, secret) for name, item in value.items()}
    return [_replace_secret(item, secret) for item in value] if isinstance(value, list) else value
