"""Decide once whether a function may begin: one thread may stop a call while another one is about to run it."""

from __future__ import annotations

__all__ = ["StartDecision"]


class StartDecision:
    """A one-time decision between begin and stop: the first call wins."""

    __slots__ = ("_decision",)

    def __init__(self) -> None:
        self._decision: dict[str, bool] = {}

    def begin(self) -> bool:
        """Begin. Return False if the call was stopped: the function must not run then."""
        return self._decision.setdefault("begins", True)  # setdefault is atomic between threads

    def stop(self) -> bool:
        """Stop. Return False if the function has begun: it must be awaited then."""
        return not self._decision.setdefault("begins", False)
