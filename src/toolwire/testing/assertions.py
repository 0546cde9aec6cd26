"""Assertions about calls, canonical values and translations, with readable differences.

    assert_called(answer, "get_weather", city="Oslo")        # returns the call
    assert_same(decoded, expected)                           # canonical JSON, line by line

Assertions about calls, canonical values and translations, with readable differences.

    assert_called(answer, "get_weather", city="Oslo")        # returns the call
    assert_calls(answer, [("get_weather", {"city": "Oslo"}), "send_mail"])
    assert_same(decoded, expected)                           # canonical JSON, line by line
    assert_lossless(translation)

An answer is an `Answer` of an agent, a `Response`, a message, or a list of calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import ndiff, unified_diff
from typing import Any, TypeAlias

import msgspec

from ..ir.errors import ConfigError
from ..ir.losses import Loss
from ..ir.parts import ToolCall
from ..ir.pointer import JSON, Object, join
from ..ir.text import shorten

# Equality of canonical values.
#
# `==` is not enough: in Python `1 == 1.0 == True`, and `extra` keeps the spelling of values, which is form and not
# meaning. Two values are the `same` if their JSON is the same, with numbers compared by type, without form.


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


ExpectedToolCall: TypeAlias = str | tuple[str, Object]
"""The name of a tool, or its name and all of its arguments."""
_MAX_LINES = 200  # lines of a difference
_MAX_SHOWN = 300  # characters of the arguments in a message


def assert_called(answer: Any, name: str, /, **arguments: Any) -> ToolCall:
    """Return the first call of a tool with at least these arguments; raise AssertionError if there is none."""
    calls = _calls_of(answer)
    for call in calls:
        if call.name == name and not _wrong_arguments(call, arguments):
            return call
    wanted = ", ".join(f"{key}={_show(value)}" for key, value in arguments.items())
    lines = [f"{name}({wanted}) was not called; the answer has {len(calls)} calls"]
    for number, call in enumerate(calls, 1):
        wrong = _wrong_arguments(call, arguments) if call.name == name else []
        lines += [f"  {number}. {call.name}({_show(call.arguments)})", *(f"       {one}" for one in wrong)]
    raise AssertionError("\n".join(lines))


def assert_not_called(answer: Any, name: str, /) -> None:
    """Raise AssertionError if the answer calls a tool with this name."""
    found = [call for call in _calls_of(answer) if call.name == name]
    if found:
        raise AssertionError(f"{name} was called {len(found)} times, first with {_show(found[0].arguments)}")


def assert_calls(answer: Any, expected: Sequence[ExpectedToolCall]) -> None:
    """Check all calls in order; a name alone allows any arguments, a pair requires exactly these.

    Raises `AssertionError` with a diff if they differ.
    """
    calls = _calls_of(answer)
    pairs = [(item, None) if isinstance(item, str) else item for item in expected]
    is_equal = len(calls) == len(pairs) and all(
        call.name == name and (arguments is None or same(call.arguments or {}, arguments))
        for call, (name, arguments) in zip(calls, pairs, strict=True)
    )
    if is_equal:
        return
    any_arguments = [pairs[at][1] is None if at < len(pairs) else False for at in range(len(calls))]
    got = [
        f"{call.name}({'…' if loose else _show(call.arguments)})"
        for call, loose in zip(calls, any_arguments, strict=True)
    ]
    wanted = [f"{name}({'…' if arguments is None else _show(arguments)})" for name, arguments in pairs]
    lines = (line for line in ndiff(wanted, got) if not line.startswith("?"))
    raise AssertionError("\n".join(["the calls differ (- expected, + in the answer)", *lines]))


def assert_same(actual: Any, expected: Any) -> None:
    """Compare two values, canonical or JSON, by meaning: `toolwire.testing.same`.

    Raise AssertionError with the differing lines.
    """
    if not same(actual, expected):
        lines = ["the values differ (- expected, + actual)", *difference_lines(expected, actual)]
        raise AssertionError("\n".join(lines))


def assert_lossless(translation: Any) -> None:
    """Raise `AssertionError` if a translation lost something.

    A translation is anything with `losses`, a pair of a value and its losses, or the losses themselves. Losses of the
    severity `info` change the form only, and are allowed. Raises `ConfigError` for a value without losses.
    """
    losses = getattr(translation, "losses", translation)
    if isinstance(losses, tuple) and len(losses) == 2 and not isinstance(losses[1], Loss):
        losses = losses[1]
    if not isinstance(losses, Iterable) or isinstance(losses, (str, bytes)):
        raise ConfigError(f"a {type(translation).__name__} has no losses", hint="pass the result of a translation")
    found = [loss for loss in losses if loss.severity != "info"]
    if found:
        lines = [f"  {one.path or '/'}: {one.concept} {one.action}: {one.detail}" for one in found[:_MAX_LINES]]
        raise AssertionError("\n".join([f"the translation has {len(found)} losses", *lines]))


def difference_lines(expected: Any, actual: Any) -> list[str]:
    """Return the changed lines of two values as canonical JSON, with some lines around them."""
    lines = list(unified_diff(_json_lines(expected), _json_lines(actual), lineterm="", n=2))[2:]
    more = [f"… {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
    return [*lines[:_MAX_LINES], *more]


def _json_lines(value: Any) -> list[str]:
    return json.dumps(plain(value), indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def _calls_of(answer: Any) -> list[ToolCall]:
    """Return the calls of an answer, a response, a message or a list of calls.

    Raise ConfigError for any other value.
    """
    found = getattr(answer, "calls", None)
    if found is None:
        found = getattr(answer, "parts", answer)
    if not isinstance(found, (list, tuple)):
        hint = "pass an Answer, a Response, a Message or a list of calls"
        raise ConfigError(f"a {type(answer).__name__} has no calls", hint=hint)
    return [one for one in found if isinstance(one, ToolCall)]


def _wrong_arguments(call: ToolCall, expected: Object) -> list[str]:
    """Describe each expected argument that the call does not have."""
    given = call.arguments or {}
    return [
        f"{key}: expected {_show(value)}, got {_show(given[key]) if key in given else 'nothing'}"
        for key, value in expected.items()
        if key not in given or not same(given[key], value)
    ]


def _show(value: Any) -> str:
    return shorten(json.dumps(plain(value), ensure_ascii=False, sort_keys=True), _MAX_SHOWN)
