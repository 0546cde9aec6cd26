"""Measure CPU time of this process, with candidates interleaved; the best of several rounds counts."""

import time
from collections.abc import Callable, Mapping


def best_micros(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int = 7, calls: int = 200
) -> dict[str, float]:
    """Return microseconds of CPU per call for each candidate; the candidates are interleaved in every round."""
    best = dict.fromkeys(candidates, float("inf"))
    for run in candidates.values():
        run()
    for _ in range(rounds):
        for name, run in candidates.items():
            started = time.process_time()
            for _ in range(calls):
                run()
            best[name] = min(best[name], (time.process_time() - started) / calls * 1e6)
    return best


def best_seconds(run: Callable[[], object], *, rounds: int = 5) -> float:
    """Return seconds of CPU, the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best
