"""Measure how often a model makes a valid call, and the right one, on prompts with known answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..ir.parts import ToolCall
from ..ir.request import Message
from ..ir.tools import Tool, ToolChoice
from ..ir.value import Value
from ..schema.validation.validator import validator
from ..text.engine.format import Format
from .chat_rendering import render_prompt
from .examples import Example
from .language_model import LanguageModel, generate_tokens

if TYPE_CHECKING:
    from ..mask import Mask, MaskState


class CallQuestion(Value, frozen=True):
    """A conversation up to an answer, and the calls of that answer. No calls: the right answer is text."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    expected: tuple[ToolCall, ...]
    parallel: bool | None = None


class CallAnswer(Value, frozen=True):
    """The answer of a model. `valid`: only finished calls of offered tools, with arguments that match their schemas.

    `right`: the expected calls in their order, with equal arguments. For a question without calls, an answer without
    calls is both.
    """

    text: str
    finished: bool
    valid: bool
    right_tool: bool
    right: bool


class CallQuality(Value, frozen=True):
    """Counts of answers."""

    prompts: int
    finished: int
    valid: int
    right_tool: int
    right: int

    @classmethod
    def count(cls, answers: Iterable[CallAnswer]) -> CallQuality:
        """Count answers."""
        rows = list(answers)
        names = ("finished", "valid", "right_tool", "right")
        return cls(len(rows), *(sum(getattr(row, name) for row in rows) for name in names))

    def percent(self, name: str) -> float:
        """Return one of the counts in percent of the prompts; 0 without prompts."""
        return 100 * int(getattr(self, name)) / max(self.prompts, 1)


def call_questions(examples: Iterable[Example]) -> list[CallQuestion]:
    """Return a question for each answer with weight 1."""
    return [
        CallQuestion(
            example.messages[:index],
            example.tools,
            tuple(part for part in message.parts if isinstance(part, ToolCall)),
            example.parallel,
        )
        for example in examples
        for index, message in enumerate(example.messages)
        if example.weight_of(index)
    ]


def measure_calls(
    model: LanguageModel,
    questions: Sequence[CallQuestion],
    form: Format,
    *,
    max_tokens: int = 160,
    batch_tokens: int = 4096,
    make_processor: Callable[[Sequence[CallQuestion], int], Any] | None = None,
    on_answers: Callable[[int, int], None] | None = None,
) -> list[CallAnswer]:
    """Answer each question greedily, and compare. Answers are in the order of the questions.

    `make_processor` returns the logits processor of a batch, such as a mask, from its questions and the length of the
    padded prompts. `on_answers` receives the number of answers so far, and of all.
    """
    prompts = [
        model.encode(render_prompt(one.messages, one.tools, model.tokenizer, form, parallel=one.parallel))
        for one in questions
    ]
    found: dict[int, CallAnswer] = {}
    for batch in _batches(prompts, max_tokens, batch_tokens):
        processors = []
        if make_processor is not None:
            width = max(len(prompts[index]) for index in batch)
            processors.append(make_processor([questions[index] for index in batch], width))
        texts = generate_tokens(
            model, [prompts[index] for index in batch], max_tokens=max_tokens, processors=processors
        )
        for index, [tokens] in zip(batch, texts, strict=True):
            is_finished = len(tokens) < max_tokens
            found[index] = judge_answer(questions[index], model.decode(tokens), form, is_finished=is_finished)
        if on_answers is not None:
            on_answers(len(found), len(questions))
    return [found[index] for index in range(len(questions))]


def mask_calls(model: LanguageModel, form: Format, max_tokens: int) -> Callable[[Sequence[CallQuestion], int], Any]:
    """Return the `make_processor` of `measure_calls` that allows only calls of the offered tools."""
    from ..mask import MaskProcessor, MaskTokenizer, ToolMask

    tokenizer = MaskTokenizer.from_tokenizer(model.tokenizer, model.vocabulary_size)
    masks: dict[bytes, Any] = {}

    def make_processor(questions: Sequence[CallQuestion], prompt_length: int) -> Any:
        """Return a logits processor for a batch; questions with equal tools share a mask."""
        chosen = []
        for question in questions:
            key = msgspec.json.encode(question.tools)
            if key not in masks:
                masks[key] = ToolMask(
                    question.tools, tokenizer, form, ToolChoice("required"), parallel=False, may_reason=False
                )
            chosen.append(masks[key])
        return MaskProcessor(start_masks(chosen, max_tokens), prompt_length)

    return make_processor


def start_masks(masks: Sequence[Mask], max_tokens: int) -> list[MaskState]:
    """Start an output of each mask; without a limit if the mask refuses it, so that the answer counts as truncated."""
    from ..mask import TokenLimitError

    states = []
    for mask in masks:
        try:
            states.append(mask.start(max_tokens))
        except TokenLimitError:
            states.append(mask.start())
    return states


def judge_answer(question: CallQuestion, text: str, form: Format, *, is_finished: bool = True) -> CallAnswer:
    """Compare the text of an answer with the expected calls."""
    calls = form.parse(text, question.tools, finished=is_finished).calls
    expected = question.expected
    valid = is_finished and bool(calls) == bool(expected) and all(_is_valid(call, question.tools) for call in calls)
    right_tool = valid and [call.name for call in calls] == [call.name for call in expected]
    right = right_tool and [call.arguments for call in calls] == [call.arguments for call in expected]
    return CallAnswer(text, is_finished, valid, right_tool, right)


def _is_valid(call: ToolCall, tools: Sequence[Tool]) -> bool:
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None or call.state != "complete" or call.arguments is None:
        return False
    return tool.input_schema is None or validator(tool.input_schema).accepts(call.arguments)


def _batches(prompts: Sequence[Sequence[int]], max_tokens: int, batch_tokens: int) -> list[list[int]]:
    """Return batches of prompts of similar length, longest first, because the first batch needs the most memory."""
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    batches: list[list[int]] = []
    for index in order:
        last = batches[-1] if batches else None
        width = len(prompts[last[0]]) + max_tokens if last else 0
        if last is None or width * (len(last) + 1) > batch_tokens:
            batches.append([index])
        else:
            last.append(index)
    return batches
