"""A call on its way through the gates: its argument values as the tool receives them, and verdicts about it.

Values are converted and defaults are filled in before a rule reads them. A check on the JSON would see other values
than the tool: `"5000"` is text in JSON and a number for a tool that declares `Decimal`, and an omitted argument may
have a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, Protocol, TypeAlias

from ...ir.parts import ToolCall
from ...ir.pointer import Object, split
from ...ir.text import shorten
from ...ir.value import Value
from ...schema.lowering.lowered import Lowered
from ...schema.repair.arguments import RepairPolicy
from ..tools.toolbox import Entry, Toolbox
from .signature import function_signature


class Deny(Value, frozen=True):
    """Refuse the call. The model reads `why`."""

    why: str


class Ask(Value, frozen=True):
    """Run the call only if a person approves it."""

    why: str


Taint: TypeAlias = Literal["off", "warn", "enforce"]


class CallRules(Protocol):
    """The interface of `Policy` for the gate that applies it."""

    @property
    def taint(self) -> Taint: ...
    def rewrite(self, pending: Pending) -> Pending | Deny: ...
    def check(self, pending: Pending) -> Deny | Ask | None: ...


class Pending(Value, frozen=True, gc=False):
    """A call that the gates and the policy inspect. `gc=False` is safe: nothing that it holds refers back to it."""

    call: ToolCall
    box: Toolbox
    entry: Entry | None = None
    arguments: Object = {}
    key: str | None = None
    caller: str = ""
    tenant: str = ""
    tainted: bool = False
    policy: CallRules | None = None
    repair: RepairPolicy | None = None
    steps: tuple[str, ...] = ()
    validated_arguments: Object | None = None  # the arguments object that has been validated
    lowerings: Mapping[str, Lowered] | None = None
    values: Object | None = None  # `arguments` converted to the types of the function, which is called with them
    conversion_error: str | None = None  # the reason why they cannot be converted; the function is not called then
    original_arguments: Object | None = None  # `arguments` before a policy rewrote them
    model_arguments: Object | None = None  # the arguments of the model, if a person replaced them on approval
    verdict: Ask | None = None  # set by the policy gate if the call needs approval

    @property
    def tool(self) -> Entry:
        assert self.entry is not None, "the first gate sets the entry"
        return self.entry

    @property
    def identity(self) -> Object:
        """The arguments before a policy rewrote them."""
        return self.arguments if self.original_arguments is None else self.original_arguments

    @property
    def request(self) -> Object:
        """The arguments as the model gave them. They identify the call, so that a repeated call has the same key."""
        return self.identity if self.model_arguments is None else self.model_arguments


PolicyCheck: TypeAlias = Callable[[Pending], Deny | Ask | None]


ABSENT: Final = object()
"""Marks an omitted argument without a default."""

_MAX_SHOWN = 80  # characters of a value in a message to the model, which knows the value
_SCALARS = (str, bytes, bytearray, int, float)


class Uncheckable(Exception):
    """The argument has no member of this name, so its value cannot be checked."""


def split_argument(argument: str) -> list[str]:
    """Split the name of an argument (`amount`) or a JSON pointer into the arguments (`/order/amount`) into segments."""
    return split(argument) if argument.startswith("/") else [argument]


def received(pending: Pending, argument: str) -> Iterator[Any]:
    """Yield every value that the tool receives at `argument`; for a list, each of its items.

    Yields nothing for an omitted argument without a default. Raises Uncheckable if the values cannot be determined.
    """
    first, *rest = split_argument(argument)
    values = pending.values
    # If the function will not be called, JSON is sufficient: a stored result of an earlier call may be returned.
    if values is None:
        is_unfit = pending.conversion_error is not None
        values = pending.arguments if is_unfit else function_signature(pending.tool.function).convert(pending.arguments)
    value = values[first] if first in values else argument_default(pending, first)
    yield from _iterate_values(value, rest)


def argument_default(pending: Pending, name: str) -> Any:
    """Return the default of an omitted argument: the function's, else the schema's, else ABSENT."""
    defaults = function_signature(pending.tool.function).defaults
    if name in defaults:
        return defaults[name]
    properties = (pending.tool.tool.input_schema or {}).get("properties")
    declared: Any = properties.get(name) if isinstance(properties, dict) else None
    return declared.get("default", ABSENT) if isinstance(declared, dict) else ABSENT


def format_value(value: Any) -> str:
    """Format a value for a message: short, and without raising."""
    try:
        text = repr(value[:_MAX_SHOWN]) if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001  # a user-defined __str__, or an int with too many digits
        return f"a value of type {type(value).__name__}"
    return shorten(text, _MAX_SHOWN)


def _iterate_values(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values at `path` below `value`; every item of a list is followed."""
    if value is ABSENT:
        return
    if _is_list(value):
        for item in value:
            yield from _iterate_values(item, path)
    elif not path:
        yield value
    elif value is not None:  # an omitted object has no values
        yield from _iterate_values(_member(value, path[0]), path[1:])


def _is_list(value: Any) -> bool:
    if isinstance(value, (str, bytes, bytearray)) or hasattr(value, "_fields"):  # a NamedTuple is a record
        return False
    return isinstance(value, (Sequence, AbstractSet))


def _member(value: Any, name: str) -> Any:
    """Return a member of a dict, or of a model or dataclass that pydantic built, by its name in the schema.

    ABSENT if a dict does not have it; Uncheckable if another value does not.
    """
    if isinstance(value, Mapping):
        return value.get(name, ABSENT)
    for attribute, field in getattr(type(value), "model_fields", {}).items():
        if name in (field.alias, field.validation_alias):
            return getattr(value, attribute)
    if isinstance(value, _SCALARS) or not hasattr(value, name):
        raise Uncheckable(f"{format_value(value)} has no member {name!r}")
    return getattr(value, name)
