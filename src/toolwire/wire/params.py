"""Request parameters by table: a row gives a wire's name for a canonical parameter, and its type.

A parameter without a row on a wire is a loss there; `write_params` reports it with the same text for every wire.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import compress, repeat
from math import isfinite
from operator import attrgetter, is_not
from types import MappingProxyType
from typing import Any, NamedTuple

from ..ir.losses import Losses
from ..ir.parts import Extra
from ..ir.pointer import JSON, Object, join
from ..ir.request import OutputFormat, Params
from .fields import read_boolean, read_optional_string, type_error

_NUMBER = (int, float)
# the types of each canonical parameter, and how an error message names them
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "max_tokens": ((int,), "an integer"),
    "temperature": (_NUMBER, "a number"),
    "top_p": (_NUMBER, "a number"),
    "top_k": (_NUMBER, "a number"),
    "stop": ((list, str), "a string or an array of strings"),
    "seed": ((int,), "an integer"),
    "n": ((int,), "an integer"),
    "presence_penalty": (_NUMBER, "a number"),
    "frequency_penalty": (_NUMBER, "a number"),
    "logprobs": ((bool,), "a boolean"),
    "top_logprobs": ((int,), "an integer"),
    "user": ((str,), "a string"),
    "metadata": ((dict,), "an object"),
    "store": ((bool,), "a boolean"),
    "service_tier": ((str,), "a string"),
    "cache_key": ((str,), "a string"),
    "safety_identifier": ((str,), "a string"),
    "verbosity": ((str,), "a string"),
    "include_usage": ((bool,), "a boolean"),
}
_HARMLESS = frozenset({"user", "metadata", "store", "service_tier", "cache_key", "safety_identifier", "include_usage"})
# a wire that always reports usage loses nothing by having no switch for it
_NAMES = tuple(_TYPES)
_values = attrgetter(*_NAMES)
NO_PARAMS = Params()
_EMPTY_TABLE: Mapping[str, str] = MappingProxyType({})


class ParamRow(NamedTuple):
    param: str
    types: tuple[type, ...]
    expected: str


def param_table(same_names: str = "", **names: str) -> dict[str, ParamRow]:
    """Build a table from the wire's names and ours: `param_table("seed stop", max_completion_tokens="max_tokens")`."""
    names |= {name: name for name in same_names.split()}
    return {wire_name: ParamRow(param_name, *_TYPES[param_name]) for wire_name, param_name in names.items()}


def read_params(raw: Object, table: dict[str, ParamRow], found: dict[str, Any]) -> Object:
    """Read the parameters in `table` into `found`; null counts as absent. Raise ProtocolError for a wrong type.

    Return the original values whose JSON type is not the usual one: `"5"` or `5.0` for an integer, which protobuf JSON
    and lax validators accept, and one stop sequence without an array.
    """
    respelled: Object = {}
    for key in filter(table.__contains__, raw):
        row, value = table[key], raw[key]
        if value is None or row.param in found:  # two names of one parameter: the first counts
            continue
        if type(value) not in row.types:
            number = _as_number(value, row.types)
            if number is None:
                raise type_error(row.expected, value, key)
            respelled[key], value = value, number
        if row.param == "stop":
            if type(value) is str:
                respelled[key] = value
            value = _read_stops(value, key)
        found[row.param] = value
    return respelled


_INTEGER_TEXT = re.compile(r"-?[0-9]{1,18}").fullmatch
_NUMBER_TEXT = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?").fullmatch


def _as_number(value: JSON, types: tuple[type, ...]) -> float | None:
    """Return the number that `value` spells, as one of `types`, or None."""
    if type(value) is str and _NUMBER_TEXT(value) and int in types:
        value = int(value) if _INTEGER_TEXT(value) else float(value)
    if type(value) is float and float not in types and isfinite(value) and value.is_integer():
        value = int(value)
    return value if type(value) in types and type(value) in _NUMBER else None


def as_integer(raw: Object, key: str, respelled: Object) -> int | None:
    """Return the integer under `key`, or None; a value of another JSON type is kept in `respelled` as it was.

    Raise ProtocolError if it is no integer.
    """
    value = raw.get(key)
    if value is None or type(value) is int:
        return value
    number = _as_number(value, (int,))
    if number is None:
        raise type_error("an integer", value, key)
    respelled[key] = value
    return int(number)


TIERS = frozenset({"auto", "default", "flex", "scale", "priority"})
"""Service tiers of both OpenAI wires; compatible servers have others."""


def keep_own_tier(params: dict[str, Any], own: Extra, wire: str) -> None:
    """Keep a service tier that only one server knows as a field of its wire."""
    tier = params.get("service_tier")
    if tier is not None and tier not in TIERS:
        own.setdefault(wire, {})["service_tier"] = params.pop("service_tier")


def restore_spelling(out: Object, form: Object) -> None:
    """Write values back in the JSON type in which `read_params` found them (form `:spelled`), unless they changed."""
    for key, value in form.get(":spelled", {}).items():
        if key in out and out[key] in (_as_number(value, _NUMBER), [value]):
            out[key] = value


def _read_stops(value: str | list[Any], key: str) -> tuple[str, ...]:
    """Return the stop sequences as a tuple; one string is one sequence. Raise ProtocolError if one is no text."""
    if type(value) is str:
        return (value,)
    for index, item in enumerate(value):
        if type(item) is not str:
            raise type_error("a string", item, key, index)
    return tuple(value)


def write_params(
    params: Params,
    table: dict[str, str],
    out: Object,
    wire: str,
    losses: Losses,
    elsewhere: Mapping[str, str] = _EMPTY_TABLE,
) -> None:
    """Write the parameters in `table` (canonical name to the wire's name) into `out`, and report the rest.

    A parameter with an empty name is written by the caller. `elsewhere` gives the loss detail of parameters that only
    another version of the wire has.
    """
    if params is NO_PARAMS:
        return
    values = _values(params)
    for name, value in compress(zip(_NAMES, values, strict=True), map(is_not, values, repeat(None))):
        key = table.get(name)
        if key:
            out[key] = list(value) if name == "stop" else value
        elif key is None and name != "include_usage":
            severity = "info" if name in _HARMLESS else "warning"
            detail = elsewhere.get(name) or f"{wire} has no such parameter"
            losses.add(join("params", name), name, "dropped", detail, severity)  # type: ignore[arg-type]


def read_json_schema(raw: Object, extra: Extra) -> OutputFormat:
    """Read the schema of an answer, as both OpenAI wires write it."""
    name, description = read_optional_string(raw, "name") or None, read_optional_string(raw, "description")
    return OutputFormat("json_schema", raw.get("schema"), name, description, read_boolean(raw, "strict"), extra)
