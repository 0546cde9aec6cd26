"""The health of a target: which requests may be sent to it, and which events change that. No I/O and no clock here.

A target is a model at an upstream. The gateway has a `TargetHealth` for each, a `ModelClient` has one. The driver passes
the time to every method, reports the outcome of every request, and sends the probes that are due.

    state       requests that are admitted                   next state
    ─────────   ──────────────────────────────────────────   ─────────────────────────────────────────────────────────
    closed      all                                          cooling: a failure; open: an unanswered probe
    cooling     those without another target                 open: the 5th failure in a row; closed: a success;
                                                             half-open: the cooldown is over
    open        none; without another target, a trial a      half-open: a trial or a probe is sent
                second, unless the target demanded a wait
    half-open   one trial at a time; after few failures or   closed: the trial succeeds, or the probe is answered and
                an answered probe also those without         may close it; cooling or open: it fails
                another target

Why two states after a failure: with another target, the first failure is reason enough to prefer that one. Without
another target, refusing everyone for ten seconds because of one status 500 would be worse than the failure. Only a
target that does nothing but fail is refused to everyone. Requests that were sent before the last change of the state
are evidence about the time before it: they neither open nor close anything, but a success ends the row of failures.

Why trials and probes: a trial is a client's request, a probe is a request of our own for the list of models. A target
that was silent is probed, because a trial could hang as well. A target that answered with an error gets a trial, because
the list of models may work while the model does not. A trial without a verdict after `SLOW_TRIAL` seconds may be a whole
answer that takes minutes: an answered probe is then enough, and so is `TRIAL_SECONDS` where no probe is possible.

A server whose model is stuck still answers probes, and a proxy may need a minute for its status 504. So a probe closes a
target once, and again only after a success, or after a probe without an answer. A timeout of the model itself counts as
the first time. Otherwise the answered probe admits a trial, and requests without another target.

A whole answer has no byte before it is complete. So a target hangs only if none of its requests got a byte for
`silence` seconds while some wait, and a probe is not answered either. Then `report_probe` returns the waiting requests,
which the driver sends elsewhere. A request that is merely slow is never sent twice. A new TCP connection is no sign of
life, because the kernel accepts connections for a process that hangs.

A client that leaves before the first byte may be impatient, or the target may hang. Departures count only if nothing at
all came from the target since the request was sent, and only after `DEPARTURES` of them with no byte in between. They
never make a target open by themselves, so no client can take it from everyone.
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Literal, TypeAlias

HealthState: TypeAlias = Literal["closed", "cooling", "open", "half-open"]

MAX_COOLDOWN = 60.0
"""Seconds of cooldown that a target can demand. Longer demands (`retry-after: 3600`) often apply to a single client
or come from a proxy, and a trial a minute does no harm."""
FAILURE_LIMIT = 5  # failures in a row; a target that fails every second request reaches it in 3 % of the cases
# Seconds between trials of a target that is the only one, for each process: together they send half of the 2 a second that
# are allowed. The cooldowns of several processes end within as many seconds.
TRIAL_INTERVAL = 1.0
_MAX_SPREAD = 5.0  # seconds; with more processes, traffic would return too late after a cooldown
TRIAL_SECONDS = 5.0  # for the verdict of a trial; then another one is admitted
SLOW_TRIAL = 2.0  # seconds; errors of providers come faster than that
DEPARTURES = 3  # of clients, in a row: a person who cancels twice does not make a target suspect
MIN_WAIT = 2.0  # seconds before a departure counts; people cancel faster than that for their own reasons
_BUDGET_PER_SECOND = 3.0  # retries a second that are always allowed, so that a target with little traffic has some
_MAX_SAVED_RETRIES = 30.0  # the burst after a quiet time: ten seconds of the rate above


class RetryBudget:
    """The retries that the targets of an upstream may get: a share of its traffic, and a few a second in any case.

    A request for another target, which has not seen it yet, is no retry. `requests` counts those that the upstream got.
    `processes`: the number of processes that share the retries which are always allowed.
    """

    __slots__ = ("_filled_at", "_saved", "_settled", "processes", "ratio", "refused", "requests")

    # A failing upstream gets at most 20 % more requests; Finagle's default retry budget.
    def __init__(self, ratio: float = 0.2) -> None:
        self.ratio = ratio
        self.processes = 1
        self.requests = 0
        self.refused = 0  # retries
        self._settled = 0  # requests whose share is in the budget
        self._saved = _MAX_SAVED_RETRIES
        self._filled_at: float | None = None

    def may_retry(self, now: float) -> bool:
        """Add the retries earned since the last call, and return whether a retry may be sent. A refusal is counted."""
        elapsed = 0.0 if self._filled_at is None else now - self._filled_at
        earned = elapsed * _BUDGET_PER_SECOND / self.processes + (self.requests - self._settled) * self.ratio
        self._saved = min(self._saved + earned, max(_MAX_SAVED_RETRIES / self.processes, 1.0))
        self._filled_at, self._settled = now, self.requests
        if self._saved < 1.0:
            self.refused += 1
        return self._saved >= 1.0

    def take(self, now: float) -> bool:
        """Take a retry from the budget, and return whether there was one. The driver then sends it."""
        if not self.may_retry(now):
            return False
        self._saved -= 1.0
        return True


class TargetHealth:
    """The state of a target. `cooldown` is in seconds; 0 turns the states off.

    Set `is_heard` for every byte that arrives. `can_probe`: the driver sends the probes that are due. `processes`: the
    number of processes that send trials and probes to the target, each by its own state.
    """

    __slots__ = (
        "_departures",
        "_failures",
        "_heard_at",
        "_is_probing",
        "_is_silent",
        "_is_suspected",
        "_is_unproven",
        "_next_trial",
        "_probe_at",
        "_random",
        "_since",
        "_trial_at",
        "_until",
        "_waiting",
        "_waiting_since",
        "budget",
        "can_probe",
        "cooldown",
        "is_heard",
        "is_limited",
        "processes",
        "state",
    )

    def __init__(
        self,
        cooldown: float = 10.0,  # seconds; a restart or a short rate limit is over by then
        *,
        budget: RetryBudget | None = None,
        can_probe: bool = False,
        random: Random | None = None,
    ) -> None:
        self.state: HealthState = "closed"
        self.cooldown = cooldown
        self.budget = RetryBudget() if budget is None else budget
        self.can_probe = can_probe
        self.processes = 1
        self.is_heard = False
        self.is_limited = False  # the last failure was a rate limit
        self._random = random or Random()
        self._failures = 0  # in a row
        self._since = float("-inf")  # time of the last change of the state
        self._until = 0.0  # end of the cooldown
        self._next_trial = 0.0  # time of the next trial, at the earliest
        self._trial_at: float | None = None  # time of the trial without a verdict
        self._is_silent = False  # the target failed by silence
        self._is_unproven = False  # no success since a timeout, or since a probe closed it
        self._is_probing = False
        self._probe_at = 0.0  # time of the last probe
        self._is_suspected = False  # clients left without a byte
        self._waiting: dict[Hashable, None] = {}  # requests without a byte that could go to another target
        self._waiting_since = 0.0
        self._heard_at = float("-inf")
        self._departures = 0  # in a row, without a byte

    # before a request

    @property
    def cooldown_end(self) -> float:
        """The time at which the cooldown ends; 0.0 for a closed target."""
        return 0.0 if self.state == "closed" else self._until

    @property
    def is_healthy(self) -> bool:
        """True if another success would change nothing."""
        return self.state == "closed" and not self._failures and not self._is_unproven

    def is_preferred(self, now: float) -> bool:
        """Return whether a request would be admitted although there is another target. Nothing changes."""
        if self.state == "closed":
            return True
        is_left_to_probe = self._is_probing or (self._is_silent and self.can_probe)
        return now >= self._until and now >= self._next_trial and not is_left_to_probe

    def admit(self, now: float, *, is_last_resort: bool) -> bool:
        """Return whether a request may be sent. `is_last_resort`: no other target admits it.

        A request that is admitted as a trial makes the target half-open, and postpones the next trial.
        """
        if self.state == "closed":
            return True
        if self._is_trial_over(now) and self._trust_probe():
            return True
        if is_last_resort and self._failures < FAILURE_LIMIT:
            return True
        if not (self.is_preferred(now) or (is_last_resort and now >= self._next_trial)):
            return False
        if self.state != "half-open":
            # Otherwise the state is not changed: the outcomes of earlier trials, which may take longer than an interval,
            # would count as sent before the change.
            self._change("half-open", now)
        self._trial_at, self._next_trial = now, now + max(TRIAL_SECONDS, TRIAL_INTERVAL * self.processes)
        return True

    def release_trial(self, sent_at: float) -> None:
        """Note that a request was not sent: if it was admitted as a trial, it would count as a slow answer."""
        if self._trial_at == sent_at:
            self._trial_at, self._next_trial = None, sent_at

    def retry_after(self, now: float) -> float:
        """Return the seconds until a request without another target may be admitted."""
        return max(self._next_trial - now, 0.0)

    def _is_trial_over(self, now: float) -> bool:
        return not self.can_probe and self._trial_at is not None and now >= self._trial_at + TRIAL_SECONDS

    # the outcome of a request

    def succeed(self, now: float, sent_at: float) -> None:
        """Note the answer to a request. It ends the failures in a row, and closes the target if it was sent recently.

        `sent_at` is the time of the request: before the last change of the state, it closes nothing.
        """
        if self._failures:
            self._failures = 0
            if self.state == "open":
                self.state = "cooling"
        if sent_at >= self._since:
            self._is_unproven = False
            if self.state != "closed":
                self._close(now)

    def fail(
        self,
        now: float,
        sent_at: float,
        *,
        retry_after: float | None = None,
        is_silent: bool = False,
        is_timeout: bool = False,
        is_refusal: bool = False,
    ) -> None:
        """Note a failure, and start a cooldown.

        A request that was sent before the last change of the state only adds to the failures of a cooldown. `retry_after`: the wait that the target demands. `is_silent`: there was no answer at all.

        `is_timeout`: the model did not answer in time, although the server may work otherwise. `is_refusal`: the server
        works, but refuses our key, or has no such model or file. A client can cause that, so it never opens the target.
        """
        if not self.cooldown:
            return
        is_stale = sent_at < self._since
        if is_stale and (self.state == "closed" or self.state == "half-open"):
            return
        self._failures = 0 if is_refusal else self._failures + 1
        if is_stale:
            self.state = "open" if self._failures >= FAILURE_LIMIT else "cooling"
            return
        self._start_cooldown(now, self.cooldown if retry_after is None else min(retry_after, MAX_COOLDOWN))
        if retry_after is not None:
            self._next_trial = max(self._next_trial, self._until)
        self._is_silent = is_silent
        self._is_unproven |= is_timeout

    def depart(self, now: float, sent_at: float, *, is_stream: bool) -> None:
        """Note that a client left before the first byte of its answer. A trial without a verdict ends.

        After several departures in a row, a cooldown starts for a stream; otherwise a probe becomes due.
        """
        self._note_bytes(now)
        if self._trial_at is not None:
            # The client may have sent the trial, which has no verdict then.
            self._trial_at, self._next_trial = None, now + TRIAL_INTERVAL / 2 * self.processes
        if now - sent_at < MIN_WAIT or self._heard_at >= sent_at or not self.cooldown:
            return
        self._departures += 1
        if self._departures < DEPARTURES:
            return
        self._departures = 0
        if is_stream:  # whose first event comes early
            self._start_cooldown(now, self.cooldown)
            self._is_silent = self._is_unproven = True
        else:
            self._is_suspected = True

    def _start_cooldown(self, now: float, seconds: float) -> None:
        self._until = now + seconds + self._jitter(seconds)
        self._next_trial = now + min(TRIAL_INTERVAL * self.processes, self.cooldown) * self._random.uniform(0.75, 1.0)
        self._trial_at = None
        self._change("open" if self._failures >= FAILURE_LIMIT else "cooling", now)

    def _jitter(self, seconds: float) -> float:
        """Return a delay, so that several gateways and processes do not send their trials at the same moment."""
        spread = 0.1 * seconds if self.processes == 1 else min(TRIAL_INTERVAL * self.processes, _MAX_SPREAD)
        return self._random.uniform(0.0, spread)

    def _change(self, state: HealthState, now: float) -> None:
        self.state, self._since = state, now

    def _close(self, now: float) -> None:
        self._failures, self._trial_at, self._is_silent = 0, None, False
        self._change("closed", now)

    # the cooldowns of other processes

    def share_cooldown(self, now: float, seconds: float) -> None:
        """Apply the cooldown that another process has started."""
        if self.state == "closed":
            self._until, self._next_trial, self._is_silent = now + seconds + self._jitter(seconds), now, False
            self._change("cooling", now)

    def share_success(self, now: float) -> None:
        """End a cooldown that another process has ended."""
        if self.state != "closed":
            self._close(now)

    # silence and probes

    def begin_wait(self, handle: Hashable, now: float) -> None:
        """Note a request that waits for its first byte, and could go to another target."""
        if not self._waiting:
            self._waiting_since = now
        self._waiting[handle] = None

    def end_wait(self, handle: Hashable) -> None:
        self._waiting.pop(handle, None)

    @property
    def is_waiting(self) -> bool:
        """True if a request waits for its first byte."""
        return bool(self._waiting)

    def begin_probe(self, now: float, silence: float) -> bool:
        """Return whether a probe is due, which the driver then sends and reports.

        It is due after `silence` seconds while requests wait, for a suspected target, during a slow trial, and after the
        cooldown of a silent target, which becomes half-open.
        """
        self._note_bytes(now)
        if self._is_probing or not self.can_probe:
            return False
        is_due = self.is_waiting and now >= max(self._heard_at, self._waiting_since) + silence
        if self.state == "closed":
            is_due = is_due or self._is_suspected
        elif self._trial_at is not None:
            is_due = is_due or now >= self._trial_at + SLOW_TRIAL
        elif self._is_silent and now >= self._until:
            is_due = True
            self._change("half-open", now)
        if is_due:
            self._is_probing, self._is_suspected, self._probe_at = True, False, now
        return is_due

    def report_probe(self, now: float, *, is_answered: bool) -> list[Hashable]:
        """Note the outcome of a probe. Return the waiting requests to send elsewhere, if the target hangs.

        An answer may close a half-open target; no answer opens any target. A byte that came since the probe was sent is an answer, too: the server may be busy.
        """
        self._is_probing = False
        self._note_bytes(now)
        if is_answered or self._heard_at > self._probe_at:
            self._heard_at = now
            if self.state == "half-open":
                self._trust_probe()
            return []
        if self.cooldown:
            self._failures, self._is_silent = FAILURE_LIMIT, True
            self._is_unproven = self.is_limited = False
            self._start_cooldown(now, self.cooldown)
        released = list(self._waiting)
        self._waiting.clear()
        return released

    def _trust_probe(self) -> bool:
        """Close after an answered probe, or after the time for one, and return True; or let another trial decide.

        `_since` stays, so that the outcome of the trial still counts.
        """
        self._failures, self._trial_at, self._is_silent = 0, None, False
        if self._is_unproven:
            return False
        self.state, self._is_unproven = "closed", True
        return True

    def _note_bytes(self, now: float) -> None:
        if self.is_heard:
            self.is_heard, self._heard_at, self._departures, self._is_suspected = False, now, 0, False
