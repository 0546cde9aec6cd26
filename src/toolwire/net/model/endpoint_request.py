"""Prepare one request for one endpoint and restore its response. No I/O.

endpoint_request = EndpointRequest(request, endpoint, stream=True, text=None, losses=losses)
endpoint_request.body                            # the body to post
answer = endpoint_request.decode_answer(data)    # a whole response …
endpoint_request.restore(answer)                 # … in the terms of the request
stream = endpoint_request.open_stream()          # … or a stream, restored as it arrives
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ...bridge.conversation.fitted_prefix import PrefixStore
from ...bridge.conversation.known_settings import KnownSettings
from ...bridge.emulation.requests import Emulation, emulate
from ...bridge.emulation.retries import AnswerContinuation, RejectableAnswer, RejectedAnswer
from ...bridge.emulation.settings import EmulationSettings
from ...bridge.fitting.tools import keep_all
from ...bridge.restoration.repair import CallRepairer
from ...bridge.translation.exchange import Exchange
from ...bridge.translation.preparation import encode_best_version, prepare
from ...ir.errors import ProtocolError
from ...ir.events import Event
from ...ir.folding import unfold
from ...ir.losses import Losses
from ...ir.pointer import JSON
from ...ir.request import Request
from ...ir.response import Fault, Response
from ...ir.text import to_bytes
from ...run.tools.words import choose_by_words
from ...stream.strict import parse, parse_object
from ...text.engine.format import Format
from ...wire.models.capabilities import ModelCapabilities
from ...wire.protocol import Capabilities
from .endpoint import Endpoint
from .endpoint_settings import NO_DEFAULTS
from .server_facts import ContextSize, SizedBody

_MIN_KEY_LENGTH = 8  # characters; a shorter key is not a secret, and occurs by chance in many texts


class EndpointRequest:
    """A request in the form of its endpoint, and the inverse conversion of its answer. Losses are added to `losses`."""

    def __init__(
        self,
        request: Request,
        endpoint: Endpoint,
        *,
        stream: bool,
        text: Format | str | EmulationSettings | None,
        losses: Losses,
        emulation: Emulation | None = None,
        client: Capabilities | None = None,
        is_alias: bool = False,
        repairer: CallRepairer | None = None,
        same_wire_body: bytes | None = None,
        capabilities: ModelCapabilities | None = None,
        runs_search: bool = False,
        store: PrefixStore | None = None,
        settings: KnownSettings | None = None,
        context_size: ContextSize | None = None,
        mark_prefix: bool = False,
        keep_tools: bool = False,
    ) -> None:
        """Encode the request for the endpoint into `body` and `headers`, and add its losses.

        `client`: the capabilities of the wire on which the response will be written, if there is one. `is_alias`: the
        request names this model by an alias. `repairer` repairs the calls of the answer. `same_wire_body`: the body as
        the client wrote it for this wire, which is sent without changes; `request` is then its decoded form.
        `capabilities` describe the model; by default, the endpoint's capabilities. `runs_search`, `store`,
        `settings` and `mark_prefix` as for `prepare`. `context_size` chooses the context of an Ollama model. `keep_tools`: send all tools,
        whatever the wire's limit.
        """
        self.endpoint = endpoint
        self.client = client
        self._repairer = repairer
        self.stream = stream
        self.losses = losses
        self._sized_body: SizedBody | None = None
        if same_wire_body is not None:
            self.body, self.headers = same_wire_body, endpoint.headers
            self.emulation, self._exchange = None, Exchange(request=request)
            return
        if endpoint.defaults is not NO_DEFAULTS:
            request = endpoint.defaults.apply(request)
        sent_request = replace(request, model=endpoint.model, stream=True if stream else None)
        sent_request = _fit_usage_request(sent_request, endpoint.wire.capabilities)
        if emulation is None and text is not None:
            emulation = emulate(sent_request, text)
        self.emulation = emulation
        history_model = request.model if request.model not in ("", endpoint.model) and not is_alias else None
        prepared = prepare(
            sent_request if emulation is None else emulation.request,
            endpoint.wire,
            history_model=history_model,
            capabilities=endpoint.capabilities if capabilities is None else capabilities,
            choose=keep_all if keep_tools else choose_by_words,
            runs_search=runs_search,
            store=store if emulation is None else None,
            settings=settings,
            mark_prefix=mark_prefix,
        )
        self._exchange = prepared.exchange
        wire = endpoint.wire
        if endpoint.is_pinned:
            body, more = prepared.encode(wire)
        else:
            wire, (body, more) = encode_best_version(prepared.request, wire, prepared.encode)
        self.headers = endpoint.headers_for(wire)
        if emulation is not None:
            self._exchange.text_tools = sent_request.tools
            losses.extend(emulation.losses)
        losses.extend(prepared.losses)
        for loss in more:
            losses.add(prepared.origin(loss.path), loss.concept, loss.action, loss.detail, loss.severity)
        body = endpoint.finish_body(body, wire.version)
        if context_size is None:
            self.body = to_bytes(body)
        else:
            self._sized_body = SizedBody(context_size, body)
            self.body = self._sized_body.data

    def resize_context(self, fault: Fault) -> bool:
        """Change the context of an Ollama model after a fault. Return whether to send the request again."""
        if self._sized_body is None or not self._sized_body.resize(fault):
            return False
        self.body = self._sized_body.data
        return True

    def decode_answer(self, data: bytes) -> Response:
        """Decode a whole response, as the model wrote it; `restore` returns it in the terms of the request."""
        return self.endpoint.wire.decode_response(parse_object(data))

    def restore(self, response: Response) -> Response:
        """Parse the emulated calls in the text, then repair and restore all calls. Losses are added."""
        if self.emulation is not None:
            response = self.emulation.restore(response, self.losses)
        return self._exchange.restore(response, self.losses, self.client, repairer=self._repairer)

    def open_stream(self, continuation: AnswerContinuation | None = None) -> AnswerStream:
        """Open the stream of the answer. `continuation`: it continues the stream of a rejected answer."""
        return AnswerStream(self, continuation)

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
    """Decodes a stream as it arrives: the wire's decoder, the calls in the text, the terms of the request.

    If the calls of an emulated answer cannot be parsed, the stream has no end, and `rejected` has the request that
    continues it.
    """

    def __init__(self, endpoint_request: EndpointRequest, continuation: AnswerContinuation | None = None) -> None:
        losses, emulation = endpoint_request.losses, endpoint_request.emulation
        self._decoder = endpoint_request.endpoint.wire.stream_decoder()
        self._decoder.losses = losses
        self._calls = None if emulation is None else RejectableAnswer(emulation, emulation.make_restorer(losses))
        self._continuation = continuation
        self._restorer = endpoint_request._exchange.make_restorer(
            losses, endpoint_request.client, repairer=endpoint_request._repairer
        )

    @property
    def rejected(self) -> RejectedAnswer | None:
        return None if self._calls is None else self._calls.rejected

    @property
    def item_count(self) -> int:
        """The number of texts and calls so far, without calls in the text."""
        count: int = getattr(self._decoder, "item_count", 0)  # a codec of others may not count
        return count

    @property
    def should_stop(self) -> bool:
        """True if the rest of the stream is ignored."""
        return self._calls is not None and self._calls.should_stop

    def feed(self, data: bytes) -> Iterable[Event]:
        events = self._decoder.feed(data)
        if self._calls is None and self._continuation is None:
            return self._restorer.feed(events[0]) if len(events) == 1 else self._restorer.feed_all(events)
        return self._restore_events(events)

    def feed_response(self, response: Response) -> Iterator[Event]:
        """Take a whole response, from a server that does not stream."""
        return self._restore_events(list(unfold(response)))

    def close(self) -> Iterator[Event]:
        """End the stream. Raise TruncatedStream if it is truncated."""
        if self._calls is not None and self._calls.should_stop:
            return self._restore_each(self._calls.close())
        return self._restore_events(self._decoder.close())

    def _restore_events(self, events: list[Event]) -> Iterator[Event]:
        """Parse the emulated calls in the text, then repair and restore all calls."""
        if self._calls is None:
            return self._restore_each(events)
        parse = self._calls.feed
        return self._restore_each(parsed for event in events for parsed in parse(event))

    def _restore_each(self, events: Iterable[Event]) -> Iterator[Event]:
        restore, continuation = self._restorer.feed, self._continuation
        for event in events:
            if continuation is None:
                yield from restore(event)
            else:
                yield from continuation.feed(restore(event))
        if self.rejected is not None:  # its stream has no end, which would release this
            withheld = self._restorer.release()
            yield from withheld if continuation is None else continuation.feed(withheld)


def _fit_usage_request(request: Request, can: Capabilities) -> Request:
    """Ask for the usage of a stream if it is only reported on request; do not ask a server without that option."""
    include_usage = request.params.include_usage
    if can.counts_on_request and request.stream and include_usage is None:
        return replace(request, params=replace(request.params, include_usage=True))
    if not can.counts_on_request and include_usage is not None:
        return replace(request, params=replace(request.params, include_usage=None))
    return request


def parse_or_raw(data: bytes) -> JSON:
    """Parse the body of an error, or return the bytes of one that is not a JSON object."""
    try:
        return parse_object(data)
    except ProtocolError:
        return data


def redact_secrets(secrets: tuple[str, ...], fault: Fault) -> Fault:
    """Return a fault without keys and secret headers: some servers repeat an invalid key in the error.

    If one is found, the breach is dropped, too.
    """
    for secret in secrets:
        if len(secret) >= _MIN_KEY_LENGTH and secret in repr(fault):
            cleaned_fields = {
                field: _replace_secret(getattr(fault, field), secret)
                for field in ("message", "code", "param", "request_id", "extra")
            }
            fault = replace(fault, breach=None, **cleaned_fields)
    return fault


def redact_text(secrets: tuple[str, ...], text: str) -> str:
    """Like `redact_secrets`, for a text of the server that is passed on."""
    for secret in secrets:
        if len(secret) >= _MIN_KEY_LENGTH:
            text = text.replace(secret, "[key]")
    return text


def _replace_secret(value: JSON, secret: str) -> JSON:
    if isinstance(value, str):
        return value.replace(secret, "[key]")
    if isinstance(value, dict):
        return {_replace_secret(name, secret): _replace_secret(item, secret) for name, item in value.items()}
    return [_replace_secret(item, secret) for item in value] if isinstance(value, list) else value
