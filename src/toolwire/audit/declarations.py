"""Recognise declarations of tools, in parsed documents and in Python source, which is parsed and not executed.

A declaration has the shape of a wire (Chat, Responses, Anthropic, Gemini, MCP), or is plain: name, description and
parameters. In Python source it is a dictionary display. Its nodes are first outlined: names of fields, constants, and
`...` for everything else. The outline decides whether it is a declaration, so that a declaration with a computed value
is reported instead of overlooked.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..ir.pointer import JSON
from ..ir.text import shorten

_FIELDS = ("input_schema", "inputSchema", "parameters", "description", "function_declarations", "functionDeclarations")
_GROUPS = ("function_declarations", "functionDeclarations")
_OUTLINED = 3  # levels: the tool, its `function`, and the keywords of its schema
_MAX_SHOWN = 40  # characters of an expression in a message
_LITERAL = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Constant, ast.expr_context, ast.UnaryOp, ast.unaryop)


class LiteralTool(NamedTuple):
    """A declaration in Python source. If it cannot be read, `document` is None and `problem` the reason."""

    line: int
    name: str
    document: JSON
    problem: str = ""


def is_tool_list(document: JSON) -> bool:
    """Return True for a list of declarations, or an object with such a list under `tools`, as MCP servers return it."""
    if type(document) is dict and "messages" not in document and "contents" not in document:
        document = document.get("tools")
    return type(document) is list and bool(document) and all(map(_is_declaration, document))


def _is_declaration(value: Any) -> bool:
    """Return True for a declaration, or its outline. A call and a choice of a tool have names, too, but no schema."""
    if type(value) is not dict:
        return False
    if any(type(value.get(group)) is list or value.get(group) is ... for group in _GROUPS):
        return True
    function = value.get("function")
    if value.get("type") in ("function", ...) and type(function) is dict:
        return (
            "name" in function
            and "arguments" not in function
            and not {"parameters", "description"}.isdisjoint(function)
        )
    if not (type(value.get("name")) is str or value.get("name") is ...):
        return False
    if any(type(value.get(key)) is dict or value.get(key) is ... for key in ("input_schema", "inputSchema")):
        return True
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Check the plain shape, which other documents resemble: a job may have a name and parameters with a `type`.

    With nothing but computed values it is the code that makes declarations of other objects.
    """
    schema, description = value.get("parameters"), value.get("description")
    is_object = type(schema) is dict and (
        schema.get("type") == "object" or type(schema.get("properties")) is dict or schema.get("properties") is ...
    )
    is_described = type(description) is str or description is ... or value.get("type") == "function"
    return is_described and (is_object or (schema is ... and (value["name"] is not ... or type(description) is str)))


def find_literal_tools(source: str) -> Iterator[list[LiteralTool]]:
    """Yield the declarations of each list of tools in Python source, and each declaration outside of a list."""
    if not any(field in source for field in _FIELDS):
        return
    try:
        waiting: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # TW086 reports it
    while waiting:
        node = waiting.pop()
        items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
        declared: dict[ast.AST, list[LiteralTool]] = {
            item: _declarations(item) for item in items if isinstance(item, ast.Dict)
        }
        others = [item for item in items if not declared.get(item)]
        if len(others) == len(items):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))
            continue
        yield [
            one
            for item in items
            for one in declared.get(item) or (_note_computed(item) if isinstance(node, ast.List) else ())
        ]
        waiting.extend(reversed(others))


def _note_computed(item: ast.AST) -> list[LiteralTool]:
    """Note an item of a list of tools that is no dictionary, unless a declaration is inside, which is read itself."""
    if not isinstance(item, ast.expr) or isinstance(item, (ast.Dict, ast.Constant)):
        return []
    if any(isinstance(part, ast.Dict) and _is_declaration(_outline(part)) for part in ast.walk(item)):
        return []
    return [_read(item)]


def _declarations(node: ast.Dict) -> list[LiteralTool]:
    """Read the declaration of a dictionary; several for a group of functions, and none for any other dictionary."""
    outline = _outline(node)
    if not _is_declaration(outline):
        return []
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value in _GROUPS and isinstance(value, (ast.List, ast.Tuple)):
            return [_read(one, str(key.value)) for one in value.elts if not isinstance(one, ast.Constant)]
    return [_read(node)]


def _outline(node: ast.AST, levels: int = _OUTLINED) -> Any:
    if isinstance(node, ast.Dict) and levels:
        fields = zip(node.keys, node.values, strict=True)
        return {key.value: _outline(value, levels - 1) for key, value in fields if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Constant):
        return node.value
    return [] if isinstance(node, (ast.List, ast.Tuple)) else ...


def _read(node: ast.expr, group: str = "") -> LiteralTool:
    """Evaluate a dictionary of literals as an SDK would send it; `group` is the field of the list that it is in."""
    outline = _outline(node) if isinstance(node, ast.Dict) else {}
    name = outline.get("name", outline["function"].get("name") if type(outline.get("function")) is dict else "")
    name = name if type(name) is str else ""
    try:
        document = json.loads(json.dumps(ast.literal_eval(node), allow_nan=False))
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        computed = next((part for part in ast.walk(node) if not isinstance(part, _LITERAL)), None)
        if computed is None:
            return LiteralTool(node.lineno, name, None, f"it is not JSON: {shorten(str(error), _MAX_SHOWN)}")
        line = getattr(computed, "lineno", node.lineno)
        try:
            text = shorten(ast.unparse(computed), _MAX_SHOWN)
        except RecursionError:  # a sum of a thousand texts
            text = type(computed).__name__
        return LiteralTool(line, name, None, f"`{text}` is computed at run time")
    return LiteralTool(node.lineno, name, {group: [document]} if group else document)
