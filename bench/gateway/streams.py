"""Measure thousands of slow streams at once: errors, memory for each stream, and the delay of their events.

    python bench/gateway/streams.py                              9,900 streams through one worker, and through nginx
    python bench/gateway/streams.py --streams 1000 4000 9900     several numbers, one after another
    python bench/gateway/streams.py --workers 4 --streams 10000
    python bench/gateway/streams.py --path same cross            unchanged, and translated from Anthropic to Chat
    python bench/gateway/streams.py --only toolwire --source ../other/src     the gateway of another checkout

Each stream has an event every two seconds (`paced_upstream.py`). A process may often open 20,000 descriptors, and the
gateway needs two for each stream, so one worker serves up to 9,920. The streams begin at a constant rate; then all of
them are open for some seconds, in which delays, CPU time and memory are measured. Memory is the proportional set size of all
processes, minus that of the same processes before, after a few streams. The delay is the time from the upstream's write
to the load's read, measured by the time in the event. So it has the work of all three processes: nginx and a
direct run (`direct`) in the same run show what is the machine's.

The gateway, or nginx, runs on core 1, everything else on core 0; several workers use both.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from candidates import KEY, WORK
from closed_loop import head_of
from server_process import cpu_of, family_of

from toolwire.gateway.keys import hash_key

HERE = Path(__file__).parent
PERIOD = 2.0  # seconds between two events of a stream
WARM_UP = 50  # streams before memory is measured: connections, caches and code that is compiled on first use
SETTLE = 1.0  # seconds
_BODY = {"model": "same", "stream": True, "max_tokens": 500, "messages": [{"role": "user", "content": "Hello?"}]}
_SETTINGS = """
[upstreams]
chat = {{ base_url = "http://127.0.0.1:{port}", wire = "openai_chat" }}
claude = {{ base_url = "http://127.0.0.1:{port}", wire = "anthropic" }}
[models]
same = {{ upstream = "chat", model = "m" }}
cross = {{ upstream = "claude", model = "m" }}
[log]
to = "nowhere"
[keys.bench]
hash = "{hash}"
requests_per_minute = 100000000
"""
_NGINX = """
daemon off; worker_processes {workers}; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 19990; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; }} }}
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure thousands of slow streams at once.")
    parser.add_argument("--streams", type=int, nargs="+", default=[9900])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--path", nargs="+", choices=["same", "cross"], default=["same"])
    parser.add_argument("--only", nargs="+", choices=["direct", "nginx", "toolwire"], default=["nginx", "toolwire"])
    parser.add_argument("--rate", type=float, default=500.0, help="streams that begin in a second (default: 500)")
    parser.add_argument("--hold", type=float, default=14.0, help="seconds in which all are open (default: 14)")
    parser.add_argument("--source", help="the folder of another checkout's package, to compare it: CHECKOUT/src")
    options = parser.parse_args()
    print(
        "candidate | path | workers | streams | errors | kB a stream | idle MB | p50 ms | p99 ms | p99.9 ms | µs an event"
    )
    for streams in options.streams:
        ramp = streams / options.rate
        events = int((ramp + options.hold) / PERIOD) + 1
        with _process(0, sys.executable, HERE / "paced_upstream.py", PERIOD, events) as upstream:
            upstream_port = int(upstream.stdout.readline())
            for name in options.only:
                for path in options.path if name == "toolwire" else options.path[:1]:
                    row = _measure(name, path, streams, events, upstream_port, options)
                    print(" | ".join(_format_row(row)), flush=True)


def _measure(name: str, path: str, streams: int, events: int, upstream: int, options: argparse.Namespace) -> dict:
    with _candidate(name, upstream, options) as (port, process):
        _load(port, path, WARM_UP, 0.5, events=events, start=0.0, end=1.0).communicate()
        time.sleep(SETTLE)
        before = _memory(process)
        ramp = streams / options.rate
        start, end = ramp + SETTLE, ramp + options.hold
        load = _load(port, path, streams, ramp, events=events, start=start, end=end)
        time.sleep(start)
        cpu, began = _cpu(process), time.monotonic()
        time.sleep((end - start) / 2)
        peak = _memory(process)
        time.sleep(max(0.0, began + end - start - time.monotonic()))
        cpu, seconds = _cpu(process) - cpu, time.monotonic() - began
        output, _ = load.communicate()
        time.sleep(SETTLE)
        row = json.loads(output)
        return {
            "name": name,
            "path": path,
            "streams": streams,
            "workers": options.workers,
            **row,
            "kb": (peak - before) / streams,
            "idle_kb": before,
            "later_kb": _memory(process),
            "cpu_per_event": cpu / (streams / PERIOD * seconds),
        }


@contextmanager
def _candidate(name: str, upstream: int, options: argparse.Namespace) -> Iterator[tuple[int, subprocess.Popen | None]]:
    """Start a candidate, and yield its port and its process; without one, the port of the upstream."""
    WORK.mkdir(exist_ok=True)
    core = 1 if options.workers == 1 else None
    if name == "direct":
        yield upstream, None
    elif name == "nginx":
        folder = WORK / "nginx-streams"
        folder.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        file = WORK / "nginx-streams.conf"
        file.write_text(_NGINX.format(folder=folder, port=port, upstream=upstream, workers=options.workers))
        with _process(core, "nginx", "-c", file, "-p", folder) as process:
            time.sleep(SETTLE)
            yield port, process
    else:
        file = WORK / "streams.toml"
        file.write_text(_SETTINGS.format(port=upstream, hash=hash_key(KEY)))
        arguments = ["serve", "--quiet", "--config", file, "--port", 0, "--workers", options.workers]
        with _process(core, sys.executable, "-m", "toolwire", *arguments, source=options.source) as process:
            found = re.search(rb"http://[\d.]+:(\d+)", process.stdout.readline())
            assert found is not None, "the gateway did not start"
            yield int(found[1]), process


def _load(
    port: int, path: str, streams: int, ramp: float, *, events: int, start: float, end: float
) -> subprocess.Popen:
    body = json.dumps({**_BODY, "model": path}).encode()
    request = head_of("/v1/chat/completions", len(body), port, {"authorization": f"Bearer {KEY}"}) + body
    command = ["taskset", "-c", "0", sys.executable, HERE / "stream_load.py"]
    numbers = [str(number) for number in (port, streams, ramp, events, start, end)]
    load = subprocess.Popen([*command, *numbers], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    load.stdin.write(request)
    load.stdin.close()
    load.stdin = None
    return load


@contextmanager
def _process(core: int | None, *command: object, source: str | None = None) -> Iterator[subprocess.Popen]:
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = source or str(HERE.parents[1] / "src")
    process = subprocess.Popen([*pinned, *map(str, command)], stdout=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _memory(process: subprocess.Popen | None) -> float:
    """Return the proportional set size of a process and its children in kB."""
    if process is None:
        return 0.0
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in family_of(process.pid)]
    return float(sum(int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1]) for text in texts))


def _cpu(process: subprocess.Popen | None) -> float:
    return 0.0 if process is None else cpu_of(process.pid)


def _format_row(row: dict) -> list[str]:
    errors = ", ".join(f"{count}x {reason}" for reason, count in row["errors"].items()) or "0"
    names = [row["name"], row["path"], str(row["workers"]), f"{row['streams']:,}", errors]
    delays = [f"{row[share]:.1f}" if row[share] is not None else "-" for share in ("50", "99", "99.9")]
    return [*names, f"{row['kb']:.1f}", f"{row['idle_kb'] / 1000:.0f}", *delays, f"{row['cpu_per_event']:.0f}"]


if __name__ == "__main__":
    main()
