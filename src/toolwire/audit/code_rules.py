"""TW070 to TW086: Python code that works with one provider only. The code is parsed, never executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ..schema.dialects import DIALECTS
from .findings import Finding, SourceLocation, is_selected, make_finding, rule_decorator

__all__ = ["CODE_CHECKS", "audit_code"]

CodeCheck: TypeAlias = Callable[["PythonModule"], Iterator[tuple[ast.AST, str]]]


class PythonModule:
    """A parsed module with the parent of each node. If parsing failed, it has no nodes and `broken` is the error."""

    def __init__(self, source: str) -> None:
        self.broken: Exception | None = None
        self.nodes: list[ast.AST] = []
        try:
            self.nodes += ast.walk(ast.parse(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
            self.broken = error
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def nodes_of(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in self.nodes if isinstance(node, kinds))

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield the calls of functions or methods with these names."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and _last_name(node.func) in names:
                yield node

    def sibling_calls(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the functions called in the function that contains the node."""
        while node in self.parents and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node = self.parents[node]
        return (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))

    def is_external(self, node: ast.AST) -> bool:
        """Return True if the root name is a parameter or a module constant, not created in this function."""
        root, function = _root_name(node), self.enclosing_function(node)
        if root is None or function is None:
            return False
        given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)} - {"self", "cls"}
        loops = {
            one.target.id: _root_name(one.iter)
            for one in ast.walk(function)
            if isinstance(one, (ast.For, ast.AsyncFor)) and isinstance(one.target, ast.Name)
        }
        made = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        origin = loops.pop(root, root)  # once: the origin of a nested loop is not traced
        return origin is not None and origin not in made and (origin in given or origin.isupper())

    def enclosing_function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return node
        return None

    def is_guarded(self, node: ast.AST) -> bool:
        """Return True if the node is in the body of a `try`."""
        while node in self.parents:
            parent = self.parents[node]
            if isinstance(parent, ast.Try) and any(node is one for one in parent.body):
                return True
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return False
            node = parent
        return False


CODE_CHECKS: dict[str, CodeCheck] = {}


_rule = rule_decorator(CODE_CHECKS)


def audit_code(
    source: str,
    file: str,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """Run the code rules on Python source; `# toolwire: ignore[TW074]` on a line suppresses that rule there."""
    code, lines = PythonModule(source), source.splitlines()
    found: list[Finding] = []
    for rule_id, check in CODE_CHECKS.items():
        if not is_selected(rule_id, select, ignore, targets):
            continue
        for node, message in check(code):
            line = getattr(node, "lineno", 1)
            if f"toolwire: ignore[{rule_id}]" not in "".join(lines[line - 1 : line]):
                found.append(make_finding(SourceLocation(file, line), rule_id, "", "", message))
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: (finding.line, finding.rule)))


def _last_name(node: ast.AST) -> str:
    """Return the last component of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root_name(node: ast.AST) -> str | None:
    """Return the leading name of an expression like `name["key"].attribute[0]`."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_first(node: ast.AST, attribute: str) -> bool:
    """Match `….attribute[0]`."""
    return (
        isinstance(node, ast.Subscript)
        and _last_name(node.value) == attribute
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == 0
    )


def _mentions(node: ast.AST, *names: str) -> bool:
    return any(_last_name(inner) in names for inner in ast.walk(node))


@_rule(
    "TW070",
    "warning",
    "all",
    "arguments parsed without error handling",
    "catch the error and return it to the model as the result",
)
def check_unguarded_arguments(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for call in code.calls("loads"):
        if call.args and _mentions(call.args[0], "arguments") and not code.is_guarded(call):
            yield call, "a model may produce arguments that are not valid JSON"


@_rule("TW071", "warning", "all", "only the first call is handled", "loop over all calls")
def check_first_call(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in code.nodes_of(ast.Subscript):
        if _is_first(node, "tool_calls") and not _mentions(node, "delta"):
            yield node, "a model may make several calls in one turn"


@_rule("TW072", "warning", "anthropic gemini", "first content block assumed to be text", "select blocks by type")
def check_first_block(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in code.nodes_of(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if node.attr == "text" and (_is_first(node.value, "content") or _is_first(node.value, "parts")):
            yield node, "the first block may be reasoning or a call"


@_rule("TW073", "error", "openai_chat", "stream read as if it had one call", "accumulate the deltas per `index`")
def check_first_delta(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in code.nodes_of(ast.Subscript):
        if _is_first(node, "tool_calls") and _mentions(node, "delta"):
            yield node, "the index identifies the call of each delta"


@_rule(
    "TW074",
    "warning",
    "gemini ollama",
    "calls detected by the stop reason",
    "check the response for calls",
)
def check_stop_reason(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in code.nodes_of(ast.Compare):
        assert isinstance(node, ast.Compare)
        words = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
        if _mentions(node, "finish_reason", "stop_reason") and {"tool_calls", "tool_use"} & set(words):
            yield node, "other servers return `stop` for a response with calls"


@_rule("TW075", "warning", "all", "unbounded agent loop", "limit the number of turns")
def check_endless_loop(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in code.nodes_of(ast.While):
        assert isinstance(node, ast.While)
        asks = any(
            isinstance(inner, ast.Call) and _last_name(inner.func) in _REQUEST_METHODS for inner in ast.walk(node)
        )
        if isinstance(node.test, ast.Constant) and node.test.value and asks:
            yield node, "a model may call the same tool forever"


_REQUEST_METHODS = ("create", "generate_content", "completion", "acompletion", "parse", "stream")


@_rule("TW076", "error", "all", "tool name resolved in an open namespace", "look it up among the declared tools")
def check_free_dispatch(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `eval`, `exec`, lookups in `globals()` and `getattr` with a name that is not a constant."""
    for call in code.calls("eval", "exec"):
        yield call, "text from a model is executed"
    for node in code.nodes_of(ast.Subscript):
        assert isinstance(node, ast.Subscript)
        if isinstance(node.value, ast.Call) and _last_name(node.value.func) in ("globals", "locals", "vars"):
            yield node, "the model can call every name of the module"
    for call in code.calls("getattr"):
        if len(call.args) > 1 and not isinstance(call.args[1], ast.Constant) and _mentions(call.args[1], "name"):
            yield call, "the model can call every attribute"


def _unpacked_expression(call: ast.Call) -> ast.expr | None:
    """Return the expression that `**` unpacks into a call, if it comes from a model."""
    for keyword in call.keywords:
        if keyword.arg is None and _mentions(keyword.value, "arguments", "input", "args", "loads"):
            return keyword.value
    return None


@_rule(
    "TW077", "warning", "all", "arguments passed to a function unvalidated", "validate them against the schema first"
)
def check_unchecked_call(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `f(**arguments)` in a function that calls no validation."""
    for node in code.nodes_of(ast.Call):
        assert isinstance(node, ast.Call)
        checked = any(
            _mentions(one, "check", "validate", "problems", "model_validate", "validate_python")
            for one in code.sibling_calls(node)
        )
        if (
            _unpacked_expression(node) is not None
            and not checked
            and _last_name(node.func) not in ("dict", "update", "Tool", "replace")
        ):
            yield node, "a wrong name or type raises a TypeError in your code"


@_rule("TW078", "warning", "all", "retry of a function with side effects", "send an idempotency key")
def check_retries(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report functions with a retry decorator that call something like `post` or `pay`."""
    for node in code.nodes_of(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        writes = any(
            isinstance(i, ast.Call) and _last_name(i.func) in ("post", "send", "charge", "pay") for i in ast.walk(node)
        )
        if writes and any(_last_name(one) in ("retry", "backoff", "on_exception") for one in decorators):
            yield node, f"{node.name} may take effect twice"


@_rule("TW079", "warning", "all", "a tool error ends the loop", "return it to the model as an error result")
def check_escaping(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `f(**arguments)` outside of a `try`: an exception would end the loop."""
    for node in code.nodes_of(ast.Call):
        assert isinstance(node, ast.Call)
        if (
            _unpacked_expression(node) is not None
            and isinstance(node.func, (ast.Subscript, ast.Name))
            and not code.is_guarded(node)
        ):
            if _last_name(node.func) not in ("dict", "Tool", "replace"):
                yield node, "after an exception the other calls have no results"


@_rule("TW080", "info", "openai_chat", "deprecated function-calling API", "use `tools` and `tool_choice`")
def check_deprecated(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report the parameters `functions` and `function_call`, and messages with the role `function`."""
    for call in code.calls(*_REQUEST_METHODS):
        for keyword in call.keywords:
            if keyword.arg in ("functions", "function_call"):
                yield call, f"`{keyword.arg}`"
    for node in code.nodes_of(ast.Dict):
        assert isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "role" and isinstance(value, ast.Constant):
                if value.value == "function":
                    yield node, 'role "function"'


_DICT_METHODS = ("pop", "setdefault")
_LIST_METHODS = ("append", "extend", "insert", "remove", "clear")
_DECLARATION = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema", "parameters_json_schema")
_SCHEMA_KEYWORDS = DIALECTS["openai"].keywords | {"$schema", "$id", "definitions", "nullable", "strict"}


@_rule("TW081", "warning", "all", "shared schema modified in place", "copy it first with copy.deepcopy")
def check_changed_schema(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in code.nodes_of(ast.Assign, ast.AugAssign, ast.Delete, ast.Call):
        for target, keyword in _in_place_changes(node):
            if keyword in _SCHEMA_KEYWORDS and _is_schema_expression(target) and code.is_external(target):
                yield node, f"the changed `{keyword}` is seen by the next request and by all other users of the schema"


def _in_place_changes(node: ast.AST) -> Iterator[tuple[ast.expr, object]]:
    """Yield (object, key) for each item that a statement changes in place."""
    if isinstance(node, ast.Call):
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in _DICT_METHODS and node.args:
            yield method.value, _constant_value(node.args[0])
        elif (
            isinstance(method, ast.Attribute)
            and method.attr in _LIST_METHODS
            and isinstance(method.value, ast.Subscript)
        ):
            yield method.value.value, _constant_value(method.value.slice)
        return
    assert isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete))
    for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
        if isinstance(target, ast.Subscript):
            yield target.value, _constant_value(target.slice)


def _constant_value(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_schema_expression(node: ast.expr) -> bool:
    """Match `schema`, `tool["parameters"]`, `tool.inputSchema["properties"]`."""
    words = [_last_name(inner) for inner in ast.walk(node)] + [_constant_value(inner) for inner in ast.walk(node)]
    return any(type(word) is str and (word in _DECLARATION or word.lower().endswith("schema")) for word in words)


@_rule(
    "TW082",
    "warning",
    "gemini anthropic",
    "SDK object appended to the history",
    "store the whole message as plain data",
)
def check_sdk_object(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for call in code.calls("append"):
        if call.args and isinstance(call.args[0], ast.Attribute) and call.args[0].attr in ("message", "content"):
            yield call, "other clients cannot read it, and signatures are easily lost"


@_rule("TW083", "warning", "all", "all calls run concurrently", "run only read-only calls concurrently")
def check_gathered_calls(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for call in code.calls("gather"):
        if _mentions(call, "tool_calls", "calls", "function_calls"):
            yield call, "calls that write may have to run in order"


_RENAMED = {
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use on Anthropic, nothing on Gemini",
    "max_completion_tokens": "max_tokens on Anthropic, generationConfig.maxOutputTokens on Gemini",
    "response_format": "output_config.format on Anthropic, responseJsonSchema on Gemini",
    "reasoning_effort": "output_config.effort or thinking on Anthropic, thinkingConfig on Gemini",
    "seed": "nothing on Anthropic",
    "n": "candidateCount on Gemini, nothing on Anthropic",
    "logit_bias": "nothing elsewhere",
    "stop": "stop_sequences on Anthropic, stopSequences on Gemini",
    "functions": "tools everywhere",
}


@_rule("TW085", "info", "anthropic gemini", "parameter with other names elsewhere", "translate the request")
def check_renamed_parameter(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for call in code.calls(*_REQUEST_METHODS):
        for keyword in call.keywords:
            if keyword.arg in _RENAMED:
                yield keyword.value, f"`{keyword.arg}`: {_RENAMED[keyword.arg]}"


@_rule("TW086", "error", "all", "source is not valid Python", "fix the syntax; no other rule ran on this file")
def check_unreadable_source(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    error = code.broken
    if isinstance(error, SyntaxError):
        yield ast.Pass(lineno=max(error.lineno or 1, 1)), error.msg
    elif error is not None:
        yield ast.Pass(lineno=1), str(error) or "nested too deeply"
