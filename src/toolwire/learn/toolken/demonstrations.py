"""Texts in which calls are marked: the source of the pairs (hidden state, tool) that a head learns from.

They are read from files, recorded conversations, and the calls that Toolformer mined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ...ir.errors import ConfigError, ProtocolError
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.request import Message
from ...ir.tools import Tool
from ...ir.value import Value
from ...stream.strict import parse
from ..examples import Example
from ..language_model import LanguageModel
from ..run_folder import reading
from ..toolformer.corpus import parse_call
from ..toolformer.mining import MinedCall

QUERY_PROMPT = "Request: {query}\nTool:"
"""The prompt for a request that is answered by one tool. The tool's toolken is the next token."""

_MAX_ROWS = 1_000_000  # all are held in memory as Python objects; larger sets are used in parts
_MAX_TEXT = 100_000  # characters; far more than states.MAX_TOKENS tokens, checked before a text is encoded
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
    """Read demonstrations from JSON Lines. Raise ConfigError, with the line, for an invalid row, too many rows or none.

    A row has `text` and `calls`, or `query` and `tool`. `prompt` is the text around a query. Recorded conversations and
    mined calls are converted by `demonstrations_of_examples` and `demonstrations_of_mined`.
    """
    with reading(path):
        content = Path(path).read_bytes()
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
    """Return a row of text with marked calls, or a row of query and tool, as a demonstration.

    Raises `ConfigError` for another form, invalid positions or too long texts.
    """
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
            tuple(_read_range(span, location) for span in row.get("ignored", ())),
        )
    else:
        raise ConfigError(f"{location} has neither text and calls nor query and tool", hint=_LINE)
    if len(demonstration.text) > _MAX_TEXT:
        raise ConfigError(f"{location} has {len(demonstration.text)} characters", hint=f"use at most {_MAX_TEXT}")
    demonstration.check(location)
    return demonstration


def _read_call(call: Any, location: str) -> MarkedCall:
    """Read a marked call. Raise ConfigError if it has no tool."""
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


MAX_RESULT = 500
"""The characters of a result in a text, in training and in generation."""


def line_of_result(text: str) -> str:
    """Return a result as it is inserted into a text: in one line, shortened to MAX_RESULT characters."""
    return " ".join(text.split())[:MAX_RESULT]


def demonstrations_of_mined(
    calls: Iterable[MinedCall],
    *,
    tools: Sequence[Tool] = (),
    name_of: Callable[[MinedCall], str | None] | None = None,
) -> list[Demonstration]:
    """Return one demonstration for each text: Toolformer finds the calls, and a head learns to make them.

    `tools` are needed for the arguments. `name_of` may give a call the name of another tool, such as one of four
    operations for a calculator; None leaves the call out, and its position is not a negative either.
    """
    by_text: dict[str, list[MinedCall]] = {}
    for call in calls:
        by_text.setdefault(call.passage, []).append(call)
    found = (_of_passage(text, own, tools, name_of) for text, own in by_text.items())
    return [one for one in found if one.calls]


def _of_passage(
    text: str, calls: list[MinedCall], tools: Sequence[Tool], name_of: Callable[[MinedCall], str | None] | None
) -> Demonstration:
    """Return a mined text as a demonstration: a call is marked at its result in the text.

    Calls that `name_of` rejects, at the beginning of the text, or not after the last mark are ignored ranges.
    """
    marked: list[MarkedCall] = []
    ignored: list[tuple[int, int]] = []
    for call in sorted(calls, key=lambda one: one.i):
        start = call.i + len(text[call.i :]) - len(text[call.i :].lstrip())
        end = start + (len(call.result) if text.startswith(call.result, start) else 0)
        name = call.call.partition("(")[0].strip() if name_of is None else name_of(call)
        if name is None or not text[:start].strip() or (marked and start <= marked[-1].start):
            ignored.append((start, max(end, start + 1)))
            continue
        parsed = parse_call(call.call, tools) if tools else None
        marked.append(MarkedCall(name, start, end, None if parsed is None else parsed.arguments))
    return Demonstration(text, tuple(marked), 0, tuple(ignored))


def demonstrations_of_examples(model: LanguageModel, examples: Iterable[Example]) -> list[Demonstration]:
    """Return one demonstration for each answer of recorded conversations, in the model's chat template.

    A call is replaced by its result in one line, as `generate_with_toolkens` inserts it. The declarations of tools are not
    in the prompt: toolkens replace them. Answers with weight 0 are context only. Raise ConfigError if it has none.
    """
    if not model.tokenizer.chat_template:
        raise ConfigError("the model has no chat template", hint="use a model that was trained for conversations")
    return [found for example in examples for found in _of_example(model, example)]


def _of_example(model: LanguageModel, example: Example) -> list[Demonstration]:
    """Return a demonstration per answer, with the messages before it as its prompt.

    Assistant messages between results belong to the same answer.
    """
    results = {result.call_id: result for result in example.results}
    history: list[dict[str, str]] = []
    demonstrations: list[Demonstration] = []
    answer: list[tuple[Message, int]] = []
    for index, message in enumerate(example.messages):
        if message.role == "assistant":
            answer.append((message, example.weight_of(index)))
        elif not any(isinstance(part, ToolResult) for part in message.parts):
            _close(model, history, answer, results, demonstrations)
            history.append({"role": message.role, "content": message.text})
    _close(model, history, answer, results, demonstrations)
    return demonstrations


def _close(
    model: LanguageModel,
    history: list[dict[str, str]],
    answer: list[tuple[Message, int]],
    results: dict[str, ToolResult],
    found: list[Demonstration],
) -> None:
    """Add the demonstration of an answer, which may consist of several messages with calls, and continue the history."""
    if not answer:
        return
    prompt: str = model.tokenizer.apply_chat_template(history, tokenize=False, add_generation_prompt=True)
    text, calls, ignored = prompt, [], []
    for message, weight in answer:
        start = len(text)
        for part in message.parts:
            if isinstance(part, Text):
                text += part.text
            elif isinstance(part, ToolCall):
                text, call = _insert_result(text, part, results)
                calls += [call] if weight and call is not None else []
        if not weight:
            ignored.append((start, len(text)))
    history.append({"role": "assistant", "content": text[len(prompt) :]})
    answer.clear()
    if text != prompt:
        found.append(Demonstration(text, tuple(calls), len(prompt), tuple(ignored)))


def _insert_result(text: str, call: ToolCall, results: dict[str, ToolResult]) -> tuple[str, MarkedCall | None]:
    result = results.get(call.id)
    line = "" if result is None else line_of_result(result.text)
    if result is None or result.is_error or not line:
        return text, None
    before = text if text[-1:].isspace() else f"{text} "
    return f"{before}{line}\n", MarkedCall(call.name, len(before), len(before) + len(line), call.arguments)
