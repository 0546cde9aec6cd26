"""Secrets out of text, at the last moment before somebody sees it.

    redactor = Redactor(["the upstream's key"])
    redactor("Bearer abcdefghijk")                  # Bearer [removed]
    with redactor.guarding(): …                     # … and so for all that is logged under `toolwire`

What is known is removed wherever it stands, what looks like a key by its looks. Exceptions are logged as where and what kind,
without their words, which may quote a body.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = ["REMOVED", "Redactor"]

REMOVED = "[removed]"
_SHORTEST = 8  # characters; what is shorter is no secret, and is part of many words
_LOOKS = r"""
  (?P<bare>
    \b(?:sk|xai|pplx|nvapi|rk|pk)-[A-Za-z0-9_-]{8,}
  | \b(?:gsk|hf|r8|tgp|csk|fw)_[A-Za-z0-9_-]{16,}
  | \bAIza[0-9A-Za-z_-]{20,}
  | \bya29\.[0-9A-Za-z_.-]{10,}
  | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,}
  | \bxox[abeprs]-[A-Za-z0-9-]{10,}
  | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
  | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?
  | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
  )
| (?P<before>
    (?i:\b(?:bearer|basic)\s+)(?=[A-Za-z0-9._~+/=-]{8,})
  | (?i:[?&'"](?:key|api_key|apikey|token|access_token)=)
  | (?i:\b(?:x-api-key|x-goog-api-key|api-key|api_key|proxy-authorization|authorization|set-cookie|cookie)["']?\s*[:=]\s*["']?)
    (?!\s*(?i:bearer|basic)\s)
  | ://[^/\s:@"']*:(?=[^/\s@"']+@)
  )[^\s"'&,;@]+
"""
_FIND = re.compile(_LOOKS, re.VERBOSE | re.DOTALL)
# quick to look for; where none of them is, nothing looks like a key
_MARKS = tuple(
    "sk- rk- pk- xai- pplx- nvapi- gsk_ hf_ r8_ tgp_ csk_ fw_ AIza ya29. gh github_pat_ xox AKIA ASIA eyJ".split()
)
_MARKS_IN_LOWER_CASE = ("bearer", "basic", "key", "token", "authorization", "cookie", "://")


class Redactor:
    """`secrets` are known, `patterns` are regular expressions for more that is to go."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._patterns = tuple(patterns)
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """More that nobody may see. What was known stays known: it may still be in somebody's hands."""
        self._secrets |= {secret for secret in secrets if len(secret) >= _SHORTEST}
        known = [re.escape(secret) for secret in sorted(self._secrets, key=len, reverse=True)]
        more = "|".join(f"(?:{one})" for one in (*known, *self._patterns))
        self._known = re.compile(more, re.DOTALL) if more else None

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """One that knows more, for a single request."""
        return Redactor({*self._secrets, *secrets}, self._patterns)

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        lower = text.lower()
        if any(map(text.__contains__, _MARKS)) or any(map(lower.__contains__, _MARKS_IN_LOWER_CASE)):
            return _FIND.sub(_replacement, text)
        return text

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """All loggers under `toolwire`, whoever listens to them; and what the server says of a request."""
        ours = logging.getLogger("toolwire")
        guard = _Guard(self)
        servers = [logging.getLogger(name) for name in ("uvicorn.access", "uvicorn.error", "uvicorn.asgi", "asyncio")]
        ours.handlers.insert(0, guard)  # before anybody else sees a record, those of the root logger included
        for server in servers:
            server.addFilter(self.filter)
        try:
            yield
        finally:
            ours.removeHandler(guard)
            for server in servers:
                server.removeFilter(self.filter)

    def filter(self, record: logging.LogRecord) -> bool:
        """A filter of `logging`: the record is changed, so that every handler behind sees what is left."""
        if getattr(record, "clean", False):
            return True
        said = record.getMessage()
        cleaned = self(said)
        if cleaned != said:
            record.msg, record.args = cleaned, None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = _outline(record.exc_info[1])
            record.exc_info = None
        return True


class _Guard(logging.Handler):
    """Says nothing itself."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def handle(self, record: logging.LogRecord) -> bool:
        return self._redactor.filter(record)


def _replacement(match: re.Match[str]) -> str:
    return (match["before"] or "") + REMOVED


def _outline(error: BaseException) -> str:
    lines: list[str] = []
    for one in _chain(error):
        lines += ["Traceback (most recent call last):\n", *traceback.format_tb(one.__traceback__)]
        lines.append(f"{type(one).__module__}.{type(one).__qualname__}\n")
    return "".join(lines).rstrip()


def _chain(error: BaseException) -> list[BaseException]:
    """The first cause first."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found[::-1]
