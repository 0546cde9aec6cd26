"""Codecs that convert arguments between the original schema and a lowered schema of another shape.

`encode` turns a value of the original schema into one of the lowered schema, `lift` the other way. Both are total: a
value that is not of the expected shape is left unchanged, and the validator, which checks the original schema, decides.
None is the codec that changes nothing, so that an unchanged value costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple, TypeAlias

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...stream.strict import parse
from ..bounds import StepBudget, json_size
from ..parsing.membership import RefResolver, branch_tags, fits, is_selected
from ..parsing.nodes import Node, hashable_key


class Codec(NamedTuple):
    """A pair of conversions between a value of the original schema and one of the lowered schema."""

    lift: Callable[[JSON], JSON]  # lowered → original
    encode: Callable[[JSON], JSON]  # original → lowered
    reshapes: bool = True
    """The value itself has another JSON type, not only a part of it."""
    properties: dict[str, FieldCodec] | None = None
    """The lowered properties of an object that is converted property by property. None: it is converted as a whole."""
    wrapper: str | None = None
    """The only property of an object that holds the unchanged value. None: the value is not wrapped, or changes."""


OptionalCodec: TypeAlias = Codec | None


def _lift(codec: OptionalCodec, value: JSON) -> JSON:
    return value if codec is None else codec.lift(value)


def _encode(codec: OptionalCodec, value: JSON) -> JSON:
    return value if codec is None else codec.encode(value)


def json_string_codec() -> Codec:
    """Encode any value as JSON in a string."""

    def lift(value: JSON) -> JSON:
        """Parse the string; text that is not JSON is left unchanged, so that the validator reports it."""
        if type(value) is not str:
            return value
        try:
            return parse(value)
        except ProtocolError:
            return value

    return Codec(lift, dumps)


def integer_string_codec() -> Codec:
    """Encode an integer as a string of its digits."""

    def lift(value: JSON) -> JSON:
        return int(value) if type(value) is str and _INTEGER(value) else value

    def encode(value: JSON) -> JSON:
        return str(int(value)) if type(value) in (int, float) and value == int(value) else value

    return Codec(lift, encode)


_INTEGER = re.compile(r"-?[0-9]{1,4000}").fullmatch  # Python limits the digits of an integer to 4,300


def map_codec(inner: OptionalCodec) -> Codec:
    """Encode a map as a list of keys and values."""

    def lift(value: JSON) -> JSON:
        if type(value) is not list or not all(type(item) is dict and type(item.get("key")) is str for item in value):
            return value
        return {item["key"]: _lift(inner, item.get("value")) for item in value}

    def encode(value: JSON) -> JSON:
        if type(value) is not dict:
            return value
        return [{"key": key, "value": _encode(inner, item)} for key, item in value.items()]

    return Codec(lift, encode)


def enum_codec(values: Sequence[JSON], names: Sequence[str]) -> Codec:
    """Encode the values of an enum as strings."""
    by_name = dict(zip(names, values, strict=True))
    by_value = {hashable_key(value): name for value, name in zip(values, names, strict=True)}

    def lift(value: JSON) -> JSON:
        return by_name.get(value, value) if type(value) is str else value

    def encode(value: JSON) -> JSON:
        return by_value.get(hashable_key(value), value)

    return Codec(lift, encode)


def array_codec(inner: Codec) -> Codec:
    """Convert each item of an array with `inner`; the array itself stays an array."""

    def lift(value: JSON) -> JSON:
        return [inner.lift(item) for item in value] if type(value) is list else value

    def encode(value: JSON) -> JSON:
        return [inner.encode(item) for item in value] if type(value) is list else value

    return Codec(lift, encode, reshapes=False)


def positional_codec(items: Sequence[Codec | None], rest: Codec | None) -> Codec:
    """Convert each item of a list with the codec of its position, and the items after them with `rest`."""

    def convert(value: JSON, apply: Callable[[Codec, JSON], JSON]) -> JSON:
        if type(value) is not list:
            return value
        by_position = (*items, *[rest] * (len(value) - len(items)))
        return [item if codec is None else apply(codec, item) for item, codec in zip(value, by_position, strict=False)]

    return Codec(
        lambda value: convert(value, lambda codec, item: codec.lift(item)),
        lambda value: convert(value, lambda codec, item: codec.encode(item)),
        reshapes=False,
    )


def tuple_codec(nulls: Sequence[bool], rest_name: str | None) -> Codec:
    """Encode a tuple as an object with one property per item. `nulls`: the items that may be null."""
    width = len(nulls)
    keys = {*(f"item_{index}" for index in range(width)), rest_name}

    def lift(value: JSON) -> JSON:
        """Rebuild the list from `item_0`, `item_1`, … and the rest; an object with other keys is left unchanged."""
        if type(value) is not dict or not keys.issuperset(value):
            return value
        more = value.get(rest_name) if rest_name is not None else None
        trailing = more if type(more) is list else []
        present = [index for index in range(width) if f"item_{index}" in value]
        items: list[JSON] = []
        for index in range(width if trailing else max(present, default=-1) + 1):
            if f"item_{index}" not in value and not nulls[index]:
                return items  # a list cannot have a gap, so the items after it are dropped
            items.append(value.get(f"item_{index}"))
        return [*items, *trailing]

    def encode(value: JSON) -> JSON:
        """Write each item as a property of its own, and the items after `width` as a list under `rest_name`."""
        if type(value) is not list or (rest_name is None and len(value) > width):
            return value  # dropping the surplus items would turn an invalid list into a valid one
        out: Object = {f"item_{index}": item for index, item in enumerate(value[:width])}
        if rest_name is not None and len(value) > width:
            out[rest_name] = value[width:]
        return out

    return Codec(lift, encode)


class FieldCodec(NamedTuple):
    """A property: its lowered name `lowered_name`, the codec of its value, and the lowered value that means absent."""

    name: str
    lowered_name: str
    codec: OptionalCodec
    is_filled: bool  # optional in the original schema, but always present in the lowered one
    absent: str | None = None
    """The lowered value that means absent: null or a string."""
    drops_null: bool = False
    """Null is encoded as absent."""


def object_codec(  # noqa: C901
    known: Sequence[FieldCodec], more: str | None, more_codec: OptionalCodec, more_fills_null: bool
) -> Codec:
    """Convert an object property by property.

    `more` is the property for all other keys, or None if they stay beside the declared ones; `more_codec` converts
    them. `more_fills_null`: without other keys, `more` is sent as null, because the dialect requires it.
    """
    rest = more_codec if more is None else None
    by_lowered_name = {field.lowered_name: field for field in known}
    by_name = {field.name: field for field in known}

    def lift(value: JSON) -> JSON:
        """Restore the original names and drop the values that mean absent.

        A key under `more` never overwrites a declared property.
        """
        if type(value) is not dict:
            return value
        out: Object = {}
        for lowered_name, item in value.items():
            if lowered_name == more:
                inner = _lift(more_codec, item)
                if type(inner) is dict:
                    out.update((key, each) for key, each in inner.items() if key not in by_name)
                continue
            field = by_lowered_name.get(lowered_name)
            if field is None:
                out[lowered_name] = _lift(rest, item)
            elif not field.is_filled or (item is not None and item != field.absent):
                out[field.name] = _lift(field.codec, item)
        return out

    def encode(value: JSON) -> JSON:
        """Rename the properties, fill absent ones that the dialect requires, and move undeclared keys under `more`."""
        if type(value) is not dict:
            return value
        out: Object = {}
        for field in known:
            if field.name in value and not (field.drops_null and value[field.name] is None):
                out[field.lowered_name] = _encode(field.codec, value[field.name])
            elif field.is_filled:
                out[field.lowered_name] = field.absent
        others = {key: item for key, item in value.items() if key not in by_name}
        if more is None:
            out.update((key, _encode(rest, item)) for key, item in others.items())
        elif others:
            out[more] = _encode(more_codec, others)
        elif more_fills_null:
            out[more] = None
        return out

    return Codec(lift, encode, reshapes=False, properties=by_lowered_name if more is None and rest is None else None)


def wrapper_codec(name: str, inner: OptionalCodec) -> Codec:
    """Encode a value as the only property of an object."""

    def lift(value: JSON) -> JSON:
        return _lift(inner, value[name]) if type(value) is dict and list(value) == [name] else value

    def encode(value: JSON) -> JSON:
        return {name: _encode(inner, value)}

    return Codec(lift, encode, wrapper=name if inner is None else None)


class _CodecState:
    """State of one conversion: the step budget, and the lifted parts, which nested unions need repeatedly."""

    __slots__ = ("_budget", "_value", "lifted")

    def __init__(self, value: JSON) -> None:
        self.lifted: dict[tuple[int, int], tuple[JSON, JSON]] = {}
        self._value = value
        self._budget: StepBudget | None = None

    @property
    def budget(self) -> StepBudget:
        if self._budget is None:  # most values contain no union
            self._budget = StepBudget(_STEPS + json_size(self._value) * _STEPS_PER_VALUE)
        return self._budget


# steps to place a value in its branches, in proportion to its size: a codec reads each value a few times per level
_STEPS, _STEPS_PER_VALUE = 4_000, 20
_codec_state: ContextVar[_CodecState | None] = ContextVar("_carried", default=None)


def apply_codec(convert: Callable[[JSON], JSON], value: JSON) -> JSON:
    """Apply the `lift` or `encode` of a codec to a whole value, under one budget.

    Beyond the budget, parts are left unchanged, like values of an unexpected shape.
    """
    token = _codec_state.set(_CodecState(value))
    try:
        return convert(value)
    finally:
        _codec_state.reset(token)


def union_codec(branches: Sequence[tuple[Node, OptionalCodec]], target: RefResolver) -> Codec:  # noqa: C901
    """Convert a value with the codec of the first branch that it fits, or of the only one that its tags select.

    A bound that the provider does not enforce may be exceeded. The arguments still get their original shape, and the
    validator reports the bound.
    """
    tags = cache(lambda: branch_tags([node for node, _ in branches], target))

    def lift(value: JSON) -> JSON:
        """Lift a container once per conversion, because nested unions lift the same part again for every branch."""
        state = _codec_state.get() or _CodecState(value)
        key = (id(branches), id(value))
        if type(value) not in (dict, list):
            return lift_uncached(value, state.budget)
        if key not in state.lifted:
            state.lifted[key] = (
                value,
                lift_uncached(value, state.budget),
            )  # keep the value alive: another could reuse its id
        return state.lifted[key][1]

    def lift_uncached(value: JSON, budget: StepBudget) -> JSON:
        """Return the first lifted form that fits its branch, or the only one that its tag selects, or the value."""
        candidates: list[tuple[Node, JSON]] = []
        for node, codec in branches:
            if budget.exhausted:
                return value
            lifted = _lift(codec, value)
            if codec is not None and codec.reshapes and lifted is value:
                continue  # not of the lowered shape of this branch
            if fits(node, lifted, target, budget):
                return lifted
            candidates.append((node, lifted))
        selected = [lifted for node, lifted in candidates if is_selected(node, lifted, target, tags())]
        return selected[0] if len(selected) == 1 else value

    def encode(value: JSON) -> JSON:
        """Encode the value like `lift_uncached` lifts it; an exhausted budget leaves it unchanged."""
        budget = (_codec_state.get() or _CodecState(value)).budget
        for node, codec in branches:
            if budget.exhausted:
                return value
            if fits(node, value, target, budget):
                return _encode(codec, value)
        selected = [codec for node, codec in branches if is_selected(node, value, target, tags())]
        return _encode(selected[0], value) if len(selected) == 1 else value

    return Codec(lift, encode, reshapes=any(codec is not None and codec.reshapes for _, codec in branches))


def ref_codec(table: dict[str, OptionalCodec], name: str) -> Codec:
    """Look up the codec of a definition on each use, because definitions may contain themselves."""
    return Codec(lambda value: _lift(table[name], value), lambda value: _encode(table[name], value), reshapes=False)
