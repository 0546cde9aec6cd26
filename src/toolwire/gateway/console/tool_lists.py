"""The view *Tools*: a list of tools for each provider, with findings, lowered schemas, differences and tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ...audit.findings import TARGETS, Finding, parse_targets
from ...audit.tokens import declaration_tokens
from ...audit.tools import audit_targets
from ...bridge.translation.detection import detect
from ...bridge.translation.outcome import typed_errors
from ...bridge.translation.tool_lists import decode_readable_tools, find_declarations, source_locator
from ...ir.errors import ProtocolError, SchemaError, ToolwireError
from ...ir.losses import LossError, Losses
from ...ir.pointer import JSON, join
from ...ir.request import Request
from ...ir.text import dumps, shorten
from ...ir.tools import Tool
from ...schema.lowering.lowered import lower
from ...stream.positions import CodeUnits, TextPlace, find_places
from ...stream.strict import parse
from ...wire import get, mcp
from .messages import (
    At,
    FailedTranslation,
    FindingView,
    LossPlace,
    LoweredTool,
    ProviderView,
    SchemaDifference,
    ToolsAnswer,
    ToolsRequest,
    ToolSummary,
)

WIRES = {
    "openai": "openai_chat",
    "openai_strict": "openai_chat",
    "anthropic": "anthropic",
    "anthropic_strict": "anthropic",
    "gemini": "gemini",
    "gemini_json_schema": "gemini",
    "ollama": "ollama",
}
"""The wire of each target of the audit, for tokens."""
_DETAILED = 100  # tools whose lowered schemas are sent unasked; a page shows one at a time
_MAX_DIFFERENCES = 200  # of one tool; a list that is longer than a screen is not read
_MAX_SHOWN = 2_000  # characters of a value in a difference
_EMPTY = {"type": "object"}  # the schema of a tool without parameters


class _PlacedTools:
    """The tools of a document, with positions of their values in its text."""

    def __init__(self, text: str, source: str | None) -> None:
        self.text = text
        document = parse(text)
        detected = None if source is not None else detect(document)
        self.source = source or ("" if detected is None else detected.wire)
        is_request = detected is not None and detected.kind == "request"
        self.tools: tuple[Tool, ...]
        self.locate: Callable[[str], str]
        if is_request or (
            self.source != mcp.NAME and type(document) is dict and get(self.source).conversation in document
        ):
            request: Request = get(self.source).decode_request(document)
            self.tools, self.locate = request.tools, get(self.source).locator(request)
        else:
            declared, place = find_declarations(document, self.source)
            self.tools, indices = decode_readable_tools(declared, self.source, Losses())
            self.locate = source_locator(self.tools, indices, self.source, place)
        if not self.tools:
            raise ProtocolError("the document has no tools", hint="paste a list of tools, or a request with tools")
        self._units = CodeUnits(text)
        self._pointers: set[str] = set()
        self._places: dict[str, TextPlace] = {}

    def want(self, pointers: Iterator[str] | Sequence[str]) -> None:
        """Note pointers whose positions are needed; the text is read once for all of them."""
        self._pointers.update(pointers)

    def find(self) -> None:
        self._places = find_places(self.text, self._pointers)

    def at(self, pointer: str) -> At | None:
        place = self._places.get(pointer)
        return None if place is None else (self._units.at(place.member), self._units.at(place.end))


def tools_view(request: ToolsRequest) -> ToolsAnswer:
    """Audit and lower a list of tools for each provider; raise `ToolwireError` if it cannot be read."""
    with typed_errors(None):
        return _view_tools(request)


def _view_tools(request: ToolsRequest) -> ToolsAnswer:
    listed = _PlacedTools(request.input, request.source)
    tools = listed.tools
    providers = TARGETS if request.providers is None else parse_targets(request.providers)
    findings = audit_targets(tools, providers)
    details = range(len(tools)) if request.details is None and len(tools) <= _DETAILED else request.details or ()
    details = [index for index in dict.fromkeys(details) if 0 <= index < len(tools)]
    lowered = {
        name: [_lower_tool(tools[index], index, name, strict=request.strict) for index in details] for name in providers
    }
    indices: dict[str, list[int]] = defaultdict(list)
    for index, tool in enumerate(tools):
        indices[tool.name].append(index)

    def pointer_of(finding: Finding) -> str:
        same = indices.get(finding.tool, ())
        return listed.locate(join("tools", same[0]) + finding.path) if same else ""

    unique = dict.fromkeys(finding for found in findings.values() for finding in found)
    pointers = {finding: pointer_of(finding) for finding in unique}
    numbers = {finding: number for number, finding in enumerate(pointers)}
    listed.want([listed.locate(join("tools", index)) for index in range(len(tools))])
    listed.want([pointer for finding, pointer in pointers.items() if finding.tool])
    for items in lowered.values():
        for item in items:
            schema = listed.locate(join("tools", item.tool, "input_schema"))
            listed.want([schema + difference.pointer for difference in item.differences])
            listed.want([schema + loss.path for loss in item.losses])
    listed.find()
    wires = dict.fromkeys(WIRES.get(name, "openai_chat") for name in providers)
    tokens = [{wire: declaration_tokens(tool, wire) for wire in wires} for tool in tools]
    return ToolsAnswer(
        listed.source,
        request.input,
        [
            ToolSummary(tool.name, listed.at(listed.locate(join("tools", index))), tokens[index])
            for index, tool in enumerate(tools)
        ],
        [_encode_finding(finding, indices, pointer, listed) for finding, pointer in pointers.items()],
        [
            ProviderView(
                name,
                WIRES.get(name, "openai_chat"),
                sum(row[WIRES.get(name, "openai_chat")] for row in tokens),
                [numbers[finding] for finding in findings[name]],
                [_place_lowered(item, listed) for item in lowered[name]],
                None,
            )
            for name in providers
        ],
    )


def _encode_finding(finding: Finding, indices: dict[str, list[int]], pointer: str, listed: _PlacedTools) -> FindingView:
    same = indices.get(finding.tool, ())
    tool = same[0] if same else None
    return FindingView(finding.rule, tool, finding.level, finding.message, finding.fix, pointer, listed.at(pointer))


def _lower_tool(tool: Tool, index: int, target: str, *, strict: bool) -> LoweredTool:
    """Lower the schema of a tool. With `strict`, a loss above `info` is an error."""
    original = tool.input_schema or _EMPTY
    try:
        lowered = lower(original, target)
    except ToolwireError as error:
        return LoweredTool(index, None, [], [], _encode_error(error))
    losses = [
        LossPlace(loss.path, loss.target, loss.concept, loss.action, loss.severity, loss.detail)
        for loss in lowered.losses
    ]
    if not lowered.conforms:
        problem = SchemaError(lowered.problem or "the schema cannot be expressed", hint="simplify the schema")
        return LoweredTool(index, None, [], losses, _encode_error(problem))
    serious = tuple(loss for loss in lowered.losses if loss.severity != "info")
    if strict and serious:
        return LoweredTool(index, None, [], losses, _encode_error(LossError(serious)))
    text = msgspec.json.format(dumps(lowered.schema), indent=2)
    differences = []
    for difference in _differences(original, lowered.schema, ""):
        differences.append(difference)
        if len(differences) == _MAX_DIFFERENCES:
            break
    return LoweredTool(index, text, differences, losses, None)


def _place_lowered(item: LoweredTool, listed: _PlacedTools) -> LoweredTool:
    """Add the positions of differences and losses, in the source and in the lowered schema."""
    schema = listed.locate(join("tools", item.tool, "input_schema"))
    text = item.text or ""
    places = find_places(text, [difference.pointer for difference in item.differences]) if text else {}
    units = CodeUnits(text)
    for difference in item.differences:
        if difference.before is not None:
            difference.before_at = listed.at(schema + difference.pointer)
        place = places.get(difference.pointer)
        if place is not None and difference.after is not None:
            difference.after_at = (units.at(place.member), units.at(place.end))
    for loss in item.losses:
        loss.source_at = listed.at(schema + loss.path)
    return item


def _encode_error(error: ToolwireError) -> FailedTranslation:
    return FailedTranslation(type(error).__name__, error.message, error.pointer, error.hint)


def _differences(before: JSON, after: JSON, pointer: str) -> Iterator[SchemaDifference]:
    """Yield the differences of two JSON values, as deep as both have the same keys or lengths."""
    if type(before) is dict and type(after) is dict:
        for key in dict.fromkeys((*before, *after)):
            at = pointer + join(key)
            if key not in after:
                yield SchemaDifference(at, "removed", _show(before[key]), None)
            elif key not in before:
                yield SchemaDifference(at, "added", None, _show(after[key]))
            else:
                yield from _differences(before[key], after[key], at)
    elif type(before) is list and type(after) is list and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, pointer + join(index))
    elif type(before) is not type(after) or before != after:
        yield SchemaDifference(pointer, "changed", _show(before), _show(after))


def _show(value: JSON) -> str:
    return shorten(dumps(value), _MAX_SHOWN)
