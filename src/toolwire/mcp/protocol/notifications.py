"""Notifications that belong to a request: its progress, its cancellation, and the log of its server."""

from __future__ import annotations

from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...wire.fields import read_number, read_optional_string, type_error
from .rpc import Notification, RequestId

PROGRESS = "notifications/progress"
CANCELLED = "notifications/cancelled"
LOG = "notifications/message"
DISCARDABLE = frozenset({PROGRESS, LOG})
"""Messages of momentary interest. They may be dropped under load."""
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Progress(Value, frozen=True):
    """`progress` grows with every message of one token; `total` may be unknown."""

    token: RequestId
    progress: float
    total: float | None = None
    message: str | None = None

    def to_notification(self) -> Notification:
        params: Object = {"progressToken": self.token, "progress": self.progress}
        if self.total is not None:
            params["total"] = self.total
        if self.message is not None:
            params["message"] = self.message
        return Notification(PROGRESS, params)


class Cancelled(Value, frozen=True):
    """The request was cancelled. No answer follows."""

    request_id: RequestId
    reason: str | None = None

    def to_notification(self) -> Notification:
        params: Object = {"requestId": self.request_id}
        if self.reason is not None:
            params["reason"] = self.reason
        return Notification(CANCELLED, params)


class LogMessage(Value, frozen=True):
    """A log line of the server. `logger` names the component that wrote it."""

    level: str
    data: JSON
    logger: str | None = None

    def to_notification(self) -> Notification:
        params: Object = {"level": self.level, "data": self.data}
        if self.logger is not None:
            params["logger"] = self.logger
        return Notification(LOG, params)


def is_level_enabled(level: str, minimum: str | None) -> bool:
    """Return True if `level` is at least `minimum`. A client that asked for no level gets no messages."""
    return minimum in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(minimum)


def read_progress(params: Object) -> Progress:
    token, done = _read_id(params, "progressToken"), read_number(params, "progress")
    if done is None:
        raise type_error("a number", None, "progress")
    return Progress(token, done, read_number(params, "total"), read_optional_string(params, "message"))


def read_cancelled(params: Object) -> Cancelled:
    return Cancelled(_read_id(params, "requestId"), read_optional_string(params, "reason"))


def read_log(params: Object) -> LogMessage:
    return LogMessage(
        read_optional_string(params, "level") or "info", params.get("data"), read_optional_string(params, "logger")
    )


def _read_id(params: Object, key: str) -> RequestId:
    value = params.get(key)
    if type(value) is str or type(value) is int:
        return value
    raise type_error("a string or an integer", value, key)
