"""Measure the gateway above its capacity: goodput, latency, refusals, health checks and memory.

    python bench/gateway/overload.py                      levels 0.8, 2 and 4, with requests of 1.3 and 40 kB
    python bench/gateway/overload.py --seconds 60         longer levels (default: 15)
    python bench/gateway/overload.py --levels 2 --kind large
    python bench/gateway/overload.py --streams 4000       so many slow streams to one upstream, begun within 20 seconds

The gateway runs on core 1, the load (`tests/load/open_loop.py`) and the upstream on core 0. Capacity is the rate of a
closed loop of 64 connections just before. The load of a level is an open loop. Meanwhile this process opens a
new connection to `/health` ten times a second. "CPU for it" is the share of the gateway's CPU time that its answers need,
by the time per request of the closed loop: unlike the goodput, it does not depend on other programs on the machine.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from math import inf
from pathlib import Path

HERE = Path(__file__).parent
OPEN_LOOP = HERE.parents[1] / "tests" / "load" / "open_loop.py"
sys.path.append(str(OPEN_LOOP.parent))

from candidates import CANDIDATES, KEY  # noqa: E402
from closed_loop import head_of, load  # noqa: E402
from open_loop import percentile  # noqa: E402
from server_process import FIRST_PORT, ServerProcess, run_upstream  # noqa: E402
from workload import body_of  # noqa: E402

PATH = "/v1/chat/completions"
HEADERS = {"authorization": f"Bearer {KEY}"}
STREAM_SECONDS = 40.0
RAMP = 20.0  # seconds in which all streams begin: as many at once would need more than the CPU
PADDING = {"small": 0, "large": 40_000}  # characters; large requests are translated in threads


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the gateway above its capacity.")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--levels", type=float, nargs="*", default=[0.8, 2.0, 4.0])
    parser.add_argument("--kind", choices=list(PADDING), nargs="*", default=list(PADDING))
    parser.add_argument("--model", default="cross", help="cross (translated) or same (passed through)")
    parser.add_argument("--rest", type=float, default=10.0, help="seconds before memory is read again (default: 10)")
    parser.add_argument("--streams", type=int, default=0)
    options = parser.parse_args()
    if options.streams:
        with run_upstream(str(STREAM_SECONDS / 8)):
            server = ServerProcess(CANDIDATES["toolwire"], FIRST_PORT)
            try:
                asyncio.run(_measure_streams(server, options.streams))
            finally:
                server.stop()
        return
    with run_upstream():
        for kind in options.kind:
            _measure_kind(kind, options)


def _measure_kind(kind: str, options: argparse.Namespace) -> None:
    server = ServerProcess(CANDIDATES["toolwire"], FIRST_PORT)
    try:
        body = body_of(options.model, pad=PADDING[kind])
        capacity, cost = 0.0, inf
        for _ in range(3):
            cpu = server.cpu()
            loaded = asyncio.run(load(server.port, PATH, body, requests=2000, at_once=64, headers=HEADERS))
            capacity = max(capacity, loaded.done / loaded.seconds)
            cost = min(cost, (server.cpu() - cpu) / max(1, loaded.done))
        before = server.memory()
        print(f"{kind}: capacity {capacity:.0f}/s, {cost:.0f} µs of CPU, {before:.0f} MB", flush=True)
        for level in options.levels:
            cpu = server.cpu()
            row = asyncio.run(_measure_level(server, body, capacity * level, options.seconds))
            share = row["statuses"].get("200", 0) * cost / (server.cpu() - cpu)
            peak = server.memory()
            time.sleep(options.rest)
            goodput = row["statuses"].get("200", 0) / row["seconds"] / capacity
            latencies, refusals, health = row["latencies"], row["refusals"], row["health"]
            print(
                f"  {level}x: goodput {goodput:.2f}, CPU for it {share:.2f}, statuses {row['statuses']}, errors {row['errors']}, "
                f"without retry-after {row['without_retry_after']}, connections {row['opened']}; 200: p50 "
                f"{latencies['50'] * 1000:.0f} p99 {latencies['99'] * 1000:.0f} max {latencies['100'] * 1000:.0f} ms; "
                f"503: p99 {refusals['99'] * 1000:.0f} ms; health: p50 {percentile(health, 50) * 1000:.0f} p99 "
                f"{percentile(health, 99) * 1000:.0f} ms of {len(health)}, failed {row['failed_health']}; sent in "
                f"{row['seconds']:.1f} s; RSS {peak:.0f}, later {server.memory():.0f} MB",
                flush=True,
            )
    finally:
        server.stop()


async def _measure_level(server: ServerProcess, body: bytes, rate: float, seconds: float) -> dict:
    generator = await asyncio.create_subprocess_exec(
        *("taskset", "-c", "0", sys.executable, OPEN_LOOP, str(server.port), str(rate), str(seconds)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    health: list[float] = []
    failed = 0

    async def check_health() -> None:
        nonlocal failed
        while True:
            started_at = time.perf_counter()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                answer = await reader.read(4096)
                writer.close()
                failed += not answer.startswith(b"HTTP/1.1 200")
            except OSError:
                failed += 1
            health.append(time.perf_counter() - started_at)
            await asyncio.sleep(0.1)

    checks = asyncio.ensure_future(check_health())
    message = head_of(PATH, len(body), server.port, HEADERS) + body
    output, _ = await generator.communicate(message)
    checks.cancel()
    return {**json.loads(output), "health": health, "failed_health": failed}


async def _measure_streams(server: ServerProcess, count: int) -> None:
    """Open slow streams, and print the time until the first byte, and memory: before, at the peak and a while later."""
    before, peak = server.memory(), 0.0
    measuring = asyncio.ensure_future(_measure_level(server, body_of("paced", stream=True), count / RAMP, RAMP))
    while not measuring.done():
        await asyncio.wait({measuring}, timeout=1.0)
        peak = max(peak, server.memory())
    row = await measuring
    await asyncio.sleep(60)  # longer than idle connections to the upstream are kept
    print(
        f"{count} streams: statuses {row['statuses']}, errors {row['errors']}; first byte: "
        + ", ".join(f"p{share} {seconds * 1000:.0f} ms" for share, seconds in row["first_bytes"].items())
        + f"; health p99 {percentile(row['health'], 99) * 1000:.0f} ms; RSS {before:.0f}, {peak:.0f}, later "
        f"{server.memory():.0f} MB"
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(HERE.parents[1] / "src"))
    main()
