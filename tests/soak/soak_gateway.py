"""The gateway under load, for SECONDS (60) with CLIENTS (200): `make test-soak`.

Every answer is its own question's, errors come only where the provider failed, nothing is left behind, memory stays flat;
and streams that run while the gateway is told to stop finish, or end in an error event.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

from gateway.hostile import read_answer  # noqa: E402
from gateway.serving import WIRES  # noqa: E402
from load import Load, outcome, question  # noqa: E402

SETTINGS = """
[limits]
ping = 0.5
cooldown = 0.01
connections = 512
[server]
drain = 3
"""
ROW = '[upstreams.{name}]\nbase_url = "{url}"\nwire = "{wire}"\ntimeout = 8\nidle = 4\nretries = 0\n'
GROWTH = 1.15  # of memory, between the middle and the end


@asynccontextmanager
async def process(*command: str, errors: str | None = None):
    """A process of ours, and the first line that it prints. `errors` is the folder for its standard error."""
    with nullcontext() if errors is None else (Path(errors) / "errors").open("w") as log:
        running = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    try:
        yield running, (await running.stdout.readline()).decode().strip()
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def read_status(running) -> dict:
    running.send_signal(signal.SIGUSR1)
    return json.loads(await running.stdout.readline())


def memory(pid: int) -> float:
    """In MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def rows(fast: str, slow: str) -> str:
    named = [(wire, fast, wire) for wire in WIRES] + [(f"slow-{wire}", slow, wire) for wire in WIRES]
    return SETTINGS + "".join(ROW.format(name=name, url=url, wire=wire) for name, url, wire in named)


async def sampled(pid: int, samples: list[float], every: float) -> None:
    while True:
        samples.append(memory(pid))
        await asyncio.sleep(every)


async def under_load(running, port: int, clients: int, seconds: float) -> list[str]:
    warm = Load(port)
    await warm.run(20, 3)
    before, open_before = await read_status(running), files(running.pid)
    load, samples = Load(port), []
    sampling = asyncio.create_task(sampled(running.pid, samples, seconds / 30))
    await load.run(clients, seconds)
    sampling.cancel()
    await asyncio.sleep(10)  # the longest that a stalled upstream is waited for, and more
    after, open_after = await read_status(running), files(running.pid)
    print(f"{sum(load.outcomes.values())} requests in {seconds:g} s, {clients} clients")
    for name, count in sorted(load.outcomes.items()):
        print(f"  {count:7} {name}")
    print("memory in MB:", " ".join(f"{one:.0f}" for one in samples[::3]), f"then {memory(running.pid):.0f}")
    print(f"tasks: {before['tasks']} before, {after['tasks']} after; open files: {open_before}, {open_after}")
    wrong = warm.wrong + load.wrong
    if after["tasks"] > before["tasks"] + 2:
        wrong.append("tasks are left behind")
    if open_after > open_before + clients:  # each may have left one idle connection to an upstream, and no more
        wrong.append("connections are left behind")
    third = len(samples) // 3
    middle, end = max(samples[third : 2 * third]), max(samples[2 * third :])
    if end > middle * GROWTH + 5:
        wrong.append(f"memory grew from {middle:.0f} to {end:.0f} MB")
    if any(line.startswith("500") for line in after["turns"]):
        wrong.append(f"an error of ours: {after['turns']}")
    return wrong


async def while_stopping(running, port: int, clients: int = 50, key: str = "") -> list[str]:
    """Streams that take a second, and streams that take longer than the gateway waits for them."""
    told: list[str] = []
    asked = [(WIRES[n % 5], WIRES[n // 5 % 5], "brief" if n % 2 else "words") for n in range(clients)]

    async def one(number: int, front: str, wire: str, how: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        data, _ = question(front, f"slow-{wire}", how, number, stream=True, key=key)
        writer.write(data)
        found = outcome(await read_answer(reader), front, stream=True)
        writer.close()
        return f"{how}: {found}"

    streams = [asyncio.create_task(one(n, *what)) for n, what in enumerate(asked, 1)]
    await asyncio.sleep(0.7)
    running.send_signal(signal.SIGTERM)
    for found in await asyncio.gather(*streams, return_exceptions=True):
        told.append(found if isinstance(found, str) else repr(found))
    code = await asyncio.wait_for(running.wait(), 30)
    print("told to stop:", {name: told.count(name) for name in sorted(set(told))}, f"exit {code}")
    wrong = [name for name in told if not name.endswith((": ok", ": error"))]
    return wrong + ([f"exit code {code}"] if code else [])


async def main() -> int:
    clients, seconds = int(os.environ.get("CLIENTS", "200")), float(os.environ.get("SECONDS", "60"))
    with tempfile.TemporaryDirectory() as folder:
        provider = str(HERE / "provider.py")
        async with process(provider, "0") as (_, fast), process(provider, "0.15") as (_, slow):
            settings = Path(folder) / "toolwire.toml"
            settings.write_text(rows(fast, slow), encoding="utf-8")
            async with process(str(HERE / "gateway_process.py"), str(settings)) as (running, port):
                wrong = await under_load(running, int(port), clients, seconds)
                wrong += await while_stopping(running, int(port))
    for line in wrong[:20]:
        print("WRONG", line)
    print("wrong:", len(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
