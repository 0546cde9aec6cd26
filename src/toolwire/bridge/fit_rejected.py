"""Remove fields that the target's wire has but its vendor rejects, such as fields of Vertex AI at the Gemini API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Extra, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ..ir.pointer import JSON, join
from ..ir.request import Message, Request
from ..ir.tools import Tool, ToolChoice
from .history_outline import HistoryOutline

__all__ = ["drop_rejected_fields"]

_Extensible = TypeVar(
    "_Extensible", bound=Request | Tool | ToolChoice | Text | Media | Reasoning | Refusal | ToolCall | ToolResult
)


def drop_rejected_fields(
    request: Request, rejected: frozenset[tuple[str, str]], losses: Losses, outline: HistoryOutline
) -> Request:
    """Return the request without the `rejected` fields: pairs of a key of `extra` and a field, `a/b` if it is nested.

    No part and no tool is removed, so all paths stay valid. `outline` is that of the messages.
    """
    if not _has_rejected_fields(request, _names_by_group(rejected), outline):
        return request
    dropper = _FieldDropper(rejected, losses)
    request = dropper.drop(request, "")
    choice = None if request.choice is None else dropper.drop(request.choice, "/choice")
    tools = [dropper.drop_from_tool(tool, f"/tools/{index}") for index, tool in enumerate(request.tools)]
    messages = [dropper.drop_from_message(message, f"/messages/{i}") for i, message in enumerate(request.messages)]
    return replace(request, choice=choice, tools=tuple(tools), messages=tuple(messages))


def _has_rejected_fields(request: Request, names: Mapping[str, frozenset[str]], outline: HistoryOutline) -> bool:
    """Check for any rejected field first, because almost no request has one."""
    if _is_affected(request.extra, names) or (request.choice is not None and _is_affected(request.choice.extra, names)):
        return True
    for tool in request.tools:
        if tool.extra and _is_affected(tool.extra, names):
            return True
    return outline.has_fields(names)


def _is_affected(extra: Extra, names: Mapping[str, frozenset[str]]) -> bool:
    for group, fields in extra.items():
        rejected = names.get(group)
        if rejected is not None and not rejected.isdisjoint(fields):
            return True
    return False


@lru_cache(16)
def _names_by_group(rejected: frozenset[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Return the first step to each field, by key of `extra`."""
    steps = _steps_by_group(rejected)
    return {group: frozenset(first for first, *_ in fields) for group, fields in steps.items()}


@lru_cache(16)
def _steps_by_group(rejected: frozenset[tuple[str, str]]) -> dict[str, list[list[str]]]:
    """Return the steps to each field, by key of `extra`."""
    steps: dict[str, list[list[str]]] = {}
    for group, field in sorted(rejected):
        steps.setdefault(group, []).append(field.split("/"))
    return steps


class _FieldDropper:
    """Drops fields, and adds a loss for each."""

    def __init__(self, rejected: frozenset[tuple[str, str]], losses: Losses) -> None:
        self._steps = _steps_by_group(rejected)
        self._losses = losses

    def drop_from_message(self, message: Message, path: str) -> Message:
        """Return a message whose parts have no rejected fields."""
        parts: list[Part] = []
        for index, part in enumerate(message.parts):
            parts.append(part if isinstance(part, Opaque) else self.drop(part, f"{path}/parts/{index}"))
        return replace(message, parts=tuple(parts))

    def drop_from_tool(self, tool: Tool, path: str) -> Tool:
        """Return a tool without rejected fields. The path of a built-in tool includes the object under its name."""
        return self.drop(tool, path, tool.name if tool.kind == "builtin" else None)

    def drop(self, value: _Extensible, path: str, enclosing: str | None = None) -> _Extensible:
        """Return a value without the rejected fields of its `extra`, or the value itself."""
        groups = self._steps.keys() & value.extra.keys()
        if not groups:
            return value
        extra: Extra = dict(value.extra)
        for group in sorted(groups):
            steps_of_fields = self._steps[group]
            scope = group.partition("/")[2]
            for steps in steps_of_fields:
                label = " ".join([scope, *steps]).strip()
                start = f"{path}/{scope}" if scope else path
                extra[group] = self._without(extra[group], steps, start, label, enclosing)
            if not extra[group]:
                del extra[group]
        if all(extra.get(group) is fields for group, fields in value.extra.items()):
            return value
        return replace(value, extra=extra)

    def _without(self, value: JSON, steps: list[str], path: str, label: str, enclosing: str | None = None) -> JSON:
        """Return an object without the field at `steps`; a list on the way means each of its items.

        `enclosing` is a field that `path` includes already.
        """
        if isinstance(value, list):
            items = [self._without(item, steps, path + join(index), label) for index, item in enumerate(value)]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        first, *rest = steps
        if not isinstance(value, dict) or first not in value:
            return value
        if rest:
            inner = self._without(value[first], rest, path if first == enclosing else path + join(first), label)
            return value if inner is value[first] else {**value, first: inner}
        self._losses.add(path + join(first), label, "dropped", "the target's vendor does not support it")
        return {name: item for name, item in value.items() if name != first}
