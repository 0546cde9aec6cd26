"""Special tokens of models, which are never text, even if they open nothing.

Separate because these are pure functions of a text, without the state of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["HEAD", "begins_with_special_token", "remove_special_tokens"]

HEAD = r"[\w-]*+(?: ++[\w-]++=\"[^\"\n]*+\")*+ *+"
"""The name of a marker and its attributes: ` role="assistant" index="1"`."""
_FENCE = "```"  # a marker may contain the start of a code block, whose end remains
_SPECIAL = re.compile(r"<\|[^|>]*\|?>|<[^|<>]*\|>|<｜[^｜]*｜>")


def begins_with_special_token(text: str) -> bool:
    return _SPECIAL.match(text) is not None


def remove_special_tokens(
    text: str, noise: Iterable[str], markers: Iterable[str], heads: Iterable[tuple[str, str]] = ()
) -> str:
    """Remove special tokens, `noise`, and those `markers` that contain a special token; keep all else byte for byte.

    `heads`: tokens around the name and the attributes of a marker, which are removed with them.

    >>> remove_special_tokens("<|open|>tools<|sep|>a < b<|sep|>", (), ("<|open|>tools<|sep|>", "<tag>"))
    'a < b'
    """
    tokens = [*noise, *(marker for marker in markers if _SPECIAL.search(marker) and _FENCE not in marker)]
    tokens.sort(key=len, reverse=True)
    whole = [f"{re.escape(opening)}{HEAD}{re.escape(closing)}" for opening, closing in heads]
    return re.sub("|".join((*whole, *map(re.escape, tokens), _SPECIAL.pattern)), "", text)
