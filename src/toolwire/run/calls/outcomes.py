"""Classify the outcome of a function: the result that the model reads, its effect, and whether to retry.

Temporary failures are recognised, so that calls that may be repeated are retried.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from typing import Any, Literal, TypeAlias

from ...ir.parts import ToolCall, ToolResult
from ...ir.tools import Effect
from ...ir.value import Value
from ..tools.function_tool import TransientRule
from ..values.results import annotate, error_text, exception_result, refusal, sized_result, unserialisable_result
from ..values.waiting import Suspended, suspend_call
from .context import NotExecuted, ToolError, Transient
from .steps import ArgumentMismatch, Failed, Returned, TimedOut

EffectState: TypeAlias = Literal["done", "unknown", "nothing"]
"""`done`: the function finished. `unknown`: the call may or may not have had an effect. `nothing`: it had none."""


def returned_result(call: ToolCall, value: Any) -> tuple[ToolResult, int | None]:
    """Return the result of a function that returned, and the upper bound of its length in characters if it is known."""
    if isinstance(value, Suspended):
        arguments = {} if call.arguments is None else call.arguments
        return suspend_call(call, arguments, value), None  # it ran, and does not run again
    try:
        return sized_result(call, value)
    except Exception as error:  # noqa: BLE001  # encoding a user-defined value may raise anything
        return unserialisable_result(call, error), None


def classify(
    call: ToolCall, effect: Effect, outcome: Returned | Failed | TimedOut | ArgumentMismatch
) -> tuple[ToolResult, EffectState]:
    """Return the result and the effect state of an outcome."""
    if isinstance(outcome, Returned):
        return returned_result(call, outcome.value)[0], "done"
    if isinstance(outcome, TimedOut):
        return _timeout_result(call, effect, outcome.seconds)
    if isinstance(outcome, ArgumentMismatch):
        message = f"Nothing was run: {outcome.message}. Call it again."
        return refusal(call, "invalid_arguments", message), "nothing"
    return _failure_result(call, effect, outcome.error)


def _timeout_result(call: ToolCall, effect: Effect, seconds: float) -> tuple[ToolResult, EffectState]:
    message = f"{call.name} did not finish within {seconds:g} seconds."
    if effect == "write":
        return refusal(call, "outcome_unknown", f"{message} It may have taken effect."), "unknown"
    suffix = " It changed nothing." if effect in ("pure", "read") else ""
    return refusal(call, "timeout", message + suffix), "nothing"


def _failure_result(call: ToolCall, effect: Effect, error: BaseException) -> tuple[ToolResult, EffectState]:
    """Classify an exception. A write that failed is unknown, unless the error guarantees that it had no effect."""
    if isinstance(error, ToolError):
        text = error_text(error, name=False) or "The tool refused."
        return annotate(call.result(text, is_error=True), code="failed"), "done"
    had_no_effect = isinstance(error, NotExecuted) or (isinstance(error, Transient) and error.before_effect)
    if had_no_effect or effect in ("pure", "read", "idempotent"):
        return exception_result(call, "failed", f"{call.name} failed", error), "nothing"
    message = f"{call.name} failed and may have taken effect before that"
    return exception_result(call, "outcome_unknown", message, error), "unknown"


# Recognise temporary failures, so that calls that may be repeated are retried.
#
# Tools use many HTTP clients. Their exceptions are recognised without importing the clients: by the package and name
# of their classes, and by the status and headers of the response that they carry. An exception that a tool wraps in
# another one is not inspected, because the author may have handled it; only a failed certificate check is looked for.


_STATUSES = frozenset({429, 502, 503, 504})
# Exceptions inside exceptions: requests wraps urllib3, which wraps the error of the socket; a cycle is possible.
_MAX_DEPTH = 4
_MAX_HEADER = 64  # characters of a Retry-After header; a date has 29

# (top-level package, class): httpx 0.28 and 2, httpcore 1, requests 2.34, urllib3 2.8, aiohttp 3.14, the standard library
_HTTPX_CLASSES = ("TimeoutException", "NetworkError", "RemoteProtocolError")
_TRANSIENT_CLASSES = frozenset(
    {(package, name) for package in ("httpx", "httpx2", "httpcore") for name in _HTTPX_CLASSES}
    | {("requests", name) for name in ("ConnectionError", "Timeout", "ChunkedEncodingError")}
    | {("urllib3", name) for name in ("TimeoutError", "ProtocolError", "IncompleteRead")}
    | {("aiohttp", name) for name in ("ClientConnectionError", "ClientPayloadError")}
    | {("http", name) for name in ("IncompleteRead", "RemoteDisconnected")}
    | {(package, "APIConnectionError") for package in ("openai", "anthropic")}
)
_PERMANENT_CLASSES = frozenset(
    {
        ("requests", "SSLError"),
        ("requests", "ProxyError"),
        ("aiohttp", "ClientSSLError"),
        ("aiohttp", "InvalidURL"),
        ("ssl", "SSLError"),
    }
)
_WRAPPERS = frozenset({("urllib", "URLError"), ("urllib3", "MaxRetryError")})  # their `reason` is the exception


class RetryAdvice(Value, frozen=True):
    """The call may be retried, after the delay that the server requested, if any."""

    after: float | None = None


def retry_advice(
    error: BaseException, effect: Effect, rule: TransientRule | None, now: Callable[[], float]
) -> RetryAdvice | None:
    """Return advice for a failure after which a retry does no harm; None for any other failure.

    A write may have had its effect before it failed. It is retried only if the exception guarantees the opposite.
    """
    if isinstance(error, ToolError):
        return None
    if isinstance(error, NotExecuted):
        return RetryAdvice() if error.retryable else None
    if isinstance(error, Transient):
        return RetryAdvice(error.retry_after) if effect != "write" or error.before_effect else None
    if effect == "write" or not isinstance(error, Exception):
        return None
    advice = find_transient(error, now)
    return RetryAdvice() if advice is None and _matches(rule, error) else advice


def find_transient(error: BaseException, now: Callable[[], float]) -> RetryAdvice | None:
    """Recognise a lost connection, a timeout, or a status 429, 502, 503 or 504; None for any other exception."""
    try:
        return _inspect(error, now)
    except Exception:  # noqa: BLE001  # attributes of an exception may be properties that raise anything
        return None


def _inspect(error: BaseException, now: Callable[[], float]) -> RetryAdvice | None:
    """Return advice for an HTTP status or an exception class that is known as transient, else None.

    Wrappers are followed to their reason. A TLS failure is permanent.
    """
    response = _http_response(error)
    if response is not None:
        status, headers = response
        return RetryAdvice(_retry_after(headers, now)) if status in _STATUSES else None
    for _ in range(_MAX_DEPTH):
        names = _class_names(error)
        if names & _WRAPPERS and isinstance(reason := getattr(error, "reason", None), BaseException):
            error = reason
            continue
        if names & _PERMANENT_CLASSES or _has_certificate_failure(error):
            return None
        is_transient = isinstance(error, (ConnectionError, TimeoutError)) or not names.isdisjoint(_TRANSIENT_CLASSES)
        return RetryAdvice() if is_transient else None
    return None


def _class_names(error: BaseException) -> frozenset[tuple[str, str]]:
    return frozenset((base.__module__.partition(".")[0], base.__name__) for base in type(error).__mro__)


def _http_response(error: BaseException) -> tuple[int, Any] | None:
    """Return the status and headers of the response that an exception carries, or None if it has none."""
    response = getattr(error, "response", None)
    holders = (response, error) if response is not None else (error,)
    for holder in holders:
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if type(status) is int:
                return status, getattr(holder, "headers", None) or getattr(error, "headers", None)
    if ("urllib", "HTTPError") in _class_names(error):
        return getattr(error, "code", 0), getattr(error, "headers", None)
    return None


def _has_certificate_failure(error: BaseException) -> bool:
    """Return True if a TLS error caused the exception: another attempt would end the same way."""
    cause: BaseException | None = error
    for _ in range(_MAX_DEPTH):
        if cause is None:
            return False
        if ("ssl", "SSLError") in _class_names(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _retry_after(headers: Any, now: Callable[[], float]) -> float | None:
    """Return the seconds of a Retry-After header, a number or an HTTP date (RFC 9110, 10.2.3), or None."""
    given = None
    for name in ("retry-after", "Retry-After"):
        given = given or (None if headers is None else headers.get(name))
    if not isinstance(given, str) or len(given) > _MAX_HEADER:
        return None
    with suppress(ValueError):
        seconds = float(given)
        return max(0.0, seconds) if isfinite(seconds) else None
    from datetime import UTC  # imported late: few calls fail with a date
    from email.utils import parsedate_to_datetime

    with suppress(ValueError, OverflowError):
        date = parsedate_to_datetime(given)
        date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now())
    return None


def _matches(rule: TransientRule | None, error: Exception) -> bool:
    """Return whether the tool's rule, exception classes or a function, declares a failure transient.

    A function that raises does not.
    """
    if rule is None:
        return False
    if isinstance(rule, type):
        return isinstance(error, rule)
    if not callable(rule):
        return isinstance(error, tuple(rule))
    try:
        return bool(rule(error))
    except Exception:  # noqa: BLE001  # a user-defined function
        return False
