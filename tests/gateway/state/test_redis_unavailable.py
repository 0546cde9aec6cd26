"""A gateway whose Redis goes away: requests go on, unless the settings say that they must not."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from test_client_keys import FRONTS, KEY, ask, fault_of, hello

from plain_http import Http
from serving import serving, upstream_rows
from stores.servers import Redis
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.gateway.state.opening import open_state
from toolwire.gateway.state.redis_link import RedisLink
from toolwire.ir.errors import StoreError
from toolwire.testing.upstream import Upstream
from virtual_time import run_virtual
from waiting import SAFETY

UNREACHABLE_REDIS = "redis://me:geheim@127.0.0.1:1/0"


@asynccontextmanager
async def gateway_with(state_row, answers, **limits):
    async with Upstream(*[hello()] * answers) as upstream, Http() as http:
        keys = {"ann": {"hash": hash_key(KEY), **limits}}
        models = {"small": {"upstream": "openai_chat", "model": "m"}}
        document = {"upstreams": upstream_rows(upstream.url), "models": models, "keys": keys, "state": state_row}
        state = open_state(parse_settings(document), {})
        async with serving(document, limiter=state.limiter, turn_store=state.turn_store) as gateway:
            yield gateway, http
        await state.aclose()


@pytest.mark.parametrize("front", FRONTS)
def test_gateway_counts_locally_without_redis(front):
    async def run():
        async with gateway_with({"url": UNREACHABLE_REDIS}, 2, requests_per_minute=2) as (gateway, http):
            return [(await ask(gateway, http, front)).status for _ in range(3)]

    assert asyncio.run(run()) == [200, 200, 429]


@pytest.mark.parametrize("front", FRONTS)
def test_strict_mode_rejects_requests_in_the_protocol_of_the_client(front):
    async def run():
        async with gateway_with({"url": UNREACHABLE_REDIS, "strict": True}, 0, requests_per_minute=2) as (
            gateway,
            http,
        ):
            return await ask(gateway, http, front)

    reply = asyncio.run(run())
    assert fault_of(front, reply).kind in ("overloaded", "server")
    assert reply.status in (503, 529)
    assert "geheim" not in reply.text
    assert "127.0.0.1" not in reply.text


@pytest.fixture
def own_redis(redis_server):
    """Not that of the other tests: this one may go."""
    server = Redis(keeps=False)
    yield server
    server.stop()


def test_requests_continue_through_a_redis_outage(own_redis, caplog):
    async def burst(gateway, http, count):
        replies = await asyncio.gather(*(ask(gateway, http, "openai_chat") for _ in range(count)))
        return {reply.status for reply in replies}

    async def run():
        async with gateway_with({"url": own_redis.url, "timeout": SAFETY}, 200, requests_per_minute=1000) as (
            gateway,
            http,
        ):
            assert await burst(gateway, http, 20) == {200}
            own_redis._process.kill()
            own_redis._process.wait()
            assert await burst(gateway, http, 50) == {200}
            await asyncio.to_thread(own_redis.start)
            await asyncio.sleep(1.1)
            assert await burst(gateway, http, 20) == {200}
            client = own_redis._client()
            counted = sum(int(count) for count in client.hvals("{toolwire:limit:ann}:requests"))
            client.close()
            return counted

    assert asyncio.run(run()) == 20
    lines = [record.getMessage() for record in caplog.records if "shared state" in record.getMessage()]
    assert len(lines) == 2
    assert "is unavailable" in lines[0]
    assert lines[1].endswith("is available again")


def test_requests_to_a_hanging_redis_share_one_timeout():
    async def run():
        async def silent(reader, writer):
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        clock = asyncio.get_running_loop().time
        link = RedisLink(f"redis://127.0.0.1:{port}/0", clock)
        began = clock()
        first = asyncio.ensure_future(link.execute(("PING",)))
        await asyncio.sleep(0.1)
        asked = await asyncio.gather(first, *(link.execute(("PING",)) for _ in range(250)), return_exceptions=True)
        seconds = clock() - began
        await link.aclose()
        server.close()
        return {type(one) for one in asked}, seconds

    kinds, seconds = run_virtual(run())
    assert kinds == {StoreError}
    assert seconds < 1.8


def test_unexpected_redis_client_error_raises_store_error():
    async def run():
        link = RedisLink(UNREACHABLE_REDIS, time.monotonic)

        async def broken(commands):
            raise RuntimeError("unexpected")

        link._exchange = broken
        with pytest.raises(StoreError):
            await asyncio.wait_for(link.execute(("PING",)), SAFETY)

    asyncio.run(run())
