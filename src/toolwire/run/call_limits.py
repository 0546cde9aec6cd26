"""The limits of a budget on the calls of one response.

Separate because two places apply them: the session to a complete response, and a stream to each call that it could
start before the response is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..ir.parts import ToolCall
from .keys import call_identity, list_calls
from .run_state import Budget, RunState

__all__ = ["CallLimits"]


class CallLimits:
    """The number of calls that a run may still make, and how often it has made each one. The history does not count."""

    def __init__(self, budget: Budget, state: RunState) -> None:
        self._budget = budget
        self._remaining = None if budget.calls is None else budget.calls - state.calls
        self._counts = Counter(map(call_identity, list_calls(state.request.messages[state.first_message :])))

    def find_violation(self, calls: Sequence[ToolCall]) -> str:
        """Return the limit that the calls of a response exceed; an empty string if there is none."""
        if self._remaining is not None and len(calls) > self._remaining:
            return f"max calls reached ({self._budget.calls})"
        if any(map(self._is_repeated, calls)):
            return f"the model repeated the same call more than {self._budget.same_call} times"
        return ""

    def may_start(self, call: ToolCall, position: int) -> bool:
        """Return False for a call that exceeds a limit. `position`: the number of calls before it in the response."""
        return (self._remaining is None or position < self._remaining) and not self._is_repeated(call)

    def _is_repeated(self, call: ToolCall) -> bool:
        return self._counts[call_identity(call)] >= self._budget.same_call
