"""Make a function a tool: its declaration, its parameters, and the options of its execution.

Parameters are computed once, because every call needs them.

@toolwire.tool(effect="read", timeout=5, retries=3)
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    \"\"\"Current weather for a city.\"\"\"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, get_args, overload

from msgspec.structs import asdict, replace

from ...ir.errors import ConfigError, SchemaError
from ...ir.pointer import Object
from ...ir.tools import Effect, Tool
from ...ir.value import Value
from ...schema.inference.tools import infer_tool
from ...schema.validation.validator import Problem, validator

ApprovalRule: TypeAlias = bool | str | Callable[[Object], bool | str]
"""True, or the reason, if every call needs approval; a function of the arguments decides per call."""

TransientRule: TypeAlias = type[BaseException] | Sequence[type[BaseException]] | Callable[[BaseException], bool]
"""The exceptions of a tool that are temporary: classes, or a function that returns True for them."""

_POSITIVE = ("timeout", "rate", "cache", "max_parallel", "output_limit", "ttl")
_COUNTS = ("retries", "max_parallel", "output_limit")
_FUNCTIONS = ("key", "reconcile", "preview", "withdrawn")


class OptionValues(TypedDict, total=False):
    """The keyword arguments of `toolwire.tool` and `Toolbox.with_options` that become `Options`."""

    timeout: float | None
    retries: int
    resource: str | Callable[[Object], str] | None
    isolation: str
    key: Callable[[Object], str] | None
    cache: float | None
    max_parallel: int | None
    rate: float | None
    reconcile: Callable[[str, Object], Any] | None
    untrusted: bool
    first_argument: bool
    output_limit: int | None
    withdrawn: Callable[[], str | None] | None
    approve: ApprovalRule
    transient: TransientRule | None
    preview: Callable[..., Any] | None
    ttl: float | None
    cancellable: bool


class Options(Value, frozen=True):
    """The execution options of a tool.

    `resource`: writes on the same resource keep the model's order; by default all writes of a run do. `timeout`: in
    seconds. `retries`: how often a transient failure is retried. `isolation`: "process" if a timeout must kill the
    function. `key`: makes the idempotency key from the arguments. `ttl`: the seconds for which the result of a write is
    kept under its key; by default the seconds of the runner. `cache`: the seconds for which a result of a pure or read
    tool may be reused; in a run with dependencies, only by this run. `rate`: calls per second. `max_parallel`:
    concurrent calls of this tool. `reconcile`: called with the key and the arguments to find the outcome of a call
    whose outcome is unknown. `untrusted`: its results may contain third-party instructions. `approve`: True or a reason
    if calls need approval, or a function of the arguments that returns it. `transient`: exception classes, or a
    function of the exception, for failures that may be retried. `preview`: called with the arguments in a dry run.
    `first_argument`: a pure or read tool that may start before its call is complete. `output_limit`: characters of a
    result. `withdrawn`: returns the reason why the tool cannot be used now, or None; a withdrawn tool is not offered to
    models. `cancellable`: the function handles cancellation by itself, so it is cancelled with its run even if it has
    side effects; by default such a function is awaited.
    """

    timeout: float | None = 60.0  # seconds; the model, and mostly a person, wait for the result
    retries: int = 2  # as in the SDKs of OpenAI and Anthropic
    resource: str | Callable[[Object], str] | None = None
    isolation: str = "thread"
    key: Callable[[Object], str] | None = None
    cache: float | None = None
    max_parallel: int | None = None
    rate: float | None = None
    reconcile: Callable[[str, Object], Any] | None = None
    untrusted: bool = False
    first_argument: bool = False
    output_limit: int | None = None
    withdrawn: Callable[[], str | None] | None = None
    approve: ApprovalRule = False
    transient: TransientRule | None = None
    preview: Callable[..., Any] | None = None
    ttl: float | None = None
    cancellable: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for an option with an invalid value."""
        if self.isolation not in ("thread", "process"):
            raise ConfigError(f"isolation must be thread or process, got {self.isolation!r}")
        for name in _COUNTS:
            _require_count(name, getattr(self, name))
        for name in _POSITIVE:
            _require_positive(name, getattr(self, name))
        for name in _FUNCTIONS:
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigError(f"{name} must be a function, got {value!r}")
        if self.retries < 0:
            raise ConfigError(f"retries must not be negative, got {self.retries}")
        _require_resource(self.resource)
        if not (isinstance(self.approve, (bool, str)) or callable(self.approve)):
            raise ConfigError(f"approve must be a bool, a reason or a function, got {self.approve!r}")
        _require_transient_rule(self.transient)


def require_option_names(names: Iterable[str]) -> None:
    """Raise ConfigError for a name that is not an option."""
    for name in names:
        if name not in Options.__struct_fields__:
            from difflib import get_close_matches  # imported late: only this error needs it

            close = get_close_matches(name, Options.__struct_fields__, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(Options.__struct_fields__)}"
            raise ConfigError(f"a tool has no option {name!r}", hint=hint)


def _require_count(name: str, value: object) -> None:
    if value is not None and type(value) is not int:
        raise ConfigError(f"{name} must be an integer, got {value!r}")


def _require_positive(name: str, value: object) -> None:
    """Raise ConfigError for an option that is set, and is not a positive number."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number, got {value!r}")
    if not (value > 0 and isfinite(value)):
        raise ConfigError(f"{name} must be positive, got {value}")


def _require_resource(resource: object) -> None:
    if not (resource is None or callable(resource) or (isinstance(resource, str) and resource)):
        raise ConfigError(f"resource must be a name or a function of the arguments, got {resource!r}")


def _require_transient_rule(rule: object) -> None:
    classes = rule if isinstance(rule, (list, tuple)) else ()
    wrong = [item for item in classes if not (isinstance(item, type) and issubclass(item, BaseException))]
    if wrong or not (rule is None or callable(rule) or isinstance(rule, (list, tuple))):
        hint = "use transient=(MyError,) or a function of the exception that returns True or False"
        raise ConfigError(f"transient must contain exception classes, got {wrong[0] if wrong else rule!r}", hint=hint)


P = ParamSpec("P")
R = TypeVar("R")


def _no_function(*_: Any, **__: Any) -> Any:
    raise SchemaError("this tool has no function", hint="make tools of functions with the decorator toolwire.tool")


class FunctionTool(Tool, Generic[P, R], frozen=True):
    """A Tool that can still be called like its function. A toolbox runs it with `options`."""

    function: Callable[P, R] = _no_function
    options: Options = Options()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        """Bind a tool that was made from a method like the method."""
        if instance is None or not inspect.isfunction(self.function):
            return self
        return replace(self, function=self.function.__get__(instance, owner))


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
    examples: Iterable[Object] = (),
    **options: Unpack[OptionValues],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    effect: Effect = "write",
    examples: Iterable[Object] = (),
    **options: Unpack[OptionValues],
) -> FunctionTool[..., Any] | Callable[[Callable[..., Any]], FunctionTool[..., Any]]:
    """Make a function a tool; with arguments, return a decorator.

    `effect` is the side effect of a call: "pure", "read", "idempotent" or, by default, "write". `examples` are
    arguments that fit the schema. The other keyword arguments are the fields of `toolwire.run.Options`: timeout,
    retries, resource, rate, cache, ttl, approve, transient, preview, untrusted, isolation, key, reconcile,
    output_limit, max_parallel and first_argument. Raise ConfigError for an invalid option, and SchemaError for a
    function without a schema.
    """
    if effect not in get_args(Effect):
        raise ConfigError(f"unknown effect {effect!r}", hint=f"use one of {', '.join(get_args(Effect))}")
    execution = _make_options(effect, options)

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        inferred = infer_tool(
            function, name=name, description=description, strict=strict, effect=effect, examples=examples
        )
        return FunctionTool(**asdict(inferred), function=function, options=execution)

    return make if function is None else make(function)


def _make_options(effect: Effect, values: OptionValues) -> Options:
    """Check the options when a tool is declared; ConfigError for an unknown one, or one that does not apply to the effect."""
    require_option_names(values)
    for name in ("cache", "first_argument"):
        if values.get(name) and effect not in ("pure", "read"):
            raise ConfigError(f"{name} applies to pure and read tools only, not to effect={effect!r}")
    return Options(**values)


_ANY_OBJECT: Object = {"type": "object"}


class Parameters:
    """A tool's schema and parameter names. `names` is None if only the schema restricts them.

    Raises SchemaError for an invalid schema.
    """

    __slots__ = ("_validator", "names", "schema")

    def __init__(self, tool: Tool) -> None:
        self.schema = tool.input_schema or _ANY_OBJECT
        self.names: frozenset[str] | None = None
        if isinstance(tool, FunctionTool) and tool.input_schema is not None:
            self.names = frozenset(tool.input_schema.get("properties", {}))
        self._validator = validator(self.schema)

    def accept(self, arguments: Object) -> bool:
        """Return True if the arguments are valid for the tool."""
        return (self.names is None or self.names.issuperset(arguments)) and self._validator.accepts(arguments)

    @property
    def accept_scalars(self) -> Callable[[Object], bool]:
        """`accept` for arguments that are all scalars and known by name."""
        return self._validator.accepts_scalars

    def unknown_names(self, arguments: Object) -> list[str]:
        """List the arguments that the function does not take, even if the schema allows additional ones."""
        names = self.names
        return [] if names is None else [name for name in arguments if name not in names]

    def problems(self, arguments: Object) -> tuple[Problem, ...]:
        return self._validator.problems(arguments)
