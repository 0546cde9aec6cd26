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
_IN_ONE = 10  # letters of a word that is one token


def count_tokens(text: str) -> int:
    """An estimate: words of up to ten letters are one token, longer ones a token for every six."""
    pieces = _PIECES.findall(text)
    is_plain = text.isascii()
    return len(pieces) + sum([_more(piece) for piece in pieces if len(piece) > _IN_ONE or not is_plain])


def _more(piece: str) -> int:
    """Tokens beyond the first."""
    letters = len(piece.strip())
    if piece.isascii():
        return 0 if letters <= _IN_ONE else -(-letters // _LETTERS_A_TOKEN) - 1
    return max(letters // 2, 1) - 1


def tokens_of(tool: Tool, wire: str) -> int:
    """The declaration of one tool on a wire."""
    written, _ = get(wire).encode_tools((tool,))
    return count_tokens(dumps(written[0])) if written else 0
