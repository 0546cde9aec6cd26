"""Remove secrets from text, immediately before it is shown or written.

    redactor = Redactor(["the upstream's key"])
    redactor("Bearer abcdefghijk")                  # Bearer [removed]
    with redactor.guarding(): …                     # the same for everything logged under `toolwire`

Known secrets are removed wherever they occur, other keys are recognised by their shape. Exceptions are logged with
their traceback and type, without their message, which may quote a body.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["REMOVED", "Redactor"]

REMOVED = "[removed]"
_SERVERS = ("uvicorn.access", "uvicorn.error", "uvicorn.asgi", "asyncio")
_SHORTEST = 8  # characters; a shorter text is not a secret, and is part of many other texts
_WORD = "[A-Za-z0-9_-]"


class _SecretPattern(NamedTuple):
    """The shape of a secret. `mark` is quick to search for, and in lower case if case does not matter."""

    mark: str
    find: re.Pattern[str]
    leaves: str
    any_case: bool = False


def _prefix(mark: str, rest: str) -> _SecretPattern:
    """Match a key with this prefix, at the start of a word."""
    literal = re.escape(mark)  # first, so that it is searched for and not tried at every position
    return _SecretPattern(mark, re.compile(f"{literal}(?<![A-Za-z0-9]{literal}){rest}"), REMOVED)


def _after_marker(mark: str, before: str, then: str = r"""[^\s"'&,;@]+""") -> _SecretPattern:
    """Match a value after a prefix that stays."""
    return _SecretPattern(mark, re.compile(f"(?i)({before}){then}"), rf"\1{REMOVED}", any_case=True)


def _header(mark: str, name: str) -> _SecretPattern:
    return _after_marker(mark, rf"""{name}["']?\s{{0,8}}[:=]\s{{0,8}}["']?(?!\s{{0,8}}(?:bearer|basic)\s)""")


# Text is untrusted and may be crafted to be slow: no two of the repetitions here can match the same characters.
_SECRET_PATTERNS = (
    *(_prefix(mark, _WORD + "{8,}") for mark in ("sk-", "rk-", "pk-", "xai-", "pplx-", "nvapi-")),
    *(_prefix(mark, _WORD + "{16,}") for mark in ("gsk_", "hf_", "r8_", "tgp_", "csk_", "fw_", "github_pat_")),
    *(_prefix(f"gh{kind}_", "[A-Za-z0-9]{20,}") for kind in "pousr"),
    *(_prefix(f"xox{kind}-", "[A-Za-z0-9-]{10,}") for kind in "abeprs"),
    *(_prefix(mark, "[0-9A-Z]{16}(?![0-9A-Za-z])") for mark in ("AKIA", "ASIA")),
    _prefix("AIza", _WORD + "{20,}"),
    _prefix("ya29.", "[0-9A-Za-z_.-]{10,}"),
    _SecretPattern("eyJ", re.compile(rf"eyJ(?<!{_WORD}eyJ){_WORD}{{8,}}\.{_WORD}{{8,}}(?:\.{_WORD}*)?"), REMOVED),
    _SecretPattern(
        "-----BEGIN", re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)"), REMOVED
    ),
    *(_after_marker(mark, rf"\b{mark}\s{{1,8}}", "[A-Za-z0-9._~+/=-]{8,}") for mark in ("bearer", "basic")),
    _after_marker("key=", r"""[?&'"](?:key|api_key|apikey)="""),
    _after_marker("token=", r"""[?&'"](?:token|access_token)="""),
    _header("api-key", "(?:x-)?(?:goog-)?api-key"),
    _header("api_key", "api_key"),
    _header("authorization", "authorization"),
    _header("cookie", "cookie"),
    _after_marker("://", r"""://[^/\s:@"']*:""", r"""[^/\s@"']+(?=@)"""),
)


class Redactor:
    """A function that removes known `secrets`, key-like texts and matches of `patterns` (regular expressions)."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()  # the longest first: one may be the prefix of another
        self._patterns = [re.compile(pattern, re.DOTALL) for pattern in patterns]
        self.add_secrets(secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Add secrets. The old ones stay known, because they may still be in use."""
        known = {*self._secrets, *(secret for secret in secrets if len(secret) >= _SHORTEST)}
        self._secrets = tuple(sorted(known, key=len, reverse=True))

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """Return a redactor that knows more secrets, for a single request."""
        other = Redactor((*self._secrets, *secrets))
        other._patterns = self._patterns
        return other

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        for pattern in self._patterns:
            text = pattern.sub(REMOVED, text)
        lower = text.lower()
        for look in _SECRET_PATTERNS:
            if look.mark in (lower if look.any_case else text):
                text = look.find.sub(look.leaves, text)
        return text

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Redact all records of loggers under `toolwire`, for all handlers, and those of the HTTP server."""
        ours = logging.getLogger("toolwire")
        guard = _RedactingHandler(self)
        ours.handlers.insert(0, guard)  # before any other handler sees a record, including those of the root logger
        # the handlers of these loggers run before the guard
        known = [name for name in logging.root.manager.loggerDict if f"{name}.".startswith("toolwire.")]
        loggers = [logging.getLogger(name) for name in (*known, *_SERVERS)]
        for logger in loggers:
            logger.addFilter(self.filter)
        try:
            yield
        finally:
            ours.removeHandler(guard)
            for logger in loggers:
                logger.removeFilter(self.filter)

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place, as a filter of `logging`, so that all later handlers see only the redacted text."""
        if getattr(record, "clean", False):
            return True
        said = record.getMessage()
        cleaned = self(said)
        if cleaned != said:
            record.msg, record.args = cleaned, None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = _outline(record.exc_info[1])
            record.exc_info = None
        record.clean = True
        return True


class _RedactingHandler(logging.Handler):
    """A handler without output, which redacts records."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def handle(self, record: logging.LogRecord) -> bool:
        return self._redactor.filter(record)


def _outline(error: BaseException) -> str:
    lines: list[str] = []
    for one in _chain(error):
        lines += ["Traceback (most recent call last):\n", *traceback.format_tb(one.__traceback__)]
        lines.append(f"{type(one).__module__}.{type(one).__qualname__}\n")
    return "".join(lines).rstrip()


def _chain(error: BaseException) -> list[BaseException]:
    """List an exception and its causes, the first cause first."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found[::-1]
