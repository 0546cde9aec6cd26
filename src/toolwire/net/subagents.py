"""Agents as tools of other agents: a subagent answers a prompt, and its answer is the result of the call."""

from __future__ import annotations

from typing import Any, Protocol

from ..ir.errors import ConfigError
from ..ir.tools import Effect
from ..run.context import CallContext
from ..run.effect_limit import strongest_effect
from ..run.failures import ToolError
from ..run.function_tool import FunctionTool, tool
from ..run.options import OptionValues
from ..run.toolbox import Toolbox
from ..run.waiting import Suspended
from .answers import Answer

__all__ = ["SubagentRunner", "runs_subagent", "subagent_tool"]

_MARK = "__toolwire_subagent__"


class SubagentRunner(Protocol):
    """The method of an `Agent` that its tool uses."""

    async def __call__(self, prompt: str, context: CallContext[Any], effect: Effect) -> Answer[Any]: ...


def subagent_tool(
    run: SubagentRunner,
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
    values: OptionValues = {"timeout": None, "cancellable": True, "retries": 0, **options}
    declare = tool(name=name, description=description, effect=declared, **values)
    return declare(ask)


def runs_subagent(function: object) -> bool:
    """Return True for the function of a tool that `subagent_tool` made."""
    return getattr(function, _MARK, False) is True
