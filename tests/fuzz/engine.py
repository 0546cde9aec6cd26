"""A coverage-guided fuzzer in Python: mutate inputs, keep those that reach something new, and report those that fail.

Coverage comes from `sys.monitoring` (Python 3.12): each line, and each direction of each branch, of the package. An event that
can bring nothing new is disabled, so that a run that reaches nothing new costs little more than without the fuzzer.
Regular expressions and parsers in C are invisible to it, so a target also returns its behaviour: any hashable value, such
as the text of an error without its numbers. A new behaviour is kept like new coverage.
"""

import random
import signal
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import toolwire

PACKAGE = str(Path(toolwire.__file__).parent)
MAX_SIZE = (
    4096  # bytes of an input: long enough for every limit that a target lowers, short enough for thousands a second
)
HANGS_AFTER = 20  # seconds; an input of this size takes less than a millisecond
_SHRINK_SECONDS = 20


@dataclass(frozen=True)
class Target:
    """Something that reads bytes. `run` raises for a violated invariant, else it returns its behaviour.

    `run` gets a random generator for the choices that are not in the input, such as where it is cut into pieces; its seed is
    made of the input, so that a failure can be repeated. `tokens` are inserted by mutations.
    """

    name: str
    run: Callable[[bytes, random.Random], Hashable]
    tokens: Sequence[bytes]
    seeds: Sequence[bytes]


@dataclass
class Failure:
    data: bytes
    error: BaseException


@dataclass
class Report:
    executions: int = 0
    seconds: float = 0.0
    edges: int = 0
    corpus: list[bytes] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def execute(target: Target, data: bytes) -> Hashable:
    """Run a target on one input; TimeoutError if it hangs, also if the target handles the error that interrupts it."""
    interruptions = []

    def interrupt(_signal, _frame):
        interruptions.append(TimeoutError(f"no result after {HANGS_AFTER} seconds"))
        raise interruptions[-1]

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER)
    try:
        behaviour = target.run(data, random.Random(data))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if interruptions:
        raise interruptions[0]
    return behaviour


class Coverage:
    """Collect the covered lines and branch directions of the package."""

    def __init__(self):
        self._directions = {}  # (code, offset) -> the destinations that were reached
        self.edges = 0

    def __enter__(self):
        monitoring = sys.monitoring
        events = monitoring.events
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "fuzz")
        monitoring.register_callback(monitoring.COVERAGE_ID, events.LINE, self._reach_line)
        monitoring.register_callback(monitoring.COVERAGE_ID, events.BRANCH, self._take_branch)
        monitoring.set_events(monitoring.COVERAGE_ID, events.LINE | events.BRANCH)
        return self

    def __exit__(self, *_):
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
        sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)

    def _reach_line(self, code, _line):
        if code.co_filename.startswith(PACKAGE):
            self.edges += 1
        return sys.monitoring.DISABLE

    def _take_branch(self, code, offset, destination):
        if not code.co_filename.startswith(PACKAGE):
            return sys.monitoring.DISABLE
        reached = self._directions.setdefault((code, offset), set())
        if destination in reached:
            return None
        reached.add(destination)
        self.edges += 1
        return sys.monitoring.DISABLE if len(reached) > 1 else None


def fuzz(target: Target, corpus: Sequence[bytes], seconds: float, seed: int, on_progress=lambda report: None) -> Report:
    """Run mutations of the corpus for `seconds`, and return a report. It stops at the first failure, shrunk."""
    chooser = random.Random(seed)
    report = Report()
    behaviours = set()
    started_at = reported_at = time.monotonic()
    with Coverage() as coverage:

        def attempt(data: bytes) -> bool:
            """Run one input, keep it if it is new, and return False for a failure."""
            known = coverage.edges
            report.executions += 1
            try:
                behaviour = execute(target, data)
            except Exception as error:  # every error is a finding
                report.failures.append(Failure(data, error))
                return False
            if coverage.edges > known or behaviour not in behaviours:
                behaviours.add(behaviour)
                report.corpus.append(data)
            return True

        is_sound = all(attempt(data) for data in dict.fromkeys([*target.seeds, *corpus]))
        while is_sound and time.monotonic() - started_at < seconds:
            parent = chooser.choice(report.corpus[-20:] if chooser.random() < 0.3 else report.corpus)
            is_sound = attempt(mutate(parent, report.corpus, target.tokens, chooser))
            if time.monotonic() - reported_at > 5:
                reported_at = time.monotonic()
                report.seconds, report.edges = reported_at - started_at, coverage.edges
                on_progress(report)
        report.seconds, report.edges = time.monotonic() - started_at, coverage.edges
    report.failures = [shrink(target, failure) for failure in report.failures]
    return report


def mutate(data: bytes, corpus: Sequence[bytes], tokens: Sequence[bytes], chooser: random.Random) -> bytes:
    """Return a changed copy: one to six changes, more often few."""
    changed = bytearray(data)
    for _ in range(min(int(chooser.expovariate(0.7)) + 1, 6)):
        start = chooser.randint(0, len(changed))
        end = min(len(changed), start + chooser.choice((0, 1, 1, 2, 4, 16, 64)))
        match chooser.randrange(8):
            case 0 if changed:
                changed[chooser.randrange(len(changed))] ^= 1 << chooser.randrange(8)
            case 1:
                changed[start:start] = bytes([chooser.randrange(256)])
            case 2:
                del changed[start:end]
            case 3:  # a part again, elsewhere
                place = chooser.randint(0, len(changed))
                changed[place:place] = changed[start:end]
            case 4:  # a part of another input
                other = chooser.choice(corpus)
                cut = chooser.randint(0, len(other))
                changed[start:end] = other[cut : cut + chooser.choice((1, 4, 16, 64, 256))]
            case 5:  # a part many times: limits, and deep nesting
                changed[start:start] = changed[start:end] * chooser.choice((2, 8, 64, 250))
            case _:
                changed[start:end] = chooser.choice(tokens)
    return bytes(changed[:MAX_SIZE])


def shrink(target: Target, failure: Failure) -> Failure:
    """Remove parts of the input, from large to small, for as long as it fails in the same way."""
    best, kind = failure, type(failure.error)
    deadline = time.monotonic() + _SHRINK_SECONDS
    size = len(best.data) // 2
    while size and time.monotonic() < deadline:
        for start in range(0, len(best.data), size):
            if time.monotonic() > deadline:  # an input that hangs needs as long as the whole search
                break
            shorter = best.data[:start] + best.data[start + size :]
            try:
                execute(target, shorter)
            except Exception as error:
                if type(error) is kind:
                    best = Failure(shorter, error)
                    break
        else:
            size //= 2
    return best
