"""Demonstrations from recorded conversations, and from the calls that Toolformer mined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...ir.errors import ConfigError
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.request import Message
from ...ir.tools import Tool
from ..examples import Example
from ..language_model import LanguageModel
from ..toolformer.call_text import parse_call
from ..toolformer.mining import MinedCall
from .demonstrations import Demonstration, MarkedCall

__all__ = ["MAX_RESULT", "demonstrations_of_examples", "demonstrations_of_mined", "line_of_result"]

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
    in the prompt: toolkens replace them. Answers with weight 0 are context only.
    """
    if not model.tokenizer.chat_template:
        raise ConfigError("the model has no chat template", hint="use a model that was trained for conversations")
    return [found for example in examples for found in _of_example(model, example)]


def _of_example(model: LanguageModel, example: Example) -> list[Demonstration]:
    results = {result.call_id: result for result in example.results}
    history: list[dict[str, str]] = []
    found: list[Demonstration] = []
    answer: list[tuple[Message, int]] = []
    for index, message in enumerate(example.messages):
        if message.role == "assistant":
            answer.append((message, example.weight_of(index)))
        elif not any(isinstance(part, ToolResult) for part in message.parts):
            _close(model, history, answer, results, found)
            history.append({"role": message.role, "content": message.text})
    _close(model, history, answer, results, found)
    return found


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
