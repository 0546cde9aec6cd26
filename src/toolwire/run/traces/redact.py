"""Remove secrets from text, immediately before it is shown or written.

    redactor = Redactor(["the upstream's key"])
    redactor("Bearer abcdefghijk")                  # Bearer [removed]
    with redactor.install(): …                      # the same for everything logged under `toolwire`

Known secrets are removed wherever they occur, other keys are recognised by their shape. Exceptions are logged with
their traceback and type, without their message, which may quote a body.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

REMOVED = "[removed]"
_SERVER_LOGGERS = ("uvicorn.access", "uvicorn.error", "uvicorn.asgi", "asyncio")
_MIN_SECRET_LENGTH = 8  # characters; a shorter text is not a secret, and is part of many other texts
_MAX_TEMPORARY = 64  # access tokens; each is valid for an hour or so
_WORD = "[A-Za-z0-9_-]"
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_|$)"
).search


class _SecretPattern(NamedTuple):
    """The shape of a secret. `mark` is quick to search for, and in lower case if case does not matter."""

    mark: str
    regex: re.Pattern[str]
    replacement: str
    ignore_case: bool = False


def _prefix_pattern(mark: str, rest: str) -> _SecretPattern:
    """Match a key with this prefix that no letter or digit precedes."""
    literal = re.escape(mark)  # first, so that it is searched for and not tried at every position
    return _SecretPattern(mark, re.compile(f"{literal}(?<![A-Za-z0-9]{literal}){rest}"), REMOVED)


def _marker_pattern(mark: str, prefix_pattern: str, value_pattern: str = r"""[^\s"'&,;@]+""") -> _SecretPattern:
    """Match a value after a prefix that stays."""
    return _SecretPattern(mark, re.compile(f"(?i)({prefix_pattern}){value_pattern}"), rf"\1{REMOVED}", ignore_case=True)


def _header_pattern(mark: str, name: str) -> _SecretPattern:
    return _marker_pattern(mark, rf"""{name}["']?\s{{0,8}}[:=]\s{{0,8}}["']?(?!\s{{0,8}}(?:bearer|basic)\s)""")


# Text is untrusted and may be crafted to be slow: no two of the repetitions here can match the same characters.
_SECRET_PATTERNS = (
    *(_prefix_pattern(mark, _WORD + "{8,}") for mark in ("sk-", "rk-", "pk-", "xai-", "pplx-", "nvapi-")),
    *(_prefix_pattern(mark, _WORD + "{16,}") for mark in ("gsk_", "hf_", "r8_", "tgp_", "csk_", "fw_", "github_pat_")),
    *(_prefix_pattern(f"gh{kind}_", "[A-Za-z0-9]{20,}") for kind in "pousr"),
    *(_prefix_pattern(f"xox{kind}-", "[A-Za-z0-9-]{10,}") for kind in "abeprs"),
    *(_prefix_pattern(mark, "[0-9A-Z]{16}(?![0-9A-Za-z])") for mark in ("AKIA", "ASIA")),
    _prefix_pattern("AIza", _WORD + "{20,}"),
    _prefix_pattern("ya29.", "[0-9A-Za-z_.-]{10,}"),
    _SecretPattern("eyJ", re.compile(rf"eyJ(?<!{_WORD}eyJ){_WORD}{{8,}}\.{_WORD}{{8,}}(?:\.{_WORD}*)?"), REMOVED),
    _SecretPattern(
        "-----BEGIN", re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)"), REMOVED
    ),
    *(_marker_pattern(mark, rf"\b{mark}\s{{1,8}}", "[A-Za-z0-9._~+/=-]{8,}") for mark in ("bearer", "basic")),
    _marker_pattern("key=", r"""[?&'"](?:key|api_key|apikey)="""),
    _marker_pattern("token=", r"""[?&'"](?:token|access_token)="""),
    _header_pattern("api-key", "(?:x-)?(?:goog-)?api-key"),
    _header_pattern("api_key", "api_key"),
    _header_pattern("authorization", "authorization"),
    _header_pattern("cookie", "cookie"),
    _marker_pattern("://", r"""://[^/\s:@"']*:""", r"""[^/\s@"']+(?=@)"""),
)


class Redactor:
    """A function that removes known `secrets`, key-like texts and matches of `patterns` (regular expressions)."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()  # the longest first: one may be the prefix of another
        self._temporary: deque[str] = deque(maxlen=_MAX_TEMPORARY)
        self._patterns = [re.compile(pattern, re.DOTALL) for pattern in patterns]
        self.add_secrets(secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Add secrets. The old ones stay known, because they may still be in use."""
        known = {*self._secrets, *(secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH)}
        self._secrets = tuple(sorted(known, key=len, reverse=True))

    def add_temporary_secret(self, secret: str) -> None:
        """Add a secret that expires, such as an access token. Only the latest ones are kept."""
        if len(secret) >= _MIN_SECRET_LENGTH and secret not in self._temporary:
            self._temporary.append(secret)

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """Return a redactor that knows more secrets, for a single request."""
        copy = Redactor((*self._secrets, *secrets))
        copy._temporary = self._temporary
        copy._patterns = self._patterns
        return copy

    def can_skip(self, text: str) -> bool:
        """Return True for a short text, such as the name of a field, that cannot contain a secret."""
        return len(text) < _MIN_SECRET_LENGTH and text.isalnum() and text.isascii() and not self._patterns

    def __call__(self, text: str) -> str:
        """Remove known secrets, the longest first, then custom patterns, then key-like texts.

        The cheap search for `mark` avoids most regular expressions.
        """
        for secret in sorted((*self._temporary, *self._secrets), key=len, reverse=True):
            text = text.replace(secret, REMOVED)
        for pattern in self._patterns:
            text = pattern.sub(REMOVED, text)
        lower = text.lower()
        for secret_pattern in _SECRET_PATTERNS:
            if secret_pattern.mark in (lower if secret_pattern.ignore_case else text):
                text = secret_pattern.regex.sub(secret_pattern.replacement, text)
        return text

    @contextmanager
    def install(self) -> Iterator[None]:
        """Redact all records of loggers under `toolwire` and of the HTTP server, until the context ends."""
        toolwire_logger = logging.getLogger("toolwire")
        handler = _RedactingHandler(self)
        # before any other handler sees a record, including handlers of the root logger
        toolwire_logger.handlers.insert(0, handler)
        # the handlers of these loggers run before the guard
        known = [name for name in logging.root.manager.loggerDict if f"{name}.".startswith("toolwire.")]
        loggers = [logging.getLogger(name) for name in (*known, *_SERVER_LOGGERS)]
        for logger in loggers:
            logger.addFilter(self.filter)
        try:
            yield
        finally:
            toolwire_logger.removeHandler(handler)
            for logger in loggers:
                logger.removeFilter(self.filter)

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place, once, so that all later handlers see only the redacted text; always return True.

        A filter of `logging`. The traceback is formatted here, because an exception cannot be redacted.
        """
        if getattr(record, "clean", False):
            return True
        message = record.getMessage()
        cleaned = self(message)
        if cleaned != message:
            record.msg, record.args = cleaned, None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = _format_traceback(record.exc_info[1])
            record.exc_info = None
        record.clean = True
        return True


def environment_secrets(environment: Mapping[str, str]) -> list[str]:
    """Return the values of environment variables whose names mark a secret, such as `OPENAI_API_KEY`."""
    return [value for name, value in environment.items() if _SECRET_VARIABLE(name.upper())]


class _RedactingHandler(logging.Handler):
    """A handler without output, which redacts records."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def handle(self, record: logging.LogRecord) -> bool:
        return self._redactor.filter(record)


def _format_traceback(error: BaseException) -> str:
    lines: list[str] = []
    for exception in _exception_chain(error):
        lines += ["Traceback (most recent call last):\n", *traceback.format_tb(exception.__traceback__)]
        lines.append(f"{type(exception).__module__}.{type(exception).__qualname__}\n")
    return "".join(lines).rstrip()


def _exception_chain(error: BaseException) -> list[BaseException]:
    """List an exception and its causes, the first cause first."""
    chain: list[BaseException] = []
    exception: BaseException | None = error
    while exception is not None and exception not in chain:
        chain.append(exception)
        exception = exception.__cause__ or (None if exception.__suppress_context__ else exception.__context__)
    return chain[::-1]
