"""Patterns of expressions and statements that the code rules look for: functions of a syntax node, or of a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from .python_module import (
    REQUEST_METHODS,
    FunctionScope,
    PythonModule,
    access_path,
    constant_value,
    is_call_text,
    last_name,
)

_MAX_PARTS = 200  # nodes of one expression that a check reads
_DICT_METHODS = ("pop", "setdefault")
_LIST_METHODS = ("append", "extend", "insert", "remove", "clear")


def is_first(node: ast.AST, attribute: str) -> bool:
    """Match `….attribute[0]`."""
    return (
        isinstance(node, ast.Subscript)
        and last_name(node.value) == attribute
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == 0
    )


def contains_name(node: ast.AST, *names: str) -> bool:
    """Return whether the node or a node below it is a name or attribute in `names`."""
    return any(last_name(inner) in names for inner in parts_of(node))


def parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and the nodes below it, at most `_MAX_PARTS`, so that each check of a node has a constant cost."""
    return islice(ast.walk(node), _MAX_PARTS)


def is_arguments(node: ast.AST) -> bool:
    """Return whether an expression reads a call's arguments.

    Matches `….arguments`, `…["arguments"]`, `….get("arguments")`, and these with a default after `or`.
    """
    if isinstance(node, ast.BoolOp):
        return any(map(is_arguments, node.values))
    if isinstance(node, ast.Call):
        is_lookup = last_name(node.func) in ("get", "pop") and bool(node.args)
        return is_lookup and constant_value(node.args[0]) == "arguments"
    if isinstance(node, ast.Subscript) and constant_value(node.slice) == "arguments":
        return True
    return isinstance(node, (ast.Attribute, ast.Subscript)) and contains_name(node, "arguments")


def renames(node: ast.If) -> bool:
    """Return True for `if reason == "tool_use": reason = "tool_calls"`."""
    only = node.body[0] if len(node.body) == 1 else None
    return isinstance(only, (ast.Assign, ast.Return)) and isinstance(only.value, ast.Constant)


def has_calls(node: ast.BoolOp) -> bool:
    return any(access_path(value)[-1:] in (["tool_calls"], ["function_calls"]) for value in node.values)


def in_place_changes(node: ast.AST) -> Iterator[tuple[ast.expr, object]]:
    """Yield (object, key) for each item that a statement changes in place."""
    if isinstance(node, ast.Call):
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in _DICT_METHODS and node.args:
            yield method.value, constant_value(node.args[0])
        elif (
            isinstance(method, ast.Attribute)
            and method.attr in _LIST_METHODS
            and isinstance(method.value, ast.Subscript)
        ):
            yield method.value.value, constant_value(method.value.slice)
        return
    assert isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete))
    for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
        if isinstance(target, ast.Subscript):
            yield target.value, constant_value(target.slice)


def is_silent(statement: ast.stmt) -> bool:
    """Match `pass`, and an empty value that is assigned or returned."""
    if isinstance(statement, (ast.Assign, ast.Return)):
        value = statement.value
        if isinstance(value, (ast.List, ast.Dict)):
            return not (value.elts if isinstance(value, ast.List) else value.keys)
        return value is None or (isinstance(value, ast.Constant) and value.value in ("", None))
    return isinstance(statement, ast.Pass)


def tool_parameters(code: PythonModule) -> dict[FunctionScope, frozenset[str]]:
    """Return the parameters of the functions that are tools: by a decorator such as `@tool`, or by a declaration."""
    declared = {
        value.value
        for node in code.nodes_of(ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is not None and constant_value(key) == "name" and isinstance(value, ast.Constant)
    }
    found = {}
    for function in code.functions():
        decorators = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
        if function.name in declared or any(last_name(one).endswith("tool") for one in decorators):
            scope = code.body_scope(function)
            found[scope] = scope.parameters - {"self", "cls"}
    return found


_CONSTRUCTORS = ("dict", "update", "replace", "format", "bind", "bind_partial", "model_construct")


def executes_call(code: PythonModule, node: ast.Call) -> bool:
    """Return True for `f(**arguments)` with the arguments of a tool call, unless `f` is a class or a constructor."""
    name = last_name(node.func)
    if name in (*_CONSTRUCTORS, *REQUEST_METHODS) or name[:1].isupper() or name.lower().endswith("model"):
        return False
    unpacked = [keyword.value for keyword in node.keywords if keyword.arg is None]
    scope = code.scope_of(node)
    return any(access_path(one)[-1:] == ["arguments"] or is_call_text(one, scope) for one in unpacked)


def assigned_names(statement: ast.stmt) -> list[str]:
    return [last_name(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []


def runs_tool(code: PythonModule, node: ast.AST) -> bool:
    """Match `f(**arguments)` of a tool call, and `tools[name](**…)`, also with another table and the name of a call."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Subscript) and any(keyword.arg is None for keyword in node.keywords):
        names = " ".join(access_path(node.func.value)).lower()
        if "tool" in names or "func" in names or is_call_text(node.func.slice, code.scope_of(node)):
            return True
    return executes_call(code, node)
