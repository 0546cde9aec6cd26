"""Check properties of several calls: determinism, independence, concurrency, cancellation, and effects applied once.

Functions and servers have the same checks. The state of a server is compared by the files of the temporary folder,
because its memory cannot be seen.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence

from ...ir.pointer import Object
from ...schema.validation.validator import validator
from .checks import CallFault, FindingList
from .child_calls import CallBatch
from .settings import CallOutcome, TestedTool, ToolTestSettings
from .single_calls import CallTarget
from .worker import ToolWorker, WorkerStopped

# Properties are checked with few calls, because each check multiplies them; the numbers are not measured.
_MAX_REPEATED = 10
_MAX_REPEATED_SLOW = 3  # two seconds for a tool that needs 0.2 s, in three processes
_MAX_CONCURRENT = 4  # different calls at once: half of --concurrency, so that equal ones meet, too
_ROUNDS = 3  # a race may need several attempts
_MAX_MARKED = 3  # a leak rarely depends on the arguments
_MAX_TWICE = 4  # each is two calls
_MAX_CANCELLED = 3  # each is a call for every delay
_SLOW = 0.2  # seconds; slow tools are called less often
_OTHER_SEED = 4242  # any hash seed that differs from 0
_CANCEL_DELAYS = (0.0, 0.05, 0.2)  # before the first await, during a short one, during a long one
_CANCEL_LIMIT = 2.0  # seconds to close files and connections
_MAX_SIZE = 500  # characters of arguments: a finding shows them, and large ones are tested by single calls
_MAX_SHOWN = 200  # characters of arguments in a message
_MARK = "text-of-another-call-5f2c"
_KEY_NAMES = re.compile(r"idempoten|dedup|request_?id|client_?token|nonce", re.IGNORECASE)


class ToolProperties:
    """Checks the properties of one tool with calls that are known to end with a result."""

    def __init__(self, tool: TestedTool, target: CallTarget, settings: ToolTestSettings, found: FindingList) -> None:
        self.calls = 0
        self._tool, self._target, self._settings, self._found = tool, target, settings, found
        self._worker = target if isinstance(target, ToolWorker) else None  # None for a server

    def check(self, settled: Sequence[tuple[Object, CallOutcome]]) -> None:
        """Run the checks that apply to the tool's effect, and add their faults.

        A process that ends is started again. Calls that returned are used, or the first call if none did.
        """
        if not settled:
            return
        used = [(arguments, outcome) for arguments, outcome in settled if outcome.status == "returned"] or settled[:1]
        arguments = [arguments for arguments, _ in used]
        is_slow = any(outcome.seconds > _SLOW for _, outcome in used[:5])
        has_effect = self._tool.effect not in ("pure", "read")
        checks: list[Callable[[], None]] = []
        if has_effect:
            checks.append(lambda: self._check_effect_once(arguments))
        elif self._worker is not None:
            if self._tool.effect == "pure":
                repeated = settled[: _MAX_REPEATED_SLOW if is_slow else _MAX_REPEATED]
                checks.append(lambda: self._check_repeated(repeated))
            checks.append(lambda: self._check_leaks(arguments))
        checks.append(lambda: self._check_concurrent(arguments, has_effect=has_effect, is_slow=is_slow))
        if self._worker is not None and self._tool.is_async:
            worker = self._worker
            checks.append(lambda: self._check_cancellation(worker, arguments))
        for check in checks:
            try:
                self._ensure_started()
                check()
            except WorkerStopped:
                continue  # a hang or an exit is found by single calls

    def _ensure_started(self, *, hash_seed: int = 0, fresh: bool = False) -> None:
        if fresh or not self._target.is_running:
            self._target.start(hash_seed=hash_seed)

    def _result(self, arguments: Object) -> tuple[str, str]:
        self.calls += 1
        outcome = self._target.call(self._tool.name, arguments)
        return outcome.status, outcome.digest

    # determinism and independence

    def _check_repeated(self, calls: Sequence[tuple[Object, CallOutcome]]) -> None:
        """Repeat calls of a pure tool in the same process, then in another process with another hash seed.

        The first difference is explained and added.
        """
        if "shared-state" in self._found:
            return  # a default that changes explains all differences
        for seed in (None, _OTHER_SEED):
            if seed is not None:
                self._ensure_started(hash_seed=seed, fresh=True)
            for arguments, first in reversed(calls):
                if self._result(arguments) != (first.status, first.digest):
                    self._explain_difference(arguments)
                    return
                if not self._target.is_running:
                    return

    def _explain_difference(self, arguments: Object) -> None:
        """Find out whether a result varies by itself, or depends on earlier calls: compare first calls of processes."""
        alone = []
        for seed in (0, 0, _OTHER_SEED):
            self._ensure_started(hash_seed=seed, fresh=True)
            alone.append(self._result(arguments))
        if len(set(alone)) > 1:
            self._found.add(CallFault("nondeterministic", "", "the same arguments give different results"), arguments)
        elif self._result(arguments) != alone[-1]:
            message = "the second of two identical calls has another result than the first"
            self._found.add(CallFault("shared-state", "results", message), arguments)
        else:
            self._found.add(CallFault("shared-state", "results", "the result depends on earlier calls"), arguments)

    def _check_leaks(self, calls: Sequence[Object]) -> None:
        """Call with a unique text, then with other arguments, and add a fault if the second result contains the text."""
        if "shared-state" in self._found:
            return
        check = validator(self._tool.input_schema)
        for arguments in calls[:_MAX_MARKED]:
            marked = {**arguments, **{name: _MARK for name, value in arguments.items() if type(value) is str}}
            if marked == arguments or not check.accepts(marked):
                continue
            self.calls += 2
            self._target.call(self._tool.name, marked)
            if not self._target.is_running:
                return
            outcome = self._target.call(self._tool.name, arguments)
            if _MARK in outcome.text:
                message = "the result contains an argument of an earlier call"
                self._found.add(CallFault("shared-state", "results", message), arguments)
                return

    # concurrency

    def _check_concurrent(self, calls: Sequence[Object], *, has_effect: bool, is_slow: bool) -> None:
        """Compare concurrent calls with the same calls one after the other.

        Different calls are compared one by one if their results are stable. Otherwise, and for tools with effects,
        identical calls are compared: any order of them has the same results and leaves the same state.
        """
        if "shared-state" in self._found or "nondeterministic" in self._found:
            return  # the results differ without concurrency, too
        number = max(2, self._settings.concurrency // (2 if is_slow else 1))
        different = list(_different(calls, _MAX_CONCURRENT))
        rounds = 1 if is_slow or self._worker is None else _ROUNDS
        if has_effect or not (self._compare_stable((different * number)[:number], rounds) or self._worker is None):
            self._compare_identical([different[0]] * number, min(rounds, 2))

    def _compare_stable(self, batch: list[Object], rounds: int) -> bool:
        """Compare serial with concurrent results call by call, and report a race.

        Returns False if the serial results are not stable, so that nothing can be compared.
        """
        serial = _results(self._serial(batch))
        if serial != _results(self._serial(batch)):
            return False
        for _ in range(rounds):
            together = self._concurrent(batch)
            if together is None:
                return True
            for arguments, expected, found in zip(batch, serial, _results(together), strict=True):
                if expected != found:
                    if _results(self._serial(batch)) == serial:
                        # a call alone does not show it: without arguments, the reproduction uses the seed
                        text = json.dumps(arguments, ensure_ascii=False)[:_MAX_SHOWN]
                        self._report_race(None, f"a call has another result while others run at the same time: {text}")
                    return True
        return True

    def _compare_identical(self, batch: list[Object], rounds: int) -> None:
        """Compare identical calls in fresh processes; report a difference if the serial results are stable."""
        self._ensure_started(fresh=True)
        serial = self._serial(batch)
        for _ in range(rounds):
            self._ensure_started(fresh=True)
            together = self._concurrent(batch)
            if together is None:
                return
            has_results = Counter(_results(together)) == Counter(_results(serial))
            if has_results and together.state == serial.state:
                continue
            self._ensure_started(fresh=True)
            again = self._serial(batch)
            kind = ""
            if not has_results and Counter(_results(again)) == Counter(_results(serial)):
                kind = "have other results"
            elif together.state != serial.state and again.state == serial.state:
                kind = "leave another state"
            if kind:
                self._report_race(batch[0], f"{len(batch)} identical concurrent calls {kind} than one after the other")
            return

    def _serial(self, batch: list[Object]) -> CallBatch:
        self.calls += len(batch)
        return self._target.call_serially(self._tool.name, batch)

    def _concurrent(self, batch: list[Object]) -> CallBatch | None:
        """Make concurrent calls; report a race if they do not end although serial ones do.

        None: there is nothing to compare, because they did not end, or exceeded the limit of memory or threads.
        """
        self.calls += len(batch)
        try:
            together = self._target.call_concurrently(self._tool.name, batch)
            return None if any(map(_lacks_resources, together.outcomes)) else together
        except WorkerStopped as stopped:
            reason = "do not end" if stopped.timed_out else f"end the process: {stopped.reason}"
            message = f"concurrent calls {reason}; one after the other they return"
            is_same = all(arguments == batch[0] for arguments in batch)
            self._report_race(batch[0] if is_same else None, message)
            return None

    def _report_race(self, arguments: Object | None, message: str) -> None:
        """Report a race; without arguments if it needs different ones, so that the reproduction uses the seed."""
        self._found.add(CallFault("race", "", message), arguments)

    # effects and cancellation

    def _check_effect_once(self, calls: Sequence[Object]) -> None:
        """Call a tool twice with the same key: an idempotent tool, or one that uses a key, has one effect."""
        names = () if self._worker is None else self._tool.input_schema.get("properties") or ()
        promises = self._tool.effect == "idempotent" or any(map(_KEY_NAMES.search, names))
        if self._worker is None and not promises:
            return  # a server gets no key
        for number, arguments in enumerate(_different(calls, _MAX_TWICE)):
            self.calls += 2
            key = f"toolwire-test-{number}"
            repeated = self._target.call_twice(self._tool.name, arguments, key)
            if repeated.unstable_key:
                message = "its key function returns different keys for the same arguments"
                self._found.add(CallFault("double-effect", "key", message), arguments)
                return
            changed = not repeated.failed and repeated.states[1] != repeated.states[2]
            if changed and (promises or repeated.uses_key):
                given = "" if self._worker is None else f" and the key {key}"
                message = f"a second call with the same arguments{given} changes the state again"
                self._found.add(CallFault("double-effect", "", message), arguments)
                return

    def _check_cancellation(self, worker: ToolWorker, calls: Sequence[Object]) -> None:
        """Cancel calls after several delays, and add a fault for the first that does not raise CancelledError.

        A call that finished before the delay is not tried with longer delays.
        """
        for arguments in _different(calls, _MAX_CANCELLED):
            for delay in _CANCEL_DELAYS:
                self._ensure_started()
                self.calls += 1
                outcome = worker.cancel(self._tool.name, arguments, delay, _CANCEL_LIMIT)
                texts = {
                    "swallowed": "a cancelled call ends with a result; CancelledError must be raised again",
                    "running": f"a cancelled call still runs after {_CANCEL_LIMIT:g} seconds",
                    "raised": f"a cancelled call ends with {outcome.detail} instead of CancelledError",
                }
                if outcome.status in texts:
                    self._found.add(CallFault("cancellation", "", texts[outcome.status]), arguments)
                    worker.stop()
                    return
                if outcome.status == "finished":
                    break


def _lacks_resources(outcome: CallOutcome) -> bool:
    """Return True if the limits of the child ended a call: concurrent calls need more memory and threads."""
    error = outcome.error
    return outcome.status == "too_large" or (error is not None and "can't start new thread" in error.message)


def _results(batch: CallBatch) -> list[tuple[str, str]]:
    return [(outcome.status, outcome.digest) for outcome in batch.outcomes]


def _different(calls: Sequence[Object], count: int) -> Sequence[Object]:
    """Return up to `count` calls of moderate size, spread over all of them."""
    small = [arguments for arguments in calls if len(repr(arguments)) < _MAX_SIZE] or list(calls)
    return small[:: max(1, len(small) // count)][:count]
