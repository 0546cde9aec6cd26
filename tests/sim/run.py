"""Run simulated schedules: `python tests/sim/run.py [--seeds 1000] [--first 0] [--scenario calls] [--log]`.

Each seed is a schedule of each scenario. A schedule that violates an invariant is printed with the end of its log and
the command that replays it.
"""

import argparse
import gc
import logging
import sys
import time
import traceback
import warnings
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":  # as pytest does it
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

SCENARIOS = ("calls", "runs", "limits", "locks", "failover")
_LOG_LINES = 40  # of a schedule that failed


def replay_command(scenario: str, seed: int) -> str:
    return f"python tests/sim/run.py --scenario {scenario} --first {seed} --seeds 1 --log"


def simulate(scenario: str, seed: int) -> list[str]:
    """Run one schedule and return its log. Raise AssertionError with the log and the command if it fails."""
    module = import_module(f"sim.{scenario}")
    try:
        world = module.simulate(seed)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        log = "\n".join(getattr(error, "log", [])[-_LOG_LINES:])
        raise AssertionError(
            f"{scenario}, seed {seed}: {type(error).__name__}: {error}\n{log}\nreplay: {replay_command(scenario, seed)}"
        ) from error
    return world.log


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000, help="schedules of each scenario")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="only this one; may be repeated")
    parser.add_argument("--log", action="store_true", help="print the log of each schedule")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # thousands of warnings about stores that cannot be reached
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of killed processes are never awaited
    failed = 0
    for scenario in options.scenario or SCENARIOS:
        started, failures = time.perf_counter(), 0
        import_module(f"sim.{scenario}")
        gc.freeze()  # each schedule collects what it leaves, see `World`
        for seed in range(options.first, options.first + options.seeds):
            try:
                log = simulate(scenario, seed)
            except AssertionError as error:
                failures += 1
                print(error if failures <= 5 or options.log else str(error).partition("\n")[0], flush=True)
                if options.log:
                    traceback.print_exception(error.__cause__)
                if options.stop:
                    return 1
            else:
                if options.log:
                    print("\n".join(log))
        seconds = time.perf_counter() - started
        print(f"{scenario}: {options.seeds} seeds, {failures} failed, {seconds:.0f} s", flush=True)
        failed += failures
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
