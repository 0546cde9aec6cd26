"""The view *Translate*: a document on every wire and in text formats, with the positions of elements and losses."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...bridge.comparison import ComparedDocument, Comparison, PlacedLoss, compare
from ...bridge.comparison.places import Placed
from ...bridge.translation.detection import detect
from ...bridge.translation.tool_lists import decode_readable_tools, find_declarations
from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.losses import Losses
from ...ir.tools import Tool
from ...stream.positions import CodeUnits
from ...stream.strict import parse
from ...wire import get, mcp
from .messages import (
    At,
    ElementPlace,
    ElementView,
    FailedTranslation,
    LossPlace,
    OutputView,
    SourceView,
    TranslateAnswer,
    TranslateRequest,
)


def translate_view(request: TranslateRequest) -> TranslateAnswer:
    """Translate a document; raise `ToolwireError` if it cannot be read."""
    if request.format is not None and request.source is not None:
        raise ConfigError("source and format exclude each other", hint="name a wire or a text format")
    comparison = compare(
        _indent(request.input) if request.pretty else request.input,
        source=request.format or request.source,
        kind=request.kind,
        targets=request.targets,
        model=request.model,
        strict=request.strict,
        tools=() if request.tools is None else read_tools(request.tools),
    )
    return encode_comparison(comparison, with_source=request.with_source)


def encode_comparison(comparison: Comparison, *, with_source: bool = True) -> TranslateAnswer:
    """Return a comparison with positions in UTF-16 code units."""
    source = comparison.source
    units = CodeUnits(source.text or "")
    return TranslateAnswer(
        SourceView(
            source.name,
            comparison.kind,
            source.family,
            source.language,
            comparison.is_detected,
            source.text if with_source else None,
            encode_places(source.places, units),
        ),
        [_encode_output(output, units) for output in comparison.outputs],
        {name: ElementView(item.kind, item.label, item.parent) for name, item in comparison.elements.items()},
        comparison.left_out,
    )


def _indent(text: str) -> str:
    """Indent a JSON document; return any other text as it is."""
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _encode_output(output: ComparedDocument, source: CodeUnits) -> OutputView:
    units = CodeUnits(output.text or "")
    error = output.error
    return OutputView(
        output.name,
        output.family,
        output.language,
        output.text,
        encode_places(output.places, units),
        [encode_loss(loss, source, units) for loss in output.losses],
        None
        if error is None
        else FailedTranslation(error.type, error.message, error.pointer, error.hint, encode_range(error.at, source)),
        output.model,
    )


def encode_places(places: Sequence[Placed], units: CodeUnits) -> list[ElementPlace]:
    return [
        ElementPlace(place.id, place.pointer, [_convert(at, units) for at in place.ranges], place.is_changed)
        for place in places
    ]


def encode_loss(placed: PlacedLoss, source: CodeUnits, target: CodeUnits) -> LossPlace:
    loss = placed.loss
    return LossPlace(
        loss.path,
        loss.target,
        loss.concept,
        loss.action,
        loss.severity,
        loss.detail,
        encode_range(placed.source_at, source),
        encode_range(placed.target_at, target),
    )


def encode_range(at: At | None, units: CodeUnits) -> At | None:
    return None if at is None else _convert(at, units)


def _convert(at: At, units: CodeUnits) -> At:
    return units.at(at[0]), units.at(at[1])


def read_tools(text: str, source: str | None = None) -> tuple[Tool, ...]:
    """Return the tools of a list of any wire or of MCP, or of a request; raise `ToolwireError` if there are none."""
    document = parse(text)
    detected = None if source is not None else detect(document)
    wire = source or ("" if detected is None else detected.wire)
    if wire != mcp.NAME and (detected is None or detected.kind == "request") and _is_request(document):
        tools = get(wire).decode_request(document).tools
    else:
        declared, _ = find_declarations(document, wire)
        tools, _ = decode_readable_tools(declared, wire, Losses())
    if not tools:
        raise ProtocolError("the document has no tools", hint="paste a list of tools, or a request with tools")
    return tools


def _is_request(document: object) -> bool:
    try:
        return detect(document).kind == "request"
    except ToolwireError:
        return False
