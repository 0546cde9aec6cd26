"""Generate text with toolkens: when a toolken wins, write its arguments, run the tool, insert the result, and continue.

In argument mode the model writes the arguments with toolkens disabled and a mask of the tool's schema.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import torch

from ...ir.errors import ConfigError, MissingExtra, ProtocolError, ToolwireError
from ...ir.parts import ToolCall
from ...ir.pointer import Object
from ...ir.tools import Tool
from ...ir.value import Value
from ...net.tools.runner import Runner
from ...run.tools.toolbox import Source
from ...stream.strict import parse
from ..language_model import LanguageModel, generate_tokens
from .demonstrations import line_of_result
from .head import ArgumentExample, ToolkenHead

_MAX_CONTEXT = 600  # characters of the text before a call: the last sentences, beside the examples of the prompt
_MAX_EXAMPLES = 8  # of a tool in the argument prompt, which must leave room for the text. Not measured


def argument_prompt(tool: Tool, examples: Sequence[ArgumentExample], text: str) -> str:
    """Return the prompt of argument mode: the tool's own demonstrations, then the text before the call.

    >>> from toolwire import Tool
    >>> print(argument_prompt(Tool("add"), [ArgumentExample("2 + 3 =", {"a": 2, "b": 3})], "7 + 1 ="))
    2 + 3 = add({"a": 2, "b": 3})
    7 + 1 = add(
    """
    lines = [
        f"{_tail(one.text)} {tool.name}({json.dumps(one.arguments, ensure_ascii=False)})"
        for one in examples[:_MAX_EXAMPLES]
    ]
    return "\n".join([*lines, f"{_tail(text)} {tool.name}("])


def _tail(text: str) -> str:
    """Return the end of a text in one line."""
    return " ".join(text[-_MAX_CONTEXT:].split())


class ArgumentWriter:
    """Writes arguments greedily. Masks are compiled once for each tool.

    `tokenizer` is a `MaskTokenizer` of the model. `processors` are called before each token, as in `generate_tokens`.
    """

    def __init__(
        self, model: LanguageModel, *, max_tokens: int = 128, tokenizer: Any = None, processors: Sequence[Any] = ()
    ) -> None:
        if max_tokens < 2:
            raise ConfigError(f"the arguments of a call need at least 2 tokens, got {max_tokens}")
        self._model = model
        self._max_tokens = max_tokens
        self._tokenizer = tokenizer
        self._processors = processors
        self._masks: dict[str, Any] = {}

    def write(self, tool: Tool, examples: Sequence[ArgumentExample], text: str) -> Object:
        """Return arguments that match the tool's schema; an empty object without parameters.

        Raises `ConfigError` if no arguments fit into the limit, or if the schema does not describe an object, and
        `UnfinishedOutput` if the engine gave up.
        """
        schema = tool.input_schema or {"type": "object"}
        if not schema.get("properties") and schema.get("type") == "object":
            return {}
        from ...mask import JSONSchemaMask, MaskProcessor, MaskTokenizer

        if self._tokenizer is None:
            self._tokenizer = MaskTokenizer.from_tokenizer(self._model.tokenizer, self._model.vocabulary_size)
        if tool.name not in self._masks:
            self._masks[tool.name] = JSONSchemaMask(schema, self._tokenizer)
        state = self._masks[tool.name].start(self._max_tokens)
        prompt = self._model.encode(argument_prompt(tool, examples, text))
        processors = [*self._processors, MaskProcessor([state], len(prompt))]
        [[tokens]] = generate_tokens(self._model, [prompt], max_tokens=self._max_tokens, processors=processors)
        try:
            arguments = parse(self._model.decode(tokens))
        except ProtocolError:
            state.finish()  # raises UnfinishedOutput with the text
            raise
        if type(arguments) is not dict:
            raise ConfigError(f"the schema of {tool.name!r} does not describe an object")
        return arguments


class StateReader:
    """Feeds tokens to a model and keeps its key-value cache."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._cache: Any = None

    def read(self, tokens: list[int]) -> torch.Tensor:
        """Feed tokens to the model and return the hidden state of the last one."""
        out = self._model.network.get_decoder()(
            input_ids=torch.tensor([tokens], device=self._model.device), past_key_values=self._cache, use_cache=True
        )
        self._cache = out.past_key_values
        state: torch.Tensor = out.last_hidden_state[:, -1]
        return state


_NEEDS_NO_SPACE = frozenset("([{<\"'`$£€¥#@/\\")


class ToolkenCall(Value, frozen=True):
    """A call of a generation. `position`: the characters of the generated text before it. `error`: why it was undone."""

    tool: str
    position: int
    arguments: Object | None = None
    result: str | None = None
    error: str | None = None


class ToolkenOutput(Value, frozen=True):
    """The generated text with the results in it, the calls that were run, those that failed, and the tokens of the text."""

    text: str
    calls: tuple[ToolkenCall, ...]
    failed: tuple[ToolkenCall, ...]
    finish: Literal["end", "length"]
    tokens: int


def generate_with_toolkens(
    lm: LanguageModel,
    head: ToolkenHead,
    tools: Runner | Source | Sequence[Source],
    prompt: str,
    *,
    max_new: int = 64,
    max_calls: int = 8,
    max_attempts: int = 3,
    argument_tokens: int = 128,
) -> ToolkenOutput:
    """Continue `prompt` greedily over the vocabulary and the toolkens of `head`.

    Calls run through the runtime: `tools` is a `Runner`, or sources of tools for a new one. A call that fails leaves no
    trace in the text: the next best token is used, and after `max_attempts` failures at one position no toolken. A
    generation has at most `max_calls` calls, failed ones included, and `max_new` tokens, results included. Raise
    ConfigError if a limit is out of range.
    """
    if max_new < 1 or max_calls < 0 or max_attempts < 1:
        raise ConfigError(
            f"limits must be positive, got max_new={max_new}, max_calls={max_calls}, max_attempts={max_attempts}"
        )
    head.require_model(lm)
    runner = tools if isinstance(tools, Runner) else Runner(*_sources(tools), keeps_outputs=False)
    try:
        head.require_tools(runner.box.tools)
        with torch.no_grad():
            return _ToolkenGeneration(lm, head, runner, prompt, argument_tokens).run(max_new, max_calls, max_attempts)
    finally:
        if runner is not tools:
            runner.close()


def _sources(tools: Any) -> tuple[Source, ...]:
    return tuple(tools) if isinstance(tools, list | tuple) else (tools,)


class _ToolkenGeneration:
    def __init__(self, lm: LanguageModel, head: ToolkenHead, runner: Runner, prompt: str, argument_tokens: int) -> None:
        self._lm = lm
        self._head = head
        self._runner = runner
        self._prompt = prompt
        self._tokens: list[int] = []
        self._calls: list[ToolkenCall] = []
        self._failed: list[ToolkenCall] = []
        self._run_calls: list[ToolCall] = []  # as the runtime received them
        self._writer: ArgumentWriter | None = None
        self._argument_tokens = argument_tokens
        self._reader = StateReader(lm)
        self._is_after_result = False
        self._digits: torch.Tensor | None = None

    def run(self, max_new: int, max_calls: int, max_attempts: int) -> ToolkenOutput:
        """Generate up to `max_new` tokens, with calls as toolkens choose them, and return text and calls.

        No call follows a result directly, nor after `max_calls`. Raises `ConfigError` for an empty prompt.
        """
        given = self._lm.encode(self._prompt)
        if not given:
            raise ConfigError("the prompt is empty", hint="begin the text that the model continues")
        state = self._reader.read(given)
        while len(self._tokens) < max_new:
            attempts = 0 if self._is_after_result or len(self._calls) + len(self._failed) >= max_calls else max_attempts
            chosen = self._choose(state, attempts)
            if chosen == [self._lm.end_token]:
                return self._output("end")
            chosen = chosen[: max_new - len(self._tokens)]
            self._tokens += chosen
            state = self._reader.read(chosen)
        return self._output("length")

    def _output(self, finish: Literal["end", "length"]) -> ToolkenOutput:
        return ToolkenOutput(
            self._lm.decode(self._tokens), tuple(self._calls), tuple(self._failed), finish, len(self._tokens)
        )

    def _choose(self, state: torch.Tensor, attempts: int) -> list[int]:
        """Return the next tokens: a token of the vocabulary, or the result of a call.

        A failed call excludes its toolken, up to `attempts` times. After a result that ends with a digit, no digit may
        follow, which would change the number.
        """
        words = self._lm.word_logits(state)
        if self._is_after_result:
            words = self._without_digits(words)
        size = words.shape[-1]
        logits = self._head(state.to(self._head.W_T.weight.device), words.to(self._head.W_T.weight.device))[0]
        for _ in range(attempts):
            best = int(logits.argmax())
            if best < size:
                break
            result = self._call(best - size)
            if result is not None:
                self._is_after_result = True
                return result
            logits[best] = -torch.inf
        self._is_after_result = False
        return [int(logits[:size].argmax())]

    def _call(self, number: int) -> list[int] | None:
        """Run a call, record it, and return the tokens of its result, or None if it failed.

        Raises `MissingExtra`, which no other call could avoid.
        """
        described = self._head.tools[number]
        text = self._prompt + self._lm.decode(self._tokens)
        position = len(text) - len(self._prompt)
        entry = self._runner.box.find(described.name)
        arguments: Object | None = None
        try:
            if self._writer is None:
                self._writer = ArgumentWriter(self._lm, max_tokens=self._argument_tokens)
            if entry is None:
                raise ConfigError(f"the tool {described.name!r} was removed")
            arguments = self._writer.write(entry.tool, described.examples, text)
            call = ToolCall(f"toolken_{len(self._calls) + len(self._failed)}", described.name, arguments)
            [result] = self._runner.run_sync([call], earlier=self._run_calls)
        except MissingExtra:
            raise
        except ToolwireError as error:
            self._failed.append(ToolkenCall(described.name, position, arguments, error=str(error)))
            return None
        self._run_calls.append(call)
        found = line_of_result(result.text)
        if result.is_error or not found:
            reason = found or "the tool returned no text"
            self._failed.append(ToolkenCall(described.name, position, arguments, error=reason))
            return None
        self._calls.append(ToolkenCall(described.name, position, arguments, found))
        return self._lm.encode(found if _ends_open(text) else f" {found}", is_data=True)

    def _without_digits(self, logits: torch.Tensor) -> torch.Tensor:
        """Exclude tokens that begin with a digit, which would change the number that a tool returned."""
        if not self._calls or not (self._calls[-1].result or "")[-1:].isdigit():
            return logits
        if self._digits is None:
            numbers = [number for token, number in self._lm.tokenizer.get_vocab().items() if token[:1].isdigit()]
            self._digits = torch.tensor(sorted(numbers), dtype=torch.long, device=logits.device)
        return logits.index_fill(-1, self._digits, -torch.inf)


def _ends_open(text: str) -> bool:
    """Return whether a result follows `text` without a space."""
    return not text or text[-1].isspace() or text[-1] in _NEEDS_NO_SPACE
