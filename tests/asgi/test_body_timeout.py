"""The time limit of a body: in any task, and at the same moment as another interruption."""

import asyncio
from functools import partial

import pytest

from toolwire.asgi.http_exchange import BodyTimeout, BodyTooLarge, HttpExchange
from toolwire.gateway.request.transformed import change_body
from toolwire.ir.errors import ProtocolError

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


GZIP_NAME = b"\x1f\x8b\x08\x08" + bytes(6)  # a header whose file name follows, up to a zero byte


def changed_exchange(start, repeated, delay=0.0):
    """Return an exchange whose body is endless, and the list of the pieces that were received."""
    received = []

    async def receive():
        if delay:
            await asyncio.sleep(delay)
        received.append(repeated if received else start)
        return {"type": "http.request", "body": received[-1], "more_body": True}

    return HttpExchange(SCOPE, receive, None), received


def compressed(http_exchange):
    http_exchange.headers["content-encoding"] = "gzip"
    change_body(http_exchange, "", 1_000_000)


every_change = pytest.mark.parametrize("change", [compressed, partial(change_body, model="m", max_bytes=1_000_000)])


@every_change
@pytest.mark.parametrize("read", [read_body, read_piece])
def test_changed_body_that_arrives_slowly_has_the_same_time_limit(virtual_time, read, change):
    """A piece of it needs many received pieces, each in time."""

    async def main():
        http_exchange, received = changed_exchange(GZIP_NAME, b"n", delay=0.75)
        change(http_exchange)
        started_at = asyncio.get_running_loop().time()
        with pytest.raises(BodyTimeout):
            await read(http_exchange, 10.0)
        return asyncio.get_running_loop().time() - started_at, len(received)

    waited, pieces = asyncio.run(main())
    assert (round(waited, 3), pieces) == (10.0, 13)


@every_change
def test_other_tasks_run_between_the_pieces_of_a_changed_body(virtual_time, change):
    """No piece has to be waited for, and none is changed into content."""

    async def main():
        turns = 0

        async def count_turns():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        http_exchange, received = changed_exchange(GZIP_NAME, b"n" * 1000)
        change(http_exchange)
        other = asyncio.ensure_future(count_turns())
        with pytest.raises((ProtocolError, BodyTooLarge)):
            await read_piece(http_exchange, 10.0)
        other.cancel()
        return turns, len(received)

    turns, pieces = asyncio.run(main())
    assert turns >= pieces - 1 > 900


def test_piece_after_the_time_limit_is_refused_without_a_wait(virtual_time):
    async def main():
        http_exchange, received = changed_exchange(GZIP_NAME, b"n")
        compressed(http_exchange)
        with pytest.raises(BodyTimeout):
            await http_exchange.read_piece(0.0)
        return received

    assert asyncio.run(main()) == []
