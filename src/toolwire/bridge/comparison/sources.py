"""Read a document as the source of a comparison, and write it for each target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Loss, Losses
from ...ir.pointer import JSON, split
from ...ir.request import Request
from ...ir.response import Response, Stop
from ...ir.text import to_bytes
from ...ir.tools import Tool
from ...ir.value import Value
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
from .reading import ElementKind, Group, Member, read_elements

Family: TypeAlias = Literal["wire", "text"]
Language: TypeAlias = Literal["json", "sse", "ndjson", "text"]


class Element(Value, frozen=True):
    """A thing that documents have in common. `parent` is the id of the element around it."""

    kind: ElementKind
    label: str
    parent: str | None = None


class Written(NamedTuple):
    """A translation before its elements are placed: positions come from links, or from traces of a text format."""

    text: str
    language: Language
    losses: tuple[Loss, ...]
    links: Sequence[ElementLink] = ()
    traces: Sequence[tuple[str, Sequence[TextRange]]] = ()
    model: str = ""


class ComparisonSource:
    """A document that was read, with its elements."""

    family: Family
    language: Language

    def __init__(self, name: str, kind: str, text: str, groups: list[Group]) -> None:
        self.name = name
        self.kind = kind
        self.text = text
        self.groups = groups
        self.left_out = 0

    def limit_elements(self, most: int) -> None:
        """Leave out the groups after the first `most` elements."""
        kept = 0
        for index, group in enumerate(self.groups):
            kept += 1 + len(group.members)
            if kept > most:
                self.left_out = sum(1 + len(rest.members) for rest in self.groups[index:])
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
        self.reading = read_elements(self.document, name, kind)
        super().__init__(name, kind, text, self.reading.groups)
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
            return ()
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
        translation = translate(self.text, source=self.name, target=target, kind=self.kind, model=model)  # type: ignore[arg-type]
        text = msgspec.json.format(bytes(translation), indent=2).decode()
        links: Sequence[ElementLink] = ()
        if self.groups:
            written = read_elements(translation.body, target, self.kind)
            links = match_elements(self.groups, written.groups, self._original_name(target, model))
        return Written(text, "json", translation.losses, links, model=translation.model)

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
        text = data.decode()
        return Written(text, _stream_language(text), tuple(Losses(translation.losses)))

    def write_format(self, form: Format, model: str | None) -> Written:
        losses = Losses()
        reading = self.reading
        if isinstance(reading.canonical, Request):
            request = reading.canonical if model is None else replace(reading.canonical, model=model)
            text = text_formats.write_request(request, form, losses)
            traces = text_formats.trace_elements(
                request, self.groups, text, lambda marked: text_formats.write_request(marked, form, Losses())
            )
            locate = get(self.name).locator(reading.canonical)
        elif isinstance(reading.canonical, Response):
            text = text_formats.write_response(reading.canonical, form, losses)
            traces = text_formats.trace_elements(
                reading.canonical, self.groups, text, lambda marked: text_formats.write_response(marked, form, Losses())
            )
            locate = get(self.name).locator(reading.canonical)
        else:
            text = text_formats.write_tools(reading.tools, form, losses)
            traces = text_formats.trace_elements(
                reading.tools, self.groups, text, lambda marked: text_formats.write_tools(marked, form, Losses())
            )
            locate = _tool_path
        located = tuple(replace(loss, path=locate(loss.path)) for loss in losses)
        return Written(text, "text", located, traces=list(traces))


def _tool_path(path: str) -> str:
    return path


class TextDocument(ComparisonSource):
    """The output of a model in a text format."""

    family: Family = "text"
    language: Language = "text"

    def __init__(self, form: Format, text: str, tools: Sequence[Tool]) -> None:
        parsed = form.parse(text, tools, spans=True)
        groups, self._places = text_formats.read_text(text, parsed)
        super().__init__(form.name, "response", text, groups)
        reason: Literal["tool_calls", "stop"] = "tool_calls" if parsed.calls else "stop"
        self.response = Response(parts=parsed.parts, stop=Stop(reason))

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
        writer, losses = get(target), Losses()
        answer = self.response if model is None else replace(self.response, model=model)
        encoded, encode_losses = writer.encode_response(convert_response(answer, Exchange(), writer, losses))
        losses.extend(encode_losses)
        text = msgspec.json.format(to_bytes(encoded), indent=2).decode()
        written = read_elements(encoded, target, "response")
        links = match_elements(self.groups, written.groups, Exchange().original_name)
        return Written(text, "json", tuple(losses), links, model=model or "")

    def write_format(self, form: Format, model: str | None) -> Written:
        losses = Losses()
        text = text_formats.write_response(self.response, form, losses)
        traces = text_formats.trace_elements(
            self.response, self.groups, text, lambda marked: text_formats.write_response(marked, form, Losses())
        )
        return Written(text, "text", tuple(losses), traces=list(traces))


def _with_members(group: Group) -> Iterable[tuple[str, Group | Member]]:
    yield group.id, group
    for member in group.members:
        yield group.id + member.suffix, member


def _stream_language(text: str) -> Language:
    start = text.lstrip("\ufeff \r\n")[:1]
    return "json" if start == "[" else "ndjson" if start == "{" else "sse"
