"""Find characters that a person does not see and a model reads: tag characters, bidi controls, zero-width characters.

Separate because it is about Unicode, not about tools. Characters that scripts and emoji need are not reported.
"""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["describe_hidden", "strip_hidden"]

_TAGS = "\U000e0000-\U000e007f"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_KINDS = {
    "tag character": f"[{_TAGS}]",
    "bidirectional control": "[\u202a-\u202e\u2066-\u2069]",
    "zero-width character": "[\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff]",
    "variation selector": f"[{_SELECTORS}]{{2,}}",  # a single one belongs to the character before it
    "private-use character": "[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]",
    "soft hyphen": "\u00ad{2,}",  # a single one marks a place for a line break
    "invisible letter": "[\u115f\u1160\u3164\uffa0\u2800\ufff9-\ufffb]",
    "control character": "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]",
}
_HIDDEN = re.compile("|".join(f"({pattern})" for pattern in _KINDS.values()))
_NAMES = tuple(_KINDS)

# England, Scotland and Wales: a black flag, at most six tag letters, and the cancel tag
_EMOJI_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_EMOJI = "\u00a9\u00ae\u203c-\u3299\ufe0f\u20e3\U0001f000-\U0001faff"
# scripts with joining or breaking characters: Hebrew, Arabic, Syriac, Indic, Thai to Myanmar, Khmer, Mongolian
_SCRIPTS = "\u0590-\u08ff\u0900-\u109f\u1780-\u18af\ua840-\ua87f\ua8e0-\uaa7f\ufb1d-\ufdff\ufe70-\ufefc"
_JOINED = re.compile(f"(?<=[{_EMOJI}])\u200d(?=[{_EMOJI}])|(?<=[{_SCRIPTS}])[\u200b-\u200d]")
_SHOWN = 60


def describe_hidden(text: str) -> str:
    """Return the kinds and numbers of hidden characters, and the text of tag characters. Empty if there are none."""
    counts: Counter[str] = Counter()
    spelled: list[str] = []
    for found in _HIDDEN.finditer(_remove_needed(text)):
        assert found.lastindex is not None
        kind = _NAMES[found.lastindex - 1]
        counts[kind] += len(found.group())
        if kind == "tag character" and len(spelled) < _SHOWN:
            spelled.append(chr(ord(found.group()) - 0xE0000))
    kinds = ", ".join(f"{number} {kind}{'s' if number > 1 else ''}" for kind, number in counts.items())
    tags = "".join(letter for letter in spelled if letter.isprintable())
    return f"{kinds} that spell {tags!r}" if tags else kinds


def strip_hidden(text: str) -> str:
    """Return the text as a model that ignores hidden characters reads it."""
    return text if text.isascii() else _HIDDEN.sub("", text)


def _remove_needed(text: str) -> str:
    """Remove the sequences in which these characters have their documented use."""
    return text if text.isascii() else _JOINED.sub("", _EMOJI_FLAG.sub("", text.removeprefix("\ufeff")))
