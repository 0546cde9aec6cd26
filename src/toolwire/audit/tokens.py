"""About how many tokens a declaration costs: counted the way tokenizers cut text, without one."""

from __future__ import annotations

import re

from ..ir.text import dumps
from ..ir.tools import Tool
from ..wire import get

__all__ = ["count_tokens", "tokens_of"]

# words with the space before them, numbers in threes, runs of punctuation
_PIECES = re.compile(r" ?[^\W\d_]+|\d{1,3}| ?[^\w\s]+|_+|\s+")
_LETTERS_A_TOKEN = 6


def count_tokens(text: str) -> int:
    """An estimate: words of up to ten letters are one token, longer ones a token for every six."""
    total = 0
    for piece in _PIECES.findall(text):
        letters = len(piece.strip())
        if piece.isascii():
            total += 1 if letters <= _LETTERS_A_TOKEN + 4 else -(-letters // _LETTERS_A_TOKEN)
        else:
            total += max(letters // 2, 1)
    return total


def tokens_of(tool: Tool, wire: str) -> int:
    """The declaration of one tool on a wire."""
    written, _ = get(wire).encode_tools((tool,))
    return count_tokens(dumps(written[0])) if written else 0
