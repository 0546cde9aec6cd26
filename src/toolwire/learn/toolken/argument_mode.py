"""Argument mode: the model writes the arguments of a call, with toolkens disabled and a mask of the tool's schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...ir.errors import ConfigError, ProtocolError
from ...ir.pointer import Object
from ...ir.tools import Tool
from ...stream.strict import parse
from ..generation import generate_tokens
from ..language_model import LanguageModel
from .head import ArgumentExample

__all__ = ["ArgumentWriter", "argument_prompt"]

_MAX_CONTEXT = 600  # characters of the text before a call
_MAX_EXAMPLES = 8


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
    """Writes arguments greedily. Masks are compiled once for each tool."""

    def __init__(self, model: LanguageModel, *, max_tokens: int = 128) -> None:
        if max_tokens < 2:
            raise ConfigError(f"the arguments of a call need at least 2 tokens, got {max_tokens}")
        self._model = model
        self._max_tokens = max_tokens
        self._tokenizer: Any = None
        self._masks: dict[str, Any] = {}

    def write(self, tool: Tool, examples: Sequence[ArgumentExample], text: str) -> Object:
        """Return arguments that match the tool's schema; UnfinishedOutput if they do not fit into the limit."""
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
        processor = MaskProcessor([state], len(prompt))
        [[tokens]] = generate_tokens(self._model, [prompt], max_tokens=self._max_tokens, processors=[processor])
        try:
            arguments = parse(self._model.decode(tokens))
        except ProtocolError:
            state.finish()  # raises UnfinishedOutput with the text
            raise
        if type(arguments) is not dict:
            raise ConfigError(f"the schema of {tool.name!r} does not describe an object")
        return arguments
