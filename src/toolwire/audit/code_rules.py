"""TW070 to TW086: Python code that works with one provider only. The code is parsed, never executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from ..schema.dialects import DIALECTS
from .code_patterns import (
    assigned_names,
    contains_name,
    executes_call,
    has_calls,
    in_place_changes,
    is_arguments,
    is_first,
    is_silent,
    parts_of,
    renames,
    runs_tool,
    tool_parameters,
)
from .findings import Finding, SourceLocation, declare, is_selected, make_finding, rule_decorator
from .python_module import (
    REQUEST_METHODS,
    PythonModule,
    access_path,
    is_call_text,
    last_name,
)

CodeCheck: TypeAlias = Callable[[PythonModule], Iterator[tuple[ast.AST, str]]]
CODE_CHECKS: dict[str, CodeCheck] = {}
UNREADABLE_TOOL = "TW087"
"""The rule for a function or declaration in Python source that is no valid tool. The reader of the file reports it."""


_rule = rule_decorator(CODE_CHECKS)


def audit_code(
    source: str,
    file: str,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """Run the code rules on Python source, and return the findings by line.

    `# toolwire: ignore[TW074]` on a line suppresses that rule there.
    """
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


@_rule(
    "TW070",
    "warning",
    "all",
    "arguments parsed without error handling",
    "catch the error and return it to the model as the result",
)
def check_unguarded_arguments(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for call in code.calls("loads"):
        if not call.args or code.is_guarded(call) or "json_repair" in access_path(call.func):
            continue
        if is_arguments(call.args[0]) or is_call_text(call.args[0], code.scope_of(call)):
            yield call, "a model may produce arguments that are not valid JSON"


@_rule("TW071", "warning", "all", "only the first call is handled", "loop over all calls")
def check_first_call(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    streamed = set(_first_deltas(code))
    for node in code.nodes_of(ast.Subscript):
        counted = "tool_calls" in code.scope_of(node).counted
        if is_first(node, "tool_calls") and not counted and node not in streamed:
            yield node, "a model may make several calls in one turn"


def _first_deltas(code: PythonModule) -> Iterator[ast.Subscript]:
    """Yield each `tool_calls[0]` of a delta: by its name, by the variable's value, or because arguments are added up."""
    added = {
        part
        for node in code.nodes_of(ast.AugAssign)
        if isinstance(node.op, ast.Add) and "arguments" in access_path(node.value)[-1:]
        for part in parts_of(node.value)
    }
    for node in code.nodes_of(ast.Subscript):
        path = access_path(node)
        is_delta = bool(path) and code.scope_of(node).resolve(path[0], "deltas")
        if is_first(node, "tool_calls") and ("delta" in path or is_delta or node in added):
            yield node


@_rule("TW072", "warning", "anthropic gemini", "first content block assumed to be text", "select blocks by type")
def check_first_block(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `content[0].text`, unless the function tests that text or counts the blocks."""
    for node in code.nodes_of(ast.Attribute):
        if node.attr == "text" and (is_first(node.value, "content") or is_first(node.value, "parts")):
            path, scope = access_path(node), code.scope_of(node)
            is_handled = tuple(path) in scope.tested or not scope.measured.isdisjoint(path)
            if not is_handled and not any("reasoning" in name for name in path):
                yield node, "the first block may be reasoning or a call"


@_rule("TW073", "error", "openai_chat", "stream read as if it had one call", "accumulate the deltas per `index`")
def check_first_delta(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in _first_deltas(code):
        yield node, "the index identifies the call of each delta"


@_rule(
    "TW074",
    "warning",
    "gemini ollama",
    "calls detected by the stop reason",
    "check the response for calls",
)
def check_stop_reason(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `finish_reason == "tool_calls"`, unless an `or` also checks for calls, or the reason is only renamed."""
    handled: set[ast.AST] = {
        one
        for node in code.nodes_of(ast.BoolOp)
        for one in (node.values if isinstance(node.op, ast.Or) and has_calls(node) else ())
    }
    handled |= {node.test for node in code.nodes_of(ast.If) if renames(node)}
    for node in code.nodes_of(ast.Compare):
        if node in handled or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            continue
        constants = [one.value for one in parts_of(node) if isinstance(one, ast.Constant)]
        if contains_name(node, "finish_reason", "stop_reason") and {"tool_calls", "tool_use"} & set(constants):
            yield node, "other servers return `stop` for a response with calls"


@_rule("TW075", "warning", "all", "unbounded agent loop", "limit the number of turns")
def check_endless_loop(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for node in code.nodes_of(ast.While):
        if (
            isinstance(node.test, ast.Constant)
            and node.test.value
            and node in code.requesting_loops - code.counting_loops
        ):
            yield node, "a model may call the same tool forever"


@_rule("TW076", "error", "all", "tool name resolved in an open namespace", "look it up among the declared tools")
def check_free_dispatch(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `eval`, `exec`, `globals()[name]` and `getattr(x, name)` with text that comes from a tool call.

    Parameters of a function that the module declares as a tool come from a tool call, too. Only the builtins count:
    `model.eval()` and a function named `exec` of the module itself do something else.
    """
    arguments = tool_parameters(code)
    for call in _builtin_calls(code, "eval", "exec"):
        if not call.args:
            continue
        scope = code.scope_of(call)
        names = {part.id for part in parts_of(call.args[0]) if isinstance(part, ast.Name)}
        if is_call_text(call.args[0], scope) or not names.isdisjoint(arguments.get(scope, ())):
            yield call, "text from a model is executed"
    for node in code.nodes_of(ast.Subscript):
        opened = node.value
        if isinstance(opened, ast.Call) and isinstance(opened.func, ast.Name) and opened.func.id in _NAMESPACES:
            if is_call_text(node.slice, code.scope_of(node)):
                yield node, "the model can call every name of the module"
    for call in _builtin_calls(code, "getattr"):
        # f"run_{name}" reaches only the methods with the prefix
        if len(call.args) > 1 and not isinstance(call.args[1], (ast.JoinedStr, ast.BinOp)):
            if is_call_text(call.args[1], code.scope_of(call)):
                yield call, "the model can call every attribute"


_NAMESPACES = ("globals", "locals", "vars")


def _builtin_calls(code: PythonModule, *names: str) -> Iterator[ast.Call]:
    """Yield the calls of builtins by their bare names, unless the source redefines the name."""
    for call in code.calls(*names):
        if isinstance(call.func, ast.Name) and not code.scope_of(call).binds(call.func.id):
            yield call


@_rule(
    "TW077", "warning", "all", "arguments passed to a function unvalidated", "validate them against the schema first"
)
def check_unchecked_call(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `f(**arguments)` in a function that calls no validation."""
    for node in code.nodes_of(ast.Call):
        if executes_call(code, node) and not code.scope_of(node).validates:
            yield node, "a wrong name or type raises a TypeError in your code"


@_rule("TW078", "warning", "all", "retry of a function with side effects", "send an idempotency key")
def check_retries(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report functions with a retry decorator that call something like `post` or `pay`."""
    for node in code.functions():
        decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        writes = not code.body_scope(node).called.isdisjoint(("post", "send", "charge", "pay"))
        if writes and any(last_name(one) in ("retry", "backoff", "on_exception") for one in decorators):
            yield node, f"{node.name} may take effect twice"


@_rule("TW079", "warning", "all", "a tool error ends the loop", "return it to the model as an error result")
def check_escaping(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `f(**arguments)` outside of a `try`: an exception would end the loop."""
    for node in code.nodes_of(ast.Call):
        is_function = isinstance(node.func, (ast.Subscript, ast.Name))
        if is_function and not code.is_guarded(node) and executes_call(code, node):
            yield node, "after an exception the other calls have no results"


@_rule(
    "TW088",
    "warning",
    "all",
    "error of a tool hidden from the model",
    "return the error as the result, so that the model can react",
)
def check_swallowed_error(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `except` with nothing but an empty value, where the `try` runs the function of a tool call.

    The error may be returned after the `try`: `return {"error": …}`, or `if out is None: out = "error"`.
    """
    returned = {
        before
        for function in code.functions()
        for before, after in pairwise(function.body)
        if isinstance(after, ast.Return) and not isinstance(after.value, ast.Name) and not is_silent(after)
    }
    for node in code.nodes_of(ast.Try):
        tested = code.scope_of(node).tested
        silent = [
            handler
            for handler in node.handlers
            if node not in returned
            and all(map(is_silent, handler.body))
            and not any((name,) in tested for statement in handler.body for name in assigned_names(statement))
        ]
        if silent and any(runs_tool(code, part) for statement in node.body for part in parts_of(statement)):
            yield from ((handler, "the model gets an empty result and does not know why") for handler in silent)


@_rule(
    "TW089",
    "warning",
    "openai_chat",
    "stream chunk assumed to have a choice",
    "skip chunks without choices",
)
def check_chunk_without_choice(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `chunk.choices[0].delta` of a loop variable whose choices are not tested.

    The chunk with the usage (`stream_options.include_usage`) has no choices, and Azure's first chunk has none.
    https://platform.openai.com/docs/api-reference/chat-streaming
    """
    loops: tuple[ast.For | ast.AsyncFor, ...] = (*code.nodes_of(ast.For), *code.nodes_of(ast.AsyncFor))
    filtered = {  # `for chunk in filter(lambda one: one.choices, stream)`
        (code.scope_of(loop), last_name(loop.target))
        for loop in loops
        if isinstance(loop.iter, (ast.Call, ast.GeneratorExp, ast.ListComp)) and contains_name(loop.iter, "choices")
    }
    for node in code.nodes_of(ast.Attribute):
        if node.attr != "delta" or not is_first(node.value, "choices") or code.is_guarded(node):
            continue
        path, scope = access_path(node), code.scope_of(node)
        tested = scope.tested | {
            scope.copies[one[0]] for one in scope.tested if len(one) == 1 and one[0] in scope.copies
        }
        is_tested = "choices" in scope.measured or (*path[:-1],) in tested or (scope, path[0]) in filtered
        if len(path) == 3 and path[0] in scope.loops and not is_tested:
            yield node, "the chunk with the usage has no choices"


@_rule("TW080", "info", "openai_chat", "deprecated function-calling API", "use `tools` and `tool_choice`")
def check_deprecated(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report the parameters `functions` and `function_call`, and messages with the role `function`."""
    for call in code.calls(*REQUEST_METHODS):
        for keyword in call.keywords:
            if keyword.arg in ("functions", "function_call"):
                yield call, f"`{keyword.arg}`"
    for node in code.nodes_of(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "role" and isinstance(value, ast.Constant):
                if value.value == "function":
                    yield node, 'role "function"'


_DECLARATION = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema", "parameters_json_schema")
_SCHEMA_KEYWORDS = DIALECTS["openai"].keywords | {"$schema", "$id", "definitions", "nullable", "strict"}


@_rule("TW081", "warning", "all", "shared schema modified in place", "copy it first with copy.deepcopy")
def check_changed_schema(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report changes of a module constant, or of the schema in a declaration that is a parameter.

    A parameter that is itself a schema is not reported: a function that transforms schemas usually gets a copy.
    """
    kinds: tuple[type[ast.AST], ...] = (ast.Assign, ast.AugAssign, ast.Delete, ast.Call)
    for node in (node for kind in kinds for node in code.nodes_of(kind)):
        for target, keyword in in_place_changes(node):
            if keyword in _SCHEMA_KEYWORDS and _is_schema_expression(target) and code.is_external(target):
                yield node, f"the changed `{keyword}` is seen by the next request and by all other users of the schema"


def _is_schema_expression(node: ast.expr) -> bool:
    """Match `SCHEMA`, `tool["parameters"]`, `tool.inputSchema["properties"]`."""
    root, *rest = access_path(node) or [""]
    return any(
        word in _DECLARATION or word.lower().endswith("schema") for word in (rest if root.islower() else (root, *rest))
    )


@_rule(
    "TW082",
    "warning",
    "gemini anthropic",
    "SDK object appended to the history",
    "store the whole message as plain data",
)
def check_sdk_object(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    """Report `messages.append(response.choices[0].message)`: a message that a request in this module returned."""
    for call in code.calls("append"):
        value = call.args[0] if call.args else None
        if isinstance(value, ast.Attribute) and value.attr in ("message", "content"):
            path = access_path(value)
            is_response = bool(path) and code.scope_of(call).resolve(path[0], "responses")
            if is_response or not {"choices", "candidates"}.isdisjoint(path[1:-1]):
                yield call, "other clients cannot read it, and signatures are easily lost"


@_rule("TW083", "warning", "all", "all calls run concurrently", "run only read-only calls concurrently")
def check_gathered_calls(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for call in code.calls("gather"):
        if contains_name(call, "tool_calls", "calls", "function_calls"):
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


_CONVERSATIONS = ("completions", "responses", "messages", "completion", "acompletion", "generate_content")
_CONVERSATION_FIELDS = frozenset({"messages", "contents"})


@_rule("TW085", "info", "anthropic gemini", "parameter with other names elsewhere", "translate the request")
def check_renamed_parameter(code: PythonModule) -> Iterator[tuple[ast.AST, str]]:
    for call in code.calls(*REQUEST_METHODS):
        names = {keyword.arg for keyword in call.keywords}
        if not contains_name(call.func, *_CONVERSATIONS) and names.isdisjoint(_CONVERSATION_FIELDS):
            continue  # other methods have such parameters, too: `images.create(n=2)`, `Image.create(n=2)`
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


declare(UNREADABLE_TOOL, "error", "all", "tool cannot be declared", "correct the function or the declaration")
