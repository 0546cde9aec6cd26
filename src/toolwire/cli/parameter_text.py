"""Describe the parameters of a tool in one line each: path, type, default and description.

    city          string, required       the name of the city
    days          integer 1 to 7 = 2
    filter.name   string or null

The parameters of nested objects follow theirs, with the paths that `toolwire mcp call` takes. The cost is bounded by
`limit` and the depth, because a schema of a server may refer to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..ir.text import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..ir.pointer import JSON
    from ..schema.parsing.nodes import Node, NumberNode, ObjectNode
    from ..schema.parsing.parser import ParsedSchema

__all__ = ["MAX_PARAMETERS", "ParameterText", "find_object", "list_parameters", "resolve_node", "type_text"]

MAX_PARAMETERS = 1000
_MAX_DEPTH = 4
_MAX_VALUES = 8
_MAX_VALUE_LENGTH = 60
_MAX_BRANCHES = 6
_MAX_HOPS = 16  # references that lead to references


class ParameterText(NamedTuple):
    """One parameter. `path` has dots between the names of nested objects, and [] for the items of an array."""

    path: str
    type: str
    required: bool
    default: str | None
    description: str


def list_parameters(schema: JSON, limit: int = MAX_PARAMETERS) -> tuple[list[ParameterText], bool]:
    """Return the parameters of a schema, and whether some were left out because of the limit."""
    from ..schema.parsing.parser import parse_schema

    parsed = parse_schema(schema)
    rows: list[ParameterText] = []
    for row in _walk(parsed, parsed.root, "", 0):
        if len(rows) >= limit:
            return rows, True
        rows.append(row)
    return rows, False


def _walk(parsed: ParsedSchema, node: Node, prefix: str, depth: int) -> Iterator[ParameterText]:
    found = find_object(parsed, node)
    if found is None or depth >= _MAX_DEPTH:
        return
    for name, inner in found.properties.items():
        annotations = {**resolve_node(parsed, inner).annotations, **inner.annotations}
        default = _value_text(annotations["default"]) if "default" in annotations else None
        description = annotations.get("description")
        path = f"{prefix}{name}"
        yield ParameterText(
            path,
            type_text(parsed, inner),
            name in found.required,
            default,
            description if isinstance(description, str) else "",
        )
        yield from _walk(parsed, *_nested(parsed, inner, path), depth + 1)


def _nested(parsed: ParsedSchema, node: Node, path: str) -> tuple[Node, str]:
    """Return the node whose parameters follow, and the prefix of their paths: the object, or the items of an array."""
    from ..schema.parsing.nodes import ArrayNode

    for branch in _branches(parsed, node):
        if isinstance(branch, ArrayNode) and branch.items is not None:
            return branch.items, f"{path}[]."
    return node, f"{path}."


def find_object(parsed: ParsedSchema, node: Node) -> ObjectNode | None:
    """Return the object among the alternatives of a node; None if there is none."""
    from ..schema.parsing.nodes import ObjectNode

    return next((branch for branch in _branches(parsed, node) if isinstance(branch, ObjectNode)), None)


def _branches(parsed: ParsedSchema, node: Node) -> list[Node]:
    from ..schema.parsing.nodes import UnionNode

    node = resolve_node(parsed, node)
    return [resolve_node(parsed, branch) for branch in node.branches] if isinstance(node, UnionNode) else [node]


def resolve_node(parsed: ParsedSchema, node: Node) -> Node:
    """Follow references, within a limit."""
    from ..schema.parsing.nodes import AnyNode, RefNode

    for _ in range(_MAX_HOPS):
        if not isinstance(node, RefNode):
            return node
        node = parsed.defs.get(node.target, AnyNode())
    return AnyNode()


def type_text(parsed: ParsedSchema, node: Node, depth: int = 0) -> str:
    """Name the type of a node: `integer 1 to 7`, `array of string`, `"a" | "b"`, `string or null`."""
    from ..schema.parsing import nodes

    node = resolve_node(parsed, node)
    if isinstance(node, nodes.EnumNode):
        return _cut_list([_value_text(value) for value in node.values[: _MAX_VALUES + 1]], _MAX_VALUES, " | ")
    if isinstance(node, nodes.NumberNode):
        return _number_text(node)
    if isinstance(node, nodes.StringNode):
        return "string" if node.format is None else f"string ({node.format[:_MAX_VALUE_LENGTH]})"
    if isinstance(node, nodes.ArrayNode):
        is_known = node.items is not None and depth < _MAX_DEPTH
        inner = type_text(parsed, node.items, depth + 1) if is_known and node.items is not None else ""
        return f"array of {inner}" if inner not in ("", "any") else "array"
    if isinstance(node, nodes.UnionNode):
        if depth >= _MAX_DEPTH:
            return "any"
        names = [type_text(parsed, branch, depth + 1) for branch in node.branches[: _MAX_BRANCHES + 1]]
        return _cut_list(list(dict.fromkeys(names)), _MAX_BRANCHES, " or ")
    return nodes.NODE_KINDS.get(type(node), "any")


def _number_text(node: NumberNode) -> str:
    name = "integer" if node.integer else "number"
    low = node.minimum if node.minimum is not None else node.exclusive_minimum
    high = node.maximum if node.maximum is not None else node.exclusive_maximum
    if low is not None and high is not None:
        return f"{name} {low:g} to {high:g}"
    if low is not None:
        return f"{name} {'≥' if node.minimum is not None else '>'} {low:g}"
    return name if high is None else f"{name} {'≤' if node.maximum is not None else '<'} {high:g}"


def _cut_list(names: list[str], limit: int, separator: str) -> str:
    return separator.join([*names[:limit], *(["…"] if len(names) > limit else [])])


def _value_text(value: JSON) -> str:
    text = dumps(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
