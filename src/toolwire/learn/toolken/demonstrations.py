"""Texts in which calls are marked: the source of the pairs (hidden state, tool) that a head learns from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...ir.errors import ConfigError, ProtocolError
from ...ir.pointer import Object
from ...ir.value import Value
from ...stream.strict import parse

__all__ = ["QUERY_PROMPT", "Demonstration", "MarkedCall", "demonstration_of_query", "read_demonstrations"]

QUERY_PROMPT = "Request: {query}\nTool:"
"""The prompt for a request that is answered by one tool. The tool's toolken is the next token."""

_MAX_ROWS = 1_000_000
_MAX_TEXT = 100_000  # characters
_LINE = (
    'write lines such as {"text": "2 + 3 = 5", "calls": [{"tool": "add", "start": 8, "end": 9, "arguments": {"a": 2, "b": 3}}]}'
    ' or {"query": "rain in Rome tomorrow", "tool": "get_weather"}'
)


class MarkedCall(Value, frozen=True):
    """A call in a text: its tool, and the characters of the text that are its result. `arguments` None: not known."""

    tool: str
    start: int
    end: int
    arguments: Object | None = None


class Demonstration(Value, frozen=True):
    """A text with marked calls.

    The toolken replaces the first token of a result. Every other token is a negative example: there the model should
    not call a tool. Characters before `begin` are context only, as are the ranges of `ignored`, where it is not known
    whether a call would be right.
    """

    text: str
    calls: tuple[MarkedCall, ...] = ()
    begin: int = 0
    ignored: tuple[tuple[int, int], ...] = ()

    def check(self, location: str) -> None:
        """Raise ConfigError if the marks do not fit the text."""
        end = 0
        for number, call in enumerate(self.calls):
            if not end <= call.start <= call.end <= len(self.text):
                raise ConfigError(
                    f"{location}: call {number + 1} has the range {call.start} to {call.end}",
                    hint=f"sort calls by start; ranges must not overlap and end at {len(self.text)} at most",
                )
            if not self.text[: call.start].strip():
                raise ConfigError(
                    f"{location}: call {number + 1} is at the beginning of the text",
                    hint="write the text that leads to the call before it",
                )
            end = max(call.end, call.start + 1)


def demonstration_of_query(
    query: str, tool: str, arguments: Object | None = None, *, prompt: str = QUERY_PROMPT
) -> Demonstration:
    """Return the demonstration for a request that is answered by one tool."""
    text = prompt.replace("{query}", query)
    return Demonstration(text, (MarkedCall(tool, len(text), len(text), arguments),), begin=prompt.index("{query}"))


def read_demonstrations(path: str | Path, *, prompt: str = QUERY_PROMPT) -> list[Demonstration]:
    """Read demonstrations from JSON Lines. An error names the line.

    A row has `text` and `calls`, or `query` and `tool`. `prompt` is the text around a query. Recorded conversations and
    mined calls are converted by `demonstrations_of_examples` and `demonstrations_of_mined`.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    found: list[Demonstration] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        location = f"{path}, line {number}"
        try:
            row = parse(line)
        except ProtocolError as error:
            raise ConfigError(f"{location}: {error.message}", hint=_LINE) from None
        if len(found) == _MAX_ROWS:
            raise ConfigError(f"{path} has more than {_MAX_ROWS} rows", hint="use a part of them")
        found.append(_read_row(row, location, prompt))
    if not found:
        raise ConfigError(f"{path} has no rows", hint=_LINE)
    return found


def _read_row(row: Any, location: str, prompt: str) -> Demonstration:
    if type(row) is not dict:
        raise ConfigError(f"{location} is not an object", hint=_LINE)
    if type(row.get("query")) is str and type(row.get("tool")) is str:
        demonstration = demonstration_of_query(
            row["query"], row["tool"], _arguments(row.get("arguments"), location), prompt=prompt
        )
    elif type(row.get("text")) is str and type(row.get("calls", [])) is list:
        demonstration = Demonstration(
            row["text"],
            tuple(
                _read_call(call, f"{location}: call {number}") for number, call in enumerate(row.get("calls", []), 1)
            ),
            _character(row.get("begin", 0), f"{location}: begin"),
            tuple(_read_range(one, location) for one in row.get("ignored", ())),
        )
    else:
        raise ConfigError(f"{location} has neither text and calls nor query and tool", hint=_LINE)
    if len(demonstration.text) > _MAX_TEXT:
        raise ConfigError(f"{location} has {len(demonstration.text)} characters", hint=f"use at most {_MAX_TEXT}")
    demonstration.check(location)
    return demonstration


def _read_call(call: Any, location: str) -> MarkedCall:
    if type(call) is not dict or type(call.get("tool")) is not str:
        raise ConfigError(f"{location} has no tool", hint=_LINE)
    start = _character(call.get("start"), f"{location}: start")
    end = _character(call.get("end", start), f"{location}: end")
    return MarkedCall(call["tool"], start, end, _arguments(call.get("arguments"), location))


def _read_range(given: Any, location: str) -> tuple[int, int]:
    if type(given) is not list or len(given) != 2:
        raise ConfigError(f"{location}: ignored must be a list of pairs such as [3, 9]")
    return _character(given[0], f"{location}: ignored"), _character(given[1], f"{location}: ignored")


def _character(given: Any, location: str) -> int:
    if type(given) is not int or given < 0:
        raise ConfigError(f"{location} must be the number of a character, got {given!r}", hint=_LINE)
    return given


def _arguments(given: Any, location: str) -> Object | None:
    if given is not None and type(given) is not dict:
        raise ConfigError(f"{location}: arguments must be an object, got {given!r}", hint=_LINE)
    return given
