"""The views *Translate* and *Text formats*: a document in every format, and the text of a model in one of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...bridge.comparison import ComparedDocument, Comparison, PlacedLoss, compare
from ...bridge.comparison.places import Placed
from ...bridge.translation.detection import detect
from ...bridge.translation.tool_lists import decode_readable_tools, find_declarations
from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.losses import Losses
from ...ir.parts import Part, Reasoning, Text, ToolCall, part_label
from ...ir.text import dumps
from ...ir.tools import Tool
from ...stream.positions import CodeUnits
from ...stream.strict import parse
from ...text import detect as detect_format
from ...text import get as get_format
from ...text import names as format_names
from ...text.engine.format import Format, Parsed
from ...text.engine.offered_tools import OfferedTools
from ...wire import get, mcp
from .messages import (
    At,
    ElementPlace,
    ElementView,
    FailedTranslation,
    FormatCandidate,
    LossPlace,
    OutputView,
    SourceView,
    TextAnswer,
    TextNote,
    TextPart,
    TextRequest,
    TextSpan,
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


# The output of a model, in the format that is detected or chosen.


_MAX_CANDIDATES = 200_000  # characters of a text that all formats try; each parser reads it once


def text_view(request: TextRequest) -> TextAnswer:
    """Parse the output of a model, and list the formats in which it has calls.

    Raise ConfigError for an empty text.
    """
    text = request.input
    if not text.strip():
        raise ConfigError("the input is empty", hint="paste the text of a model")
    tools = () if request.tools is None else read_tools(request.tools)
    name = detect_format(f"{text}\n") if request.format is None else request.format
    form = get_format(name or "hermes")  # it separates reasoning from text, whatever the format
    parsed = form.parse(text, tools, finished=request.finished, reasoning=request.thinking, spans=True)
    units = CodeUnits(text)
    spans = [TextSpan(span.kind, span.part, (units.at(span.start), units.at(span.end))) for span in parsed.spans]
    notes = [
        TextNote(note.code, note.detail, encode_range((note.position, note.position), units) or (0, 0))
        for note in parsed.diagnostics
    ]
    return TextAnswer(
        name,
        request.format is None,
        _find_candidates(text, tools, request),
        [_encode_part(part) for part in parsed.parts],
        spans,
        notes,
    )


def _find_candidates(text: str, tools: Sequence[Tool], request: TextRequest) -> list[FormatCandidate]:
    """Return the formats that find calls, the most calls with the fewest diagnostics first."""
    if len(text) > _MAX_CANDIDATES:
        return []
    found: list[FormatCandidate] = []
    offered = OfferedTools(tools)
    for form in map(get_format, format_names()):
        if not may_contain_calls(form, text, offered):
            continue
        parsed = _try_format(form, text, tools, request)
        if parsed.calls:
            found.append(FormatCandidate(form.name, form.title, len(parsed.calls), len(parsed.diagnostics)))
    return sorted(found, key=lambda candidate: (candidate.diagnostics, -candidate.calls, candidate.name))


def may_contain_calls(form: Format, text: str, offered: OfferedTools) -> bool:
    """Return False if a text has none of the tags that begin a call: most formats need not parse it."""
    style = form.calls
    openers = (*style.openers(offered), *style.weak_openers(offered), *style.inline_openers(offered))
    return any(opener in text for opener in openers)


def _try_format(form: Format, text: str, tools: Sequence[Tool], request: TextRequest) -> Parsed:
    return form.parse(text, tools, finished=request.finished, reasoning=request.thinking)


def _encode_part(part: Part) -> TextPart:
    if isinstance(part, ToolCall):
        arguments = None if part.arguments is None else msgspec.json.format(dumps(part.arguments), indent=2)
        return TextPart("call", part.text, part.name, part.id, arguments, part.state)
    text = part.text if isinstance(part, (Text, Reasoning)) else ""
    return TextPart(part_label(part), text, "", "", None, "complete")
