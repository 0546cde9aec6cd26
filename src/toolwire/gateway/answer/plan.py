"""The plan of one request: its targets in order, the time for all of them, and the step after a failure. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ...ir.response import Fault
from ...net.model.health import TargetHealth
from ...net.model.upstream_exchange import RetryPolicy
from ...wire.faults import CONTEXT_LENGTH
from ..faults import IDLE_FAULT, UPSTREAM_BUSY, is_gateway_fault
from ..routing import Router, Target

__all__ = ["AttemptPlan"]

_FAILOVER_KINDS = frozenset({"rate_limit", "overloaded", "timeout", "server", "not_found"})
_MAX_DELAY = 2.0
"""Seconds before a retry, also if the upstream demands them. A client that gets a longer `retry-after` itself can decide
what to do, and holds no connection meanwhile."""
_LATE_FAULT = Fault("server", "the stream failed after its first output", 502)


class AttemptPlan(Struct, eq=False):
    """Targets are tried in turn, with a wait after each round over all of them, as their health and the budget allow."""

    targets: Sequence[Target]
    _router: Router
    _clock: Callable[[], float]
    _tried: int = 0  # targets of this round
    _rounds: int = 0  # that are over
    deadline: float = 0.0  # by the clock
    sent_at: float = 0.0  # time of the current attempt
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

    @property
    def has_other_target(self) -> bool:
        """True if another target could answer instead of the current one, which two models may share."""
        current = self.targets[self._tried - 1].health
        return any(
            other.health.state != "open" and other.health is not current for other in self.targets[self._tried :]
        )

    def next_target(self) -> Target | None:
        """Return the next target of this round that admits the request, or None if there is none.

        Targets are in the order of preference. Those that are failing are a last resort.
        """
        self.sent_at = now = self._clock()
        first = self.targets[0]
        if not self._tried and not self._rounds and first.health.state == "closed":  # as for most requests
            self._tried = 1
            first.health.budget.requests += 1
            return first
        untried = self.targets[self._tried :]
        for is_last_resort in (False, True):
            for number, target in enumerate(untried):
                health = target.health
                if self._admits(health, now, is_last_resort=is_last_resort):
                    if number:  # the targets before it stay for later
                        self.targets = [*self.targets[: self._tried], target, *untried[:number], *untried[number + 1 :]]
                    self._tried += 1
                    health.budget.requests += 1
                    return target
        for target in untried:
            self._router.probe_if_due(target)
        return None

    def _admits(self, health: TargetHealth, now: float, *, is_last_resort: bool) -> bool:
        """Return whether a target admits the request, and its budget a retry. `wait_after` has paid a round's first one.

        A trial that is admitted must be sent, so the budget is checked before.
        """
        if not self._rounds or not self._tried:
            return health.admit(now, is_last_resort=is_last_resort)
        may_retry = health.budget.may_retry(now) and health.admit(now, is_last_resort=is_last_resort)
        return may_retry and health.budget.take(now)

    def refusal(self) -> Fault:
        """Return the fault of a request that no target admits: a rate limit, if that is the failure of all targets."""
        now = self._clock()
        seconds = max(min([target.health.retry_after(now) for target in self.targets], default=0.0), 1.0)
        if all(target.health.is_limited for target in self.targets):
            message = "every target of the model has reached its rate limit"
            return Fault("rate_limit", message, 429, "cooldown", retryable=True, retry_after=seconds)
        message = "every target of the model has failed, and is in cooldown"
        return Fault("overloaded", message, 503, "cooldown", retryable=True, retry_after=seconds)

    def _keep_larger(self, target: Target) -> float | None:
        """Keep only the targets that may accept a prompt which is too long for this one: next 0.0, or None if none may.

        The target works, so it starts no cooldown.
        """
        window = target.window
        others = [*self.targets[self._tried :], *self.targets[: self._tried - 1]]
        self.targets = [other for other in others if window is None or other.window is None or other.window > window]
        self._tried = 0
        return 0.0 if self.targets else None

    def succeed(self, target: Target, *, failed_late: bool) -> None:
        """Note an answer. `failed_late`: the target failed after its first output."""
        if failed_late:
            self._router.fail(target, self._clock(), _LATE_FAULT)
        else:
            self._router.succeed(target, self.sent_at)

    def wait_after(self, fault: Fault, target: Target) -> float | None:
        """Return the seconds until the next attempt after a fault, or None: the fault is final, or the time is over."""
        if fault.code == CONTEXT_LENGTH:  # no success: the gateway may have found it, and sent nothing
            self.overflow = fault
            return self._keep_larger(target)
        if fault.kind not in _FAILOVER_KINDS and not is_gateway_fault(fault):
            self._router.succeed(target, self.sent_at)  # it works, and refuses this request
            return None
        if fault.code != UPSTREAM_BUSY:  # which is no failure of the target
            self._router.fail(target, self.sent_at, fault)
        else:
            target.health.release_trial(self.sent_at)
        if self._clock() >= self.deadline:
            return None  # the next target would time out at once, and be in cooldown
        if self._tried < len(self.targets):
            return 0.0
        if fault is IDLE_FAULT or fault.code == UPSTREAM_BUSY:
            return None  # it has used its time, or the request has waited long enough for a connection
        return self._begin_round(fault, target, costs_budget=True)

    def wait_after_refusal(self, fault: Fault) -> float | None:
        """Return the seconds until the next round if no target admits a request that failed with `fault`, or None.

        A round in which nothing was sent has its retry left, so it costs the budget nothing more.
        """
        return self._begin_round(fault, self.targets[-1], costs_budget=bool(self._tried))

    def _begin_round(self, fault: Fault, target: Target, *, costs_budget: bool) -> float | None:
        now = self._clock()
        remaining = self.deadline - now
        policy = RetryPolicy(target.upstream.row.retries, max_delay=_MAX_DELAY)
        wait = policy.next_delay(fault, self._rounds, remaining)
        self._rounds += 1
        self._tried = 0
        if wait is not None and costs_budget and not self.targets[0].health.budget.take(now):
            return None
        return wait
