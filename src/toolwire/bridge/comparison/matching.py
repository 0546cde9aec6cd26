"""Match the elements of a translated document with the elements of its source.

Groups are matched first: tools by the names that the target gave them, calls by id and else by content, results by
their calls, everything else by content. Groups of equal content are matched in order, and only if both documents have
the same number of them. Members of matched groups are matched by their place in the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ...ir.parts import Media, Reasoning, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON
from ...ir.request import Request
from ...ir.text import to_bytes
from ...ir.tools import Tool
from .reading import Group, GroupValue, Member, Reading

OriginalName: TypeAlias = Callable[[str | None, str], tuple[str | None, str]]
"""Return the (namespace, name) in the source of a tool, given its namespace and name in the target."""


class ElementLink(NamedTuple):
    """An element of the target that is the element `id` of the source; `is_changed` if its value is another one."""

    id: str
    target: Group | Member
    group: Group
    is_changed: bool

    @property
    def target_id(self) -> str:
        """The id of the element in the target's own document."""
        return self.group.id + (self.target.suffix if isinstance(self.target, Member) else "")


def match_elements(source: Reading, target: Reading, original_name: OriginalName) -> list[ElementLink]:
    """Return the links from elements of the target to elements of the source."""
    sources, targets = _by_kind(source.groups), _by_kind(target.groups)
    if source.unread or target.unread:
        _forget_repeated(sources, targets, source, target)
    pairs = list(_match_tools(sources["tool"], targets["tool"], original_name))
    calls = list(_match_calls(sources["call"], targets["call"], original_name))
    pairs += calls
    pairs += _match_results(sources["result"], targets["result"], calls)
    for kind in ("text", "reasoning", "media"):
        pairs += _match_in_order(sources[kind], targets[kind], _content)
    for kind in ("model", "param", "choice", "stop", "type", "message", "status"):
        known = {group.id: group for group in sources[kind]}
        pairs += [(known[group.id], group) for group in targets[kind] if group.id in known]
    return [link for pair in pairs for link in _link_members(*pair)]


_Pairs: TypeAlias = Iterator[tuple[Group, Group]]


def _by_kind(groups: Iterable[Group]) -> Mapping[str, list[Group]]:
    found: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        found[group.kind].append(group)
    return found


def _forget_repeated(
    sources: Mapping[str, list[Group]], targets: Mapping[str, list[Group]], *readings: Reading
) -> None:
    """Remove groups of content that may also be in the unread rest of a document, so that they cannot be counted.

    Calls with an id are matched by it.
    """
    repeated: set[Hashable] = set()
    for reading in readings:
        messages = reading.canonical.messages if isinstance(reading.canonical, Request) else ()
        counts = Counter(_part_content(part, message.role) for message in messages for part in message.parts)
        repeated |= {content for content, number in counts.items() if number > 1}
    for groups in (*sources.values(), *targets.values()):
        groups[:] = [group for group in groups if _has_id(group) or _content(group) not in repeated]


def _has_id(group: Group) -> bool:
    return isinstance(group.value, ToolCall) and bool(group.value.id)


def _match_tools(sources: list[Group], targets: list[Group], original_name: OriginalName) -> _Pairs:
    def name_of(group: Group) -> Hashable:
        tool = group.value
        return (tool.namespace, tool.name) if isinstance(tool, Tool) else None

    def original_of(group: Group) -> Hashable:
        tool = group.value
        return original_name(tool.namespace, tool.name) if isinstance(tool, Tool) else None

    yield from _match_unique(sources, targets, name_of, original_of)


def _match_calls(sources: list[Group], targets: list[Group], original_name: OriginalName) -> _Pairs:
    """Match calls by id if both have the id once and the names agree, the others by name and arguments."""

    def id_of(group: Group) -> Hashable:
        return group.value.id if isinstance(group.value, ToolCall) else None

    def name_of(group: Group, *, is_target: bool) -> Hashable:
        call = group.value
        if not isinstance(call, ToolCall):
            return None
        return original_name(call.namespace, call.name) if is_target else (call.namespace, call.name)

    done: set[int] = set()
    for source, target in _match_unique(sources, targets, id_of, id_of):
        if name_of(source, is_target=False) == name_of(target, is_target=True):
            done |= {id(source), id(target)}
            yield source, target
    yield from _match_in_order(
        [group for group in sources if id(group) not in done],
        [group for group in targets if id(group) not in done],
        lambda group: (name_of(group, is_target=False), _content(group)),
        lambda group: (name_of(group, is_target=True), _content(group)),
    )


def _match_results(sources: list[Group], targets: list[Group], calls: list[tuple[Group, Group]]) -> _Pairs:
    """Match results whose calls match; without calls in the documents, by call id and content."""
    source_call = {_call_id(target): _call_id(source) for source, target in calls}
    if calls:
        yield from _match_unique(
            sources, targets, lambda group: _call_id(group) or None, lambda group: source_call.get(_call_id(group))
        )
    else:
        yield from _match_unique(sources, targets, _call_id, _call_id)


def _call_id(group: Group) -> str:
    value = group.value
    return value.id if isinstance(value, ToolCall) else value.call_id if isinstance(value, ToolResult) else ""


def _match_unique(
    sources: list[Group],
    targets: list[Group],
    source_key: Callable[[Group], Hashable],
    target_key: Callable[[Group], Hashable],
) -> _Pairs:
    """Match groups whose key exists once on both sides."""
    by_key, seen = _group_by(sources, source_key), _group_by(targets, target_key)
    for key, found in by_key.items():
        if key not in (None, "") and len(found) == 1 == len(seen.get(key, ())):
            yield found[0], seen[key][0]


def _match_in_order(
    sources: list[Group],
    targets: list[Group],
    source_key: Callable[[Group], Hashable],
    target_key: Callable[[Group], Hashable] | None = None,
) -> _Pairs:
    """Match groups of equal content in order, if there are equally many."""
    by_key, seen = _group_by(sources, source_key), _group_by(targets, target_key or source_key)
    for key, found in by_key.items():
        if len(found) == len(seen.get(key, ())):
            yield from zip(found, seen[key], strict=True)


def _group_by(groups: list[Group], key: Callable[[Group], Hashable]) -> dict[Hashable, list[Group]]:
    found: dict[Hashable, list[Group]] = defaultdict(list)
    for group in groups:
        found[key(group)].append(group)
    return found


def _content(group: Group) -> Hashable:
    return _part_content(group.value, group.role)


def _part_content(value: JSON | GroupValue, role: str) -> Hashable:
    """Return the content by which groups are compared, with the role of their message."""
    if isinstance(value, ToolCall):
        return value.text if value.arguments is None else _json(value.arguments)
    if isinstance(value, (Text, Refusal)):
        return role.replace("developer", "system"), value.text
    if isinstance(value, Reasoning):
        return value.joined_text
    if isinstance(value, Media):
        return value.data or value.url or value.file_id
    return None


def _json(value: JSON) -> bytes:
    """Return text by which JSON values are compared: 1, 1.0 and true differ."""
    return to_bytes(value, sort_keys=True)


_MAY_DIFFER = frozenset({"name", "id", "description", "parameters", "parameter", "model", "param", "choice", "stop"})
"""Kinds whose value may be another one in the target, because their place in the group identifies them."""


def _link_members(source: Group, target: Group) -> Iterator[ElementLink]:
    """Yield the links of a matched group and its members. An argument with another value has no link."""
    is_setting = source.kind in _MAY_DIFFER
    yield ElementLink(source.id, target, target, is_setting and _json(source.value) != _json(target.value))
    known = {member.suffix: member for member in source.members}
    for member in target.members:
        origin = known.get(member.suffix)
        if origin is None:
            continue
        is_changed = _json(origin.value) != _json(member.value)
        if not is_changed or member.kind in _MAY_DIFFER:
            yield ElementLink(source.id + member.suffix, member, target, is_changed)
