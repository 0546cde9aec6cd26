"""Agents as tools of other agents: a subagent answers a prompt, and its answer is the result of the call."""

from __future__ import annotations

from typing import Any, Protocol

from ..ir.errors import ConfigError
from ..ir.parts import ToolCall, ToolResult
from ..ir.tools import Effect
from ..run.context import CallContext, running
from ..run.effect_limit import strongest_effect
from ..run.failures import ToolError
from ..run.function_tool import FunctionTool, tool
from ..run.options import OptionValues
from ..run.results import annotate, refusal, value_result
from ..run.session import Session
from ..run.toolbox import Toolbox
from ..run.waiting import Suspended
from .answers import Answer

__all__ = ["SubagentResumer", "SubagentRunner", "continue_subagents", "runs_subagent", "subagent_tool"]

_MARK = "__toolwire_subagent__"
_RESUME = "__toolwire_resume__"


class SubagentRunner(Protocol):
    """The method of an `Agent` that its tool uses."""

    async def __call__(self, prompt: str, context: CallContext[Any], effect: Effect) -> Answer[Any]: ...


class SubagentResumer(Protocol):
    """The method of an `Agent` that continues a run of its tool."""

    async def __call__(self, run_id: str, context: CallContext[Any]) -> Answer[Any]: ...


def subagent_tool(
    run: SubagentRunner,
    resume: SubagentResumer,
    box: Toolbox,
    name: str,
    description: str,
    options: OptionValues,
    *,
    effect: Effect | None = None,
    is_stored: bool = False,
) -> FunctionTool[..., Any]:
    """Make the tool of a subagent. By default it has no timeout, because the budgets limit the run.

    `effect`: by default, the strongest effect of the subagent's own tools: subagents that only read run concurrently.
    `is_stored`: the runs of the subagent are stored, so the calling run can wait for one that waits for approval.
    """
    if not name.isidentifier():
        hint = "pass a name: Agent(…, name=…) or as_tool(name=…)"
        raise ConfigError(f"the tool of a subagent needs a name that is an identifier, got {name!r}", hint=hint)
    if effect == "pure":
        raise ConfigError("a subagent cannot be a pure tool, because it asks a model", hint='use effect="read"')
    strongest = strongest_effect(box)
    declared: Effect = effect or ("read" if strongest == "pure" else strongest)

    async def ask(prompt: str, context: CallContext[Any]) -> Any:
        answer = await run(prompt, context, declared)
        if answer.suspended and is_stored:
            if any(entry.options.untrusted for entry in box):
                context.untrusted = True  # of the result that is supplied when the run has been continued
            return Suspended({"run_id": answer.run_id}, answer.pending, f"{name} waits")
        if not answer.finished:
            raise ToolError(f"{name} did not finish: {answer.reason}")
        return answer.output

    setattr(ask, _MARK, True)
    setattr(ask, _RESUME, resume)
    values: OptionValues = {"timeout": None, "cancellable": True, "retries": 0, **options}
    declare = tool(name=name, description=description, effect=declared, **values)
    return declare(ask)


def runs_subagent(function: object) -> bool:
    """Return True for the function of a tool that `subagent_tool` made."""
    return getattr(function, _MARK, False) is True


async def continue_subagents(session: Session, box: Toolbox, deps: Any) -> bool:
    """Continue the runs of subagents that this run waits for, and set the results of those that ended.

    Return True if the session has changed. Their tokens and cost count in this run, as if they had not waited.
    """
    is_changed = False
    for waiting in session.waiting:
        entry = box.find(waiting.tool)
        resume: SubagentResumer | None = None if entry is None else getattr(entry.function, _RESUME, None)
        run_id = waiting.state.get("run_id") if isinstance(waiting.state, dict) else None
        if waiting.needs != "result" or resume is None or not isinstance(run_id, str):
            continue
        context: CallContext[Any] = CallContext(
            waiting.call_id,
            waiting.tool,
            session.state.run_id,
            deps=deps,
            session=session,
            tainted=session.state.tainted,
        )
        token = running.set(context)
        try:
            answer = await resume(run_id, context)
        finally:
            running.reset(token)
        if answer.suspended:
            is_changed = is_changed or answer.pending != waiting.calls
            session.update_waiting(waiting.call_id, answer.pending)
        else:
            session.supply(waiting.call_id, _answer_result(ToolCall(waiting.call_id, waiting.tool), answer, context))
            is_changed = True
    return is_changed


def _answer_result(call: ToolCall, answer: Answer[Any], context: CallContext[Any]) -> ToolResult:
    """Build the result of the call of a subagent that has ended after it waited."""
    if answer.finished:
        result = value_result(call, answer.output)
    else:
        result = refusal(call, "failed", f"{call.name} did not finish: {answer.reason}")
    return annotate(result, untrusted=True) if context.untrusted else result
