"""Arguments of a call on the command line, typed by the schema of the tool.

    days=2                 an integer if the schema declares one, else text
    tags=a tags=b          an array
    filter.name=tea        a property of a nested object
    filter:='{"a": 1}'     a JSON value
    text=@notes.txt        the content of a file; data:=@data.json: a file of JSON
    '{"days": 2}'          all arguments as one JSON object, or - for standard input; sent as they are

`read_assignments` needs no schema: it runs before the server is started.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...ir.errors import ConfigError, ToolwireError
from ...ir.text import dumps, shorten
from ...schema.parsing import nodes
from ...stream.strict import parse, parse_object
from ..sources.listing import find_object, resolve_node, type_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...ir.pointer import JSON, Object
    from ...schema.parsing.parser import ParsedSchema


ARGUMENT_HELP = "NAME=VALUE, NAME:=JSON, NAME=@FILE, or one JSON object; - is a JSON object on standard input"

_ASSIGNMENT = re.compile(r"([^=]+?)(:?=)(.*)", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,400}")
_NUMBER = re.compile(r"-?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?")
_MAX_FILE = 16 * 1024 * 1024  # bytes: no server accepts a larger message
_MAX_SHOWN = 20  # names or problems in one error message


class Assignment(NamedTuple):
    """One argument. `value` is text to be typed by the schema, or with `is_json` the value itself."""

    path: str
    value: JSON
    is_json: bool


def read_assignments(given: Sequence[str]) -> Object | list[Assignment]:
    """Read the arguments of a command line: a JSON object, or assignments."""
    if len(given) == 1 and given[0] == "-":
        return parse_object(sys.stdin.read())
    if len(given) == 1 and given[0].lstrip()[:1] in ("{", "["):
        return parse_object(given[0])
    return [_read_assignment(one) for one in given]


def _read_assignment(argument: str) -> Assignment:
    """Parse `NAME=TEXT` or `NAME:=JSON`; a value that starts with @ is read from a file.

    Raises `ConfigError` for another form, an unreadable file and invalid JSON.
    """
    matched = _ASSIGNMENT.fullmatch(argument)
    if matched is None:
        raise ConfigError(f"invalid argument {argument!r}", hint="use NAME=VALUE, NAME:=JSON, or one JSON object")
    path, sign, text = matched.groups()
    if text.startswith("@"):
        text = _read_file(path, text[1:])
    if sign == "=":
        return Assignment(path, text, is_json=False)
    try:
        return Assignment(path, parse(text), is_json=True)
    except ToolwireError as error:
        raise ConfigError(
            f"the value of {path} is not valid JSON: {error.message}", hint=f"use {path}=… for text"
        ) from None


def _read_file(path: str, file: str) -> str:
    """Return the text of a file, the value of the argument at `path`.

    Raises `ConfigError` if it cannot be read, is too large, or is not UTF-8.
    """
    hint = f"""to send the text itself: {path}:='"@{file}"'"""
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(_MAX_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {file} for {path}: {reason}", hint=hint) from None
    if len(data) > _MAX_FILE:
        raise ConfigError(f"{file} is too large: the limit is {_MAX_FILE} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text", hint="encode binary data as the tool expects it") from None


def apply_schema(assignments: Sequence[Assignment], schema: JSON, tool: str) -> Object:
    """Return the arguments. Raise ConfigError for unknown, missing and invalid ones, before anything is sent."""
    from ...schema.parsing.parser import parse_schema
    from ...schema.validation.validator import validator

    schema = {"type": "object"} if schema is None else schema
    parsed = parse_schema(schema)
    arguments = _Builder(parsed, tool).build(assignments)
    _check_missing(arguments, parsed, tool)
    problems = validator(schema).problems(arguments)
    if problems:
        shown = "; ".join(map(str, problems[:_MAX_SHOWN]))
        raise ConfigError(f"the arguments do not match the schema of {tool}: {shown}")
    return arguments


def _check_missing(arguments: Object, parsed: ParsedSchema, tool: str) -> None:
    """Raise `ConfigError` with all missing parameters, their types and an example."""
    root = find_object(parsed, parsed.root)
    if root is None:
        return
    names = [name for name in (*root.properties, *sorted(root.required)) if name in root.required]
    missing = [name for name in dict.fromkeys(names) if name not in arguments][:_MAX_SHOWN]
    if missing:
        types = {name: type_text(parsed, root.properties.get(name, nodes.AnyNode())) for name in missing}
        listed = ", ".join(f"{name} ({types[name]})" for name in missing)
        example = " ".join(f"{name}:='{{…}}'" if types[name] == "object" else f"{name}=…" for name in missing)
        raise ConfigError(f"missing arguments of {tool}: {listed}", hint=f"add {example}")


class _Builder:
    """Builds an object from assignments."""

    def __init__(self, parsed: ParsedSchema, tool: str) -> None:
        self._parsed = parsed
        self._tool = tool

    def build(self, assignments: Sequence[Assignment]) -> Object:
        """Return the arguments as an object; assignments with the same path are the items of an array.

        Raises `ConfigError` for an unknown path and for a path below a value.
        """
        by_path: dict[tuple[str, ...], list[Assignment]] = {}
        located: dict[tuple[str, ...], nodes.Node] = {}
        for assignment in assignments:
            names, node = self._locate(assignment.path)
            located[names] = node
            by_path.setdefault(names, []).append(assignment)
        out: Object = {}
        for names, given in by_path.items():
            self._insert(out, names, self._value(given, located[names]))
        return out

    def _locate(self, path: str) -> tuple[tuple[str, ...], nodes.Node]:
        """Return the names of nested properties, and the node of the last property.

        A name may itself contain dots. Raises `ConfigError` for a property of a value that is not an object, and for an
        unknown property.
        """
        names: list[str] = []
        node, rest = self._parsed.root, path
        while rest:
            outer_node = find_object(self._parsed, node)
            if outer_node is None and not isinstance(resolve_node(self._parsed, node), nodes.AnyNode):
                outer = ".".join(names)
                raise ConfigError(f"{outer} of {self._tool} is not an object, but {type_text(self._parsed, node)}")
            properties = {} if outer_node is None else outer_node.properties
            name, rest = _split_path(rest, properties)
            names.append(name)
            if name in properties:
                node = properties[name]
                continue
            others = nodes.AnyNode() if outer_node is None else outer_node.others
            if others is None:
                raise _unknown_parameter(self._tool, path, ".".join([*names[:-1], ""]), name, list(properties))
            node = others
        return tuple(names), node

    def _insert(self, out: Object, names: tuple[str, ...], value: JSON) -> None:
        """Set the value at a path in `out`, and create the objects on the way.

        Raises `ConfigError` if the path or a part of it already has a value.
        """
        for depth, name in enumerate(names[:-1], 1):
            inner = out.setdefault(name, {})
            if type(inner) is not dict:
                raise ConfigError(f"{'.'.join(names[:depth])} is given both as a value and by its properties")
            out = inner
        if names[-1] in out:
            raise ConfigError(f"{'.'.join(names)} is given both as a value and by its properties")
        out[names[-1]] = value

    def _value(self, given: list[Assignment], node: nodes.Node) -> JSON:
        """Convert a single value, or several values of the same path to an array.

        Raises `ConfigError` for several values if the parameter is not an array, and for a value of another type.
        """
        if len(given) == 1:
            return given[0].value if given[0].is_json else self._convert(given[0], node)
        arrays = [one for one in self._alternatives(node) if isinstance(one, (nodes.ArrayNode, nodes.TupleNode))]
        if not arrays:
            type_name = type_text(self._parsed, node)
            raise ConfigError(f"{given[0].path} is given {len(given)} times, but it is not an array: {type_name}")
        items = arrays[0].items if isinstance(arrays[0], nodes.ArrayNode) else None
        return [self._item(one, items) for one in given]

    def _item(self, one: Assignment, items: nodes.Node | None) -> JSON:
        return one.value if one.is_json or items is None else self._convert(one, items)

    def _alternatives(self, node: nodes.Node) -> list[nodes.Node]:
        """Return the alternatives in the order of the schema, null last: text is preferred to it."""
        node = resolve_node(self._parsed, node)
        branches = node.branches if isinstance(node, nodes.UnionNode) else (node,)
        found = [resolve_node(self._parsed, branch) for branch in branches]
        return sorted(found, key=lambda branch: isinstance(branch, nodes.NullNode))

    def _convert(self, assignment: Assignment, node: nodes.Node) -> JSON:
        """Convert text to the first type of the node that accepts it. Raises `ConfigError` if none does."""
        for branch in self._alternatives(node):
            matches, value = self._convert_to(str(assignment.value), branch, assignment)
            if matches:
                return value
        raise ConfigError(
            f"{assignment.path} must be {type_text(self._parsed, node)}, got {shorten(str(assignment.value), 100)!r}",
            hint=f"give a value of this type, or JSON: {assignment.path}:=…",
        )

    def _convert_to(self, text: str, node: nodes.Node, assignment: Assignment) -> tuple[bool, JSON]:
        """Return whether the text is a value of the node, and the value.

        Text that is no JSON array is the only item of an array.
        """
        if isinstance(node, nodes.EnumNode):
            return _find_value(text, node.values)
        if isinstance(node, nodes.NumberNode):
            return _parse_number(text, integer=node.integer)
        if isinstance(node, nodes.BooleanNode):
            return text in ("true", "false"), text == "true"
        if isinstance(node, nodes.NullNode):
            return text == "null", None
        if isinstance(node, (nodes.ArrayNode, nodes.TupleNode)):
            parsed = _parse_json(text)
            if type(parsed) is list:
                return True, parsed
            items = node.items if isinstance(node, nodes.ArrayNode) else None
            return True, [self._item(assignment, items)]
        if isinstance(node, nodes.ObjectNode):
            parsed = _parse_json(text)
            return type(parsed) is dict, parsed
        return isinstance(node, (nodes.StringNode, nodes.AnyNode)), text


def _split_path(path: str, properties: dict[str, nodes.Node]) -> tuple[str, str]:
    """Return the first name of a path and the rest. A declared name with dots takes precedence, the longest first."""
    parts = path.split(".")
    for count in range(len(parts), 1, -1):
        name = ".".join(parts[:count])
        if name in properties:
            return name, ".".join(parts[count:])
    return parts[0], ".".join(parts[1:])


def _unknown_parameter(tool: str, path: str, outer: str, name: str, known: list[str]) -> ConfigError:
    where = f"{tool} has no parameter {path!r}"
    close = nearest(name, known)
    if close:
        return ConfigError(where, hint=f"did you mean {outer + close!r}?")
    names = ", ".join(f"{outer}{one}" for one in known[:_MAX_SHOWN]) or "none"
    return ConfigError(where, hint=f"parameters: {names}; a JSON object is sent as it is")


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the most similar of the known names, or None."""
    from ...run.tools.suggestions import NameIndex

    return next(iter(NameIndex(known).similar(name, 1)), None)


def _find_value(text: str, values: Sequence[JSON]) -> tuple[bool, JSON]:
    """Find the value of an enumeration with this text: a string, or the JSON of another value."""
    for value in values:
        if text == (value if type(value) is str else dumps(value)):
            return True, value
    return False, None


def _parse_number(text: str, *, integer: bool) -> tuple[bool, JSON]:
    if _INTEGER.fullmatch(text):
        return True, int(text)
    if integer or not _NUMBER.fullmatch(text):
        return False, None
    value = float(text)
    return value - value == 0, value  # not infinite


def _parse_json(text: str) -> JSON:
    """Parse JSON; None if it is invalid."""
    try:
        return parse(text)
    except ToolwireError:
        return None
