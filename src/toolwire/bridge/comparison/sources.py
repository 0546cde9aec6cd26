"""Read a document as the source of a comparison, and write it for each target."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from ...ir.errors import ProtocolError, ToolwireError
from ...ir.losses import Loss, Losses
from ...ir.pointer import JSON, resolve, split
from ...ir.request import Request
from ...ir.response import Response, Stop
from ...ir.text import to_bytes
from ...ir.tools import Tool
from ...ir.value import Value
from ...stream.event_stream import EventStreamDecoder, is_event_stream
from ...stream.positions import find_places
from ...stream.strict import as_bytes, parse
from ...text.engine.format import Format
from ...wire import get, mcp
from ..conversation.names import NameMap
from ..translation.documents import translate, translate_stream
from ..translation.exchange import Exchange, convert_response
from ..translation.preparation import prepare
from . import text_formats
from .matching import ElementLink, match_elements
from .places import Placed, TextRange, place_elements
from .reading import ElementKind, Group, Member, Reading, read_elements
from .streams import read_stream

Family: TypeAlias = Literal["wire", "text"]
Language: TypeAlias = Literal["json", "sse", "ndjson", "text"]

_MAX_TRACED = 100  # texts that are not found in a translation; each is translated once more
_MAX_TRANSLATED = 3_000_000  # characters of these translations, about a third of a second


class Element(Value, frozen=True):
    """A thing that documents have in common. `parent` is the id of the element around it."""

    kind: ElementKind
    label: str
    parent: str | None = None


class Written(NamedTuple):
    """A translation. Its elements have links to values in JSON, or are `placed` already."""

    text: str
    language: Language
    losses: tuple[Loss, ...]
    links: Sequence[ElementLink] = ()
    placed: Sequence[Placed] = ()
    model: str = ""


class ComparisonSource:
    """A document that was read, with its elements."""

    family: Family
    language: Language

    def __init__(self, name: str, kind: str, text: str, reading: Reading) -> None:
        self.name = name
        self.kind = kind
        self.text = text
        self.reading = reading
        self.groups = reading.groups
        self.left_out = reading.unread

    def limit_elements(self, most: int) -> None:
        """Leave out the groups after the first `most` elements."""
        kept = 0
        for index, group in enumerate(self.groups):
            kept += 1 + len(group.members)
            if kept > most:
                self.left_out += sum(1 + len(rest.members) for rest in self.groups[index:])
                del self.groups[index:]
                return

    def elements(self) -> dict[str, Element]:
        found: dict[str, Element] = {}
        for group in self.groups:
            found[group.id] = Element(group.kind, group.label)
            for member in group.members:
                found[group.id + member.suffix] = Element(member.kind, member.label, _parent(group.id, member))
        return found

    def places(self) -> tuple[Placed, ...]:
        raise NotImplementedError

    def find(self, pointers: Iterable[str]) -> dict[str, TextRange]:
        """Return the positions of the paths of losses and errors."""
        raise NotImplementedError

    def write_wire(self, target: str, model: str | None) -> Written:
        raise NotImplementedError

    def write_format(self, form: Format, model: str | None) -> Written:
        raise NotImplementedError


def _parent(group: str, member: Member) -> str:
    """Return the id of the element around a member, such as the argument around an argument."""
    outer, slash, _ = member.suffix.rpartition("/")
    while outer.endswith("/~items"):  # the schema of items is no element
        outer = outer.removesuffix("/~items")
    if slash and outer not in (".a", ".p"):
        return group + outer
    if member.kind in ("argument", "parameter"):
        return group + (".args" if member.kind == "argument" else ".parameters")
    return group


class WireDocument(ComparisonSource):
    """A document of a wire, or a list of tools of MCP."""

    family: Family = "wire"

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.document: JSON = None if kind == "stream" else self._parse(text, kind)
        self._ranges: dict[str, list[TextRange]] = {}
        if kind == "stream":
            reading, self._ranges = read_stream(text, name)
        else:
            reading = read_elements(self.document, name, kind)
        super().__init__(name, kind, text, reading)
        self.language: Language = _stream_language(text) if kind == "stream" else "json"

    @staticmethod
    def _parse(text: str, kind: str) -> JSON:
        try:
            return parse(text)
        except ProtocolError:
            if kind != "error":
                raise
            return None  # an error page

    def places(self) -> tuple[Placed, ...]:
        if self.document is None:
            return tuple(Placed(name, None, tuple(self._ranges[name])) for name in self.elements())
        items = [(name, element, False) for group in self.groups for name, element in _with_members(group)]
        return place_elements(self.text, items)

    def find(self, pointers: Iterable[str]) -> dict[str, TextRange]:
        if self.document is None:
            return {}
        found = find_places(self.text, {pointer for pointer in pointers if pointer})
        return {pointer: (place.member, place.end) for pointer, place in found.items()}

    def write_wire(self, target: str, model: str | None) -> Written:
        if self.kind == "stream":
            return self._write_stream(target)
        # a translation to the same wire keeps its text; the others need no second parse
        body = self.text if target == self.name or self.document is None else self.document
        translation = translate(body, source=self.name, target=target, kind=self.kind, model=model)  # type: ignore[arg-type]
        text = msgspec.json.format(bytes(translation), indent=2).decode()
        links: Sequence[ElementLink] = ()
        placed: list[Placed] = []
        if self.groups:
            written = read_elements(translation.body, target, self.kind)
            links = match_elements(self.reading, written, self._original_name(target, model))
            placed = list(self._trace_texts(text, {link.id for link in links}, target, model))
        return Written(text, "json", translation.losses, links, placed, translation.model)

    def _trace_texts(self, text: str, linked: Container[str], target: str, model: str | None) -> Iterator[Placed]:
        """Yield the places of texts that the target has joined with others, or extended.

        A text is translated again with a marker in its place, as in `text_formats`. Texts that only occur in a larger
        text by chance are not found so.
        """
        marker = text_formats.unused_marker(text)
        left = min(_MAX_TRACED, _MAX_TRANSLATED // len(self.text))
        for name, element in (item for group in self.groups for item in _with_members(group)):
            if element.kind not in ("text", "reasoning") or name in linked or left <= 0:
                continue
            left -= 1
            value = resolve(self.document, element.pointer)
            document = text_formats.replace_value(self.document, split(element.pointer), marker)
            try:
                marked = translate(document, source=self.name, target=target, kind=self.kind, model=model)  # type: ignore[arg-type]
            except ToolwireError:
                continue
            pieces = msgspec.json.format(bytes(marked), indent=2).decode().split(marker)
            if ranges := text_formats.find_value(text, pieces, value):
                yield Placed(name, None, tuple(ranges))

    def _original_name(self, target: str, model: str | None) -> Callable[[str | None, str], tuple[str | None, str]]:
        """Return the function from names of tools on the target to names in this document."""
        canonical = self.reading.canonical
        if target in (self.name, mcp.NAME) or isinstance(canonical, Response):
            return Exchange().original_name
        if canonical is None:
            writer = get(target)
            names = NameMap(writer.limits, writer.capabilities.namespaces)
            for tool in self.reading.tools:
                names.to_wire(tool.namespace, tool.name)
            return names.from_wire
        request = canonical if model is None else replace(canonical, model=model)
        return prepare(request, get(target)).exchange.original_name

    def _write_stream(self, target: str) -> Written:
        translation = translate_stream(source=self.name, target=target)
        data = translation.feed(as_bytes(self.text)) + translation.close()
        if translation.error is not None:
            raise translation.error
        if is_event_stream(data):  # binary: its documents are shown, one in each line, without links
            text = "\n".join(message.payload.decode() for message in EventStreamDecoder().feed(data))
            return Written(text, "ndjson", tuple(Losses(translation.losses)))
        text = data.decode()
        written, ranges = read_stream(text, target)
        links = match_elements(self.reading, written, Exchange().original_name)
        placed = [Placed(link.id, None, tuple(ranges[link.target_id]), link.is_changed) for link in links]
        return Written(text, _stream_language(text), tuple(Losses(translation.losses)), placed=placed)

    def write_format(self, form: Format, model: str | None) -> Written:
        losses = Losses()
        reading = self.reading
        if isinstance(reading.canonical, Request):
            request = reading.canonical if model is None else replace(reading.canonical, model=model)
            text = text_formats.write_request(request, form, losses)
            placed = text_formats.trace_elements(
                request, self.groups, text, lambda marked: text_formats.write_request(marked, form, Losses())
            )
            locate = get(self.name).locator(reading.canonical)
        elif isinstance(reading.canonical, Response):
            text = text_formats.write_response(reading.canonical, form, losses)
            placed = text_formats.trace_elements(
                reading.canonical, self.groups, text, lambda marked: text_formats.write_response(marked, form, Losses())
            )
            locate = get(self.name).locator(reading.canonical)
        else:
            text = text_formats.write_tools(reading.tools, form, losses)
            placed = text_formats.trace_elements(
                reading.tools, self.groups, text, lambda marked: text_formats.write_tools(marked, form, Losses())
            )
            locate = _tool_path
        located = tuple(replace(loss, path=locate(loss.path)) for loss in losses)
        return Written(text, "text", located, placed=list(placed))


def _tool_path(path: str) -> str:
    return path


class TextDocument(ComparisonSource):
    """The output of a model in a text format."""

    family: Family = "text"
    language: Language = "text"

    def __init__(self, form: Format, text: str, tools: Sequence[Tool]) -> None:
        parsed = form.parse(text, tools, spans=True)
        groups, self._places = text_formats.read_text(text, parsed)
        reason: Literal["tool_calls", "stop"] = "tool_calls" if parsed.calls else "stop"
        self.response = Response(parts=parsed.parts, stop=Stop(reason))
        super().__init__(form.name, "response", text, Reading(groups, self.response))

    def places(self) -> tuple[Placed, ...]:
        known = self.elements()
        return tuple(Placed(name, None, (at,)) for name, at in self._places.items() if name in known)

    def find(self, pointers: Iterable[str]) -> dict[str, TextRange]:
        by_part = {str(group.position[0]): self._places[group.id] for group in self.groups}
        paths = {pointer: split(pointer) for pointer in pointers}
        return {
            pointer: by_part[path[1]] for pointer, path in paths.items() if path[:1] == ["parts"] and path[1] in by_part
        }

    def write_wire(self, target: str, model: str | None) -> Written:
        """Write the parsed answer for a wire, with its losses."""
        writer, losses = get(target), Losses()
        answer = self.response if model is None else replace(self.response, model=model)
        encoded, encode_losses = writer.encode_response(convert_response(answer, Exchange(), writer, losses).response)
        losses.extend(encode_losses)
        text = msgspec.json.format(to_bytes(encoded), indent=2).decode()
        written = read_elements(encoded, target, "response")
        links = match_elements(self.reading, written, Exchange().original_name)
        return Written(text, "json", tuple(losses), links, model=model or "")

    def write_format(self, form: Format, model: str | None) -> Written:
        losses = Losses()
        text = text_formats.write_response(self.response, form, losses)
        placed = text_formats.trace_elements(
            self.response, self.groups, text, lambda marked: text_formats.write_response(marked, form, Losses())
        )
        return Written(text, "text", tuple(losses), placed=list(placed))


def _with_members(group: Group) -> Iterable[tuple[str, Group | Member]]:
    yield group.id, group
    for member in group.members:
        yield group.id + member.suffix, member


def _stream_language(text: str) -> Language:
    start = text.lstrip("\ufeff \r\n")[:1]
    return "json" if start == "[" else "ndjson" if start == "{" else "sse"
