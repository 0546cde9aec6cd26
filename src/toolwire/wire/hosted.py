"""The hosted tools of one wire: functions that read and write declarations, runs and citations.

A wire package gives its `WireCodec` a `HostedCodec`. The bridge reads with the codec of the source and writes with the
codec of the target, so N wires need N codecs.

Runs are opaque parts (`read_run`, `write_run`), or metadata of the whole answer (`read_end`, `write_end`). Citations
belong to a text (`read_text`, `write_text`), or to the whole answer. Positions in an answer count the characters of its
whole text; positions in a text count that text's characters.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ..ir.events import ResponseEnd
from ..ir.hosted import ISSUED_HERE, Citation, HostedKind, HostedRun, HostedTool, Location
from ..ir.parts import Extra, Opaque, Part, Text
from ..ir.pointer import JSON, Object, join
from ..ir.response import Usage
from ..ir.tools import Tool
from ..ir.value import Value


def no_tool(raw: Object) -> HostedTool | None:
    """Return None, for a provider without tools of its own."""
    del raw
    return None


def no_run(part: Opaque) -> HostedRun | None:
    """Return None, for answers without runs."""
    del part
    return None


def no_extra(citations: Sequence[Citation]) -> Extra:
    del citations
    return {}


def unchanged_end(end: ResponseEnd, text: str, runs: Sequence[HostedRun], citations: Sequence[Citation]) -> ResponseEnd:
    del text, runs, citations
    return end


def unchanged_usage(usage: Usage, runs: Sequence[HostedRun]) -> Usage:
    del runs
    return usage


KnownFields: TypeAlias = Mapping[str, Any]
"""The known fields of an object, or of each object of a list. A shape describes the value of a field; None: all of the
value is read, or it has no meaning on another wire, such as encrypted content."""


def unknown_pointers(value: JSON, shape: KnownFields | None, pointer: str = "") -> Iterator[str]:
    """Yield the pointers of fields that a shape does not know; fields without a value are no loss."""
    if shape is None:
        return
    if type(value) is list:
        for index, item in enumerate(value):
            yield from unknown_pointers(item, shape, pointer + join(index))
    elif type(value) is dict:
        for field, inner in value.items():
            if field in shape:
                yield from unknown_pointers(inner, shape[field], pointer + join(field))
            elif inner is not None and inner != [] and inner != {}:
                yield pointer + join(field)


def pointer_label(pointer: str) -> str:
    """Return the name of the field that a pointer leads to, or into whose list."""
    return next((name for name in reversed(pointer.split("/")) if not name.isdigit()), "")


Citations: TypeAlias = tuple[list[Citation], list[str]]
"""Citations, and the pointers of entries and fields that are not read."""


UNREQUESTED = "openai_chat/message"
"""The key of an answer's `extra` that may have citations although the request has no hosted tool: models of Perplexity
search always, and OpenRouter has names of models for it."""


class HostedCodec(Value, frozen=True, kw_only=True, eq=False):
    """Functions that read and write the hosted tools of one wire; see the module docstring."""

    read_tool: Callable[[Object], HostedTool | None] = no_tool
    """Return a declaration; None for any other built-in tool."""
    tool_shape: KnownFields = {}
    """The fields of declarations that `read_tool` reads."""
    write_tool: Callable[[HostedTool], tuple[Tool, frozenset[str]]] | None = None
    """Return the declaration, and the fields of the canonical one that it holds; None: the provider runs no tools."""
    beside_functions: tuple[str, str] | None = None
    """The flag (key of `extra`, field) of a request that the provider requires for its tools beside functions."""
    kinds: frozenset[HostedKind] = frozenset()
    """The kinds that `write_tool` can declare."""
    parts: Mapping[str, KnownFields] = {}
    """The types of opaque parts that may be runs, with the fields that `read_run` reads."""
    read_run: Callable[[Opaque], HostedRun | None] = no_run
    write_run: Callable[[HostedRun, str], list[Opaque]] | None = None
    """Return the parts of a run under an id that is unique in the answer; None: there are no such parts."""
    shows: frozenset[HostedKind] = frozenset()
    """The kinds of runs that `write_run` or `write_end` can write."""
    scopes: frozenset[tuple[str, str]]
    """The fields of `extra` (key and name) with citations and metadata, which `read_text` and `read_end` read."""
    read_text: Callable[[Extra], Citations] | None = None
    """Return the citations of a text; None: they are in the end of the answer."""
    covers_text: bool = False
    """A citation of a text belongs to the whole text."""
    counts_bytes: bool = False
    """Positions of citations in a text count its bytes in UTF-8, not its characters."""
    write_text: Callable[[Sequence[Citation]], Extra] = no_extra
    read_end: Callable[[ResponseEnd, str], tuple[list[HostedRun], Citations]] | None = None
    """Return the runs and citations in the end of an answer, of which the second argument is the whole text."""
    write_end: Callable[[ResponseEnd, str, Sequence[HostedRun], Sequence[Citation]], ResponseEnd] = unchanged_end
    write_usage: Callable[[Usage, Sequence[HostedRun]], Usage] = unchanged_usage
    """Add the number of runs to the usage."""


def read_location(raw: JSON) -> Location | None:
    """Read an approximate location; None if it is absent or empty."""
    if type(raw) is not dict:
        return None
    values = {name: raw.get(name) for name in Location.__struct_fields__}
    location = Location(**{name: value for name, value in values.items() if type(value) is str and value})
    return None if location == Location() else location


def write_location(location: Location) -> Object:
    values = {name: getattr(location, name) for name in Location.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}


def read_strings(value: JSON) -> tuple[str, ...]:
    """Return the strings of a list, and a single string as one; anything else is skipped."""
    if type(value) is str:
        return (value,) if value else ()
    return tuple([item for item in value if type(item) is str and item]) if type(value) is list else ()


def read_text_field(raw: JSON, name: str) -> str:
    """Return a field of an object if it is a string, or else the empty string."""
    value = raw.get(name) if type(raw) is dict else None
    return value if type(value) is str else ""


def read_position(raw: Object, name: str) -> int:
    value = raw.get(name)
    return value if type(value) is int and value >= 0 else 0


def count_characters(data: bytes, position: int) -> int:
    """Return the number of characters in the first `position` bytes of a text in UTF-8."""
    return len(data[:position].decode("utf-8", "replace"))


def count_bytes(text: str, position: int) -> int:
    """Return the number of bytes in UTF-8 of the first `position` characters of a text."""
    return len(text[:position].encode("utf-8", "surrogatepass"))


def list_objects(value: JSON) -> list[Object]:
    """Return the objects of a list; anything else is skipped."""
    return [item for item in value if type(item) is dict] if type(value) is list else []


def read_citations(
    value: JSON, pointer: str, read: Callable[[Object], Citation | None], shape: KnownFields | None
) -> Citations:
    """Read a list of citations; an entry that `read` cannot read is a pointer, or all of them are one."""
    citations: list[Citation] = []
    unread: list[str] = []
    for index, raw in enumerate(value if type(value) is list else ()):
        citation = read(raw) if type(raw) is dict else None
        if citation is None:
            unread.append(f"{pointer}/{index}")
        else:
            citations.append(citation)
            unread += unknown_pointers(raw, shape, f"{pointer}/{index}")
    return citations, unread if citations or not unread else [pointer]


def issue_id(prefix: str, run_id: str) -> str:
    """Return the id of a run that the provider of the wire has not issued."""
    return f"{prefix}_{ISSUED_HERE}{run_id.rpartition(ISSUED_HERE)[2]}"


def seal_text(text: str) -> str:
    """Return the content of a source for a field that its provider encrypts. `unseal_text` reads it."""
    return ISSUED_HERE + b64encode(text.encode("utf-8", "replace")).decode()


_RUN_IDS = ("id", "tool_use_id")


def is_issued_here(part: Part) -> bool:
    """Return whether a part of a history is a run that its provider did not run, or a text that cites one."""
    if type(part) is Opaque:
        return any(ISSUED_HERE in read_text_field(part.value, name) for name in _RUN_IDS)
    return type(part) is Text and without_issued(part.extra) is not part.extra


def without_issued(extra: Extra) -> Extra:
    """Return the fields of a text without citations of pages that its provider did not find."""
    for wire, fields in extra.items():
        citations = fields.get("citations")
        if type(citations) is not list:
            continue
        kept = [citation for citation in citations if unseal_text(read_text_field(citation, "encrypted_index")) is None]
        if len(kept) < len(citations):
            others = {name: value for name, value in fields.items() if name != "citations"}
            return {**extra, wire: {**others, "citations": kept} if kept else others}
    return extra


def unseal_text(value: JSON) -> str | None:
    """Return the text that `seal_text` wrote; None for the encrypted content of a provider, and for anything else."""
    if type(value) is not str or not value.startswith(ISSUED_HERE):
        return None
    try:
        return b64decode(value[len(ISSUED_HERE) :], validate=True).decode("utf-8", "replace")
    except ValueError:
        return None
