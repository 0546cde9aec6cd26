"""Equality of canonical values.

`==` is not enough: in Python `1 == 1.0 == True`, and `extra` keeps the spelling of values, which is form and not
meaning. Two values are the `same` if their JSON is the same, with numbers compared by type, without form.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..ir.pointer import JSON, join

__all__ = ["differences", "plain", "same", "strip_extra"]


def same(first: Any, second: Any) -> bool:
    """Return whether two values (canonical or JSON) have the same meaning."""
    return not differences(first, second)


def differences(first: Any, second: Any) -> list[str]:
    """Return the JSON pointers where two values differ."""
    found: list[str] = []
    _compare(plain(first), plain(second), (), found)
    return found


def plain(value: Any) -> JSON:
    """Return a value as JSON, without defaults and form."""
    return _strip_form(msgspec.to_builtins(value))


def strip_extra(value: JSON) -> JSON:
    """Return the meaning only, without fields specific to one wire."""
    if isinstance(value, dict):
        return {key: strip_extra(item) for key, item in value.items() if key != "extra"}
    if isinstance(value, list):
        return [strip_extra(item) for item in value]
    return value


def _strip_form(value: JSON) -> JSON:
    """Remove keys that end in `~`, which record the spelling of a value, and empty `extra` and `params`."""
    if isinstance(value, dict):
        kept = {key: _strip_form(item) for key, item in value.items() if not str(key).endswith("~")}
        return {key: item for key, item in kept.items() if item != {} or key not in ("extra", "params")}
    if isinstance(value, (list, tuple)):
        return [_strip_form(item) for item in value]
    return value


def _compare(first: JSON, second: JSON, path: tuple[str | int, ...], found: list[str]) -> None:
    """Append the pointers where two JSON values differ to `found`. Types must be equal: 1 is not 1.0 here."""
    if type(first) is not type(second):
        found.append(join(*path))
    elif isinstance(first, dict):
        for key in {**first, **second}:
            if key not in first or key not in second:
                found.append(join(*path, key))
            else:
                _compare(first[key], second[key], (*path, key), found)
    elif isinstance(first, list):
        if len(first) != len(second):
            found.append(join(*path))
            return
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            _compare(one, other, (*path, index), found)
    elif first != second:
        found.append(join(*path))
