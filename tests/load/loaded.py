"""A gateway in a process of its own, the figures of that process, and the size of a scenario.

`make test` runs each scenario in a short form, `make test-load` (LOAD=1) in the full one. A scenario counts; it measures no
time. `report` prints the counts, so that the output of `make test-load` is a report.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import toolwire
from hostile import Answer, read_answer, request_bytes
from waiting import SAFETY

HERE = Path(__file__).parent
FULL = bool(os.environ.get("LOAD"))
MEMORY_GROWTH = 1.5  # factor of the resident memory after a scenario; the allocator keeps some of the peak


def size(short: int, full: int) -> int:
    return full if FULL else short


def report(scenario: str, **counts: object) -> None:
    print(f"load: {scenario}: " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in counts.items()))


@asynccontextmanager
async def process(*command: str, log: Path | None = None) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A Python process, and the first line that it prints. `log` is the file for its standard error."""
    file = None if log is None else log.open("w")
    environment = {**os.environ, "PYTHONPATH": str(Path(toolwire.__file__).parent.parent), "NO_COLOR": "1"}
    try:
        running = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=file, env=environment
        )
    finally:
        if file is not None:
            file.close()
    try:
        yield running, (await running.stdout.readline()).decode().strip()
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


class LoadedGateway:
    """A running gateway. `log` is its standard error."""

    def __init__(self, running: asyncio.subprocess.Process, banner: str, log: Path) -> None:
        found = re.search(r"http://[\d.]+:(\d+)", banner)
        assert found is not None, banner + log.read_text()
        self.running = running
        self.port = int(found[1])
        self.log = log

    async def tasks(self) -> int:
        self.running.send_signal(signal.SIGUSR1)
        line = b""
        while not line.startswith(b'{"tasks"'):  # the banner has several lines
            line = await self.running.stdout.readline()
            assert line, self.log.read_text()
        return json.loads(line)["tasks"]

    @property
    def memory(self) -> float:
        """Resident memory in MB."""
        lines = Path(f"/proc/{self.running.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.running.pid}/fd").iterdir()))

    async def get(self, path: str) -> Answer:
        return await self.exchange(request_bytes(path, b"", {"connection": "close"}, method="GET"))

    async def exchange(self, data: bytes) -> Answer:
        """Send a request on a new connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        try:
            writer.write(data)
            return await read_answer(reader)
        finally:
            writer.close()

    async def metric(self, name: str, **labels: str) -> float:
        """Add the samples of a metric that have these labels."""
        page = (await self.get("/metrics")).body.decode()
        lines = [line for line in page.splitlines() if re.match(rf"{name}[{{ ]", line)]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(text in line for text in wanted))

    async def settle(self, tasks: int, descriptors: int) -> None:
        """Wait until there are not more tasks and descriptors than that."""
        end = asyncio.get_running_loop().time() + SAFETY
        while (found := (await self.tasks(), self.descriptors)) and (found[0] > tasks or found[1] > descriptors):
            assert asyncio.get_running_loop().time() < end, f"left behind: {found}, before: {(tasks, descriptors)}"
            await asyncio.sleep(0.1)

    async def stop(self) -> int:
        self.running.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.running.wait(), SAFETY)


@asynccontextmanager
async def loaded_gateway(folder: Path, text: str) -> AsyncIterator[LoadedGateway]:
    """The gateway that these settings describe. Its errors are no tracebacks."""
    file, log = folder / "toolwire.toml", folder / "log"
    file.write_text(text, encoding="utf-8")
    async with process(str(HERE / "gateway_process.py"), str(file), log=log) as (running, banner):
        yield LoadedGateway(running, banner, log)
    assert "Traceback" not in log.read_text()


def upstream_row(name: str, url: str, wire: str = "openai_chat", **more: Any) -> str:
    fields = {"base_url": url, "wire": wire, **more}
    return f"[upstreams.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())
