"""Parse Python source once, with everything that the code rules look up, in time linear in the source.

A rule must not walk a function or a module again for each node of it: sources of 100,000 lines are audited, and a
generated function may have thousands of lines. Each node is visited once here; the rules read the indexes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard, TypeVar

N = TypeVar("N", bound=ast.AST)
REQUEST_METHODS = ("create", "generate_content", "completion", "acompletion", "parse", "stream")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_PATH = 30  # accesses of one expression; a longer chain is generated code, and reading it again is quadratic
_MAX_NESTING = 8  # names, calls and operators inside each other; also ends cycles such as `a = b; b = a`
_CALL_OBJECTS = frozenset({"call", "tool_call", "function_call", "tool_use", "tool_calls", "function_calls"})
_CALL_FIELDS = frozenset({"name", "arguments", "input", "args", "tool_name", "function"})
_PARSERS = ("loads", "str", "dict", "literal_eval")
_VALIDATION = ("validate", "check", "problems", "model_validate")
_TEXT_METHODS = ("get", "pop", "strip", "lower", "removeprefix", "replace", "split")


class FunctionScope:
    """The names of a function, or of the module outside of its functions."""

    def __init__(self, outer: FunctionScope | None = None, parameters: Sequence[str] = ()) -> None:
        self.outer = outer
        self.parameters = frozenset(parameters)
        self.stored: set[str] = set()
        self.loops: dict[str, str | None] = {}  # loop variable → root name of the iterated expression
        self.called: set[str] = set()  # names of called functions and methods, inner functions included
        self.call_text: set[str] = set()  # variables with text of a tool call
        self.call_objects: set[str] = set()  # variables with a tool call
        self.measured: set[str] = set()  # last names of expressions whose length is taken
        self.counted: set[str] = set()  # the same, without those that are only tested to be empty
        self.tested: set[tuple[str, ...]] = set()  # access paths in conditions
        self.copies: dict[str, tuple[str, ...]] = {}  # access paths by the variables that they are assigned to
        self.validates = False  # this function or an inner one calls a function that validates
        self.responses: set[str] = set()  # variables with the response of a request, or a part of it
        self.deltas: set[str] = set()  # variables with the delta of a stream

    def add_called(self, name: str) -> None:
        scope: FunctionScope | None = self
        while scope is not None and name not in scope.called:  # a name in a scope is in all outer ones
            scope.called.add(name)
            scope.validates = scope.validates or name.lstrip("_").startswith(_VALIDATION)
            scope = scope.outer

    def resolve(self, name: str, kind: str) -> bool:
        """Return True if the nearest scope that binds the name has it in its set `kind`."""
        scope: FunctionScope | None = self
        while scope is not None:
            if name in getattr(scope, kind):
                return True
            if name in scope.stored or name in scope.parameters:
                return False
            scope = scope.outer
        return False

    def binds(self, name: str) -> bool:
        """Return True if this scope or an outer one defines the name, which then is not the builtin."""
        scope: FunctionScope | None = self
        while scope is not None:
            if name in scope.stored or name in scope.parameters:
                return True
            scope = scope.outer
        return False


class _Context(NamedTuple):
    scope: FunctionScope
    guarded: bool = False  # in the body of a `try` of the same function
    loops: tuple[ast.While, ...] = ()  # the enclosing `while` statements
    in_class: bool = False  # directly in the body of a class


class PythonModule:
    """A parsed module with indexes of its nodes. If parsing failed, it has no nodes and `broken` is the error."""

    def __init__(self, source: str) -> None:
        """Parse and index a module. If it cannot be parsed, `broken` is the error and nothing is indexed."""
        self.broken: Exception | None = None
        self.scope = FunctionScope()
        self.requesting_loops: set[ast.While] = set()  # loops that send requests to a model
        self.counting_loops: set[ast.While] = set()  # loops that increment a counter
        self._empty_tests: set[ast.AST] = set()  # expressions that are compared with zero, or are a condition
        self._by_kind: dict[type[ast.AST], list[ast.AST]] = {}
        self._calls: dict[str, list[ast.Call]] = {}
        self._contexts: dict[ast.AST, _Context] = {}
        self._body_scopes: dict[ast.AST, FunctionScope] = {}
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
            self.broken = error
        else:
            self._visit_all(tree)

    def nodes_of(self, kind: type[N]) -> Iterator[N]:
        return (node for node in self._by_kind.get(kind, ()) if isinstance(node, kind))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        yield from self.nodes_of(ast.FunctionDef)
        yield from self.nodes_of(ast.AsyncFunctionDef)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield the calls of functions or methods with these names."""
        for name in names:
            yield from self._calls.get(name, ())

    def scope_of(self, node: ast.AST) -> FunctionScope:
        return self._contexts[node].scope

    def body_scope(self, function: ast.AST) -> FunctionScope:
        """Return the scope of the body of a function."""
        return self._body_scopes[function]

    def is_guarded(self, node: ast.AST) -> bool:
        """Return True if the node is in the body of a `try`."""
        return self._contexts[node].guarded

    def is_external(self, node: ast.AST) -> bool:
        """Return True if the root name is a parameter or a module constant, not created in this function."""
        root, scope = root_name(node), self.scope_of(node)
        if root is None or scope.outer is None:
            return False
        origin = scope.loops.get(root, root)  # once: the origin of a nested loop is not traced
        if origin is None or origin in scope.stored:
            return False
        return origin in scope.parameters - {"self", "cls"} or origin.isupper()

    def _visit_all(self, tree: ast.AST) -> None:
        """Visit every node once, in the order of the source, and record its context and facts."""
        waiting: list[tuple[ast.AST, _Context]] = [(tree, _Context(self.scope))]
        while waiting:
            node, context = waiting.pop()
            self._contexts[node] = context
            self._by_kind.setdefault(type(node), []).append(node)
            self._empty_tests.update(_emptiness_tests(node))
            self._record(node, context)
            inner = self._inner_context(node, context)
            guarded = set(map(id, node.body)) if _handles_errors(node) else ()
            children = [
                (child, inner._replace(guarded=True) if id(child) in guarded else inner)
                for child in ast.iter_child_nodes(node)
            ]
            waiting.extend(reversed(children))

    def _inner_context(self, node: ast.AST, context: _Context) -> _Context:
        """Return the context of a node's children. A function gets a new scope, which is stored in `_body_scopes`."""
        if isinstance(node, _FUNCTIONS):
            self._body_scopes[node] = FunctionScope(context.scope, _parameter_names(node.args))
            return _Context(self._body_scopes[node], loops=context.loops)
        if isinstance(node, ast.While):
            return context._replace(loops=(*context.loops, node))
        if isinstance(node, ast.ClassDef):
            return context._replace(in_class=True)
        return context

    def _record(self, node: ast.AST, context: _Context) -> None:
        """Record the facts of a node that rules ask for: stored names, calls, lengths, tests, loops, assignments."""
        scope = context.scope
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            scope.stored.add(node.id)
        elif isinstance(node, _FUNCTIONS) and not context.in_class:
            scope.stored.add(node.name)
        elif isinstance(node, ast.alias):
            scope.stored.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Call):
            name = last_name(node.func)
            self._calls.setdefault(name, []).append(node)
            scope.add_called(name)
            if name in REQUEST_METHODS:
                self.requesting_loops.update(context.loops)
            elif name == "len" and node.args:
                self._record_length(node, scope)
        elif isinstance(node, ast.AugAssign) and constant_value(node.value) == 1:
            self.counting_loops.update(context.loops)
        elif isinstance(node, (ast.If, ast.IfExp, ast.Assert)):
            scope.tested.update(_paths(node.test))
        elif isinstance(node, ast.BoolOp):
            scope.tested.update(path for value in node.values for path in _paths(value))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            _record_loop(node, scope)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            _record_assignment(node, scope)

    def _record_length(self, node: ast.Call, scope: FunctionScope) -> None:
        measured = access_path(node.args[0])[-1:]
        scope.measured.update(measured)
        if node not in self._empty_tests:
            scope.counted.update(measured)


def _record_loop(node: ast.For | ast.AsyncFor | ast.comprehension, scope: FunctionScope) -> None:
    for test in node.ifs if isinstance(node, ast.comprehension) else ():
        scope.tested.update(_paths(test))
    if isinstance(node.target, ast.Name):
        if not isinstance(node, ast.comprehension):
            scope.loops[node.target.id] = root_name(node.iter)
        path = access_path(node.iter)
        if path and path[-1] in ("tool_calls", "function_calls"):
            scope.call_objects.add(node.target.id)


def _record_assignment(node: ast.Assign | ast.AnnAssign | ast.NamedExpr, scope: FunctionScope) -> None:
    """Record which variables have a response, a tool call or text of a tool call, by the assigned expression."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    value = node.value.value if isinstance(node.value, ast.Await) else node.value
    if value is None or not names:
        return
    path = access_path(value)
    is_request = isinstance(value, ast.Call) and last_name(value.func) in REQUEST_METHODS
    if is_request or (path and scope.resolve(path[0], "responses")):
        scope.responses.update(names)
    if path:
        scope.copies.update(dict.fromkeys(names, tuple(path)))
    if path[-1:] == ["delta"]:
        scope.deltas.update(names)
    if path and path[-1] in _CALL_OBJECTS:
        scope.call_objects.update(names)
    if is_call_text(value, scope):
        scope.call_text.update(names)


def _handles_errors(node: ast.AST) -> TypeGuard[ast.Try | ast.TryStar | ast.With]:
    """Return True for a `try` statement and for `with suppress(…)`."""
    if isinstance(node, ast.With):
        calls = [one.context_expr for one in node.items if isinstance(one.context_expr, ast.Call)]
        return any(last_name(call.func) == "suppress" for call in calls)
    return isinstance(node, (ast.Try, ast.TryStar))


def _paths(test: ast.AST) -> list[tuple[str, ...]]:
    """Return the access paths that a condition tests: of itself, or of the operands of `not` or a comparison."""
    while isinstance(test, ast.UnaryOp):
        test = test.operand
    operands = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    return [tuple(path) for path in map(access_path, operands) if path]


def _emptiness_tests(node: ast.AST) -> Sequence[ast.AST]:
    """Return the expressions whose truth, or difference from zero, a node tests."""
    if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
        return (node.test,)
    if isinstance(node, ast.UnaryOp):
        return (node.operand,)
    if isinstance(node, ast.BoolOp):
        return node.values
    return (node.left, *node.comparators) if isinstance(node, ast.Compare) and _tests_emptiness(node) else ()


def _tests_emptiness(node: ast.Compare) -> bool:
    """Match `x > 0`, `x >= 1`, `x == 0`, `0 < x` and so on: they do not distinguish between one item and several."""
    values = [constant_value(one) for one in (node.left, *node.comparators)]
    is_order = isinstance(node.ops[0], (ast.GtE, ast.LtE, ast.Gt, ast.Lt))
    if len(values) != 2:
        return False
    if 0 in values:
        return True
    at_least_one = (ast.GtE, ast.Lt) if values[1] == 1 else (ast.LtE, ast.Gt)
    return is_order and 1 in values and isinstance(node.ops[0], at_least_one)


def _parameter_names(arguments: ast.arguments) -> list[str]:
    rest = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest)]


def is_call_text(node: ast.AST, scope: FunctionScope, nesting: int = 0) -> bool:
    """Return True if the expression has the name or the arguments of a tool call, or text made from them."""
    if nesting > _MAX_NESTING:
        return False
    if isinstance(node, ast.Call):
        return any(is_call_text(one, scope, nesting + 1) for one in _text_operands(node))
    if isinstance(node, (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.Await)):
        return any(is_call_text(one, scope, nesting + 1) for one in ast.iter_child_nodes(node))
    path = access_path(node)
    if not path:
        return False
    if scope.resolve(path[0], "call_text") or path[-2:] in (["function", "name"], ["function", "arguments"]):
        return True
    is_call = scope.resolve(path[0], "call_objects")
    if path[0] == "call" and not is_call:  # a common name: `call.input` may be anything
        return path[1:2] in (["name"], ["arguments"], ["function"])
    start = 0 if is_call else next((at for at, name in enumerate(path) if name in _CALL_OBJECTS), len(path))
    return any(name in _CALL_FIELDS for name in path[start + 1 :])


def _text_operands(call: ast.Call) -> list[ast.expr]:
    """Return the operands whose text a call returns: `json.loads(x)`, `str(x)`, `x.get(…)`, `x.strip()`."""
    if last_name(call.func) in _PARSERS:
        return call.args[:1]
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in _TEXT_METHODS
    return [call.func.value] if is_method and isinstance(call.func, ast.Attribute) else []


def last_name(node: ast.AST) -> str:
    """Return the last component of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def root_name(node: ast.AST) -> str | None:
    """Return the leading name of an expression like `name["key"].attribute[0]`."""
    path = access_path(node)
    return path[0] if path else None


def access_path(node: ast.AST) -> list[str]:
    """Return the names of `name["key"].attribute[0]`: name, key, attribute. Empty for any other expression."""
    path: list[str] = []
    for _ in range(_MAX_PATH):
        if isinstance(node, ast.Attribute):
            path.append(node.attr)
        elif isinstance(node, ast.Subscript):
            key = constant_value(node.slice)
            if isinstance(key, str):
                path.append(key)
        else:
            return [node.id, *reversed(path)] if isinstance(node, ast.Name) else []
        node = node.value
    return []


def constant_value(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None
