"""Answers of a local model in a text format, free or masked, generated in batches of prompts of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...bridge.emulation.answers import RETRYABLE_CODES
from ...ir.errors import ConfigError, SchemaError
from ...ir.pointer import Object
from ...ir.tools import Tool, ToolChoice
from ...text import get
from ...text.engine.format import Format
from ..chat_rendering import render_prompt
from ..generation import generate_tokens
from ..language_model import LanguageModel
from .entries import BFCLEntry
from .judgement import BFCLAnswer
from .offered_tools import offered_tools

if TYPE_CHECKING:
    from ...mask import Mask, MaskTokenizer

__all__ = ["LocalAnswers"]


class _EntryPrompt(NamedTuple):
    """An entry with its tools, the tokens of its prompt, and its mask."""

    entry: BFCLEntry
    tools: tuple[Tool, ...]
    tokens: list[int]
    mask: Mask | None


class LocalAnswers:
    """Ask a `LanguageModel`. Tools are declared in the prompt, as the gateway does it for this text format.

    `mask` constrains the calls to the offered tools and their schemas: from the first token with `choice="required"`,
    after the opening of a call with "auto". `parallel` False allows one call only; `may_reason` False excludes reasoning
    before a required call. A batch has at most `batch_tokens`
    tokens, with padding and the answers.
    """

    def __init__(
        self,
        model: LanguageModel,
        form: Format | str,
        *,
        mask: bool = False,
        choice: Literal["auto", "required"] = "auto",
        parallel: bool | None = None,
        may_reason: bool = True,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        batch_tokens: int = 16_384,
    ) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens must be positive, got {max_tokens}")
        self._model = model
        self._form = get(form) if isinstance(form, str) else form
        self._masked = mask
        self._choice = ToolChoice(choice)
        self._parallel = parallel
        self._may_reason = may_reason
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._seed = seed
        self._batch_tokens = batch_tokens
        self._tokenizer: MaskTokenizer | None = None

    @property
    def settings(self) -> Object:
        return {
            "model": "model" if self._model.path is None else self._model.path.name,
            "format": self._form.name,
            "mask": self._masked,
            "choice": self._choice.mode,
            "parallel": self._parallel,
            "may_reason": self._may_reason,
            "max_tokens": self._max_tokens,
            "temperature": self._temperature,
            "seed": self._seed,
        }

    def answers(self, entries: Sequence[BFCLEntry]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        """Yield answers batch by batch, those with the longest prompts first."""
        prompts: list[_EntryPrompt] = []
        for entry in entries:
            try:
                prompts.append(self._make_prompt(entry))
            except (ConfigError, SchemaError) as error:  # this entry only: too long, or a schema without instances
                yield entry, BFCLAnswer(error=str(error))
        for batch in self._batches(prompts):
            yield from self._generate(batch)

    def _make_prompt(self, entry: BFCLEntry) -> _EntryPrompt:
        tools = offered_tools(entry)
        messages = [message for turn in entry.turns for message in turn]
        text = render_prompt(
            messages, tools, self._model.tokenizer, self._form, parallel=self._parallel, choice=self._choice
        )
        tokens = self._model.encode(text)
        window = getattr(self._model.network.config, "max_position_embeddings", None)
        if window is not None and len(tokens) + self._max_tokens > window:
            raise ConfigError(f"the prompt has {len(tokens)} tokens; with the answer it exceeds the window of {window}")
        return _EntryPrompt(entry, tools, tokens, self._make_mask(tools) if self._masked else None)

    def _make_mask(self, tools: tuple[Tool, ...]) -> Mask:
        from ...mask import MaskTokenizer, ToolMask

        if self._tokenizer is None:
            self._tokenizer = MaskTokenizer.from_tokenizer(self._model.tokenizer, self._model.vocabulary_size)
        return ToolMask(tools, self._tokenizer, self._form, self._choice, self._parallel, may_reason=self._may_reason)

    def _batches(self, prompts: Sequence[_EntryPrompt]) -> Iterator[list[_EntryPrompt]]:
        """Yield batches of prompts of similar length, longest first, because the first batch needs the most memory."""
        batch: list[_EntryPrompt] = []
        for prompt in sorted(prompts, key=lambda one: -len(one.tokens)):
            width = len((batch or [prompt])[0].tokens) + self._max_tokens
            if batch and width * (len(batch) + 1) > self._batch_tokens:
                yield batch
                batch = []
            batch.append(prompt)
        if batch:
            yield batch

    def _generate(self, batch: list[_EntryPrompt]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        found = generate_tokens(
            self._model,
            [prompt.tokens for prompt in batch],
            max_tokens=self._max_tokens,
            temperature=self._temperature,
            seed=self._seed,
            processors=self._processors(batch),
        )
        for prompt, [tokens] in zip(batch, found, strict=True):
            yield prompt.entry, self._read(prompt, tokens)

    def _processors(self, batch: list[_EntryPrompt]) -> list[Any]:
        masks = [prompt.mask for prompt in batch if prompt.mask is not None]
        if not masks:
            return []
        from ...mask import MaskProcessor

        width = max(len(prompt.tokens) for prompt in batch)
        return [MaskProcessor(masks, width, max_tokens=self._max_tokens)]

    def _read(self, prompt: _EntryPrompt, tokens: list[int]) -> BFCLAnswer:
        text = self._model.decode(tokens)
        finished = len(tokens) < self._max_tokens or self._is_complete(prompt.mask, tokens)
        parsed = self._form.parse(text, prompt.tools, finished=finished)
        unparsable = any(note.code in RETRYABLE_CODES for note in parsed.diagnostics)
        return BFCLAnswer(parsed.calls, text, finished, unparsable)

    def _is_complete(self, mask: Mask | None, tokens: Sequence[int]) -> bool:
        """Return whether a masked answer is complete after all tokens that the limit allowed. Free text never is."""
        if mask is None:
            return False
        state = mask.start()
        for token in tokens:
            state.accept(token)
        return bool(state.is_finished or (self._choice.mode == "required" and state.is_complete))
