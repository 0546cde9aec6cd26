"""What a tool raises to say how it failed. Anything else that it raises is a failure whose effect is not known."""

from __future__ import annotations

__all__ = ["NotExecuted", "ToolError", "Transient"]


class ToolError(Exception):
    """The tool did its work and the answer is no: the model should read why, and try something else."""


class NotExecuted(Exception):
    """Nothing has happened yet, and nothing will: running the call again does no harm."""


class Transient(Exception):
    """It may work in a moment. `before_effect`: nothing has happened yet, so that even a write may be tried again."""

    def __init__(self, message: str = "", *, retry_after: float | None = None, before_effect: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.before_effect = before_effect
