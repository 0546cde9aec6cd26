"""Exceptions that a tool raises to report how it failed. After any other exception the effect is unknown."""

from __future__ import annotations

__all__ = ["NotExecuted", "ToolError", "Transient"]


class ToolError(Exception):
    """The tool ran and refuses the request. The model reads the message and can try something else."""


class NotExecuted(Exception):
    """The call had no effect and will have none: it is safe to retry it. `retryable`: a retry may succeed."""

    def __init__(self, message: str = "", *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class Transient(Exception):
    """A temporary failure. `before_effect`: the call had no effect yet, so even a write may be retried."""

    def __init__(self, message: str = "", *, retry_after: float | None = None, before_effect: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.before_effect = before_effect
