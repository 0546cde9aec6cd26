"""Measure rounds of all jobs with all candidates, interleaved."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

from answers import find_wrong_answers
from candidates import CANDIDATES, MISSING, UPSTREAM
from closed_loop import Loaded, load
from installation import leave_network
from provider import STREAM
from server_process import FIRST_PORT, ServerProcess, run_upstream
from workload import JOBS, Job, body_of

from gateway_rounds import Rounds

_EVENTS = len(STREAM[b"messages"])
_SECOND = 100  # the ports of the processes that measure the start are higher by this
_WARMED = ("pass", "cross", "burst")
_WARMED_SLOW = 4  # a slow candidate gets this part of the requests; compilers of node act after some hundreds of calls
_DIRECT = {"alone_pass": "/v1/chat/completions", "alone": "/v1/messages", "first": "/pace/v1/messages"}
_LONG = "first"  # a request of this job takes a quarter of a second, so every candidate gets few
_ADDED = {"added_pass": ("alone_pass", "p50"), "added_cross": ("alone", "p50"), "added_first": ("first", "first")}
_RATES = ("burst", "paced")
_JOBS = {name: name for name in ("pass", "cross", *_RATES)} | {name: job for name, (job, _) in _ADDED.items()}

_Skipped = dict[str, str]  # the jobs that a candidate cannot do, with the reasons


def measure_rounds(
    names: list[str], wanted: int, kept: Rounds | None, *, before: str | None, into: Path | None
) -> Rounds:
    """Measure the rounds that are not kept yet; after each of them, write all into a file."""
    if kept is not None and len(kept.rounds) >= wanted:
        return kept
    missing = MISSING | _install(names)
    leave_network()
    with run_upstream(), _servers([name for name in names if name not in missing], missing) as servers:
        head = _head(before, servers, missing)
        result = kept or Rounds(head)
        if result.head["source"] != head["source"]:
            sys.exit(f"{into} has rounds of other source code; delete it to measure anew")
        for number in range(len(result.rounds) + 1, wanted + 1):
            print(f"bench: gateway: round {number} of {wanted} …", file=sys.stderr, flush=True)
            result.rounds.append(_measure_round(servers))
            if number == wanted:
                result.growth = _growth(servers)
            if into:
                result.write(into)
    return result


def _install(names: list[str]) -> dict[str, str]:
    """Return the candidates that cannot be installed, with the reasons."""
    failed = {}
    for name in names:
        try:
            CANDIDATES[name].install()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"bench: gateway: {name} cannot be installed: {error}", file=sys.stderr)
            failed[name] = f"cannot be installed: {error}"
    return failed


@contextmanager
def _servers(names: list[str], missing: dict[str, str]) -> Iterator[dict[ServerProcess, _Skipped]]:
    """Start, check and warm up the candidates; add those that do not start to the missing ones."""
    servers: dict[ServerProcess, _Skipped] = {}
    try:
        for port, name in enumerate(names, FIRST_PORT):
            print(f"bench: gateway: starting {name} …", file=sys.stderr, flush=True)
            try:
                server = ServerProcess(CANDIDATES[name], port)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                print(f"bench: gateway: {name} is left out: {error}", file=sys.stderr)
                missing[name] = f"does not start: {error}"
                continue
            servers[server] = {}  # it is stopped at the end, also if the next steps fail
            servers[server] = find_wrong_answers(server)
            for job in set(_WARMED) - servers[server].keys():
                server.send(JOBS[job], JOBS[job].requests // (_WARMED_SLOW if server.candidate.is_slow else 1))
        yield servers
    finally:
        for server in servers:
            server.stop()


def _head(before: str | None, servers: dict[ServerProcess, _Skipped], missing: dict[str, str]) -> dict:
    source = subprocess.run(
        ["git", "-C", Path(__file__).parent, "rev-parse", "HEAD:src"], check=True, stdout=subprocess.PIPE, text=True
    )
    candidates = {
        server.candidate.name: {
            "title": server.candidate.title,
            "version": server.candidate.version,
            "skipped": skipped,
        }
        for server, skipped in servers.items()
    }
    return {"source": source.stdout.strip(), "before": before, "candidates": candidates, "missing": missing}


def _measure_round(servers: dict[ServerProcess, _Skipped]) -> dict[str, dict[str, float | None]]:
    direct = {name: _measure_direct(JOBS[name], path) for name, path in _DIRECT.items()}
    found = {}
    for server, skipped in servers.items():
        jobs = {job: _measure_job(server, job) for job in JOBS if job not in skipped}
        figures = {name: _figure(name, jobs[job], direct) for name, job in _JOBS.items() if job in jobs}
        figures |= {"start": _measure_start(server), "memory": server.memory()}
        found[server.candidate.name] = {
            name: None if figure is None else float(f"{figure:.5g}") for name, figure in figures.items()
        }
    return found


def _figure(name: str, measured: dict, direct: dict[str, dict]) -> float | None:
    """Return a figure of a job, without the time of the upstream, or None if a request failed."""
    if measured["failed"]:
        return None
    if name in _ADDED:
        job, time = _ADDED[name]
        return measured[time] - direct[job][time]
    return _EVENTS * 1e6 / measured["cpu"] if name in _RATES else measured["cpu"]


def _measure_job(server: ServerProcess, name: str) -> dict:
    """Measure a job. A candidate that crashes or hangs is started again for its next job."""
    job = JOBS[name]
    is_short = server.candidate.is_slow or name == _LONG
    try:
        return measure(server, job, job.slow_requests if is_short else job.requests)
    except OSError as error:
        print(f"bench: gateway: {server.candidate.name} ended during {name}: {error}", file=sys.stderr)
        server.stop()
        server.launch()
        return {"failed": 1}


def _measure_start(server: ServerProcess) -> float:
    """Return the seconds until another process of a candidate has answered a request."""
    second = ServerProcess(server.candidate, server.port + _SECOND)
    second.stop()
    return second.start


def measure(server: ServerProcess, job: Job, requests: int, *, pad: int = 0) -> dict:
    before = server.cpu()
    loaded = server.send(job, requests, pad=pad)
    return {"cpu": (server.cpu() - before) / max(loaded.done, 1), **_times(loaded)}


def _measure_direct(job: Job, path: str) -> dict:
    """Measure the upstream without a gateway."""
    body = body_of("m", stream=job.stream)
    requests = job.slow_requests if job is JOBS[_LONG] else job.requests
    return _times(asyncio.run(load(UPSTREAM, path, body, requests=requests, at_once=job.connections, headers={})))


def _times(loaded: Loaded) -> dict:
    latencies, first = sorted(loaded.latencies) or [inf], sorted(loaded.first) or [inf]
    return {
        "p50": latencies[len(latencies) // 2] * 1000,
        "first": first[len(first) // 2] * 1000,
        "failed": loaded.failed,
        "wall": loaded.done / loaded.seconds,
    }


def _growth(servers: Iterable[ServerProcess]) -> dict:
    ours = next((server for server in servers if server.candidate.name == "toolwire"), None)
    if ours is None:
        return {"concurrency": [], "size": []}
    return {
        "concurrency": [
            {"n": n, **measure(ours, Job("cross", 0, 0, connections=n), max(1000, 2 * n))} for n in (1, 10, 100, 1000)
        ],
        "size": [
            {
                "bytes": 1000 * size,
                **measure(ours, Job("cross", 0, 0, connections=4), max(20, 1000 // size), pad=1000 * size),
            }
            for size in (1, 10, 100, 1000, 10_000)
        ],
    }
