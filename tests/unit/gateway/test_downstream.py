"""The client's end of a stream: signs of life, and whose silence it is."""

import asyncio

import pytest

from toolwire.gateway.answer.downstream import Downstream
from virtual_time import run_virtual


class Client:
    """Takes what is written once `reads` is set."""

    def __init__(self):
        self.started = False
        self.got = []
        self.reads = asyncio.Event()
        self.reads.set()

    async def start(self, status, headers):
        self.started = True

    async def write(self, data):
        await self.reads.wait()
        self.got.append(data)

    async def end(self):
        self.got.append(b"END")


def count_wakeups(down, monkeypatch):
    """How often it looked."""
    looks = []
    wake = Downstream._on_timer

    def look(self):
        looks.append(self)
        wake(self)

    monkeypatch.setattr(Downstream, "_on_timer", look)
    return looks


@pytest.mark.parametrize("why", ["no ping", "a client that does not read"])
def test_stream_that_cannot_be_pinged_is_not_polled_repeatedly(why, monkeypatch):
    async def run():
        client = Client()
        looks = count_wakeups(Downstream, monkeypatch)
        down = Downstream(client, {}, b"" if why == "no ping" else b"ping", ping_interval=0.1, idle_timeout=60)
        if why != "no ping":
            client.reads.clear()
            writing = asyncio.ensure_future(down.write(b"one"))
        await asyncio.sleep(0.55)
        down.close()
        client.reads.set()
        if why != "no ping":
            await writing
        return len(looks)

    assert run_virtual(run()) < 10


def test_slow_client_does_not_count_as_upstream_silence():
    async def run():
        client = Client()
        client.reads.clear()
        down = Downstream(client, {}, b"ping", ping_interval=0.05, idle_timeout=0.2)
        asyncio.get_running_loop().call_later(0.5, client.reads.set)
        await down.write(b"one")
        await asyncio.sleep(0.1)  # it is heard again
        await down.end()
        return client.got, down.idle_timed_out

    got, gave_up = run_virtual(run())
    assert not gave_up
    assert got[0] == b"one" and got[-1] == b"END"


def test_stream_can_be_ended_after_a_write_is_cancelled_during_a_ping():
    async def run():
        client = Client()
        client.reads.clear()
        down = Downstream(client, {}, b"ping", ping_interval=0.02, idle_timeout=60)
        await asyncio.sleep(0.1)  # the ping waits for the client
        writing = asyncio.ensure_future(down.write(b"one"))
        await asyncio.sleep(0.02)
        writing.cancel()
        await asyncio.wait({writing})
        client.reads.set()
        await down.write(b"error")
        await down.end()
        return client.got

    assert run_virtual(run()) == [b"ping", b"error", b"END"]
