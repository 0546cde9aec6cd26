"""Token ids of reasoning. Schedulers of structured outputs and of thinking budgets only have ids, not text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from ..text.engine.format import Format
from .model_format import is_reasoning_open, prompt_opens_reasoning

__all__ = ["ReasoningTokens", "Tokenizer", "template_opens_reasoning"]

_PROMPT_TAIL = 32
"""Tokens at the end of a prompt that may contain the tags of the reasoning."""

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

    The end of a rendered prompt depends on the template and its settings, not on the messages.
    """
    render: Callable[..., object] | None = getattr(tokenizer, "apply_chat_template", None)
    if render is None or not form.reasoning:
        return None
    try:
        prompt = render(_QUESTION, tokenize=False, add_generation_prompt=True, **settings)
    except Exception:  # noqa: BLE001 - a template may raise any exception; the state is then unknown
        return None
    return prompt_opens_reasoning(form, prompt) if isinstance(prompt, str) else None
