"""Recognise secrets by the names of their fields: `password`, `dbPassword`, `x-auth-token`, `aws_secret_access_key` …

Separate because these rules are independent of the documents in which the names occur. A name is judged by its end:
`token_count` and `password_policy` are no secrets, nor are tokens that mark a page or the limits of a text.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .redact import REMOVED

__all__ = ["is_plural_name", "is_secret_name", "remove_named_secrets"]

_MAX_NAME = 64  # characters at the end of a name that are read
_is_secret_end = re.compile(
    r".*(?:password|passwd|passphrase|pwd|secret|apikey|accesskey|secretkey|privatekey|signingkey|encryptionkey"
    r"|credential|authorization|cookie|token)s?(?:hash|value)?|auth"
).fullmatch
_is_harmless_token = re.compile(
    r".*(?:page|next|continuation|sync|eos|bos|pad|unk|sep|stop|special|start|end|max|min|per)tokens?"
).fullmatch
# Patterns for texts. The search for marks is cheap; the rest is tried only where a mark begins.
_find_marks = re.compile("passw|passphrase|pwd|secret|key|credential|authorization|cookie|token").finditer
_NAME_END = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret(?![_-]?(?:access[_-]?)?key)|credential|authorization|cookie"
    r"|(?<![pP]age)(?<![pP]age[_-])(?<![nN]ext[_-])token"
    + "".join(f"|(?<={word})key|(?<={word}[_-])key" for word in ("api", "access", "secret", "private", "signing"))
    + r")s?(?:[_-]?(?:hash|value))?"
)
_VALUES = (
    re.compile(rf"""(?i)({_NAME_END}\\?["']\s{{0,8}}:\s{{0,8}}\\?["'])[^"'\\]+"""),  # JSON that cannot be parsed
    re.compile(rf"""(?i)({_NAME_END}\s{{0,8}}=(?!=)\s{{0,8}}["']?)[^\s"'&,;]+"""),
)
_LINE = re.compile(rf"(?im)({_NAME_END}:[ \t]{{1,8}})[^\s\[\]{{}}]+$")  # YAML
_is_line_start = re.compile(r"[ \t-]*+[\w.-]*+").fullmatch
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


@lru_cache(4096)
def _normalise(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name[-_MAX_NAME:].lower())


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Return True for the name of a field that has a secret."""
    normal = _normalise(name)
    return _is_secret_end(normal) is not None and _is_harmless_token(normal) is None


def is_plural_name(name: str) -> bool:
    """Return True for names such as `tokens`: numbers under them are counts."""
    return _normalise(name).endswith("s")


def remove_named_secrets(text: str) -> str:
    """Remove the values after such names in a text: `"password": "…"`, `password=…`, and `password: …` as a line."""
    if "=" not in text and ":" not in text:
        return text
    pieces: list[str] = []
    start = 0
    for mark in _find_marks(text.translate(_ASCII_LOWER)):
        found = None if mark.start() < start else _match_value(text, mark.start())
        if found is not None:
            pieces += (text[start : found.end(1)], REMOVED)
            start = found.end()
    return "".join((*pieces, text[start:])) if pieces else text


def _match_value(text: str, position: int) -> re.Match[str] | None:
    """Match a name from here, and its value."""
    for pattern in _VALUES:
        found = pattern.match(text, position)
        if found is not None:
            return found
    found = _LINE.match(text, position)
    before = text[max(0, position - _MAX_NAME) : position]
    return found if found is not None and _is_line_start(before.rpartition("\n")[2]) else None
