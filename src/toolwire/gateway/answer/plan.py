"""The plan of one request: its targets in order, the time for all of them, and the step after a failure. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ...ir.response import Fault
from ...net.retry import RetryPolicy
from ...wire.faults import CONTEXT_LENGTH
from ..faults import IDLE_FAULT, is_gateway_fault
from ..routing import Router, Target

__all__ = ["AttemptPlan"]

_FAILOVER_KINDS = frozenset({"rate_limit", "overloaded", "timeout", "server", "not_found"})


class AttemptPlan(Struct, eq=False):
    """Targets are tried in turn, with a wait after each round over all of them, as the retry policy requires."""

    targets: Sequence[Target]
    _router: Router
    _clock: Callable[[], float]
    _attempts: int = 0
    deadline: float = 0.0  # by the clock
    overflow: Fault | None = None  # of a prompt that was too long for a target, for the client if no other one answers

    def __post_init__(self) -> None:
        # each target has its own timeout, so a slow one leaves enough time for the next
        deadline = self._clock()
        for target in self.targets:
            deadline += target.upstream.row.timeout
        self.deadline = deadline

    @property
    def idle_timeout(self) -> float:
        """The longest silence that any of the targets may keep, in seconds."""
        return max([target.upstream.row.idle for target in self.targets])

    def next_target(self) -> Target:
        attempts = self._attempts
        self._attempts = attempts + 1
        return self.targets[attempts % len(self.targets)]

    def _keep_larger(self, target: Target) -> float | None:
        """Keep only the targets that may accept a prompt which is too long for this one: next 0.0, or None if none may.

        The target works, so it starts no cooldown.
        """
        window, last = target.window, (self._attempts - 1) % len(self.targets)
        others = [*self.targets[last + 1 :], *self.targets[:last]]
        self.targets = [other for other in others if window is None or other.window is None or other.window > window]
        self._attempts = 0
        return 0.0 if self.targets else None

    def succeed(self, target: Target, *, failed_late: bool) -> None:
        """Note an answer. `failed_late`: the target failed after its first output."""
        if failed_late:
            self._router.start_cooldown(target)
        else:
            self._router.end_cooldown(target)

    def wait_after(self, fault: Fault, target: Target) -> float | None:
        """Return the seconds until the next attempt after a fault, or None: the fault is final, or the time is over."""
        if fault.code == CONTEXT_LENGTH:
            self.overflow = fault
            return self._keep_larger(target)
        if fault.kind not in _FAILOVER_KINDS and not is_gateway_fault(fault):
            return None
        self._router.start_cooldown(target, fault.retry_after)
        remaining = self.deadline - self._clock()
        if remaining <= 0:
            return None  # the next target would time out at once, and be in cooldown
        if self._attempts % len(self.targets):
            return 0.0
        if fault is IDLE_FAULT:
            return None  # it has used its time
        rounds = self._attempts // len(self.targets) - 1
        return RetryPolicy(target.upstream.row.retries).next_delay(fault, rounds, remaining)
