"""Errors of generating threads reach their readers, and a closed model leaves no reader waiting."""

import asyncio
import threading

import pytest

from hostile import run
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import UpstreamError
from toolwire.local.engine import Generations
from toolwire.local.transport import InProcessTransport
from toolwire.stream.strict import parse_object
from waiting import SAFETY


async def read_all(generations, generate):
    return [chunk async for chunk in generations.chunks(generate)]


@run
async def test_unexpected_error_is_logged_and_reaches_the_reader(caplog):
    def generate(put_chunk):
        put_chunk(b"a")
        raise KeyError("/srv/secret")

    generations = Generations(1)
    with pytest.raises(UpstreamError) as caught:
        await read_all(generations, generate)
    generations.close()
    assert (caught.value.fault.kind, caught.value.status) == ("server", 500)
    assert "secret" not in str(caught.value) and "secret" in caplog.text


@run
async def test_close_ends_running_and_waiting_readers_with_an_error():
    generations, began = Generations(1), threading.Event()

    def generate(put_chunk):
        began.set()
        while not put_chunk(b"a"):
            pass

    def never(put_chunk):
        raise AssertionError("there is one thread only")

    readers = [asyncio.create_task(read_all(generations, generate))]
    await asyncio.to_thread(began.wait, SAFETY)
    readers.append(asyncio.create_task(read_all(generations, never)))
    await asyncio.sleep(0)
    generations.close()
    _, waiting = await asyncio.wait(readers, timeout=SAFETY)
    assert not waiting
    assert [reader.exception().status for reader in readers] == [503, 503]
    with pytest.raises(UpstreamError, match="the model was closed"):
        await read_all(generations, never)


@run
async def test_reply_to_an_unknown_model_does_not_list_the_others(caplog):
    def open_model(name):
        raise ConfigError(f"unknown head {name!r}", hint="available: internal-head")

    async with InProcessTransport(open_model).post("", {}, {}, b'{"model": "nope"}', 1) as reply:
        body = parse_object(await reply.read())
    assert reply.status == 404
    assert body["error"]["message"] == "unknown model 'nope'"
    assert "available: internal-head" in caplog.text
