"""Masks by xgrammar, for schemas whose every keyword it enforces; it silently ignores the others.

The matcher has the methods of llguidance's matcher that masks use. Compilation takes longer than with llguidance, and a
mask takes a tenth of the time.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import xgrammar
from numpy.typing import NDArray

from ..ir.errors import SchemaError
from ..ir.pointer import Object
from ..schema.lowering.conformance import violations
from .tokenizer import MaskTokenizer

_FIRST_PRINTABLE = 0x20  # smaller bytes are control characters, which JSON strings must escape (RFC 8259, 7)


def compile_xgrammar(schema: Object, tokenizer: MaskTokenizer) -> XgrammarMatcher:
    """Compile a decoding schema; SchemaError if xgrammar refuses it or would ignore one of its keywords."""
    problems = violations(schema, "xgrammar_output")
    if problems:
        raise SchemaError(f"xgrammar does not enforce this schema: {problems[0]}", hint="use the engine llguidance")
    text = msgspec.json.encode(schema).decode()
    try:
        compiled = _compiler(tokenizer).compile_json_schema(
            text, any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )
    except RuntimeError as error:
        raise SchemaError(f"xgrammar refused the schema: {str(error)[:300]}") from None
    return XgrammarMatcher(xgrammar.GrammarMatcher(compiled), _usable_tokens(tokenizer))


@lru_cache(4)
def _compiler(tokenizer: MaskTokenizer) -> Any:
    info = xgrammar.TokenizerInfo(
        tokenizer.token_bytes,
        vocab_type=xgrammar.VocabType.RAW,
        vocab_size=tokenizer.vocabulary_size,
        stop_token_ids=[tokenizer.end_token],
    )
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


@lru_cache(4)
def _usable_tokens(tokenizer: MaskTokenizer) -> NDArray[np.int32]:
    """Return the mask of all tokens without control characters.

    xgrammar 0.2.8 allows them in strings whose length is limited, where JSON does not. No other place on one line has any.
    """
    bits = np.zeros(tokenizer.width * 32, np.uint8)
    for token, text in enumerate(tokenizer.token_bytes):
        bits[token] = bool(text) and min(text) >= _FIRST_PRINTABLE
    bits[tokenizer.end_token] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


class XgrammarMatcher:
    """One output of a compiled grammar. It allows a subset of the tokens of the grammar (see `_usable_tokens`)."""

    __slots__ = ("_failed", "_matcher", "_stopped", "_usable")

    def __init__(self, matcher: Any, usable: NDArray[np.int32]) -> None:
        self._matcher = matcher
        self._usable = usable
        self._failed = False
        self._stopped: bool | None = None

    def deep_copy(self) -> XgrammarMatcher:
        copy = XgrammarMatcher(self._matcher.fork(), self._usable)
        copy._failed = self._failed
        return copy

    def consume_token(self, token: int) -> bool:
        self._stopped = None
        if self._failed or self._matcher.is_terminated() or not self._matcher.accept_token(token):
            self._failed = True
        return not self._failed

    def consume_tokens(self, tokens: list[int]) -> bool:
        return all(self.consume_token(token) for token in tokens)

    def validate_tokens(self, tokens: list[int]) -> int:
        """Return the number of tokens that may follow one after the other."""
        probe, count = self.deep_copy(), 0
        while count < len(tokens) and probe.consume_token(tokens[count]):
            count += 1
        return count

    def is_error(self) -> bool:
        return self._failed

    def get_error(self) -> str:
        return "a token was not allowed" if self._failed else ""

    def is_accepting(self) -> bool:
        return not self._failed and bool(self._matcher.is_completed())

    def is_stopped(self) -> bool:
        """Return True if only the end token may follow, or after an error."""
        if self._stopped is None:
            self._stopped = self._failed or (self.is_accepting() and self._allows_only_end())
        return self._stopped

    def _allows_only_end(self) -> bool:
        if self._matcher.is_terminated():
            return True
        row = np.zeros(self._usable.size, np.uint32)
        self.unsafe_compute_mask_ptr(row.ctypes.data, row.size * 4)
        return np.unpackbits(row.view(np.uint8)).sum() == 1  # type: ignore[no-any-return]

    def compute_ff_bytes(self) -> bytes:
        found: str = self._matcher.find_jump_forward_string()
        return found.encode()

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        """Write the mask of the next token to `size` bytes of memory."""
        memory = (ctypes.c_int32 * (size // 4)).from_address(address)
        row = np.ctypeslib.as_array(memory).reshape(1, -1)
        if not self._matcher.fill_next_token_bitmask(row):
            row[:] = -1
        row &= self._usable
