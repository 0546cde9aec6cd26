"""Gateways in processes of their own, with a port for each, and nginx with the configuration of deploy/ in front of them."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from hostile import Answer, read_answer, request_bytes
from places import ROOT
from waiting import SAFETY, until
from worker_gateway import METRICS_KEY, start_gateway

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not on the PATH")
# What the image of nginx has in its own configuration, for a process without root's folders.
PREAMBLE = "daemon off; pid {0}/pid; error_log {0}/error.log;\n"
FOLDERS = "".join(
    f"  {name}_temp_path {{0}}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


async def get(port: int, path: str, key: str = "") -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        headers = {"connection": "close"} | ({"authorization": f"Bearer {key}"} if key else {})
        writer.write(request_bytes(path, b"", headers, method="GET"))
        return await read_answer(reader, "GET")
    finally:
        writer.close()


class Member:
    """A gateway process. It is started with the settings of its cluster, and is ready when `start` returns."""

    def __init__(self, folder: Path, text: str, port: int) -> None:
        folder.mkdir()
        self.port = port
        self.log = folder / "log"
        self.process = start_gateway(folder, text, "--port", str(port))

    async def start(self) -> None:
        banner = await asyncio.to_thread(self.process.stdout.readline)
        assert f":{self.port}" in banner, banner + self.log.read_text()
        while True:
            with suppress(OSError):
                if (await get(self.port, "/ready")).status == 200:
                    return
            await asyncio.sleep(0.02)

    async def in_flight(self) -> int:
        page = (await get(self.port, "/metrics", METRICS_KEY)).body.decode()
        return int(float(re.findall(r"^toolwire_requests_in_flight (\S+)$", page, re.MULTILINE)[0]))

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = await asyncio.to_thread(self.process.wait, SAFETY)
        self.process.stdout.close()
        return code


class Cluster:
    """`count` gateways with the same settings. `port` is that of nginx; `keeps_alive`: for its clients, too."""

    def __init__(self, folder: Path, text: str, count: int, *, keeps_alive: bool) -> None:
        self._folder = folder
        self._text = text
        self._count = count
        self._keeps_alive = keeps_alive
        self._started = 0
        self.members: list[Member] = []
        self.port = free_port()

    async def start(self) -> None:
        self.members = [self._new_member(free_port()) for _ in range(self._count)]
        await asyncio.gather(*(member.start() for member in self.members))
        self._configure()
        log = (self._folder / "nginx.log").open("w")
        command = ["nginx", "-c", str(self._folder / "nginx.conf"), "-p", str(self._folder)]
        self._nginx = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220
        log.close()
        await until(self._answers)

    def _answers(self) -> bool:
        assert self._nginx.poll() is None, (self._folder / "nginx.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _new_member(self, port: int) -> Member:
        self._started += 1
        return Member(self._folder / f"gateway-{self._started}", self._text, port)

    def _configure(self) -> None:
        """Write the configuration of deploy/ with the ports of these gateways."""
        text = (ROOT / "deploy/nginx.conf").read_text("utf-8")
        servers = re.findall(r"^ +server [\d.:]+( .*;)\n", text, re.MULTILINE)
        rows = [f"    server 127.0.0.1:{member.port}{servers[0]}\n" for member in self.members]
        text = re.sub(r"(^ +server [\d.:]+ .*;\n)+", lambda _: "".join(rows), text, count=1, flags=re.MULTILINE)
        text, listens = re.subn(r"listen 4141;", f"listen 127.0.0.1:{self.port};", text)
        kept = "" if self._keeps_alive else "  keepalive_timeout 0;\n"
        text, blocks = re.subn(r"^http \{\n", f"http {{\n  access_log off;\n{kept}{FOLDERS}", text, flags=re.MULTILINE)
        assert (len(servers), listens, blocks) == (3, 1, 1)
        (self._folder / "nginx.conf").write_text((PREAMBLE + text).replace("{0}", str(self._folder)))

    async def replace_in_place(self, number: int) -> int:
        """Stop a gateway, and start another one at its address, as `docker compose up` does. Return its exit code.

        nginx is not told: the gateway refuses connections, and nginx sends their requests to the others.
        """
        code = await self.members[number].stop()
        self.members[number] = self._new_member(self.members[number].port)
        await self.members[number].start()
        return code

    async def replace_by_another(self, number: int) -> int:
        """Start another gateway, let nginx use it, and then stop the old one, as Kubernetes does. Return its exit code."""
        old, new = self.members[number], self._new_member(free_port())
        await new.start()
        self.members[number] = new
        self._configure()
        before = _children(self._nginx.pid)
        self._nginx.send_signal(signal.SIGHUP)
        await until(lambda: _children(self._nginx.pid) - before)  # `preStop` of the chart waits for the same
        return await old.stop()

    async def stop(self) -> list[int]:
        self._nginx.terminate()
        await asyncio.to_thread(self._nginx.wait, SAFETY)
        return [await member.stop() for member in self.members]

    def logs(self) -> str:
        return "".join(file.read_text() for file in sorted(self._folder.glob("gateway-*/log")))


def _children(process: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()}


@asynccontextmanager
async def cluster(folder: Path, text: str, count: int, *, keeps_alive: bool = True) -> AsyncIterator[Cluster]:
    """A running cluster, whose processes have ended afterwards."""
    running = Cluster(folder, text, count, keeps_alive=keeps_alive)
    try:
        await running.start()
        yield running
    finally:
        for process in [*(member.process for member in running.members), getattr(running, "_nginx", None)]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        for member in running.members:
            member.process.stdout.close()
