"""Texts in which calls are marked: the source of the pairs (hidden state, tool) that a head learns from.

They are read from files, recorded conversations, and the calls that Toolformer mined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...ir.errors import ConfigError, ProtocolError
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.request import Message
from ...ir.tools import Tool
from ...ir.value import Value
from ...stream.strict import parse
from ..examples import Example, make_example
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

    A row has `text` and `calls`, `query` and `tool`, or `query` and the `answer` without a call. `prompt` is the text around a query. Recorded conversations and
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
    elif type(row.get("query")) is str and type(row.get("answer")) is str:
        question = demonstration_of_query(row["query"], "", prompt=prompt)
        demonstration = Demonstration(f"{question.text}{row['answer']}", begin=question.begin)
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
        raise ConfigError(f"{location} has neither text and calls nor query and tool or answer", hint=_LINE)
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
    _require_template(model)
    return [
        Demonstration(answer.text, tuple(answer.calls), len(answer.prompt), tuple(answer.ignored))
        for example in examples
        for answer in _answers(model, example)
        if answer.text != answer.prompt or answer.calls
    ]


def conversation_prompt(model: LanguageModel, messages: Iterable[Message]) -> str:
    """Return the text that a head continues: a conversation as `demonstrations_of_examples` writes it.

    After results, the text ends with them in the answer that has the calls. Raise ConfigError without a chat template.
    """
    *_, answer = _answers(model, make_example(messages), is_last_only=True)
    return answer.text


def chat_query_prompt(model: LanguageModel) -> str:
    """Return the prompt of `read_demonstrations` for queries in the model's chat template."""
    return _apply_template(model, [{"role": "user", "content": "{query}"}])


class _WrittenAnswer(NamedTuple):
    """An answer, which may consist of several messages with results between them. `text` begins with `prompt`."""

    prompt: str
    text: str
    calls: list[MarkedCall]
    ignored: list[tuple[int, int]]


def _answers(model: LanguageModel, example: Example, *, is_last_only: bool = False) -> Iterator[_WrittenAnswer]:
    """Yield each answer with the messages before it as its prompt.

    The last one has no text of its own if the conversation does not end with an answer. `is_last_only`: the others have
    the prompt of the first, because the cost of rendering all of them grows with the square of their number. A text only
    depends on the end of its prompt, which the template writes before every answer.
    """
    results = {result.call_id: result for result in example.results}
    special = [str(token) for token in model.tokenizer.added_tokens_decoder.values() if token.special]
    history: list[dict[str, str]] = []
    messages: list[tuple[Message, int]] = []
    prompt = ""
    for index, message in enumerate(example.messages):
        if message.role == "assistant":
            messages.append((message, example.weight_of(index)))
        elif not message.results:
            if messages:
                if not prompt or not is_last_only:
                    prompt = _apply_template(model, history)
                answer = _write_answer(prompt, messages, results, special)
                yield answer
                history.append({"role": "assistant", "content": answer.text[len(answer.prompt) :]})
                messages = []
            role = "system" if message.role == "developer" else message.role  # templates know no other role
            history.append({"role": role, "content": message.text})
    yield _write_answer(_apply_template(model, history), messages, results, special)


def _apply_template(model: LanguageModel, history: list[dict[str, str]]) -> str:
    _require_template(model)
    prompt: str = model.tokenizer.apply_chat_template(history, tokenize=False, add_generation_prompt=True)
    return prompt


def _require_template(model: LanguageModel) -> None:
    if not model.tokenizer.chat_template:
        raise ConfigError("the model has no chat template", hint="use a model that was trained for conversations")


def _write_answer(
    prompt: str, messages: list[tuple[Message, int]], results: dict[str, ToolResult], special: list[str]
) -> _WrittenAnswer:
    """Return the answer of these messages, each with its weight. Results have no special tokens, which could end it.

    A failed call leaves no trace. Calls without a result are at the end of a recording; the first of them is marked,
    because a position has one toolken.
    """
    text, calls, ignored = prompt, [], []
    for message, weight in messages:
        start = len(text)
        for part in message.parts:
            if isinstance(part, Text):
                text += part.text
            elif isinstance(part, ToolCall):
                if part.id not in results:
                    calls += [MarkedCall(part.name, len(text), len(text), part.arguments)] if weight else []
                    break
                text, call = _insert_result(text, part, results[part.id], special)
                calls += [call] if weight and call is not None else []
        if not weight:
            ignored.append((start, len(text)))
    return _WrittenAnswer(prompt, text, calls, ignored)


def _insert_result(text: str, call: ToolCall, result: ToolResult, special: list[str]) -> tuple[str, MarkedCall | None]:
    plain = result.text
    for token in special:
        plain = plain.replace(token, "")
    line = line_of_result(plain)
    if result.is_error or not line:
        return text, None
    before = text if text[-1:].isspace() else f"{text} "
    return f"{before}{line}\n", MarkedCall(call.name, len(before), len(before) + len(line), call.arguments)
