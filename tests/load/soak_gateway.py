"""The gateway under load, for SECONDS (60) with CLIENTS (200): `make test-soak`.

Every answer is its own question's, errors come only where the provider failed, nothing is left behind, memory stays flat;
and streams that run while the gateway is told to stop finish, or end in an error event. A question that is refused because
of overload is asked again, since other programs may need the CPU.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parent)]

from loaded import LoadedGateway, loaded_gateway, process, upstream_row  # noqa: E402
from questions import Load, is_refused, outcome, question  # noqa: E402

from hostile import read_answer  # noqa: E402
from serving import WIRES  # noqa: E402

SETTINGS = """
[limits]
ping = 0.5
cooldown = 0.01
connections = 512
[server]
drain = 3
"""
ROW = {"timeout": 8, "idle": 4, "retries": 0}
REFUSED = "refused because of overload"
GROWTH = 1.15  # of memory, between the middle and the end


def rows(fast: str, slow: str) -> str:
    named = [(wire, fast, wire) for wire in WIRES] + [(f"slow-{wire}", slow, wire) for wire in WIRES]
    return SETTINGS + "".join(upstream_row(name, url, wire, **ROW) for name, url, wire in named)


async def sampled(gateway: LoadedGateway, samples: list[float], every: float) -> None:
    while True:
        samples.append(gateway.memory)
        await asyncio.sleep(every)


async def under_load(gateway: LoadedGateway, clients: int, seconds: float) -> list[str]:
    warm = Load(gateway.port, repeats=True)
    await warm.run(20, 3)
    before, open_before = await gateway.tasks(), gateway.descriptors
    load, samples = Load(gateway.port, repeats=True), []
    sampling = asyncio.create_task(sampled(gateway, samples, seconds / 30))
    await load.run(clients, seconds)
    sampling.cancel()
    await asyncio.sleep(10)  # the longest that a stalled upstream is waited for, and more
    after, open_after = await gateway.tasks(), gateway.descriptors
    faults = await gateway.metric("toolwire_requests_total", status="500")
    print(f"{sum(load.outcomes.values())} requests in {seconds:g} s, {clients} clients")
    for name, count in sorted(load.outcomes.items()):
        print(f"  {count:7} {name}")
    print("memory in MB:", " ".join(f"{one:.0f}" for one in samples[::3]), f"then {gateway.memory:.0f}")
    print(f"tasks: {before} before, {after} after; open files: {open_before}, {open_after}")
    wrong = warm.wrong + load.wrong
    if after > before + 2:
        wrong.append("tasks are left behind")
    if open_after > open_before + clients:  # each may have left one idle connection to an upstream, and no more
        wrong.append("connections are left behind")
    third = len(samples) // 3
    middle, end = max(samples[third : 2 * third]), max(samples[2 * third :])
    if end > middle * GROWTH + 5:
        wrong.append(f"memory grew from {middle:.0f} to {end:.0f} MB")
    if faults:
        wrong.append(f"{faults:g} answers have status 500")
    return wrong


async def while_stopping(running, port: int, clients: int = 50, key: str = "") -> list[str]:
    """Streams that take a second, and streams that take longer than the gateway waits for them."""
    told: list[str] = []
    asked = [(WIRES[n % 5], WIRES[n // 5 % 5], "brief" if n % 2 else "words") for n in range(clients)]

    async def one(number: int, front: str, wire: str, how: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        data, _ = question(front, f"slow-{wire}/m", how, number, stream=True, key=key)
        writer.write(data)
        answer = await read_answer(reader)
        writer.close()
        return REFUSED if is_refused(answer) else f"{how}: {outcome(answer, front, stream=True)}"

    streams = [asyncio.create_task(one(n, *what)) for n, what in enumerate(asked, 1)]
    await asyncio.sleep(0.7)
    running.send_signal(signal.SIGTERM)
    for found in await asyncio.gather(*streams, return_exceptions=True):
        told.append(found if isinstance(found, str) else repr(found))
    code = await asyncio.wait_for(running.wait(), 30)
    print("told to stop:", {name: told.count(name) for name in sorted(set(told))}, f"exit {code}")
    wrong = [name for name in told if not name.endswith((": ok", ": error")) and name != REFUSED]
    if told.count(REFUSED) > clients // 2:  # they began at once, and are not repeated at a gateway that stops
        wrong.append(f"{told.count(REFUSED)} of {clients} streams were refused")
    return wrong + ([f"exit code {code}"] if code else [])


async def main() -> int:
    clients, seconds = int(os.environ.get("CLIENTS", "200")), float(os.environ.get("SECONDS", "60"))
    with tempfile.TemporaryDirectory() as folder:
        provider = str(HERE / "provider.py")
        async with (
            process(provider, "0") as (_, fast),
            process(provider, "0.15") as (_, slow),
            loaded_gateway(Path(folder), rows(fast, slow)) as gateway,
        ):
            wrong = await under_load(gateway, clients, seconds)
            wrong += await while_stopping(gateway.running, gateway.port)
    for line in wrong[:20]:
        print("WRONG", line)
    print("wrong:", len(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
