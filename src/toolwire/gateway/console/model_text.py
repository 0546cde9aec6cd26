"""The view *Text formats*: the output of a model as calls, reasoning and text, with positions and diagnostics."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...ir.errors import ConfigError
from ...ir.parts import Part, Reasoning, Text, ToolCall, part_label
from ...ir.text import dumps
from ...ir.tools import Tool
from ...stream.positions import CodeUnits
from ...text import detect, get, names
from ...text.engine.format import Format, Parsed
from .messages import Candidate, TextAnswer, TextNote, TextPart, TextRequest, TextSpan
from .translation import encode_range, read_tools

_MAX_CANDIDATES = 200_000  # characters of a text that all formats try; each parser reads it once


def text_view(request: TextRequest) -> TextAnswer:
    """Parse the output of a model, and list the formats in which it has calls."""
    text = request.input
    if not text.strip():
        raise ConfigError("the input is empty", hint="paste the text of a model")
    tools = () if request.tools is None else read_tools(request.tools)
    name = detect(f"{text}\n") if request.format is None else request.format
    form = get(name or "hermes")  # it separates reasoning from text, whatever the format
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


def _find_candidates(text: str, tools: Sequence[Tool], request: TextRequest) -> list[Candidate]:
    """Return the formats that find calls, the most calls with the fewest diagnostics first."""
    if len(text) > _MAX_CANDIDATES:
        return []
    found: list[Candidate] = []
    for form in map(get, names()):
        parsed = _try_format(form, text, tools, request)
        if parsed.calls:
            found.append(Candidate(form.name, form.title, len(parsed.calls), len(parsed.diagnostics)))
    return sorted(found, key=lambda candidate: (candidate.diagnostics, -candidate.calls, candidate.name))


def _try_format(form: Format, text: str, tools: Sequence[Tool], request: TextRequest) -> Parsed:
    return form.parse(text, tools, finished=request.finished, reasoning=request.thinking)


def _encode_part(part: Part) -> TextPart:
    if isinstance(part, ToolCall):
        arguments = None if part.arguments is None else msgspec.json.format(dumps(part.arguments), indent=2)
        return TextPart("call", part.text, part.name, part.id, arguments, part.state)
    text = part.text if isinstance(part, (Text, Reasoning)) else ""
    return TextPart(part_label(part), text, "", "", None, "complete")
