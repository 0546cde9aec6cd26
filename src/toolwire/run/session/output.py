"""The structured output of a run: its type, its schema for the model, and the typed value of the model's answer.

An `OutputPlan` decides how a run obtains its output, and whether a response is the output.

The type of an agent's output: its schema for the model, and the typed value of the model's answer.

    output = StructuredOutput(Forecast).resolve()
    output.schema                       the JSON Schema that the model is asked for
    output.read_text('{"city": …}')     an answer in text: the Forecast, or the problems
    output.read_call(call)              the same for a call of the final-answer tool

A type is a pydantic model, a dataclass, a TypedDict, a union, any other annotation that pydantic supports, or a JSON
Schema, whose values are plain JSON. An answer is repaired (toolwire.schema.repair.arguments), validated against the schema and
converted by pydantic. A truncated answer is never completed.

Decide how a run obtains its output, and whether a response is the output.

    plan = OutputPlan(output, "tool", request.tools, retries=2)
    plan.fit(request)                       the request with the schema: as its output format, a tool or instructions
    plan.pending_calls(response)            the calls to run; none if the response is final
    plan.decide(response, asked, sampled)   accept the final response, ask again, or give up

A call of the final-answer tool ends the run only if it is the only call of its turn. Otherwise the other calls run
first and their results may change the answer, so the model has to give it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, Unpack, get_args, overload

from msgspec.structs import replace

from ...ir.errors import BrokenJSON, ConfigError, ProtocolError
from ...ir.parts import Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message, OutputFormat, Request
from ...ir.response import Response
from ...ir.text import dumps
from ...ir.tools import Tool, ToolChoice
from ...ir.value import Value
from ...schema.composition import is_object_schema, wrap_root
from ...schema.inference.tools import InferredType, infer_type, parse_exact
from ...schema.repair.arguments import POLICIES, RepairPolicy, repair_arguments
from ...schema.validation.validator import Problem, validator
from ...stream.repair import repair_json
from ...stream.strict import parse

T = TypeVar("T")
OutputMode: TypeAlias = Literal["auto", "native", "tool", "prompt"]
_RESULT = "result"
_EMPTY = Problem("", "empty", "the answer is empty")
_TRUNCATED = Problem("", "truncated", "truncated: the text ends in a number")


class OutputReading(Value, frozen=True):
    """The value of an answer; or the problems of an answer without a value."""

    value: Any = None
    problems: tuple[Problem, ...] = ()


class OutputType:
    """A resolved output type. `arguments_schema` is the final-answer tool's schema, always an object."""

    def __init__(
        self, schema: Object, *, name: str, inferred: InferredType | None = None, repair: RepairPolicy = "aggressive"
    ) -> None:
        """Compile the schema; raise SchemaError if it is invalid."""
        self.schema = schema
        self.name = name
        description = schema.get("description")
        self.description = description if isinstance(description, str) and description else None
        self._inferred = inferred
        self._has_decimals = inferred is not None and inferred.has_decimals
        self._repair = repair
        self._checked: Object = schema if inferred is None else inferred.checked_schema
        self._validator = validator(self._checked)
        self._is_wrapped = not is_object_schema(schema)
        self.arguments_schema = wrap_root(schema, _RESULT) if self._is_wrapped else schema
        self._checked_arguments = wrap_root(self._checked, _RESULT) if self._is_wrapped else self._checked

    def read_text(self, text: str, *, finished: bool = True) -> OutputReading:
        """Read an answer in text, repaired if necessary. `finished`: the model stopped by itself, not at a limit."""
        if not text.strip():
            return OutputReading(problems=(_EMPTY,))
        try:
            value = parse(text)
        except ProtocolError:
            pass  # repaired below
        else:
            if not finished and type(value) in (int, float):
                return OutputReading(problems=(_TRUNCATED,))  # digits may be missing
            if self._validator.accepts(value):
                return self._convert(value, text)
        if not self._is_wrapped:
            return self._repaired(text, finished)
        try:
            repaired = repair_json(text, finished=finished)
        except BrokenJSON as error:
            return OutputReading(problems=(Problem(error.pointer, error.reason, error.message),))
        given = repaired.value if self._is_wrapper(repaired.value) else {_RESULT: repaired.value}
        return self._repaired(given, finished)

    def read_call(self, call: ToolCall) -> OutputReading:
        """Read the arguments of a call of the final-answer tool, repaired if necessary."""
        given: JSON = (call.raw or "") if call.arguments is None else call.arguments
        if type(given) is dict and call.state == "complete":
            is_bare = not self._is_wrapped or _RESULT not in given  # models may leave out the wrapper of an object
            value = given if is_bare else self.unwrap(given)
            if (is_bare or len(given) == 1) and self._validator.accepts(value):
                text = _argument_text(call) if self._has_decimals else None
                return self._convert(value, text, member=None if is_bare else _RESULT)
        return self._repaired(given, call.state != "truncated", names=(call.name,))

    def unwrap(self, value: JSON) -> JSON:
        """Return the value inside the arguments of the final-answer tool; None if it has not arrived yet."""
        if not self._is_wrapped:
            return value
        return value.get(_RESULT) if type(value) is dict else None

    def _is_wrapper(self, value: JSON) -> bool:
        return type(value) is dict and list(value) == [_RESULT] and not self._validator.accepts(value)

    def _repaired(self, given: JSON, finished: bool, names: tuple[str, ...] = ()) -> OutputReading:
        """Repair text or arguments, and convert them; the problems of a wrapped value have its own paths."""
        found = repair_arguments(given, self._checked_arguments, policy=self._repair, finished=finished, names=names)
        if found.arguments is None:
            return OutputReading(problems=tuple(map(self._unwrap_problem, found.problems)))
        return self._convert(self.unwrap(found.arguments))

    def _convert(self, value: JSON, text: str | None = None, *, member: str | None = None) -> OutputReading:
        """Convert a valid value to its type, if it has one; `text` contains it, maybe as `member`, with all digits."""
        inferred = self._inferred
        if inferred is None:
            return OutputReading(value)
        if self._has_decimals and text:
            exact = parse_exact(text)
            reading = inferred.convert(exact[member] if type(exact) is dict and member is not None else exact)
            if not reading[1]:  # no problems
                return OutputReading(reading[0])
        return OutputReading(*inferred.convert(value))

    def _unwrap_problem(self, problem: Problem) -> Problem:
        if not self._is_wrapped or not problem.path.startswith(f"/{_RESULT}"):
            return problem
        return Problem(problem.path[len(_RESULT) + 1 :], problem.keyword, problem.message)


def _argument_text(call: ToolCall) -> str | None:
    """Return the JSON text of the arguments; None if the wire had no text, or if the arguments were changed since."""
    try:
        return call.raw if call.raw and parse(call.raw) == call.arguments else None
    except ProtocolError:
        return None


class OutputOptions(TypedDict, total=False):
    """Options of a StructuredOutput. One that is missing has its default."""

    mode: OutputMode
    retries: int
    resamples: int | None
    name: str | None
    repair: RepairPolicy


class StructuredOutput(Generic[T]):
    """The type of an agent's output, with options.

        StructuredOutput(Forecast, mode="tool")
        StructuredOutput[Forecast | Refusal]()          # a type checker infers the union only from brackets
        StructuredOutput({"type": "object", …}, name="forecast")

    `mode`: "native" sends the schema as the response format, "tool" as a final-answer tool, "prompt" in the
    instructions; "auto" uses "native" where the model enforces the schema, else "tool". `retries`: how often the model
    is asked again, with the problems of its answer. `resamples`: how often the same request is sent again before that;
    by default 2 for a server that may ignore the schema, else 0. `name`: of the schema, for the model. `repair`: the
    policy of `toolwire.schema.repair_arguments` for invalid answers.
    """

    @overload
    def __init__(self, output_type: type[T], /, **options: Unpack[OutputOptions]) -> None: ...

    @overload
    def __init__(
        self: StructuredOutput[Any], output_type: Mapping[str, Any], /, **options: Unpack[OutputOptions]
    ) -> None: ...

    @overload
    def __init__(self, /, **options: Unpack[OutputOptions]) -> None: ...

    def __init__(self, output_type: Any = None, /, **options: Unpack[OutputOptions]) -> None:
        self.mode: OutputMode = options.get("mode", "auto")
        self.retries = options.get("retries", 2)
        self.resamples = options.get("resamples")
        self._name = options.get("name")
        self._repair: RepairPolicy = options.get("repair", "aggressive")
        self._type = output_type
        self._resolved: OutputType | None = None
        self._check_options(options)

    def _check_options(self, options: OutputOptions) -> None:
        """Raise ConfigError for unknown options and invalid values."""
        unknown = options.keys() - OutputOptions.__annotations__
        if unknown:
            raise ConfigError(f"unknown option {', '.join(sorted(unknown))}")
        if self.mode not in get_args(OutputMode):
            raise ConfigError(f"unknown mode {self.mode!r}", hint=f"use one of {', '.join(get_args(OutputMode))}")
        if self._repair not in POLICIES:
            raise ConfigError(f"unknown repair policy {self._repair!r}", hint=f"use one of {', '.join(POLICIES)}")
        for name, count in (("retries", self.retries), ("resamples", self.resamples or 0)):
            if count < 0:
                raise ConfigError(f"{name} must not be negative, got {count}")

    @property
    def is_text(self) -> bool:
        """True for `str`: the output is the text of the answer."""
        return self._annotation() is str

    def resolve(self) -> OutputType:
        """Return the type with its schema, resolved once; ConfigError or SchemaError if it has none."""
        if self._resolved is None:
            annotation = self._annotation()
            if isinstance(annotation, Mapping):
                self._resolved = OutputType(dict(annotation), name=self._name or "output", repair=self._repair)
            else:
                inferred = infer_type(annotation)
                name = self._name or inferred.name or "output"
                self._resolved = OutputType(inferred.schema, name=name, inferred=inferred, repair=self._repair)
        return self._resolved

    def _annotation(self) -> Any:
        """Return the type of the argument or of the brackets, which Python stores after the constructor has run.

        Raise ConfigError if there is none.
        """
        if self._type is not None:
            return self._type
        generic = getattr(self, "__orig_class__", None)
        if generic is None:
            raise ConfigError("StructuredOutput has no type", hint="write StructuredOutput(Forecast)")
        return get_args(generic)[0]


PlanMode: TypeAlias = Literal["native", "tool", "prompt"]
_NAME = "final_answer"
_MAX_LISTED = 10  # problems that a model is asked to fix at once; the rest are usually consequences
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
        retries: int = 2,  # turns with the problems of the last answer; each costs a request of the whole conversation
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
        """Decide about a final response: accept it, send the request again, ask the model again, or give up.

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
        """Read the output from the final call, or from the text, or its last part if the whole text is invalid."""
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
