"""Render examples as the model will see them, with a loss mask that covers exactly its own tokens.

    form = toolwire.text.get("hermes")
    segments = render_segments(example, tokenizer, form)     # texts, each trained or not
    row = encode_segments(segments, tokenizer)               # tokens, and labels for the loss

The prompt is the one that the gateway sends with `emulate`: tools in the system prompt, calls and results as text, all
in the model's own chat template. An answer is trained with its end-of-turn token. The prompt, results and answers with
weight 0 are not. Each segment is tokenised alone, because the model continues after the tokens of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ..bridge.emulation.requests import emulate
from ..ir.errors import ConfigError
from ..ir.parts import Media, Opaque, Reasoning, ToolCall
from ..ir.request import Message, Request
from ..ir.tools import Tool, ToolChoice
from ..ir.value import Value
from ..text.engine.format import Format
from .examples import Example

IGNORED = -100
"""The label of a token that is not trained, as in torch's cross entropy."""

_SAMPLE = "The answer."


class TrainingSegment(Value, frozen=True):
    """A part of a rendered conversation."""

    text: str
    trained: bool = False


class TrainingRow(Value, frozen=True):
    """The tokens of one example, and for each its label: the same token, or IGNORED."""

    tokens: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def trained_count(self) -> int:
        """The number of tokens with a loss. The first token of a text has none: nothing predicts it."""
        return sum(label != IGNORED for label in self.labels[1:])


def render_prompt(
    messages: Sequence[Message],
    tools: Sequence[Tool],
    tokenizer: Any,
    form: Format,
    *,
    parallel: bool | None = None,
    choice: ToolChoice | None = None,
) -> str:
    """Return the prompt of the model's next answer, up to and including the text that opens its turn."""
    request = Request("", tuple(map(_without_reasoning, messages)), tuple(tools), choice, parallel)
    turns = [_as_turn(message) for message in emulate(request, form).request.messages]
    return _apply_template(tokenizer, turns, opens_turn=True)


def render_answer(message: Message, tools: Sequence[Tool], form: Format) -> str:
    """Return the text of an assistant message: its text, then its calls as the model writes them. Reasoning is left out.

    A call that the format cannot write raises ConfigError.
    """
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    rendered = form.render_calls(calls, tools)
    if rendered.losses:
        raise ConfigError(f"{rendered.losses[0].detail} ({form.name})", hint="choose another text format")
    separator = "\n" if message.text and calls and not message.text.endswith("\n") else ""
    return f"{message.text}{separator}{rendered.text}"


def render_segments(example: Example, tokenizer: Any, form: Format) -> tuple[TrainingSegment, ...]:
    """Render a conversation up to its last answer with weight 1; no segments if there is none.

    Raises `ConfigError` if the chat template does not repeat an answer in later turns as the model wrote it, and for
    several calls in an answer where the format or the example allows one.
    """
    end = end_of_turn(tokenizer)
    segments: list[TrainingSegment] = []
    written = ""
    for index, message in enumerate(example.messages):
        if message.role != "assistant":
            continue
        calls = sum(isinstance(part, ToolCall) for part in message.parts)
        if calls > 1 and (example.parallel is False or form.one_call):
            source = example.source or example.id
            raise ConfigError(f"{source}: {calls} calls in one answer, but only one is allowed at a time")
        prompt = render_prompt(example.messages[:index], example.tools, tokenizer, form, parallel=example.parallel)
        if not prompt.startswith(written):
            raise ConfigError(
                "the chat template of this model writes earlier turns in another form",
                hint="train on the last turn only",
            )
        answer = render_answer(message, example.tools, form) + end
        segments += (TrainingSegment(prompt[len(written) :]), TrainingSegment(answer, bool(example.weight_of(index))))
        written = prompt + answer
    while segments and not segments[-1].trained:
        segments.pop()
    return _join_untrained(segments)


def text_segments(
    text: str, untrained: Iterable[tuple[int, int]] = (), end: str = "", *, start: str = ""
) -> tuple[TrainingSegment, ...]:
    """Return a plain text as segments, for texts with calls in Toolformer's format.

    The objective of the paper trains all of it. The spans `untrained`, such as the results of calls, have no loss.
    `end` is trained after the text. `start` is the token before it, which has no loss. Raise ConfigError if spans
    overlap or are outside the text.
    """
    segments: list[TrainingSegment] = []
    position = 0
    for first, stop in sorted(untrained):
        if not position <= first <= stop <= len(text):
            raise ConfigError(f"the span {first}:{stop} overlaps another one, or is outside the text")
        segments += (TrainingSegment(text[position:first], trained=True), TrainingSegment(text[first:stop]))
        position = stop
    segments.append(TrainingSegment(text[position:] + end, trained=True))
    # `start` is not joined: tokenizers add it to the tokens, not to the text
    return (*([TrainingSegment(start)] if start else ()), *_join_untrained(segments))


def encode_segments(segments: Sequence[TrainingSegment], tokenizer: Any) -> TrainingRow:
    """Return the tokens and labels of the segments."""
    tokens: list[int] = []
    labels: list[int] = []
    for segment in segments:
        found = tokenizer.encode(segment.text, add_special_tokens=False)
        tokens += found
        labels += found if segment.trained else [IGNORED] * len(found)
    return TrainingRow(tuple(tokens), tuple(labels))


def start_of_text(tokenizer: Any) -> str:
    """Return the token that the tokenizer adds before every text, if it adds one."""
    first = tokenizer.bos_token_id
    is_added = first is not None and tokenizer.encode("", add_special_tokens=True)[:1] == [first]
    return str(tokenizer.bos_token) if is_added else ""


def end_of_turn(tokenizer: Any) -> str:
    """Return the text that ends an answer in the model's chat template, without white space after it.

    Raises `ConfigError` if there is no template or no such text.
    """
    if not tokenizer.chat_template:
        raise ConfigError("this model has no chat template", hint="train it on texts, or use an instruct model")
    asked = [{"role": "user", "content": "A question."}]
    whole = _apply_template(tokenizer, [*asked, {"role": "assistant", "content": _SAMPLE}], opens_turn=False)
    end = whole.rpartition(_SAMPLE)[2].rstrip()
    if not end or _SAMPLE not in whole:
        raise ConfigError("the chat template of this model has no text that ends an answer")
    return end


def _apply_template(tokenizer: Any, turns: Sequence[dict[str, str]], *, opens_turn: bool) -> str:
    text: str = tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=opens_turn)
    start = tokenizer.bos_token
    if start and text.startswith(start * 2):  # the template and the tokenizer both add it
        return text[len(start) :]
    return text


def _as_turn(message: Message) -> dict[str, str]:
    for part in message.parts:
        if isinstance(part, Media | Opaque):
            raise ConfigError("only text can be trained on, got media or a part of one provider")
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": message.text}


def _without_reasoning(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, Reasoning))
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)


def _join_untrained(segments: Iterable[TrainingSegment]) -> tuple[TrainingSegment, ...]:
    """Join neighbouring segments without a loss, so that they are tokenized as one text; leave out empty segments."""
    joined: list[TrainingSegment] = []
    for segment in segments:
        if joined and not segment.trained and not joined[-1].trained:
            joined[-1] = TrainingSegment(joined[-1].text + segment.text)
        elif segment.text:
            joined.append(segment)
    return tuple(joined)
