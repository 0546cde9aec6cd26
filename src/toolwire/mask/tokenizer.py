"""Tokenizers for masks: the bytes of every token, the end token, and the number of rows of the output layer."""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import llguidance

from ..ir.errors import ConfigError
from ..ir.pointer import Object

_END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "[EOS]")
_MAX_ROWS = 2_000_000  # eight times the largest vocabularies (262,144); a mask row has one bit per token


class MaskTokenizer:
    """A tokenizer that is prepared for masks. Preparation takes about a second and is cached by content."""

    def __init__(self, engine: Any, definition: str = "") -> None:
        self.engine = engine
        self.vocabulary_size: int = engine.vocab_size
        """The number of rows of the output layer, which may exceed the number of tokens."""
        self.end_token: int = engine.eos_token
        self.width: int = (self.vocabulary_size + 31) // 32
        """The number of 32-bit integers of one mask."""
        self.definition = definition
        """The tokenizer as JSON, without padding and truncation."""

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, vocabulary_size: int | None = None, *, end_token: int | None = None
    ) -> MaskTokenizer:
        """Prepare a fast tokenizer of transformers, or a `tokenizers.Tokenizer`.

        `vocabulary_size` is the number of rows of the model's output layer, if it has more rows than tokens. Without
        `end_token`, the tokenizer's own end token is used, or else a common one of its vocabulary. ConfigError for a
        slow tokenizer, or if no end token is known.
        """
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            raise ConfigError(
                f"a fast tokenizer is required, got {type(tokenizer).__name__}",
                hint="pass a PreTrainedTokenizerFast or a tokenizers.Tokenizer",
            )
        definition = json.loads(backend.to_str())
        definition["padding"] = definition["truncation"] = None
        if end_token is None:
            end_token = getattr(tokenizer, "eos_token_id", None)
        if end_token is None:
            found = (backend.token_to_id(name) for name in _END_TOKENS)
            end_token = next((token for token in found if token is not None), None)
        return _prepare(json.dumps(definition, sort_keys=True), vocabulary_size, end_token)

    @classmethod
    def from_folder(cls, path: str | Path, vocabulary_size: int | None = None) -> MaskTokenizer:
        """Prepare the tokenizer of a model folder, or a `tokenizer.json` itself; ConfigError if there is none.

        The files beside it name the end token and the number of rows of the output layer.
        """
        folder = Path(path)
        file = folder if folder.is_file() else folder / "tokenizer.json"
        if not file.is_file():
            raise ConfigError(f"no tokenizer at {file}", hint="pass the folder of a model with a tokenizer.json")
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(file))
        settings = _read_settings(file.parent / "tokenizer_config.json")
        name = settings.get("eos_token")
        name = name.get("content") if isinstance(name, dict) else name
        end = tokenizer.token_to_id(name) if isinstance(name, str) else None
        rows = _read_settings(file.parent / "config.json").get("vocab_size")
        if vocabulary_size is None and isinstance(rows, int) and rows >= tokenizer.get_vocab_size():
            vocabulary_size = rows
        return cls.from_tokenizer(tokenizer, vocabulary_size, end_token=end)

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self.engine.tokenize_str(text)
        return tokens

    def decode(self, tokens: list[int]) -> str:
        text: str = self.engine.decode_str(tokens)
        return text

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes of each token; empty for special tokens and unused rows."""
        engine = self.engine
        return [
            b"" if engine.is_special_token(token) else engine.decode_bytes([token])
            for token in range(self.vocabulary_size)
        ]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _read_settings(file: Path) -> Object:
    """Return the object in a file, {} if there is none. Raise ConfigError if the file is not JSON."""
    if not file.is_file():
        return {}
    try:
        read = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    return read if isinstance(read, dict) else {}


@lru_cache(4)
def _prepare(definition: str, vocabulary_size: int | None, end_token: int | None) -> MaskTokenizer:
    """Build the engine's tokenizer from its JSON definition; ConfigError for an invalid size or definition."""
    if vocabulary_size is not None and not 0 < vocabulary_size <= _MAX_ROWS:
        raise ConfigError(f"vocabulary_size must be from 1 to {_MAX_ROWS:,}, got {vocabulary_size}")
    if end_token is None:
        raise ConfigError("the tokenizer has no end token", hint="pass end_token")
    try:
        engine = llguidance.LLTokenizer(definition, n_vocab=vocabulary_size, eos_token=end_token)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"the tokenizer cannot be used for masks: {error}") from None
    return MaskTokenizer(engine, definition)
