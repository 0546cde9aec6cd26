"""Translate documents from one wire to another.

    translate(body, source="anthropic", target="openai_chat", kind="request").body
    translate(answer, source="openai_chat", target="anthropic", kind="response", request=body).body

For an answer or an error, `request` is the client's original request, on the target wire. It rebuilds the Exchange,
which restores the client's names and ids. A document whose source and target wire are the same is left untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

from msgspec.structs import replace

from ..ir.errors import ConfigError, ProtocolError, StoredStateError
from ..ir.losses import Loss, Losses, require_lossless
from ..ir.pointer import JSON, Object, join, nearest_existing, split
from ..ir.request import Request
from ..ir.response import Fault, Response
from ..ir.text import to_bytes
from ..stream.strict import as_bytes, parse, parse_object, type_label
from ..wire import get, mcp
from ..wire.protocol import Wire
from .answer_converter import convert_response
from .exchange import Exchange
from .fit_tools import fit_tools
from .foreign import report_extra
from .names import NameMap
from .preparation import Prepared, prepare
from .readable import decode_readable_tools
from .stored import drop_stored

__all__ = ["Translation", "parse_body", "translate"]


class Translation:
    """A document on another wire. `status` and `headers` belong to it over HTTP; `model` is the model that it names."""

    __slots__ = ("_losses", "_raw", "body", "headers", "model", "status")

    def __init__(
        self,
        body: JSON,
        losses: tuple[Loss, ...] | Callable[[], tuple[Loss, ...]] = (),
        status: int = 200,
        model: str = "",
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> None:
        self.body = body
        self.headers = headers or {}
        self._raw = raw
        self.status = status
        self.model = model
        self._losses = losses

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses, with pointers into the source document."""
        if callable(self._losses):
            self._losses = self._losses()
        return self._losses

    def __bytes__(self) -> bytes:
        return to_bytes(self.body) if self._raw is None else self._raw


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
    """Translate `body` to `target`, and list the losses.

    `model` is for requests: the model to use, if it is another one or, as on Gemini, not in the body. `strict` raises
    LossError if a loss is more severe than `info`.
    """
    if kind not in list(_TRANSLATORS):
        raise ConfigError(f"unknown kind {kind!r}", hint=f"use one of {', '.join(_TRANSLATORS)}")
    if source == target and model is None:
        return _pass_through(body, source, kind)
    try:
        translation = _TRANSLATORS[kind](body, source, target, request if kind in ("response", "error") else model)
    except RecursionError:
        raise ProtocolError("the document is nested too deeply") from None
    except (AttributeError, TypeError):
        require_json(body)
        raise
    if strict:
        require_lossless(translation.losses)
    return translation


def parse_body(body: JSON | bytes | str) -> Object:
    if isinstance(body, (bytes, str)):
        return parse_object(body)
    if type(body) is not dict:
        raise ProtocolError(f"expected a JSON object, got {type_label(body)}")
    return body


def require_json(value: JSON, path: str = "") -> None:
    """Refuse parsed values that JSON cannot represent: keys that are not strings, and values of other types."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ProtocolError(f"not JSON: key {key!r} is not a string", pointer=path)
            require_json(inner, path + join(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            require_json(inner, path + join(index))
    elif value is not None and not isinstance(value, (str, bytes, bool, int, float)):
        raise ProtocolError(f"not JSON: value of type {type(value).__name__}", pointer=path)


def _pass_through(body: JSON, wire: str, kind: str) -> Translation:
    """Check that a document whose source and target are the same is a valid document."""
    if wire != mcp.NAME:
        get(wire)
    if isinstance(body, (bytes, str)):
        document = parse(body) if kind in ("tools", "error") else parse_object(body)
        return Translation(document, raw=as_bytes(body))
    if kind == "tools" and type(body) not in (dict, list):
        raise ProtocolError(f"expected an array of tools, got {type_label(body)}")
    return Translation(parse_body(body) if kind in ("request", "response") else body)


def _translate_request(body: JSON, source: str, target: str, model: JSON) -> Translation:
    """Translate a request; `model` replaces the model that it names.

    If that changes the model, the history is of another model, whose signatures are dropped (`history_model`).
    """
    document = parse_body(body)
    reader, writer = get(source), get(target)
    canonical = reader.decode_request(document)
    history_model = None
    if model is not None:
        if type(model) is not str:
            raise ConfigError(f"model must be a string, got {model!r}")
        history_model = canonical.model if canonical.model != model else None
        canonical = replace(canonical, model=model)
    if canonical.stream and writer.capabilities.counts_on_request and not reader.capabilities.counts_on_request:
        canonical = replace(canonical, params=replace(canonical.params, include_usage=True))
    try:
        prepared = prepare(canonical, writer, history_model=history_model or None)
    except StoredStateError as error:
        error.pointer = nearest_existing(document, reader.locator(canonical)(error.pointer))
        raise
    encoded, encode_losses = writer.encode_request(prepared.request)
    if not canonical.model and not reader.capabilities.model_in_path and not writer.capabilities.model_in_path:
        detail = "the request names no model, which the target requires"
        prepared.losses.add(join("model"), "model", "dropped", detail, "error")
    if not len(prepared.losses) and not len(encode_losses):
        return Translation(encoded, model=canonical.model)
    # The pointers are looked up only when they are needed.
    losses = partial(_locate_losses, prepared, encode_losses, document, reader, canonical)
    return Translation(encoded, losses, model=canonical.model)


def _locate_losses(
    prepared: Prepared, encode_losses: Losses, document: Object, reader: Wire, canonical: Request
) -> tuple[Loss, ...]:
    """Merge the losses of fitting and of encoding, with pointers into the client's document.

    Losses of encoding point into the fitted request, so `prepared.origin` maps them back first.
    """
    locate = reader.locator(canonical)
    merged = Losses()
    _locate_all(prepared.losses, document, locate, merged)
    _locate_all(encode_losses, document, lambda path: locate(prepared.origin(path)), merged)
    return tuple(merged)


def _locate_answer_losses(found_losses: Losses, document: Object, reader: Wire, answer: Response) -> tuple[Loss, ...]:
    merged = Losses()
    _locate_all(found_losses, document, reader.locator(answer), merged)
    return tuple(merged)


def _locate_all(losses: Iterable[Loss], document: Object, locate: Callable[[str], str], into: Losses) -> None:
    """Add the losses to `into`, with pointers into the source document."""
    for loss in losses:
        into.add(nearest_existing(document, locate(loss.path)), loss.concept, loss.action, loss.detail, loss.severity)


def _translate_response(body: JSON, source: str, target: str, request: JSON) -> Translation:
    """Translate an answer. If it ends in a fault, the result is an error document of the target."""
    document = parse_body(body)
    reader, writer = get(source), get(target)
    answer = reader.decode_response(document)
    found_losses = Losses()
    canonical = _decode_client_request(request, writer)
    response = convert_response(answer, _make_exchange(canonical, reader), writer, found_losses)
    if response.fault is not None:
        return _write_fault(response.fault, writer, found_losses)
    encoded, encode_losses = writer.encode_response(response, canonical)
    found_losses.extend(encode_losses)
    if not len(found_losses):
        return Translation(encoded, model=response.model)
    losses = partial(_locate_answer_losses, found_losses, document, reader, answer)
    return Translation(encoded, losses, model=response.model)


def _decode_client_request(request: JSON, client: Wire) -> Request | None:
    return None if request is None else client.decode_request(parse_body(request))


def _make_exchange(request: Request | None, upstream: Wire) -> Exchange:
    return Exchange() if request is None else prepare(drop_stored(request, upstream.name), upstream).exchange


def _write_fault(fault: Fault, writer: Wire, losses: Losses | None = None) -> Translation:
    """Write an error document, and report the fields that its wire cannot carry."""
    if fault.breach is not None:
        # No wire has a field for it, and another provider's message does not refer to the client's document.
        fault = replace(fault, message=f"{fault.message} ({fault.breach})")
    status, body, headers = writer.encode_error(fault)
    told = writer.decode_error(status, body, headers)
    losses = Losses() if losses is None else losses
    report_extra(fault.extra, "/error", writer.name, losses, as_info=True, scoped=False)
    for field in ("code", "param"):
        if getattr(fault, field) not in (None, getattr(told, field)):
            losses.add(f"/error/{field}", field, "dropped", f"errors of {writer.name} have no such field", "info")
    return Translation(body, tuple(losses), status, headers=headers)


def _translate_error(body: JSON, source: str, target: str, request: JSON) -> Translation:
    """Translate an error. A body that is not JSON, such as a proxy's error page, is kept as text."""
    if isinstance(body, (bytes, str)):
        try:
            body = parse(body)
        except ProtocolError:
            pass  # an error page is still an error
    reader, writer = get(source), get(target)
    fault = reader.decode_error(None, body)
    exchange = _make_exchange(_decode_client_request(request, writer), reader)
    return _write_fault(exchange.restore_fault(fault), writer)


def _translate_tools(body: JSON, source: str, target: str, _: JSON) -> Translation:
    """Translate tool declarations, in an array or under the key `tools`; unreadable ones are skipped."""
    document = parse(body) if isinstance(body, (bytes, str)) else body
    losses, fit_losses = Losses(), Losses()
    tools, indices = decode_readable_tools(_declarations(document, source), source, losses)
    if target != mcp.NAME:
        writer = get(target)
        names = NameMap(writer.limits, writer.capabilities.namespaces)
        fitted, _ = fit_tools(Request(tools=tools), writer, names, fit_losses)
        tools = tuple(tool for tool, _ in fitted)
        encoded, encode_losses = writer.encode_tools(tools)
    else:
        encoded, encode_losses = mcp.encode_tools(tools)
    fit_losses.extend(encode_losses)
    for loss in fit_losses:
        losses.add(_document_path(loss.path, indices), loss.concept, loss.action, loss.detail, loss.severity)
    wrapped = type(document) is dict and "tools" in document
    return Translation({"tools": encoded} if wrapped else encoded, tuple(losses))


def _declarations(document: JSON, source: str) -> list[JSON]:
    """Return the array of declarations: of an MCP result, under `tools`, the document itself, or a single tool."""
    if source == mcp.NAME and type(document) is dict and "result" in document:
        return mcp.declarations(document)
    declared = document.get("tools", [document]) if type(document) is dict else document
    if type(declared) is not list:
        raise ProtocolError(f"expected an array of tools, got {type_label(declared)}", pointer="/tools")
    return declared


def _document_path(path: str, indices: list[int]) -> str:
    """Replace the index by the tool's index in the document, where unreadable tools were skipped."""
    match split(path):
        case ["tools", index, *rest] if int(index) < len(indices):
            return join("tools", indices[int(index)], *rest)
    return path


_TRANSLATORS = {
    "request": _translate_request,
    "response": _translate_response,
    "tools": _translate_tools,
    "error": _translate_error,
}
