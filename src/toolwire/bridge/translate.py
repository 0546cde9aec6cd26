"""Translate documents and streams from one wire to another.

    translate(body, source="anthropic", target="openai_chat", kind="request").body
    translate(answer, source="openai_chat", target="anthropic", kind="response", request=body).body

For an answer, `request` is the client's original request, in the target wire: it rebuilds the Exchange, so that names and
ids come back as the client knows them. The same wire on both sides is left untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from msgspec.structs import replace

from ..ir.errors import ConfigError, ProtocolError, ToolwireError, TruncatedStream, UpstreamError
from ..ir.events import CallDelta, Event, ReasoningDelta, ResponseStart, StreamFault, TextDelta
from ..ir.losses import Loss, Losses, refuse
from ..ir.pointer import JSON, Object, resolve
from ..ir.request import Request
from ..ir.response import Fault
from ..ir.text import to_bytes
from ..ir.tools import Tool
from ..stream.strict import kind_of, parse, parse_object
from ..wire import get, mcp
from ..wire.protocol import Wire
from .exchange import Exchange
from .fit_tools import fit_tools
from .names import Names
from .prepare import Prepared, prepare
from .report_answer import AnswerReporter

__all__ = ["StreamTranslation", "Translation", "translate", "translate_stream"]


class Translation:
    """A document on another wire. `status` is the HTTP status that goes with it, `model` the one the request names."""

    __slots__ = ("_losses", "body", "model", "status")

    def __init__(
        self,
        body: JSON,
        losses: tuple[Loss, ...] | Callable[[], tuple[Loss, ...]] = (),
        status: int = 200,
        model: str = "",
    ) -> None:
        self.body = body
        self.status = status
        self.model = model
        self._losses = losses

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What could not be carried over, with pointers into the source document."""
        if callable(self._losses):
            self._losses = self._losses()
        return self._losses

    def __bytes__(self) -> bytes:
        return to_bytes(self.body)


def translate(
    body: JSON | bytes | str,
    *,
    source: str,
    target: str,
    kind: Literal["request", "response", "tools", "error"] = "request",
    request: JSON | bytes | str | None = None,
    model: str | None = None,
    strict: bool = False,
) -> Translation:
    """`body` as `target` writes it, with a list of what could not be carried over.

    `model` is for requests: the model to ask, where it is another one or, as on Gemini, not in the body. `strict` raises
    LossError instead where a loss is more than information.
    """
    if source == target and model is None:
        return _untouched(body, source, kind)
    try:
        translation = _KINDS[kind](body, source, target, request if kind == "response" else model)
    except KeyError:
        if kind in _KINDS:
            raise
        raise ConfigError(f"unknown kind {kind!r}", hint=f"one of {', '.join(_KINDS)}") from None
    except RecursionError:
        raise ProtocolError("nested too deeply") from None
    if strict:
        refuse(translation.losses)
    return translation


def _parsed(body: JSON | bytes | str) -> Object:
    if isinstance(body, (bytes, str)):
        return parse_object(body)
    if type(body) is not dict:
        raise ProtocolError(f"expected a JSON object, got {kind_of(body)}")
    return body


def _untouched(body: JSON, wire: str, kind: str) -> Translation:
    """The same wire on both sides: nothing to do but to see that it is a document at all."""
    if wire != mcp.NAME:
        get(wire)
    if isinstance(body, (bytes, str)):
        return Translation(parse(body) if kind in ("tools", "error") else parse_object(body))
    return Translation(_parsed(body) if kind in ("request", "response") else body)


def _translate_request(body: JSON, source: str, target: str, model: JSON) -> Translation:
    document = _parsed(body)
    reader, writer = get(source), get(target)
    canonical = reader.decode_request(document)
    if model is not None:
        canonical = replace(canonical, model=model)
    if canonical.stream and writer.capabilities.counts_on_request and not reader.capabilities.counts_on_request:
        canonical = replace(canonical, params=replace(canonical.params, include_usage=True))
    prepared = prepare(canonical, writer)
    written, more = writer.encode_request(prepared.request)
    if not len(prepared.losses) and not len(more):
        return Translation(written, model=canonical.model)
    # the pointers are looked up when somebody asks for them
    losses = partial(_located, prepared, more, document, reader, canonical)
    return Translation(written, losses, model=canonical.model)


def _located(prepared: Prepared, more: Losses, document: Object, reader: Wire, canonical: Request) -> tuple[Loss, ...]:
    """All losses, with pointers into the source document."""
    merged = Losses()
    for loss in prepared.losses:
        path = _existing(document, reader.locate(canonical, loss.path))
        merged.add(path, loss.concept, loss.action, loss.detail, loss.severity)
    for loss in more:
        path = _existing(document, reader.locate(canonical, prepared.origin(loss.path)))
        merged.add(path, loss.concept, loss.action, loss.detail, loss.severity)
    return tuple(merged)


def _existing(document: Object, pointer: str) -> str:
    """The pointer, or what is left of it where the document really has something."""
    while pointer:
        try:
            resolve(document, pointer)
        except (KeyError, IndexError, TypeError, ValueError):
            pointer = pointer.rpartition("/")[0]
        else:
            return pointer
    return pointer


def _translate_response(body: JSON, source: str, target: str, request: JSON) -> Translation:
    document = _parsed(body)
    reader, writer = get(source), get(target)
    response = reader.decode_response(document)
    losses = Losses()
    response = _exchange(request, writer, reader).restore(response, losses, writer.capabilities)
    if response.fault is not None:
        return _write_fault(response.fault, writer)
    AnswerReporter(writer.name, losses).whole(response)
    written, more = writer.encode_response(response)
    losses.extend(more)
    return Translation(written, tuple(losses), model=response.model)


def _exchange(request: JSON, client: Wire, upstream: Wire) -> Exchange:
    if request is None:
        return Exchange()
    return prepare(client.decode_request(_parsed(request)), upstream).exchange


def _write_fault(fault: Fault, writer: Wire) -> Translation:
    status, body, _ = writer.encode_error(fault)
    return Translation(body, status=status)


def _translate_error(body: JSON, source: str, target: str, _: JSON) -> Translation:
    if isinstance(body, (bytes, str)):
        try:
            body = parse(body)
        except ProtocolError:
            pass  # an error page is an error all the same
    return _write_fault(get(source).decode_error(None, body), get(target))


def _translate_tools(body: JSON, source: str, target: str, _: JSON) -> Translation:
    document = parse(body) if isinstance(body, (bytes, str)) else body
    declarations = document.get("tools", [document]) if type(document) is dict else document
    if type(declarations) is not list:
        raise ProtocolError(f"expected an array of tools, got {kind_of(declarations)}", pointer="/tools")
    tools = _decode_tools(declarations, source)
    losses = Losses()
    if target != mcp.NAME:
        writer = get(target)
        names = Names(writer.limits, writer.capabilities.namespaces)
        fitted = fit_tools(Request(tools=tools), writer.capabilities, writer.name, names, losses)
        tools = tuple(tool for tool, _ in fitted)
        written, more = writer.encode_tools(tools)
    else:
        written, more = mcp.encode_tools(tools)
    losses.extend(more)
    wrapped = type(document) is dict and "tools" in document
    return Translation({"tools": written} if wrapped else written, tuple(losses))


def _decode_tools(declarations: list[JSON], source: str) -> tuple[Tool, ...]:
    return mcp.decode_tools(declarations) if source == mcp.NAME else get(source).decode_tools(declarations)


_KINDS = {
    "request": _translate_request,
    "response": _translate_response,
    "tools": _translate_tools,
    "error": _translate_error,
}


_DELTAS = frozenset({TextDelta, ReasoningDelta, CallDelta})


def translate_stream(*, source: str, target: str, request: JSON | bytes | str | None = None) -> StreamTranslation:
    """A translator for one stream: feed it bytes of `source`, it gives bytes of `target`."""
    return StreamTranslation(source, target, request)


class StreamTranslation:
    """One stream on its way from wire to wire.

    A stream that breaks (cut short, or not what its wire allows) becomes an error in the target's own words, never a
    normal end; `error` then holds what happened.
    """

    __slots__ = ("_decoder", "_encoder", "_reporter", "_restorer", "_same", "_started", "error", "losses")

    def __init__(self, source: str, target: str, request: JSON | bytes | str | None = None) -> None:
        self.losses = Losses()
        self.error: ToolwireError | None = None
        self._same = source == target
        self._started = False
        if self._same:
            get(source)
            return
        reader, writer = get(source), get(target)
        canonical = None if request is None else writer.decode_request(_parsed(request))
        exchange = Exchange() if canonical is None else prepare(canonical, reader).exchange
        self._decoder = reader.stream_decoder()
        self._encoder = writer.stream_encoder(canonical)
        self._restorer = exchange.restorer(self.losses, writer.capabilities)
        self._reporter = AnswerReporter(writer.name, self.losses)
        self._decoder.losses = self._encoder.losses = self.losses

    def feed(self, data: bytes) -> bytes:
        if self._same or self.error is not None:
            return b"" if self.error is not None else data
        try:
            return self._write(self._decoder.feed(data))
        except ToolwireError as error:
            return self._fail(error)

    def close(self) -> bytes:
        """The end of the source. What was cut short ends in an error event."""
        if self._same or self.error is not None:
            return b""
        try:
            return self._write(self._decoder.close())
        except ToolwireError as error:
            return self._fail(error)

    def _write(self, events: Iterable[Event]) -> bytes:
        encode, restore = self._encoder.feed, self._restorer.feed
        out: list[bytes] = []
        for event in events:
            if type(event) not in _DELTAS:
                self._reporter.event(event)
            out += [encode(restored) for restored in restore(event)]
        if out:
            self._started = True
        if self._restorer.fault is not None:
            self.error = UpstreamError(self._restorer.fault)
        return b"".join(out)

    def _fail(self, error: ToolwireError) -> bytes:
        self.error = error
        code = "stream_truncated" if isinstance(error, TruncatedStream) else "stream_broken"
        fault = StreamFault(Fault("server", error.message, 502, code, retryable=True))
        start = b"" if self._started else self._encoder.feed(ResponseStart())
        return start + self._encoder.feed(fault)
