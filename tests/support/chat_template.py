"""Render conversations with a model's own chat template, and isolate the text of the assistant.

The environment is that of transformers' `apply_chat_template`: sandboxed, with `raise_exception`, `strftime_now`, a `tojson`
that keeps non-ASCII characters, loop controls and the `generation` tag. Two deviations are needed for templates that were
written for llama.cpp: lists may grow (`append`), and `tojson` accepts the result of `map`.
"""

import json
from copy import deepcopy
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import SandboxedEnvironment

__all__ = ["REASONING_FIELDS", "ChatTemplate", "TemplateRefusal", "Turn"]

_BOS, _EOS = "\ue000", "\ue001"  # placeholders: the real tokens belong to the tokenizer
_DATE = datetime(2026, 11, 16)
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "thought")
_REFUSALS = (TemplateError, TypeError, AttributeError, KeyError, IndexError, ValueError, RecursionError)

STOPS = (
    _EOS,
    "<|im_end|>",
    "<|ifm|im_end|>",
    "<|role_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|calls|>",
    "<|end_of_text|>",
    "<|end_of_msg|>",
    "<|return|>",
    "<|call|>",
    "<|message_sep|>\n\n<",
    "<end_of_turn>",
    "<end_of_sentence>",
    "<｜end▁of▁sentence｜>",
    "<｜hy_eos:opensource｜>",
    "<SPECIAL_12>",
    "<seed:eos>",
    "<turn|>",
    "<sep>",
    "</assistant>",
    "[e~[",
    "<|tool_response>",
)
"""Tokens with which models end a turn: a server stops there."""
_NOT_IN_TURNS = (_EOS, "<|START_OF_TURN_TOKEN|>", "<sep>")  # a placeholder, the beginning of the next turn, plain text

REASONING_OPENERS = (
    "<think>",
    "<think:opensource>",
    "<mm:think>",
    "<ifm|think>",
    "<seed:think>",
    "<|think|>",
    "<|open|>think<|sep|>",
    "<|START_THINKING|>",
    "<|inner_prefix|>",
    "<|channel>thought",
    "[THINK]",
    "Here are my reasoning steps:",
)
"""The end of a prompt that opens the reasoning."""


class TemplateRefusal(Exception):
    """The template raised an error for this conversation."""


class Turn(NamedTuple):
    """The text of an assistant's turn, its end token, and whether the prompt opened the reasoning."""

    text: str
    end: str
    reasoning_open: bool


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's tokens for training; render its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def _raise_exception(message):
    raise TemplateError(message)


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, default=list
    )


class ChatTemplate:
    """A chat template."""

    def __init__(self, source):
        environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        environment.filters["tojson"] = _tojson
        environment.globals.update(raise_exception=_raise_exception, strftime_now=_DATE.strftime)
        self.source = source
        self._template = environment.from_string(source)

    def render(self, messages, tools, *, prompt=False, **variables):
        """Return the text of a conversation; with `prompt`, including the beginning of the next turn."""
        try:
            return self._template.render(
                messages=deepcopy(messages),
                tools=deepcopy(tools),
                functions=_tojson(tools, indent=4),  # firefunction reads these two
                datetime=_DATE.isoformat(),
                add_generation_prompt=prompt,
                bos_token=_BOS,
                eos_token=_EOS,
                **variables,
            )
        except _REFUSALS as error:
            raise TemplateRefusal(f"{type(error).__name__}: {error}") from error

    def turn(self, history, message, tools):
        """Return the text with which the template writes an assistant message.

        The message is written as in a history, and the prompt of a reasoning model may open or close the reasoning. Choose the
        mode (thinking on or off) whose prompt is the beginning of the written text.
        """
        modes = _modes(self.source, thinking=bool(_reasoning_of(message)))
        refusal = TemplateRefusal("no mode")
        for variables in modes:
            try:
                prompt = self.render(history, tools, prompt=True, **variables)
                whole = self.render([*history, message], tools, **variables)
            except TemplateRefusal as error:
                refusal = error
                continue
            if whole.startswith(prompt):
                opened = prompt.rstrip().endswith(REASONING_OPENERS)
                return Turn(*_cut_end(whole[len(prompt) :]), opened)
        return self._turn_without_prompt(history, message, tools, refusal)

    def _turn_without_prompt(self, history, message, tools, refusal):
        """Isolate a turn that does not begin with the end of a prompt: it follows the header of an assistant."""
        try:
            before = self.render(history, tools)
            prompt = self.render(history, tools, prompt=True).rstrip()
            whole = self.render([*history, message], tools)
        except TemplateRefusal:
            raise refusal from None
        opener = next((opener for opener in REASONING_OPENERS if prompt.endswith(opener)), "")
        rest = whole[len(_whole_tokens(_shared_start(before, whole))) :]
        header = _whole_tokens(_shared_start(prompt.removeprefix(before), rest))
        rest = rest.removeprefix(header) if header else _after_header(rest, prompt.removesuffix(opener).rstrip())
        opened = bool(opener) and opener not in rest and _starts_with_reasoning(rest, message)
        return Turn(*_cut_end(rest), opened)


def _modes(source, *, thinking):
    """Return the variables that switch reasoning on and off, the wanted mode first."""
    on = {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled"}
    off = {"enable_thinking": False, "thinking": False, "thinking_mode": "disabled"}
    if "'no_think'" in source:
        on, off = {**on, "reasoning_effort": "high"}, {**off, "reasoning_effort": "no_think"}
    return [{}, on, off] if thinking else [off, {}, on]


def _reasoning_of(message):
    """Return the reasoning of a message, in a field of its own or in the content."""
    fields = [message[field] for field in REASONING_FIELDS if field in message]
    if isinstance(message["content"], list):
        fields.append(message["content"][0]["thinking"])
    return next(iter(fields), "")


def _starts_with_reasoning(text, message):
    reasoning = _reasoning_of(message)
    return bool(reasoning) and text.lstrip().startswith(reasoning)


def _after_header(text, prompt):
    """Return the text after the header of the assistant, which is the end of the prompt."""
    for start in range(max(0, len(prompt) - 60), len(prompt)):
        header = prompt[start:]
        at = text.find(header, 0, 120)
        if header[0] in "<[" and at >= 0:
            return text[at + len(header) :]
    return text


def _cut_end(text):
    """Split a text at its first end token; return the text and the token."""
    found = min(((text.find(stop), stop) for stop in STOPS if stop in text), default=(len(text), ""))
    return text[: found[0]], "" if found[1] in _NOT_IN_TURNS else found[1]


def _shared_start(one, other):
    """Return the longest common beginning of two texts."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return one[: sum(1 for _ in same)]


def _whole_tokens(text):
    """Return a text without a special token that is cut at its end."""
    for opening, closing in ("<>", "[]"):
        start = text.rfind(opening)
        if start > text.rfind(closing):
            return text[:start]
    return text
