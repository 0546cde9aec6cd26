"""Answers of a model to the entries: over the network, or from a local model in a text format.

`ModelClient` supports any provider, wire, gateway or text format. A local model generates in batches of prompts of
similar length, free or masked. An entry with one turn is one request; a multi-turn entry is a `SimulatedConversation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...bridge.emulation.answers import RETRYABLE_CODES
from ...ir.errors import ConfigError, ProtocolError, SchemaError
from ...ir.losses import Losses
from ...ir.parts import Part, ToolCall
from ...ir.pointer import Object
from ...ir.request import Message, Params, Request
from ...ir.response import Response, UpstreamError
from ...ir.tools import Tool, ToolChoice
from ...net.model.client import ModelClient
from ...net.threads import iterate_blocking
from ...text import get
from ...text.engine.format import Format
from ..call_quality import start_masks
from ..chat_rendering import render_prompt
from ..language_model import LanguageModel, generate_tokens
from .conversations import SimulatedConversation
from .entries import BFCLEntry, offered_tools
from .judgement import BFCLAnswer

if TYPE_CHECKING:
    from ...mask import Mask, MaskTokenizer


_FATAL = frozenset({"authentication", "billing", "permission", "not_found"})  # no other request would succeed
_LIMITED = frozenset({"length", "context_window"})
# Seconds; a client retries, and 21 slow answers in each of eight turns must not occupy a place of `concurrency` for hours
_LONGEST_CONVERSATION = 1_800
# Conversations of a local model at a time: a few fill a batch, and an interruption loses only these
_CONVERSATIONS = 8
_ROUNDS = 4  # requests of a worker's part for each that it has in flight: the last one is waited for
_MAX_CONCURRENCY = 1_000  # requests in flight; each is a task with a connection, and more is a slip of the keyboard


class ClientAnswers:
    """Ask a `ModelClient` up to `concurrency` entries at a time.

    The client is used as it is: it maps names, retries transient failures, and with a text format asks once more if a
    call cannot be read. `temperature` None leaves it to the provider.
    """

    def __init__(
        self,
        client: ModelClient,
        *,
        choice: Literal["auto", "required"] = "auto",
        max_tokens: int = 1024,
        temperature: float | None = 0.0,
        seed: int = 0,
        concurrency: int = 8,
    ) -> None:
        if not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise ConfigError(f"concurrency must be from 1 to {_MAX_CONCURRENCY}, got {concurrency}")
        self._client = client
        self._choice: Literal["auto", "required"] = choice
        self._params = Params(max_tokens=max_tokens, temperature=temperature, seed=seed)
        self._concurrency = concurrency

    @property
    def settings(self) -> Object:
        """The settings that decide the answers; a run folder records and compares them."""
        endpoint = self._client.endpoint
        return {
            "model": f"{endpoint.vendor.name}/{endpoint.model}",
            "wire": endpoint.wire.name,
            "choice": self._choice,
            "max_tokens": self._params.max_tokens,
            "temperature": self._params.temperature,
            "seed": self._params.seed,
        }

    def parts(self, entries: Sequence[BFCLEntry]) -> list[Sequence[BFCLEntry]]:
        """Divide the entries for workers, which ask `concurrency` of them at a time."""
        size = _ROUNDS * self._concurrency
        return [entries[start : start + size] for start in range(0, len(entries), size)]

    def answers(self, entries: Sequence[BFCLEntry]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        """Yield answers in the order of their arrival.

        A failure of one request is an answer with an error; one that every request would have is raised.
        """
        return iterate_blocking(self._ask_all(entries))

    async def _ask_all(self, entries: Sequence[BFCLEntry]) -> AsyncGenerator[tuple[BFCLEntry, BFCLAnswer], None]:
        """Yield each entry with its answer as soon as it arrives, with at most `_concurrency` requests at a time.

        The remaining requests are cancelled if the consumer stops.
        """
        waiting = iter(entries)
        running: set[asyncio.Task[tuple[BFCLEntry, BFCLAnswer]]] = set()
        try:
            while True:
                while len(running) < self._concurrency and (entry := next(waiting, None)) is not None:
                    running.add(asyncio.create_task(self._ask(entry)))
                if not running:
                    return
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _ask(self, entry: BFCLEntry) -> tuple[BFCLEntry, BFCLAnswer]:
        """Return the entry with the model's answer, or with an error as answer.

        Raises `UpstreamError` for faults that every other request would have too (`_FATAL`).
        """
        try:
            if entry.scenario is not None:
                return entry, await self._converse(entry)
            messages = tuple(message for turn in entry.turns for message in turn)
            return entry, _read_response(await self._request(messages, offered_tools(entry)))
        except UpstreamError as error:
            if error.fault.kind in _FATAL:
                raise
            return entry, BFCLAnswer(error=str(error))
        except ProtocolError as error:
            return entry, BFCLAnswer(error=str(error))

    async def _converse(self, entry: BFCLEntry) -> BFCLAnswer:
        """Hold a conversation with the simulated classes; one that takes too long is answered with an error."""
        with closing(SimulatedConversation(entry)) as conversation:
            try:
                async with asyncio.timeout(_LONGEST_CONVERSATION):
                    while not conversation.is_over:
                        response = await self._request(tuple(conversation.messages), conversation.tools)
                        read = _read_response(response)
                        conversation.add(response.parts, finished=read.finished, unparsable=read.unparsable)
            except TimeoutError:
                return _read_conversation(
                    conversation, f"the conversation took longer than {_LONGEST_CONVERSATION} seconds"
                )
            return _read_conversation(conversation)

    async def _request(self, messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Response:
        request = Request(self._client.name, messages, tools, ToolChoice(self._choice), None, self._params)
        return await self._client.ask(request, losses=Losses())


def _read_response(response: Response) -> BFCLAnswer:
    reason = None if response.stop is None else response.stop.reason
    calls = tuple(part for part in response.parts if isinstance(part, ToolCall))
    return BFCLAnswer(calls, response.text, finished=reason not in _LIMITED, unparsable=reason == "malformed_call")


def _read_conversation(conversation: SimulatedConversation, error: str = "") -> BFCLAnswer:
    turns = tuple(map(tuple, conversation.turns))
    return BFCLAnswer((), conversation.text, conversation.finished, conversation.unparsable, error, turns)


def _conversations(entries: Sequence[BFCLEntry]) -> list[Sequence[BFCLEntry]]:
    """Return the multi-turn entries in groups that are held at once."""
    conversing = [entry for entry in entries if entry.scenario is not None]
    return [conversing[start : start + _CONVERSATIONS] for start in range(0, len(conversing), _CONVERSATIONS)]


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
        """Raise `ConfigError` unless `max_tokens` is positive."""
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
        """The settings that decide the answers; a run folder records and compares them."""
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

    def parts(self, entries: Sequence[BFCLEntry]) -> list[Sequence[BFCLEntry]]:
        """Divide the entries into the batches of `answers`: the floats of an answer depend on the others in its batch."""
        prompts, failed = self._make_prompts(entries)
        batches = [[prompt.entry for prompt in batch] for batch in self._batches(prompts)]
        return [[entry for entry, _ in failed], *batches, *_conversations(entries)]

    def answers(self, entries: Sequence[BFCLEntry]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        """Yield answers batch by batch, the longest prompts first, then multi-turn entries.

        An entry that does not fit, or whose schema has no instances, is answered with an error before all others.
        """
        prompts, failed = self._make_prompts(entries)
        yield from failed
        for batch in self._batches(prompts):
            for prompt, _, answer in self._generate(batch):
                yield prompt.entry, answer
        for conversing in _conversations(entries):
            yield from self._converse(conversing)

    def _make_prompts(
        self, entries: Sequence[BFCLEntry]
    ) -> tuple[list[_EntryPrompt], list[tuple[BFCLEntry, BFCLAnswer]]]:
        """Return the prompts of entries with one turn, and the answers of those that have no prompt."""
        prompts: list[_EntryPrompt] = []
        failed: list[tuple[BFCLEntry, BFCLAnswer]] = []
        for entry in entries:
            if entry.scenario is not None:
                continue
            try:
                messages = [message for turn in entry.turns for message in turn]
                prompts.append(self._make_prompt(entry, messages, offered_tools(entry)))
            except (ConfigError, SchemaError) as error:  # this entry only: too long, or a schema without instances
                failed.append((entry, BFCLAnswer(error=str(error))))
        return prompts, failed

    def _converse(self, entries: Sequence[BFCLEntry]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        """Hold several conversations at once, one step of each in turn, and yield each answer at its end."""
        with ExitStack() as stack:
            active = {entry.id: stack.enter_context(closing(SimulatedConversation(entry))) for entry in entries}
            while active:
                prompts: list[_EntryPrompt] = []
                for key, conversation in list(active.items()):
                    try:
                        entry = conversation.entry
                        prompts.append(self._make_prompt(entry, conversation.messages, conversation.tools))
                    except (ConfigError, SchemaError) as error:  # the history no longer fits into the window
                        yield entry, _read_conversation(active.pop(key), str(error))
                for batch in self._batches(prompts):
                    for prompt, parts, answer in self._generate(batch):
                        conversation = active[prompt.entry.id]
                        conversation.add(parts, finished=answer.finished, unparsable=answer.unparsable)
                        if conversation.is_over:
                            yield prompt.entry, _read_conversation(active.pop(prompt.entry.id))

    def _make_prompt(self, entry: BFCLEntry, messages: Sequence[Message], tools: tuple[Tool, ...]) -> _EntryPrompt:
        """Render and tokenize a conversation, with its mask if calls are constrained.

        Raises `ConfigError` if prompt and answer exceed the model's window.
        """
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

    def _generate(self, batch: list[_EntryPrompt]) -> Iterator[tuple[_EntryPrompt, tuple[Part, ...], BFCLAnswer]]:
        """Generate the answers of a batch, and yield each prompt with the parts of its answer, and the answer."""
        found = generate_tokens(
            self._model,
            [prompt.tokens for prompt in batch],
            max_tokens=self._max_tokens,
            temperature=self._temperature,
            seed=self._seed,
            processors=self._processors(batch),
        )
        for prompt, [tokens] in zip(batch, found, strict=True):
            yield prompt, *self._read(prompt, tokens)

    def _processors(self, batch: list[_EntryPrompt]) -> list[Any]:
        masks = [prompt.mask for prompt in batch if prompt.mask is not None]
        if not masks:
            return []
        from ...mask import MaskProcessor

        width = max(len(prompt.tokens) for prompt in batch)
        return [MaskProcessor(start_masks(masks, self._max_tokens), width)]

    def _read(self, prompt: _EntryPrompt, tokens: list[int]) -> tuple[tuple[Part, ...], BFCLAnswer]:
        text = self._model.decode(tokens)
        finished = len(tokens) < self._max_tokens or self._is_complete(prompt.mask, tokens)
        parsed = self._form.parse(text, prompt.tools, finished=finished)
        unparsable = any(note.code in RETRYABLE_CODES for note in parsed.diagnostics)
        return parsed.parts, BFCLAnswer(parsed.calls, text, finished, unparsable)

    def _is_complete(self, mask: Mask | None, tokens: Sequence[int]) -> bool:
        """Return whether a masked answer is complete after all tokens that the limit allowed. Free text never is."""
        if mask is None:
            return False
        state = mask.start()
        for token in tokens:
            state.accept(token)
        return bool(state.is_finished or (self._choice.mode == "required" and state.is_complete))
