"""The time limit of a body: in any task, and at the same moment as another interruption."""

import asyncio

import pytest

from toolwire.asgi.http_exchange import BodyTimeout, HttpExchange

SCOPE = {"method": "POST", "path": "/", "query_string": b"", "headers": []}


async def receive_nothing():
    await asyncio.Event().wait()


async def read_body(http_exchange, seconds):
    return await http_exchange.read_body(100, seconds)


async def read_piece(http_exchange, seconds):
    return await http_exchange.read_piece(seconds)


async def receive(http_exchange, seconds):
    message = await http_exchange.bounded_receive(seconds)()
    assert message == {"type": "http.disconnect"}
    raise BodyTimeout("reported as a disconnect")


every_way = pytest.mark.parametrize("read", [read_body, read_piece, receive])


@every_way
def test_time_limit_applies_to_the_task_that_reads(virtual_time, read):
    async def main():
        http_exchange = HttpExchange(SCOPE, receive_nothing, None)
        http_exchange.interruption.attach()
        reader = asyncio.ensure_future(read(http_exchange, 1.0))
        await asyncio.sleep(2.0)  # not interrupted
        with pytest.raises(BodyTimeout):
            await reader
        return asyncio.current_task().cancelling()

    assert asyncio.run(main()) == 0


@every_way
def test_task_goes_on_after_the_time_limit(virtual_time, read):
    async def main():
        with pytest.raises(BodyTimeout):
            await read(HttpExchange(SCOPE, receive_nothing, None), 1.0)
        await asyncio.sleep(1.0)
        return asyncio.current_task().cancelling()

    assert asyncio.run(main()) == 0


@every_way
@pytest.mark.parametrize("is_first", [True, False], ids=["before it", "after it"])
def test_disconnect_in_the_moment_of_the_time_limit_is_a_disconnect(virtual_time, read, is_first):
    async def main():
        loop = asyncio.get_running_loop()
        http_exchange = HttpExchange(SCOPE, receive_nothing, None)
        interruption = http_exchange.interruption
        interruption.attach()
        # timers of the same time are called in one iteration of the loop, in their order, and the task runs in the next one
        if is_first:
            loop.call_later(1.0, interruption.interrupt, "client_gone")
        else:
            loop.call_later(1.0, loop.call_soon, interruption.interrupt, "client_gone")
        with pytest.raises(asyncio.CancelledError):
            await read(http_exchange, 1.0)
        assert interruption.caught("client_gone")
        await asyncio.sleep(1.0)
        return asyncio.current_task().cancelling()

    assert asyncio.run(main()) == 0
