"""Three gateways behind a balancer that knows nothing: what they share is as if they were one."""

import asyncio
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import toolwire
from chat_client import ChatClient
from serving import WIRES
from toolwire.gateway.keys import hash_key
from toolwire.gateway.state.usage import open_usage
from toolwire.ir.parts import Artefact, Reasoning, Text, ToolCall
from toolwire.ir.response import Response, Stop, Usage
from toolwire.testing.upstream import Upstream
from waiting import SAFETY, until
from warm_command import WARM

HISTORY = [{"role": "user", "content": "How warm is it in Paris?"}]
MODEL = "anthropic/m"
HELLO = Response(parts=(Text("hi"),), stop=Stop("stop"), usage=Usage(7, 3))


def signed(number):
    thought = Reasoning("Paris.", artefacts=(Artefact("anthropic", "signature", f"c2lnbmVk{number:06}"),))
    call = ToolCall(f"call_{number}", "weather", {"city": "Paris"})
    return Response(parts=(thought, call), stop=Stop("tool_calls"), usage=Usage(10, 5))


class GatewayProcesses:
    """`toolwire serve`, several times, with the same settings."""

    def __init__(self, folder, settings):
        self._file = folder / "toolwire.toml"
        self._file.write_text(settings)
        self._processes = []
        self.urls = []

    def start(self, count):
        environment = {**os.environ, "PYTHONPATH": str(Path(toolwire.__file__).parent.parent)}
        command = [*WARM, "serve", "--config", str(self._file), "--port", "0", "--quiet"]
        for _ in range(count):
            self._processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True))
        for process in self._processes[-count:]:
            self.urls.append(re.search(r"http://[\d.:]+", process.stdout.readline())[0])

    def kill(self, number):
        self._end(number, signal.SIGKILL)

    def stop(self):
        return [self._end(number, signal.SIGTERM) for number in range(len(self._processes))]

    def _end(self, number, how):
        process = self._processes[number]
        if process.poll() is None:
            process.send_signal(how)
        with process:
            return process.wait(SAFETY)


def settings(upstream, redis, usage, **limits):
    lines = [f'[upstreams.{wire}]\nbase_url = "{upstream}"\nwire = "{wire}"\nretries = 0' for wire in WIRES]
    lines.append(f"[state]\nurl = {json.dumps(redis)}\nusage = {json.dumps(usage)}\ntimeout = {SAFETY}")
    lines.append("[limits]\nloop_delay = 60")  # a busy machine must not make a burst of requests an overload
    for name in ("ann", "bob"):
        lines.append(
            "\n".join([f'[keys.{name}]\nhash = "{hash_key(name)}"', *(f"{k} = {v}" for k, v in limits.items())])
        )
    return "\n".join(lines)


@pytest.fixture(params=["sqlite", "postgres"])
def usage(request, tmp_path):
    return str(tmp_path / "usage.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def requests_in(usage):
    store = open_usage(usage)
    try:
        return sum(one.requests for one in store.sums("key", 0.0))
    finally:
        store.close()


async def statuses(client, count):
    replies = await asyncio.gather(*(client.post(MODEL, HISTORY) for _ in range(count)))
    return [reply.status for reply in replies]


@pytest.mark.one_in(2)
def test_limits_signatures_and_usage_are_shared_and_survive_a_killed_gateway(redis_url, usage, tmp_path):
    async def run():
        script = [*[HELLO] * 20, signed(1), HELLO, signed(2), HELLO]
        async with Upstream(*script) as upstream:
            machines = GatewayProcesses(tmp_path, settings(upstream.url, redis_url, usage, requests_per_minute=30))
            await asyncio.to_thread(machines.start, 3)
            try:
                await exchange(machines, upstream)
            finally:
                codes = await asyncio.to_thread(machines.stop)
            assert codes == [-signal.SIGKILL, 0, 0]

    async def exchange(machines, upstream):
        others = machines.urls[1:]
        async with ChatClient(machines.urls, "ann") as ann, ChatClient(machines.urls, "bob", stream=True) as bob:
            assert await statuses(ann, 20) == [200] * 20
            message = await ann.ask(MODEL, HISTORY)  # on the third machine
            assert (await ann.send_tool_results(MODEL, HISTORY, message)).status == 200  # on the first
            assert b"c2lnbmVk000001" in upstream.requests[-1].body
            bobs = await bob.ask(MODEL, HISTORY)  # on the first
        await until(lambda: requests_in(usage) == 23, 0.1)
        machines.kill(0)
        async with ChatClient(others, "ann") as ann, ChatClient(others, "bob") as bob:
            assert (await bob.send_tool_results(MODEL, HISTORY, bobs)).status == 200
            assert b"c2lnbmVk000002" in upstream.requests[-1].body
            upstream.script += [HELLO] * 8
            answers = await statuses(ann, 40)
            assert (answers.count(200), answers.count(429)) == (8, 32)  # 22 of 30 were used before

    asyncio.run(run())
    store = open_usage(usage)
    found = {one.what: one for one in store.sums("key", 0.0)}
    store.close()
    assert (found["ann"].requests, found["ann"].errors, found["bob"].requests) == (62, 32, 2)
    assert found["ann"].input == 29 * 7 + 10


def test_shared_limit_is_exact_under_concurrent_requests(redis_url, tmp_path):
    async def run():
        async with Upstream(*[HELLO] * 200) as upstream:
            usage = str(tmp_path / "usage.db")
            machines = GatewayProcesses(tmp_path, settings(upstream.url, redis_url, usage, requests_per_minute=50))
            await asyncio.to_thread(machines.start, 3)
            try:
                async with ChatClient(machines.urls, "ann") as ann, ChatClient(machines.urls, "bob") as bob:
                    return await asyncio.gather(statuses(ann, 150), statuses(bob, 150)), len(upstream.requests)
            finally:
                await asyncio.to_thread(machines.stop)

    answers, heard = asyncio.run(run())
    assert [(one.count(200), one.count(429)) for one in answers] == [(50, 100)] * 2
    assert heard == 100


def test_stopping_gateway_finishes_answers_and_writes_usage(redis_url, tmp_path):
    usage = str(tmp_path / "usage.db")

    async def run():
        async with Upstream(
            *[Response(parts=(Text("slowly " * 40),), stop=Stop("stop"), usage=Usage(7, 3))] * 6, pace=0.03
        ) as upstream:
            machines = GatewayProcesses(tmp_path, settings(upstream.url, redis_url, usage))
            await asyncio.to_thread(machines.start, 3)
            async with ChatClient(machines.urls, "ann", stream=True) as ann:
                asked = asyncio.gather(*(ann.post(MODEL, HISTORY) for _ in range(6)))
                await upstream.wait_for_requests(6)
                codes = await asyncio.to_thread(machines.stop)
                return codes, [reply.text.count("[DONE]") for reply in await asked]

    codes, ends = asyncio.run(run())
    assert (codes, ends) == ([0, 0, 0], [1] * 6)
    store = open_usage(usage)
    [found] = store.sums("key", 0.0)
    store.close()
    assert (found.requests, found.input, found.output) == (6, 42, 18)
