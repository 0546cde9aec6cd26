"""`toolwire serve --workers N` as processes, and clients that open a connection for every request."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import toolwire
from hostile import read_answer, request_bytes
from serving import WIRES
from toolwire.gateway.keys import hash_key
from waiting import SAFETY
from warm_command import WARM

CHAT = "/v1/chat/completions"
METRICS_KEY = "sk-metrics-" + "0" * 32
HISTORY = [{"role": "user", "content": "How warm is it in Paris?"}]


def settings_text(upstream, state, *, more="", **limits):
    rows = [f'[upstreams.{wire}]\nbase_url = "{upstream}"\nwire = "{wire}"\nretries = 0' for wire in WIRES]
    if "[server]" not in more:
        rows.append(f'[server]\nmetrics_key = "{METRICS_KEY}"')
    if "[limits]" not in more:  # a busy machine must not make a burst of requests an overload
        rows.append("[limits]\nloop_delay = 60")
    rows.append(f"[state]\nurl = {json.dumps(state)}\ntimeout = {SAFETY}")
    for name in ("ann", "bob", "cid"):
        rows.append(
            "\n".join([f'[keys.{name}]\nhash = "{hash_key(name)}"', *(f"{k} = {v}" for k, v in limits.items())])
        )
    return "\n".join([*rows, more])


class WorkerGateway:
    """A running gateway. `workers` are the process ids of its workers."""

    def __init__(self, process, port, folder):
        self.process = process
        self.port = port
        # a warm command runs in a process that this one did not start, in the folder of the command
        [self._parent] = _processes_in(folder) - {process.pid} - _children(_processes_in(folder))

    @property
    def workers(self):
        return sorted(_children({self._parent}))

    async def post(self, document, key="ann", path=CHAT):
        return await self._send(request_bytes(path, json.dumps(document).encode(), _key(key)), "POST")

    async def ask(self, model="anthropic/m", messages=HISTORY, key="ann", **more):
        return await self.post({"model": model, "messages": messages, **more}, key)

    async def get(self, path, key="ann"):
        return await self._send(request_bytes(path, b"", _key(key), method="GET"), "GET")

    async def _send(self, data, method):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        try:
            writer.write(data)
            return await read_answer(reader, method)
        finally:
            writer.close()

    async def statuses(self, count, key="ann"):
        answers = await asyncio.gather(*(self.ask(key=key) for _ in range(count)))
        return [answer.status for answer in answers]

    async def metrics(self):
        """The samples of one page, by name, summed over labels."""
        page = (await self.get("/metrics", METRICS_KEY)).body.decode()
        sums = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    async def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, SAFETY)


def _processes_in(folder):
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or belongs to another user
            if (process / "cwd").readlink() == folder:
                found.add(int(process.name))
    return found


def _children(processes):
    """Return the children of the processes, without those of a process that has ended meanwhile."""
    found = set()
    for process in processes:
        with suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                found |= {int(child) for child in (thread / "children").read_text().split()}
    return found


def _key(name):
    return {"authorization": f"Bearer {name}"}


def worker_of(answer):
    """The part of the request id that is the same for all requests of a process."""
    return answer.headers["x-request-id"][:16]


def start_gateway(folder, text, *options):
    file = folder / "toolwire.toml"
    file.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(toolwire.__file__).parent.parent), "NO_COLOR": "1"}
    command = [*WARM, "serve", "--config", str(file), "--port", "0", "--quiet", *options]
    with (folder / "log").open("a") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=log)


@asynccontextmanager
async def worker_gateway(folder, text, workers=3):
    process = start_gateway(folder, text, "--workers", str(workers))
    try:
        line = await asyncio.to_thread(process.stdout.readline)
        found = re.search(r"http://[\d.]+:(\d+)", line)
        assert found, line + (folder / "log").read_text()
        yield WorkerGateway(process, int(found[1]), folder.resolve())
        assert "Traceback" not in (folder / "log").read_text()
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(SAFETY)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
