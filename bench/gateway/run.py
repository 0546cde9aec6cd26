"""Measure the gateway and its peers in one run: CPU per request, latency, streams, growth, memory, start.

    python bench/gateway/run.py                       all; needs nginx on the PATH, installs peers into their own environments
    python bench/gateway/run.py toolwire nginx        only some of the candidates
    python bench/gateway/run.py --rounds 15 --into FILE       keeps each round, and continues after an interruption
    python bench/gateway/run.py --rounds 0 --into FILE --table        prints the section of RESULTS.md for these rounds
    python bench/gateway/run.py --before COMMIT       with the gateway of another commit, as `toolwire-before`
    python bench/gateway/run.py --table               prints the section of RESULTS.md instead of JSON
    python bench/gateway/run.py --profile toolwire cross      samples of the stack during one job (pass, cross, paced, …)
    python bench/gateway/run.py --count toolwire cross        bytecode instructions and calls per request of one job

Each candidate is one process on core 1; the mock upstream and the load are on core 0. The figure is the CPU time of the
candidate's process and its threads per request: on a shared machine it is more reliable than wall time.
Rounds are interleaved; `gateway_rounds.py` explains the intervals. For toolwire, keys, routing, limits and metrics are on.
Nothing but the installation has a network: the run moves into a network namespace.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from candidates import CANDIDATES, WORK, add_before  # noqa: E402
from installation import leave_network  # noqa: E402
from instructions import report_of_counts  # noqa: E402
from measurement import measure, measure_rounds  # noqa: E402
from profiler import report_of  # noqa: E402
from server_process import FIRST_PORT, ServerProcess, run_upstream  # noqa: E402
from workload import JOBS, Job  # noqa: E402

from gateway_rounds import MINIMUM, Rounds  # noqa: E402
from report_gateway import section  # noqa: E402

PROFILER, COUNTER = HERE / "profiler.py", HERE / "instructions.py"
COUNTED = 50  # requests


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that the candidates are stopped
    options = _options()
    kept = Rounds.read(options.into) if options.into else None
    if before := kept.head["before"] if kept else options.before:
        add_before(before)
    chosen = options.profile or options.count or ()
    if unknown := {*options.candidates, *chosen[:1]} - CANDIDATES.keys():
        sys.exit(f"unknown candidates: {', '.join(sorted(unknown))}; known are {', '.join(CANDIDATES)}")
    if chosen and chosen[1] not in JOBS:
        sys.exit(f"unknown job: {chosen[1]}; known are {', '.join(JOBS)}")
    if chosen:
        leave_network()
        (_profile if options.profile else _count)(*chosen)
        return
    names = list(kept.head["candidates"]) if kept else options.candidates or list(CANDIDATES)
    result = measure_rounds(names, options.rounds, kept, before=before, into=options.into)
    print(section(result) if options.table else json.dumps(asdict(result)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the gateway and its peers in one run.")
    parser.add_argument("candidates", nargs="*", metavar="CANDIDATE", help=f"all by default: {', '.join(CANDIDATES)}")
    parser.add_argument("--rounds", type=int, default=MINIMUM, metavar="N", help=f"interleaved (default: {MINIMUM})")
    parser.add_argument(
        "--into", type=Path, metavar="FILE", help="keep the rounds in a file, and add those that it lacks"
    )
    parser.add_argument(
        "--before",
        metavar="COMMIT",
        default=os.environ.get("TOOLWIRE_BENCH_BEFORE"),
        help="also measure the gateway of this commit (default: TOOLWIRE_BENCH_BEFORE)",
    )
    parser.add_argument("--table", action="store_true", help="print the section of RESULTS.md instead of JSON")
    parser.add_argument("--profile", nargs=2, metavar=("CANDIDATE", "JOB"), help=f"jobs: {', '.join(JOBS)}")
    parser.add_argument("--count", nargs=2, metavar=("CANDIDATE", "JOB"), help="count instructions; jobs as above")
    return parser.parse_args()


def _profile(name: str, job_name: str) -> None:
    """Print where the CPU time of a job goes. A candidate must be a Python program of this environment."""
    job = JOBS[job_name]
    file = WORK / f"profile-{name}-{job_name}.folded"
    file.unlink(missing_ok=True)
    with run_upstream():
        plain = ServerProcess(CANDIDATES[name], FIRST_PORT)
        measure(plain, job, job.requests)
        microseconds = measure(plain, job, job.requests)["cpu"]
        plain.stop()
        _observe(ServerProcess(CANDIDATES[name], FIRST_PORT + 1, program=PROFILER, output=file), job, 10 * job.requests)
    print(report_of(file.read_text(encoding="utf-8"), microseconds))
    print(f"\nstacks, for a flame graph: {file}")


def _count(name: str, job_name: str) -> None:
    """Print the bytecode instructions of a job per request, sent one after another."""
    job = replace(JOBS[job_name], connections=1)
    file = WORK / f"count-{name}-{job_name}.json"
    file.unlink(missing_ok=True)
    with run_upstream():
        _observe(ServerProcess(CANDIDATES[name], FIRST_PORT, program=COUNTER, output=file), job, COUNTED)
    print(report_of_counts(json.loads(file.read_text(encoding="utf-8")), COUNTED))


def _observe(server: ServerProcess, job: Job, requests: int) -> None:
    """Send requests to a server that runs in the profiler or in the counter, and wait for its output."""
    try:
        server.send(job, job.requests)
        server.process.send_signal(signal.SIGUSR1)
        server.send(job, requests)
        server.process.send_signal(signal.SIGUSR2)
        while not server.output.exists():
            time.sleep(0.05)
    finally:
        server.stop()


if __name__ == "__main__":
    if shutil.which("taskset") is None or shutil.which("setarch") is None:
        sys.exit("taskset and setarch are needed, to keep the candidates on a core of their own and at fixed addresses")
    main()
