"""Special tokens of models, which are never text, even if they open nothing.

Separate because these are pure functions of a text, without the state of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["begins_with_special_token", "remove_special_tokens"]

_SPECIAL = re.compile(r"<\|[^|>]*\|?>|<[^|<>]*\|>|<｜[^｜]*｜>")


def begins_with_special_token(text: str) -> bool:
    return _SPECIAL.match(text) is not None


def remove_special_tokens(text: str, noise: Iterable[str], markers: Iterable[str]) -> str:
    """Remove special tokens, `noise`, and those `markers` that contain a special token; keep all else byte for byte.

    >>> remove_special_tokens("<|open|>tools<|sep|>a < b<|sep|>", (), ("<|open|>tools<|sep|>", "<tag>"))
    'a < b'
    """
    tokens = [*noise, *filter(_SPECIAL.search, markers)]
    tokens.sort(key=len, reverse=True)
    return re.sub("|".join((*map(re.escape, tokens), _SPECIAL.pattern)), "", text)
