"""Measure the gateway and its peers in one run: CPU per request, latency, streams, growth, memory.

    python bench/gateway/run.py                       all; needs nginx on the PATH, installs peers into their own environments
    python bench/gateway/run.py toolwire nginx        only some of the candidates
    python bench/gateway/run.py --before COMMIT       with the gateway of another commit, as `toolwire-before`
    python bench/gateway/run.py --table               prints the section of RESULTS.md instead of JSON
    python bench/gateway/run.py --profile toolwire cross      samples of the stack during one job (pass, cross, paced, …)
    python bench/gateway/run.py --count toolwire cross        bytecode instructions and calls per request of one job

Each candidate is one process on core 1; the mock upstream and the load are on core 0. The figure is the CPU time of the
candidate's process and its threads per request: on a shared machine it is more reliable than wall time.
Rounds are interleaved, the best counts; the medians are kept beside it. For toolwire, keys, routing, limits and metrics are on.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median

from candidates import CANDIDATES, UPSTREAM, WORK, add_before
from closed_loop import Loaded, load
from instructions import report_of_counts
from profiler import report_of
from provider import STREAM
from server_process import ServerProcess
from workload import JOBS, Job, body_of

HERE = Path(__file__).parent
FIRST_PORT = 7810
_HIGHEST = frozenset({"failed", "wall"})  # figures of which the highest of all rounds counts
PROFILER, COUNTER = HERE / "profiler.py", HERE / "instructions.py"
COUNTED = 50  # requests
DIRECT = {"alone_pass": "/v1/chat/completions", "alone": "/v1/messages", "first": "/pace/v1/messages"}


def main() -> None:
    options = _options()
    if options.before:
        add_before(options.before)
    chosen = options.profile or options.count or ()
    if unknown := {*options.candidates, *chosen[:1]} - CANDIDATES.keys():
        sys.exit(f"unknown candidates: {', '.join(sorted(unknown))}; known are {', '.join(CANDIDATES)}")
    if chosen and chosen[1] not in JOBS:
        sys.exit(f"unknown job: {chosen[1]}; known are {', '.join(JOBS)}")
    if options.profile:
        _profile(*options.profile)
        return
    if options.count:
        _count(*options.count)
        return
    with run_upstream(), _servers(options.candidates or list(CANDIDATES)) as servers:
        rows, direct = _interleaved(servers, options.rounds)
        growth = _growth(servers)
    result = {"rows": rows, "growth": growth, "direct": direct, "events": len(STREAM[b"messages"])}
    result["before"] = options.before
    print(_section(result) if options.table else json.dumps(result))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the gateway and its peers in one run.")
    parser.add_argument("candidates", nargs="*", metavar="CANDIDATE", help=f"all by default: {', '.join(CANDIDATES)}")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="interleaved rounds (default: 5)")
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


@contextmanager
def run_upstream(*pace: str):
    mock = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, HERE / "provider.py", str(UPSTREAM), *pace], stdout=subprocess.PIPE
    )
    if mock.stdout.readline() != b"ready\n":
        sys.exit(f"cannot start the upstream: is port {UPSTREAM} in use by another run?")
    os.sched_setaffinity(0, {0})
    try:
        yield
    finally:
        mock.kill()


@contextmanager
def _servers(names: list[str]):
    servers = []
    try:
        for port, name in enumerate(names, FIRST_PORT):
            print(f"bench: gateway: starting {name} …", file=sys.stderr, flush=True)
            try:
                servers.append(ServerProcess(CANDIDATES[name], port))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                print(f"bench: gateway: {name} is left out: {error}", file=sys.stderr)
        yield servers
    finally:
        for server in servers:
            server.stop()


def _interleaved(servers: list[ServerProcess], rounds: int) -> tuple[list[dict], dict]:
    found: dict[str, dict[str, list[dict]]] = {server.candidate.name: {} for server in servers}
    direct: dict[str, list[dict]] = {}
    for number in range(rounds):
        print(f"bench: gateway: round {number + 1} of {rounds} …", file=sys.stderr, flush=True)
        for name, path in DIRECT.items():
            direct.setdefault(name, []).append(_measure_direct(JOBS[name], path))
        for server in servers:
            for name, figures in _measure_round(server):
                found[server.candidate.name].setdefault(name, []).append(figures)
    rows = [
        {
            "name": server.candidate.name,
            "start": server.start,
            "rss": server.memory(),
            **{job: _summary(figures) for job, figures in found[server.candidate.name].items()},
        }
        for server in servers
    ]
    return rows, {name: _summary(figures) for name, figures in direct.items()}


def _measure_round(server: ServerProcess) -> Iterator[tuple[str, dict]]:
    """Measure each job once. A candidate that crashes is started again for its next job."""
    for name, job in JOBS.items():
        if name not in server.candidate.skipped:
            try:
                yield name, _measure(server, job, job.slow_requests if server.candidate.is_slow else job.requests)
            except OSError as error:
                print(f"bench: gateway: {server.candidate.name} ended during {name}: {error}", file=sys.stderr)
                server.stop()
                server.launch()


def _summary(rounds: list[dict]) -> dict:
    """Return the best of each figure, the failures of the worst round, and the medians."""
    best = {name: (max if name in _HIGHEST else min)(figures[name] for figures in rounds) for name in rounds[0]}
    return {**best, "median": {name: median(figures[name] for figures in rounds) for name in rounds[0]}}


def _measure(server: ServerProcess, job: Job, requests: int, *, pad: int = 0) -> dict:
    before = server.cpu()
    loaded = server.send(job, requests, pad=pad)
    return {"cpu": (server.cpu() - before) / max(loaded.done, 1), **_times(loaded)}


def _measure_direct(job: Job, path: str) -> dict:
    """Measure the upstream without a gateway."""
    body = body_of("m", stream=job.stream)
    return _times(asyncio.run(load(UPSTREAM, path, body, requests=job.requests, at_once=job.connections, headers={})))


def _times(loaded: Loaded) -> dict:
    latencies, first = sorted(loaded.latencies) or [inf], sorted(loaded.first) or [inf]
    return {
        "p50": latencies[len(latencies) // 2] * 1000,
        "p99": latencies[int(len(latencies) * 0.99)] * 1000,
        "first": first[len(first) // 2] * 1000,
        "failed": loaded.failed,
        "wall": loaded.done / loaded.seconds,
    }


def _growth(servers: list[ServerProcess]) -> dict:
    ours = next((server for server in servers if server.candidate.name == "toolwire"), None)
    if ours is None:
        return {"concurrency": [], "size": []}
    return {
        "concurrency": [
            {"n": n, **_measure(ours, Job("cross", 0, 0, connections=n), max(1000, 2 * n))} for n in (1, 10, 100, 1000)
        ],
        "size": [
            {
                "bytes": 1000 * size,
                **_measure(ours, Job("cross", 0, 0, connections=4), max(20, 1000 // size), pad=1000 * size),
            }
            for size in (1, 10, 100, 1000, 10_000)
        ],
    }


def _profile(name: str, job_name: str) -> None:
    """Print where the CPU time of a job goes. A candidate must be a Python program of this environment."""
    job = JOBS[job_name]
    file = WORK / f"profile-{name}-{job_name}.folded"
    file.unlink(missing_ok=True)
    with run_upstream():
        plain = ServerProcess(CANDIDATES[name], FIRST_PORT)
        _measure(plain, job, job.requests)
        microseconds = _measure(plain, job, job.requests)["cpu"]
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


def _section(result: dict) -> str:
    sys.path.insert(0, str(HERE.parent))
    from reports import REPORTS

    return REPORTS["gateway"](result)


if __name__ == "__main__":
    if shutil.which("taskset") is None or shutil.which("setarch") is None:
        sys.exit("taskset and setarch are needed, to keep the candidates on a core of their own and at fixed addresses")
    main()
