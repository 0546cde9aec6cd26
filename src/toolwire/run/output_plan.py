"""Decide how a run obtains its output, and whether a response is the output.

    plan = OutputPlan(output, "tool", request.tools, retries=2)
    plan.fit(request)                       the request with the schema: as its output format, a tool or instructions
    plan.pending_calls(response)            the calls to run; none if the response is final
    plan.decide(response, asked, sampled)   accept the final response, ask again, or give up

A call of the final-answer tool ends the run only if it is the only call of its turn. Otherwise the other calls run
first and their results may change the answer, so the model has to give it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from ..ir.parts import Refusal, Text, ToolCall, ToolResult
from ..ir.request import Message, OutputFormat, Request
from ..ir.response import Response
from ..ir.text import dumps
from ..ir.tools import Tool, ToolChoice
from ..ir.value import Value
from ..schema.validation.validator import Problem
from .output_type import OutputReading, OutputType

__all__ = ["OutputDecision", "OutputPlan", "PlanMode"]

PlanMode: TypeAlias = Literal["native", "tool", "prompt"]
_NAME = "final_answer"
_MAX_LISTED = 10
_LIMITS = frozenset({"length", "context_window"})
_REFUSALS = frozenset({"refusal", "content_filter"})
_ACCEPTED = "The answer was accepted."
_NOT_ALONE = "The answer was not accepted, because other tools were called in the same turn. Read their results first."


class OutputDecision(Value, frozen=True):
    """The consequence of a final response. `messages` are added to the conversation after the response."""

    action: Literal["accept", "resample", "ask_again", "give_up"]
    messages: tuple[Message, ...] = ()
    reason: str = ""


class OutputPlan:
    """The output of one run. `tools`: the tools of the run, whose names the final-answer tool avoids.

    `requires_call`: the model can be forced to call a tool.
    """

    def __init__(
        self,
        output: OutputType,
        mode: PlanMode,
        tools: Iterable[Tool] = (),
        *,
        retries: int = 2,
        resamples: int = 0,
        requires_call: bool = True,
    ) -> None:
        self.output = output
        self.mode = mode
        self._retries = retries
        self._resamples = resamples
        self._requires_call = requires_call
        self.tool = _final_answer_tool(output, {tool.name for tool in tools}) if mode == "tool" else None
        self._last: tuple[Response, OutputReading] | None = None

    def fit(self, request: Request) -> Request:
        """Return the request with the schema of the output."""
        if self.tool is not None:
            return replace(request, tools=(*request.tools, self.tool), choice=self._choose_call(request, self.tool))
        if self.mode == "prompt":
            return replace(request, messages=_add_instructions(request.messages, self.output))
        return replace(request, output=OutputFormat("json_schema", self.output.schema, self.output.name, strict=True))

    def is_final_call(self, name: str) -> bool:
        """Return True for the name of the final-answer tool."""
        return self.tool is not None and name == self.tool.name

    def pending_calls(self, response: Response) -> tuple[ToolCall, ...]:
        """Return the calls of the response that have to run."""
        return tuple(call for call in response.calls if not self.is_final_call(call.name))

    def complete_results(self, response: Response, results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
        """Return the results with one for each final-answer call beside other calls, in the order of the calls."""
        if self.tool is None:
            return tuple(results)
        remaining = iter(results)
        return tuple(
            call.result(_NOT_ALONE, is_error=True) if self.is_final_call(call.name) else next(remaining)
            for call in response.calls
        )

    def read(self, response: Response) -> OutputReading:
        """Return the output in a final response, or its problems."""
        if self._last is None or self._last[0] is not response:
            self._last = response, self._read(response)
        return self._last[1]

    def decide(self, response: Response, asked: int, sampled: int, request: Request) -> OutputDecision:
        """Decide about a final response.

        `asked`: how often the model was asked again, `sampled`: how often `request` was sent again.
        """
        problems = self.read(response).problems
        if not problems:
            results = tuple(call.result(_ACCEPTED) for call in response.calls)
            return OutputDecision("accept", (Message("user", results),) if results else ())
        if response.stop is not None and response.stop.reason in _REFUSALS:
            return OutputDecision("give_up", reason=_refusal_reason(response))
        if sampled < self._resamples and _may_differ(request):
            return OutputDecision("resample")
        if asked < self._retries:
            return OutputDecision("ask_again", (self._feedback(response, problems),))
        attempts = f"{asked + 1} attempts" if asked else "the only attempt"
        return OutputDecision("give_up", reason=f"no valid output after {attempts}: {problems[0]}")

    def _read(self, response: Response) -> OutputReading:
        calls = response.calls
        if calls:
            if len({call.text for call in calls}) > 1:
                problem = Problem("", "ambiguous", f"{calls[0].name} was called {len(calls)} times; call it once")
                return OutputReading(problems=(problem,))
            return self.output.read_call(calls[0])
        texts = [part.text for part in response.parts if isinstance(part, Text) and part.text.strip()]
        finished = response.stop is None or response.stop.reason not in _LIMITS
        reading = self.output.read_text("".join(texts), finished=finished)
        if reading.problems and len(texts) > 1:  # commentary before the answer
            last = self.output.read_text(texts[-1], finished=finished)
            return reading if last.problems else last
        return reading

    def _feedback(self, response: Response, problems: Sequence[Problem]) -> Message:
        """Return the message that asks again: an error result for each call, or a text."""
        listed = "\n".join(f"- {problem}" for problem in problems[:_MAX_LISTED])
        text = f"The answer was not accepted:\n{listed}\n{self._request_text()}"
        if response.calls:
            return Message("user", tuple(call.result(text, is_error=True) for call in response.calls))
        return Message("user", (Text(text),))

    def _request_text(self) -> str:
        if self.tool is not None:
            return f"Call {self.tool.name} with the whole answer."
        return "Answer again, only with JSON that matches the schema."

    def _choose_call(self, request: Request, tool: Tool) -> ToolChoice | None:
        """Require a call, except with a thinking budget, which providers refuse together with a forced call."""
        if request.choice is not None:
            return ToolChoice("tool", (tool.name,)) if request.choice.mode == "none" else request.choice
        has_budget = request.reasoning is not None and request.reasoning.mode == "budget"
        return None if has_budget or not self._requires_call else ToolChoice("required")


def _final_answer_tool(output: OutputType, taken: set[str]) -> Tool:
    names = (_NAME, *(f"{_NAME}_{number}" for number in range(2, len(taken) + 3)))
    name = next(name for name in names if name not in taken)
    description = "Give the final answer. Call it alone, once everything else is done."
    if output.description is not None:
        description = f"{description}\n\n{output.description}"
    return Tool(name, description, output.arguments_schema, effect="pure")


def _add_instructions(messages: tuple[Message, ...], output: OutputType) -> tuple[Message, ...]:
    """State the schema in the system message, for a model that has neither structured outputs nor tools."""
    text = f"Answer only with JSON that matches this JSON Schema, without any other text:\n{dumps(output.schema)}"
    if messages and messages[0].role == "system":
        return (replace(messages[0], parts=(*messages[0].parts, Text(f"\n\n{text}"))), *messages[1:])
    return (Message("system", (Text(text),)), *messages)


def _may_differ(request: Request) -> bool:
    """Return False if the parameters make the same request give the same answer."""
    return request.params.temperature != 0 and request.params.seed is None


def _refusal_reason(response: Response) -> str:
    text = "".join(part.text for part in response.parts if isinstance(part, (Refusal, Text)))
    reason = "" if response.stop is None else response.stop.reason
    return f"the model refused ({reason}): {text[:200]}" if text else f"the model refused ({reason})"
