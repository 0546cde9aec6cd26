"""Translate documents from one wire to another: a function for each kind of document, and a class for streams.

    translate_request(body, source="anthropic", target="openai_chat").body
    translate_response(answer, source="openai_chat", target="anthropic", request=body).body

For an answer or an error, `request` is the client's original request, on the target wire. It rebuilds the Exchange,
which restores the client's names and ids. A document whose source and target wire are the same is left untouched.
`translate` takes the kind as an argument, for programs that learn it at run time.

A stream is translated chunk by chunk, with the same result as the whole answer.

    stream = translate_stream(source="anthropic", target="openai_chat", request=body)
    for data in upstream:
        client.write(stream.feed(data))
    client.write(stream.close())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

from msgspec.structs import replace

from ...ir.errors import ConfigError, EncodeError, ProtocolError, ToolwireError, TruncatedStream
from ...ir.events import Event, ResponseStart, StreamFault
from ...ir.losses import Loss, Losses
from ...ir.pointer import JSON, Object, join, nearest_existing
from ...ir.request import Request
from ...ir.response import Fault, Response, UpstreamError
from ...stream.strict import parse
from ...wire import get
from ...wire.protocol import Wire
from ..conversation.provider_state import drop_stored
from ..fitting.fields import report_extra
from ..fitting.tools import ToolChooser, keep_all
from .exchange import DELTAS, AnswerConverter, Exchange, convert_response
from .outcome import (
    SourceDocument,
    TargetDocument,
    Translation,
    WrittenRequest,
    accept,
    locate,
    parse_body,
    pass_through,
    typed_errors,
)
from .preparation import Prepared, prepare
from .tool_lists import translate_tools


def translate(
    body: JSON | bytes | str,
    *,
    source: str,
    target: str,
    kind: Literal["request", "response", "tools", "error"] = "request",
    request: JSON | bytes | str | None = None,
    model: str | None = None,
    strict: bool = False,
    choose: ToolChooser | None = None,
) -> Translation[JSON]:
    """Translate a document of any kind, with the function for its kind; raise ConfigError for an unknown kind."""
    if kind not in ("request", "response", "tools", "error"):
        raise ConfigError(f"unknown kind {kind!r}", hint="use one of request, response, tools, error")
    if kind == "request":
        return translate_request(body, source=source, target=target, model=model, strict=strict, choose=choose)
    if kind == "response":
        return translate_response(body, source=source, target=target, request=request, strict=strict)
    if kind == "tools":
        return translate_tools(body, source=source, target=target, strict=strict, choose=choose)
    return translate_error(body, source=source, target=target, request=request, strict=strict)


def translate_request(
    body: JSON | bytes | str,
    *,
    source: str,
    target: str,
    model: str | None = None,
    strict: bool = False,
    choose: ToolChooser | None = None,
) -> Translation[Object]:
    """Translate a request, and list the losses.

    `model` is the model to use, if it is another one or, as on Gemini, not in the body. If that changes the model, the
    history is of another model, whose signatures are dropped. `strict` raises LossError if a loss is more severe than
    `info`. `choose` selects tools if the request has more than the target accepts (see `prepare`).
    """
    if source == target and model is None:
        return pass_through(body, source, is_object=True)
    with typed_errors(body):
        translation = _translate_request(parse_body(body), source, target, model, choose)
    return accept(translation, strict=strict)


def translate_response(
    body: JSON | bytes | str,
    *,
    source: str,
    target: str,
    request: JSON | bytes | str | None = None,
    strict: bool = False,
) -> Translation[Object]:
    """Translate an answer, and list the losses. If it ends in a fault, the result is an error document.

    `request` is the client's request on the target wire. `strict` raises LossError if a loss is more severe than
    `info`.
    """
    if source == target:
        return pass_through(body, source, is_object=True)
    with typed_errors(body):
        translation = _translate_response(parse_body(body), source, target, request)
    return accept(translation, strict=strict)


def translate_error(
    body: JSON | bytes | str,
    *,
    source: str,
    target: str,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    request: JSON | bytes | str | None = None,
    strict: bool = False,
) -> Translation[Object]:
    """Translate an error. A body that is not JSON is its message, unless it is a web page, such as a proxy's.

    `status` and `headers` belong to the answer: they decide the kind of an error whose body does not name it, and the
    wait before a retry. Without a status, such an error counts as 500. `request` is the client's request on the target
    wire. `strict` raises LossError if a loss is more severe than `info`.
    """
    if source == target:
        return pass_through(body, source, is_object=False)
    with typed_errors(body):
        translation = _translate_error(body, source, target, request, status, headers)
    return accept(translation, strict=strict)


def _translate_request(
    document: Object, source: str, target: str, model: str | None, choose: ToolChooser | None
) -> Translation[Object]:
    """Decode, fit and encode a request; the losses are located when they are read.

    Raise ConfigError if `model` is not a string, and EncodeError with a pointer into `document`.
    """
    reader, writer = get(source), get(target)
    canonical = reader.decode_request(document)
    history_model = None
    if model is not None:
        if type(model) is not str:
            raise ConfigError(f"model must be a string, got {model!r}")
        history_model = canonical.model if canonical.model != model else None
        canonical = replace(canonical, model=model)
    # the source always counts tokens in a stream, the target only on request
    if canonical.stream and writer.capabilities.counts_on_request and not reader.capabilities.counts_on_request:
        canonical = replace(canonical, params=replace(canonical.params, include_usage=True))
    try:
        prepared = prepare(canonical, writer, history_model=history_model or None, choose=choose)
    except EncodeError as error:
        error.pointer = nearest_existing(document, reader.locator(canonical)(error.pointer))
        raise
    encoded, encode_losses = writer.encode_request(prepared.request)
    if not canonical.model and not writer.capabilities.model_in_path:
        detail = "the request names no model, which the target requires"
        if reader.capabilities.model_in_path:
            detail += "; the source has it in the URL: state it with model=…, or -m"
        prepared.losses.add(join("model"), "model", "dropped", detail, "error")
    if not len(prepared.losses) and not len(encode_losses):
        return Translation(encoded, model=canonical.model)
    # The pointers are looked up only when they are needed.
    losses = partial(_locate_losses, prepared, encode_losses, document, reader, canonical, encoded, writer)
    return Translation(encoded, losses, model=canonical.model)


def _locate_losses(
    prepared: Prepared,
    encode_losses: Losses,
    document: Object,
    reader: Wire,
    request: Request,
    encoded: Object,
    writer: Wire,
) -> tuple[Loss, ...]:
    """Merge the losses of fitting and of encoding, with pointers into both documents.

    Losses of fitting have paths of the request, losses of encoding have paths of the fitted request.
    """
    origin = SourceDocument(document, reader.locator(request))
    write = WrittenRequest(prepared.request, encoded, writer).locate

    def write_fitted(path: str) -> str | None:
        fitted = prepared.destination(path)
        return None if fitted is None else write(fitted)

    fitted_origin = SourceDocument(document, lambda path: origin.locate(prepared.origin(path)))
    merged = locate(prepared.losses, origin, TargetDocument(encoded, write_fitted))
    merged += locate(encode_losses, fitted_origin, TargetDocument(encoded, write))
    return tuple(Losses(merged))


def _locate_answer_losses(
    found_losses: Losses, document: Object, reader: Wire, answer: Response, destination: TargetDocument | None
) -> tuple[Loss, ...]:
    return tuple(Losses(locate(found_losses, SourceDocument(document, reader.locator(answer)), destination)))


def _translate_response(document: Object, source: str, target: str, request: JSON) -> Translation[Object]:
    """Decode, restore and encode an answer; a fault becomes an error document."""
    reader, writer = get(source), get(target)
    answer = reader.decode_response(document)
    found_losses = Losses()
    canonical = _decode_client_request(request, writer)
    converted = convert_response(answer, _make_exchange(canonical, reader), writer, found_losses)
    response = converted.response
    if response.fault is not None:
        before = _locate_answer_losses(found_losses, document, reader, answer, None)
        return _write_fault(response.fault, writer, document, before)
    encoded, encode_losses = writer.encode_response(response, canonical)
    converted.encoder_losses.extend(encode_losses)
    if not len(found_losses):
        return Translation(encoded, model=response.model)
    written = writer.locator(response)

    def find(path: str) -> str | None:
        found = converted.find(path)
        return None if found is None else written(found)

    destination = TargetDocument(encoded, find)
    losses = partial(_locate_answer_losses, found_losses, document, reader, answer, destination)
    return Translation(encoded, losses, model=response.model)


def _decode_client_request(request: JSON, client: Wire) -> Request | None:
    return None if request is None else client.decode_request(parse_body(request))


def _make_exchange(request: Request | None, upstream: Wire) -> Exchange:
    if request is None:
        return Exchange(wire=upstream)
    return prepare(drop_stored(request, upstream.name), upstream, choose=keep_all).exchange


def _write_fault(fault: Fault, writer: Wire, document: JSON, before: tuple[Loss, ...] = ()) -> Translation[Object]:
    """Write an error document, and report the fields that its wire cannot carry, after the losses `before`."""
    if fault.breach is not None:
        # No wire has a field for it, and another provider's message does not refer to the client's document.
        fault = replace(fault, message=f"{fault.message} ({fault.breach})")
    status, body, headers = writer.encode_error(fault)
    # decoded again to find the fields that the document lost
    reread_fault = writer.decode_error(status, body, headers)
    losses = Losses()
    report_extra(fault.extra, "/error", writer.name, losses, as_info=True, scoped=False)
    for field in ("code", "param"):
        if getattr(fault, field) not in (None, getattr(reread_fault, field)):
            losses.add(f"/error/{field}", field, "dropped", f"errors of {writer.name} have no such field", "info")
    located = locate(losses, SourceDocument(document, lambda path: path))
    return Translation(body, tuple(Losses((*before, *located))), status, headers=headers)


def _translate_error(
    body: JSON | bytes, source: str, target: str, request: JSON, status: int | None, headers: Mapping[str, str] | None
) -> Translation[Object]:
    """Decode an error, restore the client's names in it, and encode it for the target."""
    if isinstance(body, (bytes, str)):
        try:
            body = parse(body)
        except ProtocolError:
            pass  # an error page is still an error
    reader, writer = get(source), get(target)
    fault = reader.decode_error(status, body, headers)
    exchange = _make_exchange(_decode_client_request(request, writer), reader)
    return _write_fault(exchange.restore_fault(fault), writer, body)


def translate_stream(*, source: str, target: str, request: JSON | bytes | str | None = None) -> StreamTranslation:
    """Return a translator for one stream: feed it bytes of `source`, and it returns bytes of `target`."""
    return StreamTranslation(source, target, request)


class StreamTranslation:
    """The translation of one stream from wire to wire.

    A stream that breaks (truncated, or invalid on its wire) becomes an error event of the target wire, never a normal
    end; `error` then holds the cause.
    """

    __slots__ = ("_converter", "_decoder", "_encoder", "_is_same_wire", "error", "losses")

    def __init__(self, source: str, target: str, request: JSON | bytes | str | None = None) -> None:
        """Create the translation; raise ProtocolError if `request`, the client's request, is invalid.

        A stream whose source and target are the same passes unchanged.
        """
        self.losses = Losses()
        self.error: ToolwireError | None = None
        self._is_same_wire = source == target
        if self._is_same_wire:
            codec = get(source)
            if request is not None:
                codec.decode_request(parse_body(request))
            return
        reader, writer = get(source), get(target)
        canonical = None if request is None else writer.decode_request(parse_body(request))
        exchange = Exchange(wire=reader)
        if canonical is not None:
            exchange = prepare(drop_stored(canonical, reader.name), reader, choose=keep_all).exchange
        self._decoder = reader.stream_decoder()
        self._encoder = writer.stream_encoder(canonical)
        self._converter = AnswerConverter(exchange, writer, self.losses)
        self._decoder.losses, self._encoder.losses = self.losses, self._converter.encoder_losses

    def feed(self, data: bytes) -> bytes:
        """Translate more bytes; return nothing after an error. A broken stream sets `error` and ends in an error event.

        Raise ConfigError if `data` is not bytes.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ConfigError(f"a stream must be bytes, got {type(data).__name__}")
        if self._is_same_wire or self.error is not None:
            return b"" if self.error is not None else data
        try:
            events = self._decoder.feed(data)
            return self._write(events) if events else b""
        except ToolwireError as error:
            return self._fail(error)

    def close(self) -> bytes:
        """End the source. A truncated stream ends in an error event."""
        if self._is_same_wire or self.error is not None:
            return b""
        try:
            return self._write(self._decoder.close())
        except ToolwireError as error:
            return self._fail(error)

    def _write(self, events: Iterable[Event]) -> bytes:
        """Convert and encode the events; an error, or the fault of a malformed call, sets `error`."""
        encode, convert, restore_delta = self._encoder.feed, self._converter.feed, self._converter.restore_delta
        out: list[bytes] = []
        try:
            for event in events:
                for converted in restore_delta(event) if type(event) in DELTAS else convert(event):
                    out.append(encode(converted))
        except ToolwireError as error:
            return b"".join(out) + self._fail(error)
        if self._converter.fault is not None:
            self.error = UpstreamError(self._converter.fault)
        return b"".join(out)

    def _fail(self, error: ToolwireError) -> bytes:
        self.error = error
        code = "stream_truncated" if isinstance(error, TruncatedStream) else "stream_broken"
        fault = StreamFault(Fault("server", error.message, 502, code, retryable=True))
        start = b"" if self._converter.has_started else self._encoder.feed(ResponseStart())
        return start + self._encoder.feed(fault)
