"""Facts about a history that several rules depend on, found in one pass.

Most histories have only text, calls and results. A rule that concerns something else learns so without a pass of its
own over all messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct

from ..ir.parts import Opaque, ToolCall, ToolResult
from ..ir.request import Message
from .plain_history import PlainHistory, read_plain

__all__ = ["HistoryOutline", "outline_history", "outline_parts"]

_name = attrgetter("name")


class HistoryOutline(Struct, eq=False):
    """The names of the calls in their order, the fields of `extra` of all parts, and the presence of rare parts."""

    call_names: dict[str, None] = {}
    plain: PlainHistory | None = None  # the history, if it is plain and was read as a whole
    fields: dict[str, set[str]] = {}  # by key of `extra`
    has_empty_messages: bool = False  # without parts, but with fields
    has_found_tools: bool = False  # in results of searches
    has_opaque_parts: bool = False

    def has_fields(self, names: Mapping[str, frozenset[str]]) -> bool:
        """Return whether a part has one of these fields, by key of `extra`."""
        return any(not names[group].isdisjoint(fields) for group, fields in self.fields.items() if group in names)

    def joined(self, later: HistoryOutline) -> HistoryOutline:
        """Return the outline of this history and the messages after it."""
        both = HistoryOutline()
        both.call_names = {**self.call_names, **later.call_names}
        both.fields = {group: set(fields) for group, fields in self.fields.items()}
        for group, fields in later.fields.items():
            both.fields.setdefault(group, set()).update(fields)
        both.has_empty_messages = self.has_empty_messages or later.has_empty_messages
        both.has_found_tools = self.has_found_tools or later.has_found_tools
        both.has_opaque_parts = self.has_opaque_parts or later.has_opaque_parts
        return both


def outline_history(messages: Sequence[Message]) -> HistoryOutline:
    """Return the outline of a whole history."""
    plain = read_plain(messages)
    if plain is None:
        return outline_parts(messages)
    return HistoryOutline(dict.fromkeys(map(_name, plain.calls)), plain)


def outline_parts(messages: Iterable[Message]) -> HistoryOutline:
    """Return the outline of some messages of a history."""
    outline = HistoryOutline()
    call_names, all_fields = outline.call_names, outline.fields
    for message in messages:
        if not message.parts and message.extra:
            outline.has_empty_messages = True
        for part in message.parts:
            if isinstance(part, Opaque):
                outline.has_opaque_parts = True
                continue
            if isinstance(part, ToolCall):
                call_names[part.name] = None
            elif isinstance(part, ToolResult) and part.found:
                outline.has_found_tools = True
            for group, fields in part.extra.items() if part.extra else ():
                known = all_fields.get(group)
                if known is None:
                    all_fields[group] = set(fields)
                elif not known.issuperset(fields):
                    known.update(fields)
    return outline
