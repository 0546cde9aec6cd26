"""Estimate the tokens of a declaration. It imitates how tokenizers split text, without using one."""

from __future__ import annotations

import re

from ..ir.text import dumps
from ..ir.tools import Tool
from ..wire import get

__all__ = ["count_tokens", "tokens_of"]

# words with their leading space, digits in groups of three, runs of punctuation
_PIECES = re.compile(r" ?[^\W\d_]+|\d{1,3}| ?[^\w\s]+|_+|\s+")
_LETTERS_A_TOKEN = 6
_IN_ONE = 10  # longest word that counts as one token


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text: one per word of up to ten letters, else one per six letters."""
    pieces = _PIECES.findall(text)
    is_plain = text.isascii()
    return len(pieces) + sum([_more(piece) for piece in pieces if len(piece) > _IN_ONE or not is_plain])


def _more(piece: str) -> int:
    """Count the tokens of a piece beyond the first."""
    letters = len(piece.strip())
    if piece.isascii():
        return 0 if letters <= _IN_ONE else -(-letters // _LETTERS_A_TOKEN) - 1
    return max(letters // 2, 1) - 1


def tokens_of(tool: Tool, wire: str) -> int:
    """Estimate the tokens of a tool's declaration on a wire."""
    written, _ = get(wire).encode_tools((tool,))
    return count_tokens(dumps(written[0])) if written else 0
