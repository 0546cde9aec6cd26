"""The type of an agent's output: its schema for the model, and the typed value of the model's answer.

    output = StructuredOutput(Forecast).resolve()
    output.schema                       the JSON Schema that the model is asked for
    output.read_text('{"city": …}')     an answer in text: the Forecast, or the problems
    output.read_call(call)              the same for a call of the final-answer tool

A type is a pydantic model, a dataclass, a TypedDict, a union, any other annotation that pydantic supports, or a JSON
Schema, whose values are plain JSON. An answer is repaired (toolwire.schema.repair.arguments), validated against the schema and
converted by pydantic. A truncated answer is never completed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, Unpack, get_args, overload

from ..ir.errors import BrokenJSON, ConfigError, ProtocolError
from ..ir.parts import ToolCall
from ..ir.pointer import JSON, Object
from ..ir.value import Value
from ..schema.composition import is_object_schema, wrap_root
from ..schema.inference.tools import InferredType, infer_type, parse_exact
from ..schema.repair.arguments import POLICIES, RepairPolicy, repair_arguments
from ..schema.validation.validator import Problem, validator
from ..stream.repair import repair_json
from ..stream.strict import parse

__all__ = ["OutputMode", "OutputReading", "OutputType", "StructuredOutput"]

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
    """A resolved output type. `arguments_schema` is that of the final-answer tool, always an object."""

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
        """Read an answer in text. `finished`: the model stopped by itself, not at a limit."""
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
            found = repair_json(text, finished=finished)
        except BrokenJSON as error:
            return OutputReading(problems=(Problem(error.pointer, error.reason, error.message),))
        given = found.value if self._is_wrapper(found.value) else {_RESULT: found.value}
        return self._repaired(given, finished)

    def read_call(self, call: ToolCall) -> OutputReading:
        """Read a call of the final-answer tool."""
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
        """Convert a valid value. `text`: the JSON text that contains it, whole or as a member; it has all digits."""
        inferred = self._inferred
        if inferred is None:
            return OutputReading(value)
        if self._has_decimals and text:
            exact = parse_exact(text)
            found = inferred.convert(exact[member] if type(exact) is dict and member is not None else exact)
            if not found[1]:
                return OutputReading(found[0])
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
        """Return the type with its schema; ConfigError or SchemaError if it has none."""
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
        """Return the type of the argument or of the brackets, which Python stores after the constructor has run."""
        if self._type is not None:
            return self._type
        generic = getattr(self, "__orig_class__", None)
        if generic is None:
            raise ConfigError("StructuredOutput has no type", hint="write StructuredOutput(Forecast)")
        return get_args(generic)[0]
