"""Several worker processes on one port behave like one process: limits, turns, metrics, reloads, the end."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest
from test_shared_state import HELLO, signed

from hostile import read_answer, request_bytes
from stores.servers import Redis
from toolwire.ir.parts import Text
from toolwire.ir.response import Response, Stop, Usage
from toolwire.testing.upstream import Upstream
from waiting import SAFETY, until
from worker_gateway import CHAT, HISTORY, settings_text, start_gateway, worker_gateway, worker_of

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def state(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    return request.getfixturevalue(f"{request.param}_url")


async def hold_turns(gateway, upstream, count):
    """Ask for signed turns, and return their results on a later connection; every turn must arrive whole."""
    workers = set()
    for number in range(count):
        upstream.script += [signed(number), HELLO]
        first = await gateway.ask(tools=TOOLS, key="cid")
        message = json.loads(first.body)["choices"][0]["message"]
        calls = [{**call, "type": "function"} for call in message["tool_calls"]]
        history = [*HISTORY, {"role": "assistant", "content": None, "tool_calls": calls}]
        history.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": "21 °C"})
        second = await gateway.ask(messages=history, tools=TOOLS, key="cid")
        assert second.status == 200
        assert f"c2lnbmVk{number:06}".encode() in upstream.requests[-1].body
        workers |= {(worker_of(first), worker_of(second))}
    return workers


@pytest.mark.one_in(3)
def test_limits_turns_and_metrics_are_shared_by_all_workers(state, tmp_path):
    async def run():
        async with Upstream(*[HELLO] * 50) as upstream:
            text = settings_text(upstream.url, state, requests_per_minute=50)
            async with worker_gateway(tmp_path, text) as gateway:
                assert len(gateway.workers) == 3
                answers = await asyncio.gather(*(gateway.ask() for _ in range(150)))
                found = [answer.status for answer in answers]
                assert (found.count(200), found.count(429)) == (50, 100)
                assert len({worker_of(answer) for answer in answers}) == 3
                pairs = await hold_turns(gateway, upstream, 20)
                assert any(first != second for first, second in pairs)
                pages = [await gateway.metrics() for _ in range(6)]
                totals = [page["toolwire_requests_total"] for page in pages]
                assert totals == sorted(totals)
                await until_async(lambda: requests_total(gateway), 150 + 40)
                assert await gateway.stop() == 0

    asyncio.run(run())


async def requests_total(gateway):
    return (await gateway.metrics())["toolwire_requests_total"]


async def until_async(get, expected):
    """Wait until `get` returns the expected value; a worker writes its figures once a second."""
    end = time.monotonic() + SAFETY
    while (found := await get()) != expected:
        assert time.monotonic() < end, found
        await asyncio.sleep(0.1)


def test_killed_worker_is_replaced_and_its_counts_stay(tmp_path):
    async def run():
        async with Upstream(*[HELLO] * 100) as upstream:
            text = settings_text(upstream.url, str(tmp_path / "s.db"))
            async with worker_gateway(tmp_path, text, 2) as gateway:
                assert await gateway.statuses(40) == [200] * 40
                await until_async(lambda: requests_total(gateway), 40)
                before = gateway.workers
                os.kill(before[0], signal.SIGKILL)
                await until(lambda: len(gateway.workers) == 2 and before[0] not in gateway.workers)
                assert await gateway.statuses(20) == [200] * 20  # none waits for the worker that ended
                assert await requests_total(gateway) >= 40
                await until_async(lambda: requests_total(gateway), 60)
                assert await gateway.stop() == 0
                assert "ended by signal SIGKILL" in (tmp_path / "log").read_text()

    asyncio.run(run())


def test_sighup_reloads_all_workers_and_sigterm_lets_streams_finish(tmp_path):
    slow = Response(parts=(Text("slowly " * 40),), stop=Stop("stop"), usage=Usage(7, 3))

    async def stream(gateway):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=2**24)
        body = json.dumps({"model": "anthropic/m", "messages": HISTORY, "stream": True}).encode()
        writer.write(request_bytes(CHAT, body, {"authorization": "Bearer ann"}))
        answer = await read_answer(reader)
        writer.close()
        return answer.status, answer.body.count(b"[DONE]")

    async def run():
        async with Upstream(*[slow] * 12, pace=0.03) as upstream:
            text = settings_text(upstream.url, str(tmp_path / "s.db"))
            async with worker_gateway(tmp_path, text) as gateway:
                assert (await gateway.ask("new")).status == 404
                upstream.script[:0] = [HELLO] * 40
                (tmp_path / "toolwire.toml").write_text(text + '[models.new]\nupstream = "anthropic"\nmodel = "m"\n')
                gateway.process.send_signal(signal.SIGHUP)
                await until(lambda: (tmp_path / "log").read_text().count("settings reloaded") == 3)
                answers = await asyncio.gather(*(gateway.ask("new") for _ in range(40)))
                assert {answer.status for answer in answers} == {200}
                assert len({worker_of(answer) for answer in answers}) == 3
                streams = [asyncio.ensure_future(stream(gateway)) for _ in range(12)]
                await upstream.wait_for_requests(40 + 12)
                assert await gateway.stop() == 0
                assert await asyncio.gather(*streams) == [(200, 1)] * 12

    asyncio.run(run())


def test_workers_end_when_the_parent_is_killed(tmp_path):
    async def run():
        async with worker_gateway(tmp_path, settings_text("http://127.0.0.1:9", str(tmp_path / "s.db"))) as gateway:
            workers = gateway.workers
            gateway.process.kill()
            await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))

    asyncio.run(run())


def test_invalid_settings_end_the_start_with_one_error(tmp_path):
    text = settings_text("http://127.0.0.1:9", str(tmp_path / "s.db"), more='[tools."*"]\nfiles = ["missing.py"]\n')
    process = start_gateway(tmp_path, text, "--workers", "3")
    assert process.communicate(timeout=SAFETY)[0] == ""
    assert process.returncode == 2
    assert (tmp_path / "log").read_text().count("missing.py") == 1


def test_second_gateway_does_not_share_the_port(tmp_path):
    async def run():
        text = settings_text("http://127.0.0.1:9", str(tmp_path / "s.db"))
        async with worker_gateway(tmp_path, text, 2) as gateway:
            (tmp_path / "other").mkdir()
            other = start_gateway(tmp_path / "other", text, "--workers", "2", "--port", str(gateway.port))
            assert await asyncio.to_thread(other.wait, SAFETY) == 2
            other.stdout.close()
            assert "cannot listen" in (tmp_path / "other" / "log").read_text()

    asyncio.run(run())


def test_workers_lose_no_turn_and_count_together_while_redis_is_away(redis_server, tmp_path):
    redis = Redis(keeps=False)

    async def run():
        async with Upstream() as upstream:
            text = settings_text(upstream.url, redis.url, requests_per_minute=60)
            async with worker_gateway(tmp_path, text) as gateway:
                upstream.script += [signed(100)]
                first = await gateway.ask(tools=TOOLS, key="cid")
                calls = json.loads(first.body)["choices"][0]["message"]["tool_calls"]
                history = [*HISTORY, {"role": "assistant", "content": None, "tool_calls": calls}]
                history.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": "21 °C"})

                async def finds_old_turn():
                    upstream.script += [HELLO]
                    answer = await gateway.ask(messages=history, tools=TOOLS, key="cid")
                    return answer.status == 200 and b"c2lnbmVk000100" in upstream.requests[-1].body

                assert [await finds_old_turn() for _ in range(6)] == [True] * 6
                redis._process.kill()
                redis._process.wait()
                assert [await finds_old_turn() for _ in range(6)] == [True] * 6
                await hold_turns(gateway, upstream, 10)
                upstream.script += [HELLO] * 60
                found = await gateway.statuses(150, key="bob")
                assert (found.count(200), found.count(429)) == (60, 90)  # of this machine, not of each worker
                await asyncio.to_thread(redis.start)
                await asyncio.sleep(1.1)
                assert [await finds_old_turn() for _ in range(6)] == [True] * 6  # Redis has lost it
                assert await gateway.stop() == 0

    try:
        asyncio.run(run())
    finally:
        redis.stop()
