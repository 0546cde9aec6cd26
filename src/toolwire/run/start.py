"""Whether a function may begin, decided once: who wants to stop a call and who is about to run it may be two threads."""

from __future__ import annotations

__all__ = ["Start"]


class Start:
    """Either the function begins, or it is stopped for good: what is said first holds."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[str, bool] = {}

    def begin(self) -> bool:
        """False where it was stopped: then nothing may be run."""
        return self._said.setdefault("begins", True)  # in one go, whatever other threads do

    def stop(self) -> bool:
        """False where it has begun: then it is to be awaited."""
        return not self._said.setdefault("begins", False)
