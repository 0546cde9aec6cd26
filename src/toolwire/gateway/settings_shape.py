"""Check the names and types of a parsed settings file, and collect every problem with its location."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from ..ir.pointer import JSON
from .settings import Settings
from .settings_location import Path, toml_location

__all__ = ["SettingsProblem", "find_shape_problems", "suggest_name"]

_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "null": "nothing",
    "date": "a date",
    "datetime": "a time",
}
_KEY_COMMAND_HINT = 'write key_command = ["gcloud", "auth", "print-access-token"]: a list, without a shell'
_RETRIEVE_HINT = 'write retrieve = true, or retrieve = {k = 8, always = ["NAME"]}'
_is_type_list = re.compile(r"`([^`]*)`").sub


class SettingsProblem(NamedTuple):
    """A problem of the settings: its location, a description, and the way to fix it."""

    path: Path
    message: str
    hint: str = ""

    @property
    def location(self) -> str:
        return toml_location(self.path)

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.path else self.message


def find_shape_problems(document: JSON) -> list[SettingsProblem]:
    """List unknown names, missing settings and values of a wrong type."""
    return list(_check(document, Settings, ()))


def suggest_name(name: str, known: Any, label: str) -> str:
    """Return a hint with the closest known name, or with all of them."""
    close_matches = get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close_matches[0]!r}?" if close_matches else f"{label}: {', '.join(known) or 'none'}"


def _check(value: JSON, kind: Any, path: Path) -> Iterator[SettingsProblem]:
    origin = get_origin(kind)
    if origin in (UnionType, Union):
        kind = _choose_option(value, get_args(kind)) or kind
        origin = get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        yield from _check_table(value, kind, path)
    elif origin is dict and isinstance(value, dict) and get_args(kind)[1] is not Any:
        for name, inner in value.items():
            yield from _check(inner, get_args(kind)[1], (*path, name))
    elif origin is tuple and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _check(inner, get_args(kind)[0], (*path, number))
    elif origin is Literal and isinstance(value, str):
        if value not in get_args(kind):
            options = ", ".join(repr(option) for option in get_args(kind))
            yield SettingsProblem(path, f"unknown value {value!r}", f"use one of {options}")
    elif path[-1:] == ("key_command",) and isinstance(value, str):
        yield SettingsProblem(path, "must be a list of arguments, got a string", _KEY_COMMAND_HINT)
    else:
        yield from _check_type(value, kind, path)


def _check_table(value: dict[str, Any], kind: type[Struct], path: Path) -> Iterator[SettingsProblem]:
    known = get_type_hints(kind, include_extras=True)
    known = {field.name: known[field.name] for field in fields(kind)}
    for name, inner in value.items():
        if name in known:
            yield from _check(inner, known[name], (*path, name))
        else:
            yield SettingsProblem((*path, name), "unknown setting", suggest_name(name, known, "known settings"))
    for field in fields(kind):
        if field.name not in value and field.default is NODEFAULT and field.default_factory is NODEFAULT:
            yield SettingsProblem(path, f"{field.name} is missing", f"set {field.name}")


def _choose_option(value: JSON, options: tuple[Any, ...]) -> Any:
    """Return the option of a union whose shape fits a table, a list or a string; None if none does."""
    for option in options:
        is_struct = isinstance(option, type) and issubclass(option, Struct)
        if isinstance(value, dict) and (is_struct or get_origin(option) is dict):
            return option
        if isinstance(value, list) and get_origin(option) is tuple:
            return option
        if isinstance(value, str) and get_origin(option) is Literal:
            return option
    return None


def _check_type(value: JSON, kind: Any, path: Path) -> Iterator[SettingsProblem]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message = _is_type_list(_name_types, str(error).partition(" - at ")[0])
        hint = _RETRIEVE_HINT if path[:1] == ("models",) and path[2:3] == ("retrieve",) else ""
        yield SettingsProblem(path, message[:1].lower() + message[1:], hint)


def _name_types(match: re.Match[str]) -> str:
    """Return the types of msgspec's message in the terms of TOML."""
    names = [name.strip() for name in match[1].split("|")]
    return " or ".join(_TYPES.get(name, name) for name in names if name != "null" or len(names) == 1)
