"""Write a document in a text format, and find its elements in the text; read the elements of a model's text.

A prompt has no pointers, and a value may occur in it at many places. So each element is traced: the text is written
again with a marker in place of the value, and where the marker appears, the value was. The trace counts only if the
text with the value in place of the marker is the original text: then the value has no other effect on it.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from ...ir.errors import ConfigError, ToolwireError
from ...ir.losses import Losses
from ...ir.parts import Part, Reasoning, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, split
from ...ir.request import Request
from ...ir.response import Response
from ...ir.text import dumps, shorten
from ...ir.tools import Tool
from ...stream.positions import find_places
from ...stream.strict import parse_object
from ...text.engine.format import Format, Parsed
from ...text.engine.spans import Span
from ..emulation.prompts import write_calls
from ..emulation.requests import emulate
from ..emulation.settings import EmulationSettings
from .places import Placed, TextRange
from .reading import ElementKind, Group, Member, read_arguments

Canonical = TypeVar("Canonical", Request, Response, tuple[Tool, ...])
_Replaced = TypeVar("_Replaced")

_MAX_TRACED = 200  # elements of a text; each is written once more
_MAX_WRITTEN = 20_000_000  # characters that traces may write, about a second
_PART_COST = 2_000  # characters; a part or a tool is written and read again in as much time (0.1 to 0.2 ms)
_NUMBER = 918273645  # a marker for numbers; any number that is unlikely in a document
_LABEL = 60  # characters, as of other labels


def write_request(request: Request, form: Format, losses: Losses) -> str:
    """Return the raw prompt of a request, and add its losses. A model without a known chat template is shown with ChatML."""
    try:
        emulation = emulate(request, EmulationSettings(form, via="completions"))
    except ConfigError:
        emulation = emulate(request, EmulationSettings(form, via="completions", template="chatml"))
        losses.add("/model", "chat template", "rewritten", "the model's template is not known; this is ChatML", "info")
    losses.extend(emulation.losses)
    return "".join(part.text for part in emulation.request.messages[0].parts if isinstance(part, Text))


def write_response(response: Response, form: Format, losses: Losses) -> str:
    """Return the text that a model would write for an answer. Parts that the format cannot hold are losses."""
    begin, end = form.reasoning[0] if form.reasoning else ("", "")
    texts: list[str] = []
    for index, part in enumerate(response.parts):
        if isinstance(part, Reasoning):
            texts.append(f"{begin}{part.joined_text}{end}\n")
        elif isinstance(part, Text):
            texts.append(part.text)
        elif not isinstance(part, ToolCall):
            losses.add(f"/parts/{index}", "part", "dropped", "the format has only text, reasoning and calls", "error")
    if response.calls:
        separator = "\n" if texts and not texts[-1].endswith("\n") else ""
        texts.append(separator + write_calls(response.calls, form, (), losses, 0))
    return "".join(texts)


def write_tools(tools: tuple[Tool, ...], form: Format, losses: Losses) -> str:
    """Return the part of a prompt that declares the tools. Built-in tools are losses."""
    for index, tool in enumerate(tools):
        if tool.kind == "builtin":
            losses.add(f"/tools/{index}", tool.name, "dropped", "only its provider can run it", "error")
    return form.render_tools([tool for tool in tools if tool.kind != "builtin"])


_ONE_VALUE = frozenset({"name", "description", "id", "text", "argument"})


def trace_elements(
    value: Canonical, groups: Iterable[Group], text: str, write: Callable[[Canonical], str]
) -> Iterator[Placed]:
    """Yield the places of elements in `text`, which `write` returned for `value`."""
    marker = unused_marker(text)
    left = min(_MAX_TRACED, _MAX_WRITTEN // (len(text) + _PART_COST * _count_parts(value)))
    for group in groups:
        for suffix, shown, mark in _traceable(group, marker):
            if left <= 0:
                return
            left -= 1
            try:
                pieces = write(_with_mark(value, group, suffix, mark)).split(str(mark))
            except ToolwireError:
                continue
            if ranges := find_value(text, pieces, shown):
                yield Placed(group.id + suffix, None, tuple(ranges))


def unused_marker(text: str) -> str:
    marker = "Zqx7Marker"
    while marker in text:
        marker += "7"
    return marker


def _count_parts(value: Request | Response | tuple[Tool, ...]) -> int:
    if isinstance(value, tuple):
        return 1 + len(value)
    messages = value.messages if isinstance(value, Request) else [value]
    parts = [part for message in messages for part in message.parts]
    inner = sum(len(part.parts) for part in parts if isinstance(part, ToolResult))
    return 1 + len(parts) + inner + (len(value.tools) if isinstance(value, Request) else 0)


def _traceable(group: Group, marker: str) -> Iterator[tuple[str, JSON, JSON]]:
    """Yield the suffix, the value and the marker of each element of a group that is one string or number."""
    if group.kind in ("text", "reasoning"):
        part = group.value
        yield "", part.text if isinstance(part, (Text, Reasoning)) else "", marker
    for member in group.members:
        if member.kind in _ONE_VALUE and type(member.value) is str and member.value:
            yield member.suffix, member.value, marker
        elif member.kind == "argument" and type(member.value) in (int, float):
            yield member.suffix, member.value, _NUMBER


def find_value(text: str, pieces: list[str], shown: JSON) -> list[TextRange]:
    """Return the positions of a value between the pieces around its marker, or none if the pieces differ from `text`."""
    if len(pieces) < 2:
        return []
    escaped = dumps(shown)[1:-1] if type(shown) is str else dumps(shown)
    for written in dict.fromkeys((str(shown), escaped)):
        if written and written.join(pieces) == text:
            ranges, position = [], 0
            for piece in pieces[:-1]:
                position += len(piece)
                ranges.append((position, position + len(written)))
                position += len(written)
            return ranges
    return []


def _with_mark(value: Canonical, group: Group, suffix: str, mark: JSON) -> Canonical:
    """Return the request, answer or tools with the marker in place of an element."""
    return cast("Canonical", _mark_element(value, group, suffix, mark))


def _mark_element(value: Request | Response | tuple[Tool, ...], group: Group, suffix: str, mark: JSON) -> object:
    if isinstance(value, tuple):
        return _replace_item(value, group.position[0], lambda tool: _mark_tool(tool, suffix, mark))
    if isinstance(value, Response):
        parts = _replace_item(value.parts, group.position[0], lambda part: _mark_part(part, suffix, mark))
        return replace(value, parts=parts)
    if group.kind == "tool":
        tools = _replace_item(value.tools, group.position[0], lambda tool: _mark_tool(tool, suffix, mark))
        return replace(value, tools=tools)
    index, number = group.position
    message = value.messages[index]
    parts = _replace_item(message.parts, number, lambda part: _mark_part(part, suffix, mark))
    return replace(value, messages=_replace_item(value.messages, index, lambda _: replace(message, parts=parts)))


def _replace_item(
    items: tuple[_Replaced, ...], index: int, change: Callable[[_Replaced], _Replaced]
) -> tuple[_Replaced, ...]:
    return (*items[:index], change(items[index]), *items[index + 1 :])


def _mark_tool(tool: Tool, suffix: str, mark: str) -> Tool:
    return replace(tool, name=mark) if suffix == ".name" else replace(tool, description=mark)


def _mark_part(part: Part, suffix: str, mark: JSON) -> Part:
    """Return a part with the marker as its text, name, id, or one of its arguments."""
    if isinstance(part, ToolCall):
        if suffix == ".name":
            return replace(part, name=mark)
        if suffix == ".id":
            return replace(part, id=mark)
        return replace(part, arguments=replace_value(part.arguments, split(suffix[2:]), mark), raw=None)
    if isinstance(part, ToolResult):
        if suffix == ".id":
            return replace(part, call_id=mark)
        if suffix == ".name":
            return replace(part, name=mark)
        return replace(part, parts=tuple(Text(mark) if isinstance(item, Text) else item for item in part.parts))
    return replace(part, text=mark)


def replace_value(value: JSON, path: Sequence[str], new: JSON) -> JSON:
    """Return a copy of a JSON value with another value at a path."""
    if not path:
        return new
    copy = value.copy()
    key: str | int = int(path[0]) if type(value) is list else path[0]
    copy[key] = replace_value(value[key], path[1:], new)
    return copy


def read_text(text: str, parsed: Parsed) -> tuple[list[Group], dict[str, TextRange]]:
    """Return the elements of a model's text, and their positions from the spans of the parser."""
    spans = {(span.part, span.kind): (span.start, span.end) for span in parsed.spans}
    groups: list[Group] = []
    places: dict[str, TextRange] = {}
    numbers: Counter[str] = Counter()
    outer = [span for span in parsed.spans if span.kind in ("call", "reasoning")]
    outer.sort(key=lambda span: span.part)

    def add(kind: ElementKind, letter: str, label: str, part: Part, index: int, at: TextRange) -> Group:
        group = Group(kind, f"{letter}{numbers[letter]}", shorten(label, _LABEL), "", part, [], "assistant", (index,))
        numbers[letter] += 1
        groups.append(group)
        places[group.id] = at
        return group

    for index, part in enumerate(parsed.parts):
        if isinstance(part, ToolCall) and (index, "call") in spans:
            group = add("call", "c", part.name, part, index, spans[index, "call"])
            if (name := spans.get((index, "name"))) and text[slice(*name)] == part.name:
                group.members.append(Member(".name", "name", part.name, "", part.name))
                places[f"{group.id}.name"] = name
            if at := spans.get((index, "arguments")):
                group.members.append(Member(".args", "arguments", "arguments", "", part.arguments))
                places[f"{group.id}.args"] = at
                _add_arguments(group, text[slice(*at)], at[0], part.arguments, places)
        elif isinstance(part, Reasoning) and (at := spans.get((index, "reasoning"))):
            add("reasoning", "g", part.text, part, index, at)
        elif isinstance(part, Text) and (at := _find_text(text, part.text, index, outer)):
            add("text", "x", part.text, part, index, at)
    return groups, places


def _find_text(text: str, searched: str, index: int, outer: Sequence[Span]) -> TextRange | None:
    """Return the range of a part's text if it occurs once between its neighbours: searching all would be quadratic."""
    at = bisect(outer, index, key=lambda span: span.part)
    first, last = outer[at - 1].end if at else 0, outer[at].start if at < len(outer) else len(text)
    start = text.find(searched, first, last)
    is_unique = searched and start >= 0 > text.find(searched, start + 1, last)
    return (start, start + len(searched)) if is_unique else None


def _add_arguments(
    group: Group, written: str, start: int, arguments: Object | None, places: dict[str, TextRange]
) -> None:
    """Add the arguments of a call whose notation is a JSON object."""
    try:
        if arguments is None or dumps(parse_object(written)) != dumps(arguments):
            return
    except ToolwireError:
        return
    members = list(read_arguments(arguments))
    found = find_places(written, [member.pointer for member in members])
    for member in members:
        place = found[member.pointer]
        group.members.append(member)
        places[group.id + member.suffix] = (start + place.member, start + place.end)
