"""Request parameters by table: a row says under which name a wire knows a canonical parameter, and of what type it is.

A parameter without a row on a wire is a loss there, reported by `write_params` for every wire in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from ..ir.losses import Losses
from ..ir.pointer import Object, join
from ..ir.request import Params
from .shape import wrong

__all__ = ["NO_PARAMS", "ParamRow", "read_params", "rows", "write_params"]

_NUMBER = (int, float)
# what each canonical parameter is, and what losing it means
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
_NOWHERE: Mapping[str, str] = MappingProxyType({})


class ParamRow(NamedTuple):
    param: str
    types: tuple[type, ...]
    expected: str


def rows(**names: str) -> dict[str, ParamRow]:
    """`rows(max_completion_tokens="max_tokens")`: the wire's name, then ours."""
    return {theirs: ParamRow(ours, *_TYPES[ours]) for theirs, ours in names.items()}


def read_params(raw: Object, table: dict[str, ParamRow], found: dict[str, Any]) -> None:
    """Reads what `table` knows into `found`; a null is nothing."""
    if raw.keys().isdisjoint(table):
        return
    for key, value in raw.items():
        row = table.get(key)
        if row is None or value is None or row.param in found:
            continue
        if type(value) not in row.types:
            raise wrong(row.expected, value, key)
        if row.param == "stop":
            value = _stops(value, key)
        found[row.param] = value


def _stops(value: str | list[Any], key: str) -> tuple[str, ...]:
    if type(value) is str:
        return (value,)
    for index, item in enumerate(value):
        if type(item) is not str:
            raise wrong("a string", item, key, index)
    return tuple(value)


def write_params(
    params: Params,
    table: dict[str, str],
    out: Object,
    wire: str,
    losses: Losses,
    elsewhere: Mapping[str, str] = _NOWHERE,
) -> None:
    """Writes what `table` (canonical name to the wire's) knows; reports the rest.

    `elsewhere` says of parameters that only another version of the wire has why they are lost.
    """
    if params is NO_PARAMS:
        return
    for name, value in zip(_NAMES, _values(params), strict=True):
        if value is None:
            continue
        key = table.get(name)
        if key:
            out[key] = list(value) if name == "stop" else value
        elif key is None and name != "include_usage":
            severity = "info" if name in _HARMLESS else "warning"
            detail = elsewhere.get(name) or f"{wire} has no such parameter"
            losses.add(join("params", name), name, "dropped", detail, severity)  # type: ignore[arg-type]
