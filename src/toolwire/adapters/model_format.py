"""The format of a model: choose it, find out whether the prompt opens the reasoning, and find the token ids of reasoning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from msgspec.structs import replace

from .. import text as formats
from ..ir.errors import ConfigError, EncodeError
from ..ir.parts import ToolCall
from ..text.engine.format import Format
from ..text.engine.offered_tools import OfferedTools
from ..text.engine.reader import Malformed, Parsing
from ..text.engine.style import ParseContext, StyleBase
from ..text.styles.channel_calls import ChannelCalls
from ..text.styles.message_calls import ReactCalls


class NoCalls(StyleBase, frozen=True):
    """A style without calls: all text that is not reasoning is content."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return ()

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        raise Malformed("this style has no calls")

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Raise EncodeError, because the format has no calls."""
        raise EncodeError("this format has no calls", hint="render them with the format that without_calls() was given")


def without_calls(form: Format) -> Format:
    """Return the format for answers in which calls are not allowed: their tags stay in the text."""
    return replace(form, calls=NoCalls(), one_call=False, halts=())


def with_json_calls(form: Format) -> Format:
    """Return the format of constrained decoding: the reasoning of the model, and its calls as a JSON array."""
    array = formats.get("json_array")
    return replace(array, reasoning=form.reasoning, noise=form.noise)


def has_separate_reasoning(form: Format) -> bool:
    """Return whether the reasoning can be read without the calls. In channels and in ReAct both are parts of one structure."""
    return not isinstance(form.calls, ChannelCalls | ReactCalls)


def format_of_model(name: str, *models: str | None, template: str | None = None) -> Format:
    """Return the format `name`; if it is empty, the format of the chat template, or of the first known model name.

    Raises `ConfigError` if none is known.
    """
    if name:
        return formats.get(name)
    detected = formats.detect_template(template) if template else None
    found = detected or next(filter(None, (formats.detect(model) for model in models if model)), None)
    if found:
        return formats.get(found)
    known = ", ".join(repr(model) for model in models if model) or "no name"
    raise ConfigError(
        f"the text format of the model is unknown ({known})",
        hint="name the format, as in toolwire_hermes; `toolwire formats` lists them",
    )


def prompt_opens_reasoning(form: Format, prompt: str) -> bool | None:
    """Return whether the end of the prompt opens the reasoning (True) or closes it (False); None if it does neither."""
    end = prompt.rstrip()
    for opening, closing in form.reasoning:
        if opening.strip() and end.endswith(opening.strip()):
            return True
        if end.endswith(closing.strip()):
            return False
    return None


def is_reasoning_open(form: Format, text: str) -> bool | None:
    """Return whether the last tag in a text opens (True) or closes (False) reasoning; None if there is none."""
    opened = max((text.rfind(opening.strip()) for opening, _ in form.reasoning if opening.strip()), default=-1)
    closed = max((text.rfind(closing.strip()) for _, closing in form.reasoning), default=-1)
    return None if opened == closed else opened > closed


def answer_begins_inside(form: Format, answer: str) -> bool | None:
    """Return whether a complete answer begins inside reasoning: it closes reasoning that it has not opened. None if unknown."""
    start = answer.lstrip()
    if any(opening and start.startswith(opening) for opening, _ in form.reasoning):
        return False
    for opening, closing in form.reasoning:
        end = -1 if closing in form.noise else answer.find(closing)  # a tag that is noise elsewhere closes other things
        if end >= 0:
            return not (opening and opening in answer[:end])
    return None


# Token ids of reasoning. Schedulers of structured outputs and of thinking budgets only have ids, not text.


_PROMPT_TAIL = 32
"""Tokens at the end of a prompt that may contain the tags of the reasoning: a template ends with a few. Not measured."""

_QUESTION = [{"role": "user", "content": "?"}]


class Tokenizer(Protocol):
    """The methods of a tokenizer that the adapters use, as in transformers."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class ReasoningTokens:
    """The tags of the reasoning in a tokenizer's ids."""

    def __init__(self, form: Format, tokenizer: Tokenizer) -> None:
        self._form = form
        self._tokenizer = tokenizer
        self._ends = [(closing, _encode(tokenizer, closing)) for _, closing in form.reasoning]

    def prompt_opens(self, prompt: Sequence[int]) -> bool:
        """Return whether the end of the prompt opens the reasoning."""
        return bool(prompt_opens_reasoning(self._form, self._decode(prompt[-_PROMPT_TAIL:])))

    def is_open(self, ids: Sequence[int]) -> bool | None:
        """Return whether reasoning is open (True) or closed (False) at the end of the ids; None if they show neither.

        A prompt contains earlier turns. The current turn begins after the last special token that is not a tag.
        """
        start = next((at for at in range(len(ids), 0, -1) if ids[at - 1] in self._boundaries), 0)
        return is_reasoning_open(self._form, self._decode(ids[start:]))

    @cached_property
    def _boundaries(self) -> frozenset[int]:
        tags = {one for pair in self._form.reasoning for tag in pair if tag for one in _encode(self._tokenizer, tag)}
        return frozenset(getattr(self._tokenizer, "all_special_ids", ())) - tags

    def ends_in(self, ids: Sequence[int], new_ids: Iterable[int]) -> bool:
        """Return whether the closing tag ends within `new_ids`, the last of `ids`."""
        fresh = list(new_ids)
        for closing, end in self._ends:
            if len(end) == 1:
                if end[0] in fresh:
                    return True
            else:  # a token may contain the tag and other text, so only the text decides
                before = max(len(end) - 1, 1)
                if closing.strip() in self._decode(ids[-(len(fresh) + before) :]):
                    return True
        return False

    def after_end(self, ids: list[int]) -> list[int]:
        """Return the ids after the closing tag, or none if it is not among them."""
        for closing, end in self._ends:
            if len(end) == 1:
                if end[0] in ids:
                    return ids[ids.index(end[0]) + 1 :]
            elif closing in (text := self._decode(ids)):
                return _encode(self._tokenizer, text.partition(closing)[2])
        return []

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(_encode(self._tokenizer, text)) if text else 0

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids)) if ids else ""


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def template_opens_reasoning(form: Format, tokenizer: object, settings: Mapping[str, Any]) -> bool | None:
    """Like `prompt_opens_reasoning`, for a server that does not show the prompt: ask the chat template.

    The end of a rendered prompt depends on the template and its settings, not on the messages. None if there is no
    template, it fails, or the format has no reasoning.
    """
    render: Callable[..., object] | None = getattr(tokenizer, "apply_chat_template", None)
    if render is None or not form.reasoning:
        return None
    try:
        prompt = render(_QUESTION, tokenize=False, add_generation_prompt=True, **settings)
    except Exception:  # noqa: BLE001 - a template may raise any exception; the state is then unknown
        return None
    return prompt_opens_reasoning(form, prompt) if isinstance(prompt, str) else None
