"""Measure the gateway and its peers in one run: CPU per request, latency, streams, growth, memory.

    python bench/gateway/run.py             all; needs nginx on the PATH, installs the peers into their own environments
    python bench/gateway/run.py toolwire    only some of the candidates

Each candidate is one process on core 1; the mock upstream and the load are on core 0. The figure is the CPU time of the
candidate's process and its threads per request: on a shared machine it is more reliable than wall time.
Rounds are interleaved, the best counts. For toolwire, keys, routing, limits and metrics are on.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from candidates import CANDIDATES, Candidate
from load import Loaded, load
from provider import EVENTS

HERE = Path(__file__).parent
ROUNDS = 3
UPSTREAM = 7801
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": words, "parameters": CITY}}
    for name, words in (("get_weather", "The weather in a city"), ("get_time", "The time in a city"))
]
CALLS = [
    {"id": f"call_{city}", "type": "function", "function": {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'}}
    for city in ("Paris", "Rome")
]
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "The weather in Paris and Rome?"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "call_Paris", "content": "12 degrees"},
    {"role": "tool", "tool_call_id": "call_Rome", "content": "20 degrees"},
    {"role": "user", "content": "And tomorrow?"},
]


def body_of(model: str, *, stream: bool = False, pad: int = 0) -> bytes:
    messages = [*MESSAGES[:-1], {"role": "user", "content": "And tomorrow?" + "x" * pad}]
    body = {"model": model, "messages": messages, "tools": TOOLS, "max_tokens": 500}
    return json.dumps({**body, "stream": True} if stream else body).encode()


def cpu_of(pid: int) -> float:
    """Return the CPU microseconds of all threads and children."""
    total = 0.0
    for one in _family(pid):
        for task in Path(f"/proc/{one}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0]) / 1000
    return total


def _family(pid: int) -> list[int]:
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += _family(int(child))
    return found


def rss_of(pid: int) -> float:
    lines = [Path(f"/proc/{one}/status").read_text() for one in _family(pid)]
    return sum(int(text.split("VmRSS:")[1].split()[0]) for text in lines if "VmRSS:" in text) / 1024


class Running:
    def __init__(self, candidate: Candidate, port: int) -> None:
        self.candidate = candidate
        self.port = port
        began = time.perf_counter()
        command = candidate.command(port, UPSTREAM)
        self.log = HERE / f".{candidate.name}.log"
        log = self.log.open("w")
        environment = {**os.environ, **candidate.environment}
        self.process = subprocess.Popen(["taskset", "-c", "1", *command], stdout=log, stderr=log, env=environment)
        try:
            self.start = _until_it_answers(self, began)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _until_it_answers(running: Running, began: float) -> float:
    body = body_of(running.candidate.cross)
    while time.perf_counter() - began < 120:
        if running.candidate.picks_port and (printed := re.search(r"listens at \S+:(\d+)", running.log.read_text())):
            running.port = int(printed[1])
        if running.process.poll() is not None:
            raise RuntimeError(
                f"{running.candidate.name} did not start: see bench/gateway/.{running.candidate.name}.log"
            )
        try:
            loaded = asyncio.run(
                load(
                    running.port, running.candidate.path, body, requests=1, at_once=1, headers=running.candidate.headers
                )
            )
        except OSError:
            loaded = Loaded()
        if loaded.done:
            return time.perf_counter() - began
        time.sleep(0.05)
    raise RuntimeError(f"{running.candidate.name} does not answer")


def measured(running: Running, model: str, *, requests: int, at_once: int, stream: bool = False, pad: int = 0) -> dict:
    before = cpu_of(running.process.pid)
    candidate = running.candidate
    body = body_of(model, stream=stream, pad=pad)
    loaded = asyncio.run(
        load(running.port, candidate.path, body, requests=requests, at_once=at_once, headers=candidate.headers)
    )
    used = cpu_of(running.process.pid) - before
    latencies, first = sorted(loaded.latencies), sorted(loaded.first)
    return {
        "cpu": used / max(loaded.done, 1),
        "p50": latencies[len(latencies) // 2] * 1000,
        "p99": latencies[int(len(latencies) * 0.99)] * 1000,
        "first": first[len(first) // 2] * 1000,
        "failed": loaded.failed,
        "wall": loaded.done / loaded.seconds,
    }


def best(rounds: list[dict]) -> dict:
    return {name: min(one[name] for one in rounds) for name in rounds[0]}


def main() -> None:
    wanted = sys.argv[1:] or list(CANDIDATES)
    mock = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, HERE / "provider.py", str(UPSTREAM)], stdout=subprocess.PIPE
    )
    mock.stdout.readline()
    os.sched_setaffinity(0, {0})
    running = []
    try:
        for number, name in enumerate(wanted):
            print(f"bench: gateway: starting {name} …", file=sys.stderr, flush=True)
            try:
                running.append(Running(CANDIDATES[name], 7810 + number))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                print(f"bench: gateway: {name} is left out: {error}", file=sys.stderr)
        rows = [_rows(one) for one in _interleaved(running)]
        print(json.dumps({"rows": rows, "growth": _growth(running), "direct": _direct(), "events": EVENTS + 6}))
    finally:
        for one in running:
            one.stop()
        mock.kill()


def _interleaved(running: list[Running]) -> list[tuple[Running, dict]]:
    results: dict[str, dict[str, list[dict]]] = {one.candidate.name: {} for one in running}
    for _ in range(ROUNDS):
        for one in running:
            slow = one.candidate.is_slow
            jobs = {
                "pass": lambda one=one, n=100 if slow else 2000: measured(
                    one, one.candidate.same, requests=n, at_once=20
                ),
                "cross": lambda one=one, n=100 if slow else 2000: measured(
                    one, one.candidate.cross, requests=n, at_once=20
                ),
                "alone": lambda one=one, n=30 if slow else 200: measured(
                    one, one.candidate.cross, requests=n, at_once=1
                ),
                "burst": lambda one=one, n=10 if slow else 200: measured(
                    one, one.candidate.cross, requests=n, at_once=20, stream=True
                ),
                "paced": lambda one=one, n=20 if slow else 60: measured(
                    one, one.candidate.paced, requests=n, at_once=20, stream=True
                ),
                "first": lambda one=one, n=4 if slow else 20: measured(
                    one, one.candidate.paced, requests=n, at_once=1, stream=True
                ),
            }
            for name, job in jobs.items():
                if name in ("paced", "first") and one.candidate.paced is None:
                    continue
                results[one.candidate.name].setdefault(name, []).append(job())
    return [(one, {name: best(rounds) for name, rounds in results[one.candidate.name].items()}) for one in running]


def _rows(pair: tuple[Running, dict]) -> dict:
    one, found = pair
    return {"name": one.candidate.name, "start": one.start, "rss": rss_of(one.process.pid), **found}


def _direct() -> dict:
    """Measure the upstream without a gateway."""
    headers = {"x-api-key": "none"}
    alone = asyncio.run(load(UPSTREAM, "/v1/messages", body_of("m"), requests=200, at_once=1, headers=headers))
    body = body_of("m", stream=True)
    paced = asyncio.run(load(UPSTREAM, "/pace/v1/messages", body, requests=20, at_once=1, headers=headers))
    return {
        "p50": sorted(alone.latencies)[len(alone.latencies) // 2] * 1000,
        "first": sorted(paced.first)[len(paced.first) // 2] * 1000,
    }


def _growth(running: list[Running]) -> dict:
    ours = next((one for one in running if one.candidate.name == "toolwire"), None)
    if ours is None:
        return {}
    model = ours.candidate.cross
    return {
        "concurrency": [
            {"n": n, **measured(ours, model, requests=max(1000, 2 * n), at_once=n)} for n in (1, 10, 100, 1000)
        ],
        "size": [
            {"bytes": 1000 * size, **measured(ours, model, requests=max(20, 1000 // size), at_once=4, pad=1000 * size)}
            for size in (1, 10, 100, 1000, 10_000)
        ],
    }


if __name__ == "__main__":
    if shutil.which("taskset") is None:
        sys.exit("taskset is needed, to keep the candidates on a core of their own")
    main()
