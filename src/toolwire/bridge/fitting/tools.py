"""Fit tool declarations and the tool choice to a target: unsupported features are rewritten or reported.

The target's maximum number of tools is kept by name and never by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from ...ir.errors import ConfigError, EncodeError
from ...ir.losses import Loss, Losses, Severity
from ...ir.parts import ToolCall
from ...ir.pointer import join
from ...ir.request import Request, found_in_history
from ...ir.text import dumps, finite_to_bytes
from ...ir.tools import Tool, ToolChoice
from ...schema.bounds import content_cache
from ...schema.lowering.lowered import Lowered
from ...wire.codec import WireCodec
from ...wire.faults import FEWER_TOOLS
from ...wire.protocol import Capabilities, Wire
from ..conversation.names import NameMap
from .cache_marks import fit_mark
from .fields import report_extra
from .freeform import wrap_tool
from .hosted_tools import HostedToolFitter, fit_hosted_choice
from .schemas import ParameterCounts, fit_schemas
from .tool_search import NO_SEARCH, SearchPlan, fit_search_tool, load_deferred
from .typed_tools import fit_typed_tool

# Tools that the conversation names are always kept: tools of calls in the history, tools that a search has found, the
# tools of the tool choice, built-in tools and the search tool itself. A chooser fills the remaining places. Without
# one, all other tools are left out, each with a loss that names it.


ToolChooser: TypeAlias = Callable[[Request, Sequence[Tool], int], Sequence[Tool]]
"""Select at least one and at most the given number of tools for a request, such as `toolwire.run.choose_by_words`."""


def keep_all(request: Request, tools: Sequence[Tool], count: int) -> Sequence[Tool]:
    """Keep all tools: for the exchange of an answer, whose request has been sent already."""
    del request, count
    return tools


def limit_tools(
    tools: list[tuple[Tool, int]], max_tools: int | None, request: Request, losses: Losses, choose: ToolChooser | None
) -> list[tuple[Tool, int]]:
    """Return at most `max_tools` tools in their order; each has its index in the request.

    Raise EncodeError if the named tools alone exceed the maximum, or if none is named and there is no chooser. Raise
    ConfigError for a chooser that breaks its contract. Tools that are left out are losses.
    """
    if max_tools is None or len(tools) <= max_tools or choose is keep_all:
        return tools
    kept = _named_indices(tools, request)
    if len(kept) > max_tools:
        raise EncodeError(
            f"{len(kept)} tools are named in the history and in tool_choice; the target accepts at most {max_tools}",
            pointer=join("tools"),
            hint="shorten the history, or name fewer tools in tool_choice",
        )
    if choose is not None and len(kept) < max_tools:
        kept |= _chosen_indices(tools, kept, max_tools, request, choose)
    elif not kept:
        raise EncodeError(
            f"the request has {len(tools)} tools; the target accepts at most {max_tools}",
            pointer=join("tools"),
            hint=FEWER_TOOLS,
        )
    severity: Severity = "error" if choose is None else "warning"
    for _, index in tools:
        if index not in kept:
            name = request.tools[index].name
            detail = f"{name!r} is left out: the request has {len(tools)} tools, the target accepts at most {max_tools}"
            losses.add(join("tools", index), "tool", "dropped", detail, severity)
    return [(tool, index) for tool, index in tools if index in kept]


def _named_indices(tools: list[tuple[Tool, int]], request: Request) -> set[int]:
    named = {part.name for message in request.messages for part in message.parts if isinstance(part, ToolCall)}
    named.update(found_in_history(request.messages))
    if request.choice is not None:
        named.update(request.choice.names)
    originals = ((request.tools[index], index) for _, index in tools)
    return {index for tool, index in originals if tool.kind in ("builtin", "search", "typed") or tool.name in named}


def _chosen_indices(
    tools: list[tuple[Tool, int]], kept: set[int], max_tools: int, request: Request, choose: ToolChooser
) -> set[int]:
    """Return the indices of the tools that the chooser selects; raise ConfigError if it breaks its contract."""
    indices = {
        (original.namespace, original.name): index
        for original, index in ((request.tools[index], index) for _, index in tools if index not in kept)
    }
    candidates, count = [request.tools[index] for index in indices.values()], max_tools - len(kept)
    chosen: object = choose(request, candidates, count)  # of a caller: checked below
    name = getattr(choose, "__qualname__", None) or type(choose).__qualname__
    chosen_indices: set[int] = set()
    for tool in chosen if isinstance(chosen, Iterable) else (chosen,):
        if not isinstance(tool, Tool):
            raise _chooser_error(name, f"must return tools, got {type(tool).__name__}")
        if (tool.namespace, tool.name) not in indices:
            raise _chooser_error(name, f"returned {tool.name!r}, which is not one of the tools to choose from")
        chosen_indices.add(indices[tool.namespace, tool.name])
    if len(chosen_indices) > count:
        raise _chooser_error(name, f"returned {len(chosen_indices)} tools, but only {count} may be chosen")
    if not chosen_indices and not kept:
        raise _chooser_error(name, f"returned none of {len(candidates)} tools")
    return chosen_indices


def _chooser_error(name: str, problem: str) -> ConfigError:
    hint = "return a non-empty list of some of the given tools, at most `count`"
    return ConfigError(f"the chooser {name} {problem}", hint=hint)


def fit_tools(
    request: Request,
    wire: Wire,
    names: NameMap,
    losses: Losses,
    reserved: ParameterCounts = (0, 0),
    choose: ToolChooser | None = None,
    plan: SearchPlan = NO_SEARCH,
) -> tuple[list[tuple[Tool, int]], dict[str, Lowered]]:
    """Return the fitted tools with their indices in the request, and the tools whose arguments change shape.

    `reserved` is the part of the budget of strict schemas that the schema of the answer uses. `choose` selects tools
    if the target accepts fewer than the request has. `plan` decides about search tools and deferred tools. `names`
    get the names of the tools. Raise EncodeError for two equal names and as in `limit_tools`. Changes of tools are
    losses.
    """
    content = _functions_content(request, wire, plan) if isinstance(wire, WireCodec) and not names else None
    if content is None:
        return _fit_any(request, wire, names, losses, reserved, choose, plan)
    fitted = _fit_functions(content, wire, reserved, tools=request.tools)  # type: ignore[arg-type]
    names.add_all(fitted.names)
    if fitted.losses:
        losses.extend(fitted.losses)
    return list(fitted.tools), fitted.lifts


_FUNCTION = frozenset({"function"})
_kind, _deferred = attrgetter("kind"), attrgetter("deferred")


def are_plain_functions(tools: Sequence[Tool]) -> bool:
    """Return whether there is neither a search nor a deferred, freeform or built-in tool."""
    return _FUNCTION.issuperset(map(_kind, tools)) and not any(map(_deferred, tools))


class _FittedFunctions(NamedTuple):
    """Functions that were fitted to one target, the same in every request that declares them."""

    tools: tuple[tuple[Tool, int], ...]
    lifts: dict[str, Lowered]
    names: NameMap
    losses: tuple[Loss, ...]


def _functions_content(request: Request, wire: WireCodec, plan: SearchPlan) -> bytes | None:
    """Return the declarations as bytes if they alone decide about the tools on the target, or None.

    Search tools, deferred tools, a restricted choice and too many tools depend on the rest of the request.
    """
    tools, choice, most = request.tools, request.choice, wire.limits.tools
    if not tools or plan.name is not None or (most is not None and len(tools) > most):
        return None
    if choice is not None and (choice.mode == "allowed" or is_narrowed(choice, wire.capabilities)):
        return None
    if not are_plain_functions(tools):
        return None
    try:
        content = finite_to_bytes(tools)
    except EncodeError:
        return None
    return None if b"null" in content else content  # null may be NaN, which no schema may contain


@content_cache(2 * 1024 * 1024)
def _fit_functions(
    content: bytes, wire: WireCodec, reserved: ParameterCounts, *, tools: tuple[Tool, ...]
) -> _FittedFunctions:
    """Fit functions; `content` identifies them."""
    del content
    names, losses = NameMap(wire.limits, wire.capabilities.namespaces), Losses()
    fitted, lifts = _fit_any(Request(tools=tools), wire, names, losses, reserved, None, NO_SEARCH)
    return _FittedFunctions(tuple(fitted), lifts, names, tuple(losses))


def _fit_any(
    request: Request,
    wire: Wire,
    names: NameMap,
    losses: Losses,
    reserved: ParameterCounts,
    choose: ToolChooser | None,
    plan: SearchPlan,
) -> tuple[list[tuple[Tool, int]], dict[str, Lowered]]:
    """Fit tools of all kinds, as in `fit_tools`; drop those that the target cannot run. EncodeError for equal names."""
    can = wire.capabilities
    fitted: list[tuple[Tool, int]] = []
    seen: dict[tuple[str | None, str], int] = {}
    hosted = HostedToolFitter(request, wire, losses)
    for original, index in _keep_allowed(request, can, losses):
        tool = fit_search_tool(original, index, wire, plan, losses)
        if tool is not None and tool.kind == "builtin" and wire.name not in tool.extra:
            tool = hosted.fit(tool, index)
        if tool is None:
            continue
        if tool.kind == "builtin" and wire.name not in tool.extra:
            detail = f"{tool.name!r} belongs to another provider and runs there"
            losses.add(join("tools", index), "built-in tool", "dropped", detail, "error")
            continue
        if tool.kind in ("builtin", "typed") and tool.name in can.rejected_kinds and wire.name in tool.extra:
            detail = f"the target's vendor does not support {tool.name!r}"
            losses.add(join("tools", index), "built-in tool", "dropped", detail, "error")
            continue
        if tool.kind == "typed" and wire.name not in tool.extra:
            if any(other.name == tool.name and other.kind != "typed" for other in request.tools):
                detail = f"on this wire it is a function, and another tool has the name {tool.name!r}"
                losses.add(join("tools", index), "typed tool", "dropped", detail, "error")
                continue
            tool = fit_typed_tool(tool, f"/tools/{index}", losses)
        first = seen.setdefault((tool.namespace, tool.name), index)
        if can.unique_names and first != index:
            hint = f"the first one is at /tools/{first}; rename or remove one of them"
            raise EncodeError(f"two tools have the name {tool.name!r}", pointer=join("tools", index, "name"), hint=hint)
        fitted.append((_fit_tool(tool, f"/tools/{index}", wire, names, losses), index))
    fitted = load_deferred(fitted, request, plan, losses)
    fitted = limit_tools(fitted, wire.limits.tools, request, losses, choose)
    if can.declared_history and not fitted:
        return _declare_history(request, names, losses), {}
    return fit_schemas(fitted, wire, losses, reserved)


def _fit_tool(tool: Tool, path: str, wire: Wire, names: NameMap, losses: Losses) -> Tool:
    """Fit one tool: its kind, examples, cache mark and name. A built-in tool of the target is unchanged."""
    can = wire.capabilities
    if tool.kind in ("builtin", "typed"):
        return tool
    if tool.extra:
        report_extra(tool.extra, path, wire.name, losses)
    if tool.kind == "freeform" and not can.freeform:
        tool = wrap_tool(tool, path, losses)
    if tool.examples and not can.examples:
        tool = _describe_examples(tool, path, losses)
    if tool.cache is not None:
        tool = replace(tool, cache=fit_mark(tool, "tool", wire, path, losses))
    if tool.kind == "search" and can.search_calls:
        return tool  # it has no name
    name = names.to_wire(tool.namespace, tool.name)
    namespace = tool.namespace if can.namespaces else None
    if name != tool.name or namespace != tool.namespace:
        detail = f"renamed to {name!r} on this wire; calls are returned under the original name"
        losses.add(f"{path}/name", "tool name", "rewritten", detail, "info")
        tool = replace(tool, name=name, namespace=namespace)
    return tool


def _describe_examples(tool: Tool, path: str, losses: Losses) -> Tool:
    """Move the examples to the description, for a target without a field for them."""
    lines = "\n".join(dumps(example) for example in tool.examples)
    losses.add(f"{path}/examples", "examples", "rewritten", "sent in the description", "info")
    losses.add(f"{path}/description", "description", "rewritten", "the examples are appended", "info")
    description = (
        f"{tool.description}\n\nExamples of input:\n{lines}" if tool.description else f"Examples of input:\n{lines}"
    )
    return replace(tool, description=description, examples=())


def _keep_allowed(request: Request, can: Capabilities, losses: Losses) -> list[tuple[Tool, int]]:
    """Return the tools with their indices; drop tools that are not allowed if the target cannot restrict a choice."""
    tools = [(tool, index) for index, tool in enumerate(request.tools)]
    choice = request.choice
    if choice is None or choice.mode in can.choices or not (choice.mode == "allowed" or is_narrowed(choice, can)):
        return tools
    allowed = frozenset(choice.names)
    if choice.mode == "tool" and allowed.isdisjoint([tool.name for tool in request.tools]):
        return tools
    concept = "allowed tools" if choice.mode == "allowed" else "tool choice tool"
    losses.add(join("choice"), concept, "rewritten", "only the allowed tools are declared", "info")
    for tool, index in tools:
        if tool.name not in allowed:
            losses.add(join("tools", index), "tool", "dropped", "it is not an allowed tool", "info")
    return [(tool, index) for tool, index in tools if tool.name in allowed]


def is_narrowed(choice: ToolChoice, can: Capabilities) -> bool:
    """Return whether a forced tool is the only one that is declared: the target can force a call, but not name a tool."""
    return choice.mode == "tool" and "tool" not in can.choices and "required" in can.choices


def _declare_history(request: Request, names: NameMap, losses: Losses) -> list[tuple[Tool, int]]:
    """Declare tools for past calls, which the target requires even if the model may not call again."""
    stubs: dict[str, Tool] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                name = names.to_wire(part.namespace, part.name)
                stubs.setdefault(name, Tool(name, input_schema={"type": "object"}))
    if stubs:
        detail = "the history has calls that the request does not declare; sent with bare declarations and choice none"
        losses.add(join("tools"), "missing declarations", "rewritten", detail, "info")
    return [(tool, -1) for tool in stubs.values()]


def fit_choice(request: Request, tools: list[tuple[Tool, int]], can: Capabilities, losses: Losses) -> ToolChoice | None:
    """Fit the choice to the target's `tools`, each with its index in the request; changes are added to `losses`.

    The index is -1 for a tool that only explains the history. Raise EncodeError for a forced call with a thinking
    budget, where the target refuses both.
    """
    choice = request.choice
    if all(index < 0 for _, index in tools):
        nothing = ToolChoice("none") if tools else None  # the tools only explain the history
        if choice is not None and choice.mode not in ("auto", nothing and nothing.mode):
            severity: Severity = "info" if choice.mode == "none" else "warning"
            losses.add(join("choice"), "tool choice", "dropped", "no tools are declared", severity)
        return nothing
    if choice is None or choice.mode == "auto":
        return _validate_strict(choice, tools, can, losses)
    if choice.names:
        choice = _restrict_to_declared(request, choice, tools, losses)
    fitted = fit_hosted_choice(choice, tools, can, losses)
    if fitted is None:
        return None
    choice = fitted
    _refuse_forced_thinking(request, choice, can)
    if choice.mode == "allowed" and "allowed" not in can.choices:
        choice = ToolChoice("required" if choice.required else "auto")
    elif is_narrowed(choice, can):
        choice = ToolChoice("required")
    return _nearest_supported(choice, can, losses)


def _nearest_supported(choice: ToolChoice, can: Capabilities, losses: Losses) -> ToolChoice:
    """Return the nearest choice that the target supports."""
    if choice.mode == "allowed" and choice.required and "required" not in can.choices:
        losses.add(join("choice"), "required call", "weakened", "the target or its model does not support it", "error")
        return replace(choice, required=False)
    if choice.mode in can.choices or choice.mode == "validated":
        return choice
    nearest = ToolChoice("required" if choice.mode == "tool" and "required" in can.choices else "auto")
    detail = f"the target or its model does not support it; sent as {nearest.mode}"
    losses.add(join("choice"), f"tool choice {choice.mode}", "weakened", detail, "error")
    return nearest


def _validate_strict(
    choice: ToolChoice | None, tools: list[tuple[Tool, int]], can: Capabilities, losses: Losses
) -> ToolChoice | None:
    """Turn on validation for all tools if one tool is strict and the target has strictness only as a mode."""
    if can.strict or "validated" not in can.choices:
        return choice
    strict = [index for tool, index in tools if tool.strict]
    if not strict:
        return choice
    for index in strict:
        losses.add(
            join("tools", index, "strict"), "strict", "rewritten", "sent as the mode validated, for all tools", "info"
        )
    return ToolChoice("validated")


def _restrict_to_declared(
    request: Request, choice: ToolChoice, tools: list[tuple[Tool, int]], losses: Losses
) -> ToolChoice:
    """Restrict the choice to declared tools, under their names on the target; report the other names."""
    declared = {request.tools[index].name: tool.name for tool, index in tools}
    kept = [name for name in choice.names if name in declared]
    for name in choice.names:
        if name not in declared:
            losses.add(join("choice"), f"choice of {name}", "dropped", "no tool of this name is declared")
    if not kept:
        return ToolChoice("none" if choice.mode == "allowed" else "auto")
    return replace(choice, names=tuple([declared[name] for name in kept]))


def _refuse_forced_thinking(request: Request, choice: ToolChoice, can: Capabilities) -> None:
    """Raise EncodeError for a forced call with a thinking budget, on a target that refuses the two together."""
    if (
        choice.forces_call
        and not can.forced_with_budget
        and request.reasoning is not None
        and request.reasoning.mode == "budget"
    ):
        raise EncodeError(
            "the target does not allow a forced tool call with a thinking budget",
            pointer=join("choice"),
            hint="use adaptive thinking, or let the model choose",
        )
