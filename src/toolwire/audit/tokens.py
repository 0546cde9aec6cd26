"""Estimate the tokens of a declaration. It imitates how tokenizers split text, without using one."""

from __future__ import annotations

import re

from ..ir.text import dumps
from ..ir.tools import Tool
from ..wire import get

# words with their leading space, digits in groups of three, runs of punctuation
_PIECES = re.compile(r" ?[^\W\d_]+|\d{1,3}| ?[^\w\s]+|_+|\s+")
# of longer words, which vocabularies split into pieces; an estimate within the error of other tokenizers
_LETTERS_PER_TOKEN = 6
_MAX_SINGLE_TOKEN_LETTERS = 10  # longest word that counts as one token


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text: one per word of up to ten letters, else one per six letters."""
    pieces = _PIECES.findall(text)
    is_plain = text.isascii()
    return len(pieces) + sum(
        [_extra_tokens(piece) for piece in pieces if len(piece) > _MAX_SINGLE_TOKEN_LETTERS or not is_plain]
    )


def _extra_tokens(piece: str) -> int:
    """Count the tokens of a piece beyond the first."""
    letters = len(piece.strip())
    if piece.isascii():
        return 0 if letters <= _MAX_SINGLE_TOKEN_LETTERS else -(-letters // _LETTERS_PER_TOKEN) - 1
    return max(letters // 2, 1) - 1


def declaration_tokens(tool: Tool, wire: str) -> int:
    """Estimate the tokens of a tool's declaration on a wire."""
    written, _ = get(wire).encode_tools((tool,))
    return count_tokens(dumps(written[0])) if written else 0
