"""List tools with their parameters, and the resources and prompts of MCP servers, in readable form.

    forecast  read-only, idempotent
        Return the forecast of a city.
        city         string, required     the name of the city
        days         integer 1 to 7 = 2
        filter.name  string or null

A parameter has one line: path, type, default and description. The parameters of nested objects follow theirs, with the
paths that `toolwire mcp call` takes. The cost is bounded by `limit` and the depth, because a server's schema may refer to
itself.

Everything comes from the server: text is neutralised, and long texts and lists are cut unless `--all` is given.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ...ir.errors import ToolwireError
from ...ir.terminal import neutralise_line, reveal_line
from ...ir.text import dumps, shorten
from ...schema.parsing.nodes import AnyNode, ArrayNode, Node, NumberNode, ObjectNode, RefNode, UnionNode
from ..terminal.output import paint, table, text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...ir.pointer import JSON, Object
    from ...ir.tools import Tool
    from ...schema.parsing.parser import ParsedSchema


MAX_PARAMETERS = 1000  # also with --all: recursive schemas repeat their parameters at each of the four levels
_MAX_DEPTH = 4  # dots in a path; deeper paths are wider than a terminal, and recursive schemas must end
_MAX_VALUES = 8  # enum values in one cell; country codes and time zones would fill pages
_MAX_VALUE_LENGTH = 60  # characters; a longer default or enum value would be a cell of its own
_MAX_BRANCHES = 6  # alternatives in one cell, which _MAX_CELL cuts in any case
_MAX_HOPS = 16  # references that lead to references


class ParameterText(NamedTuple):
    """One parameter. `path` has dots between the names of nested objects, and [] for the items of an array."""

    path: str
    type: str
    required: bool
    default: str | None
    description: str


def list_parameters(schema: JSON, limit: int = MAX_PARAMETERS) -> tuple[list[ParameterText], bool]:
    """Return the parameters of a schema, and whether some were left out because of the limit.

    Raises `SchemaError` for an invalid schema.
    """
    from ...schema.parsing.parser import parse_schema

    parsed = parse_schema(schema)
    rows: list[ParameterText] = []
    for row in _walk(parsed, parsed.root, "", 0):
        if len(rows) >= limit:
            return rows, True
        rows.append(row)
    return rows, False


def _walk(parsed: ParsedSchema, node: Node, prefix: str, depth: int) -> Iterator[ParameterText]:
    """Yield the parameters of an object and of the objects inside it, with dotted paths, to `_MAX_DEPTH`."""
    outer = find_object(parsed, node)
    if outer is None or depth >= _MAX_DEPTH:
        return
    for name, inner in outer.properties.items():
        annotations = {**resolve_node(parsed, inner).annotations, **inner.annotations}
        default = _value_text(annotations["default"]) if "default" in annotations else None
        description = annotations.get("description")
        path = f"{prefix}{name}"
        yield ParameterText(
            path,
            type_text(parsed, inner),
            name in outer.required,
            default,
            description if isinstance(description, str) else "",
        )
        yield from _walk(parsed, *_nested(parsed, inner, path), depth + 1)


def _nested(parsed: ParsedSchema, node: Node, path: str) -> tuple[Node, str]:
    """Return the node whose parameters follow, and the prefix of their paths: the object, or the items of an array."""
    for branch in _branches(parsed, node):
        if isinstance(branch, ArrayNode) and branch.items is not None:
            return branch.items, f"{path}[]."
    return node, f"{path}."


def find_object(parsed: ParsedSchema, node: Node) -> ObjectNode | None:
    """Return the object among the alternatives of a node; None if there is none."""
    return next((branch for branch in _branches(parsed, node) if isinstance(branch, ObjectNode)), None)


def _branches(parsed: ParsedSchema, node: Node) -> list[Node]:
    node = resolve_node(parsed, node)
    return [resolve_node(parsed, branch) for branch in node.branches] if isinstance(node, UnionNode) else [node]


def resolve_node(parsed: ParsedSchema, node: Node) -> Node:
    """Follow references, within a limit."""
    for _ in range(_MAX_HOPS):
        if not isinstance(node, RefNode):
            return node
        node = parsed.defs.get(node.target, AnyNode())
    return AnyNode()


def type_text(parsed: ParsedSchema, node: Node, depth: int = 0) -> str:
    """Name the type of a node: `integer 1 to 7`, `array of string`, `"a" | "b"`, `string or null`."""
    from ...schema.parsing import nodes

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
    """Return a number's type with its range, such as `integer 1 to 9`.

    A range with two ends does not show whether they are exclusive.
    """
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
    return shorten(dumps(value), _MAX_VALUE_LENGTH)


_Item = TypeVar("_Item")
MAX_ITEMS = 50  # tools, prompts or problems; --all lifts it
_MAX_PARAMETERS = 30  # per tool; more than a screen per tool hides the others
_MAX_LINES = 600  # of all tools, or all prompts; the item in which they end is printed completely
_MAX_TEXT = 600  # characters of a description, about six lines of a terminal
_MAX_PARAMETER_TEXT = 160  # characters, two lines of a terminal
_MAX_CELL = 120  # characters; the width of a wide terminal
_INDENT = "    "
_HINTS = {
    ("readOnlyHint", True): "read-only",
    ("idempotentHint", True): "idempotent",
    ("destructiveHint", True): "destructive",
    ("destructiveHint", False): "not destructive",
    ("openWorldHint", True): "open world",
    ("openWorldHint", False): "closed world",
}


class Listing:
    """Prints lists. `show_all`: cut nothing."""

    def __init__(self, *, show_all: bool) -> None:
        self._show_all = show_all
        self._lines = 0

    def print_tools(self, tools: Sequence[Tool]) -> None:
        """Print each tool with its hints, description, parameters and result."""
        for tool in self._within_lines(self._first(tools, "tools"), "tools"):
            print(f"{paint(self._name(tool.name), 'bold')}  {annotation_text(tool)}".rstrip())
            self.print_text(tool.description or "")
            self._print_parameters(tool.input_schema)
            if tool.output_schema is not None:
                print(f"{_INDENT}returns:")
                self._print_parameters(tool.output_schema, _INDENT * 2)

    def print_resources(self, resources: Sequence[JSON]) -> None:
        """Print resources and templates as a table: address, name, type, description."""
        rows = []
        for raw in self._first(resources, "resources"):
            if type(raw) is dict:
                address = _text(raw, "uri") or _text(raw, "uriTemplate")
                name = _text(raw, "title") or _text(raw, "name")
                rows.append([self._cell(cell) for cell in (address, name, _text(raw, "mimeType"))])
                rows[-1].append(self._cut(_text(raw, "description").partition("\n")[0]))
        for line in table(rows):
            print(line)

    def print_prompts(self, prompts: Sequence[JSON]) -> None:
        """Print each prompt with its arguments."""
        for raw in self._within_lines(self._first(prompts, "prompts"), "prompts"):
            if type(raw) is not dict:
                continue
            print(paint(self._name(_text(raw, "name")), "bold"))
            self.print_text(_text(raw, "description"))
            declared = raw.get("arguments")
            rows = [
                (
                    self._cell(_text(argument, "name")),
                    "required" if argument.get("required") is True else "optional",
                    self._cut(_text(argument, "description"), _MAX_PARAMETER_TEXT),
                )
                for argument in self._first(declared if type(declared) is list else [], "arguments", _MAX_PARAMETERS)
                if type(argument) is dict
            ]
            self._print_indented(table(rows, indent=_INDENT))

    def print_text(self, text: str) -> None:
        """Print a text of the server, indented."""
        self._print_indented(text_lines(textwrap.dedent(self._cut(text.strip())), _INDENT))

    def _print_parameters(self, schema: Object | None, indent: str = _INDENT) -> None:
        """Print a schema's parameters as a table, or the reason why it cannot be read; nothing without a schema."""
        if schema is None:
            return
        try:
            rows, is_cut = list_parameters(schema, MAX_PARAMETERS if self._show_all else _MAX_PARAMETERS)
        except ToolwireError as error:
            print(neutralise_line(f"{indent}cannot be read: {error}"))
            return
        cells = [
            (
                self._cell(row.path),
                self._cell(row.type) + (", required" if row.required else "") + _default_text(row.default),
                self._cut(" ".join(row.description.split()), _MAX_PARAMETER_TEXT),
            )
            for row in rows
        ]
        self._print_indented(table(cells, indent=indent))
        if is_cut:
            hint = "" if self._show_all else "; --all shows them"
            print(f"{indent}… more than {len(rows)} parameters{hint}")

    def _first(self, items: Sequence[_Item], what: str, limit: int = MAX_ITEMS) -> Sequence[_Item]:
        """Return the items to show, and print a note before them if there are more."""
        if self._show_all or len(items) <= limit:
            return items
        print(f"the first {limit} of {len(items):,} {what}; --all shows them")
        return items[:limit]

    def _within_lines(self, items: Sequence[_Item], what: str) -> Iterator[_Item]:
        """Yield the items until too many lines are printed."""
        self._lines = 0
        for number, item in enumerate(items):
            if self._lines > _MAX_LINES and not self._show_all:
                print(f"… {len(items) - number:,} more {what}; --all shows them")
                return
            yield item

    def _print_indented(self, lines: Sequence[str], indent: str = "") -> None:
        self._lines += len(lines)
        for line in lines:
            print(f"{indent}{line}".rstrip())

    def _cell(self, text: str) -> str:
        return neutralise_line(text if self._show_all else shorten(text, _MAX_CELL))

    def _name(self, text: str) -> str:
        """Return the name of a tool or a prompt, with every character that cannot be seen."""
        return reveal_line(self._cell(text))

    def _cut(self, text: str, limit: int = _MAX_TEXT) -> str:
        if self._show_all or len(text) <= limit:
            return text
        return f"{text[:limit]}… ({len(text):,} characters; --all shows them)"


def annotation_text(tool: Tool) -> str:
    """Return the hints that the server declares, and the title."""
    extra = tool.extra.get("mcp")
    declared = extra if type(extra) is dict else {}
    hints = declared.get("annotations")
    hints = hints if type(hints) is dict else {}
    shown = [text for (name, value), text in _HINTS.items() if hints.get(name) is value]
    title = declared.get("title") or hints.get("title")
    if type(title) is str and title and title != tool.name:
        shown.insert(0, f"“{title[:_MAX_CELL]}”")
    return neutralise_line(", ".join(shown))


def _default_text(default: str | None) -> str:
    return "" if default is None else f" = {default}"


def _text(raw: Object, key: str) -> str:
    value = raw.get(key)
    return value if type(value) is str else ""
