"""The delivery of an answer: its states, its signs of life, and whose silence it is."""

import asyncio

import pytest

from tables import every_case
from toolwire.asgi.interruption import Interruption
from toolwire.gateway.answer.delivery import TRANSITIONS, ArrayFrames, Delivery, IllegalStep, StreamDelivery
from virtual_time import run_virtual


class Client:
    """A client that reads the answer while `reads` is set."""

    def __init__(self):
        self.started = False
        self.got = []
        self.interruption = Interruption()
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
    wake = StreamDelivery.check_time

    def look(self):
        looks.append(self)
        wake(self)

    monkeypatch.setattr(StreamDelivery, "check_time", look)
    return looks


@pytest.mark.parametrize("why", ["no ping", "a client that does not read"])
def test_stream_that_cannot_be_pinged_is_not_polled_repeatedly(why, monkeypatch):
    async def run():
        client = Client()
        looks = count_wakeups(StreamDelivery, monkeypatch)
        down = StreamDelivery(client, [], b"" if why == "no ping" else b"ping", ping_interval=0.1, idle_timeout=60)
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
        down = StreamDelivery(client, [], b"ping", ping_interval=0.05, idle_timeout=0.2)
        asyncio.get_running_loop().call_later(0.5, client.reads.set)
        await down.write(b"one")
        await asyncio.sleep(0.1)  # it is heard again
        await down.end()
        return client.got

    got = run_virtual(run())
    assert got[0] == b"one" and got[-1] == b"END"


def test_stream_can_be_ended_after_a_write_is_cancelled_during_a_ping():
    async def run():
        client = Client()
        client.reads.clear()
        down = StreamDelivery(client, [], b"ping", ping_interval=0.02, idle_timeout=60)
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


class ReadyClient(Client):
    """A client whose socket takes data at once while `reads` is set."""

    def try_write(self, data):
        if self.reads.is_set():
            self.got.append(data)
        return self.reads.is_set()


def test_output_is_written_at_once_only_after_other_output():
    async def run():
        client = ReadyClient()
        down = StreamDelivery(client, [], b"ping", ping_interval=1, idle_timeout=60)
        assert not down.try_write(b"one")  # the head is missing
        await down.write(b"one")
        assert down.try_write(b"two")
        client.reads.clear()
        assert not down.try_write(b"three")  # the client is slow
        await asyncio.sleep(1.5)  # a ping waits for the client
        client.reads.set()
        assert not down.try_write(b"three")
        await down.write(b"three")
        assert down.try_write(b"four")
        await down.end()
        assert not down.try_write(b"five")
        return client.got

    assert run_virtual(run()) == [b"one", b"two", b"ping", b"three", b"four", b"END"]


def test_output_written_at_once_defers_pings_and_the_idle_timeout():
    async def run():
        client = ReadyClient()
        down = StreamDelivery(client, [], b"ping", ping_interval=0.5, idle_timeout=1)
        await down.write(b"0")
        for _ in range(10):
            await asyncio.sleep(0.3)
            assert down.try_write(b"1")
        await down.end()
        return client.got

    assert run_virtual(run()) == [b"0", *[b"1"] * 10, b"END"]


def test_output_in_another_framing_is_not_written_at_once():
    async def run():
        down = StreamDelivery(ReadyClient(), [], b"", ping_interval=1, idle_timeout=60, frames=ArrayFrames())
        await down.write(b"data: 1\n\n")
        written = down.try_write(b"data: 2\n\n")
        down.close()
        return written

    assert not run_virtual(run())


class SlowClient:
    """The end of a call, without a socket. A write takes `slow` seconds."""

    def __init__(self, slow=0.0):
        self.started = False
        self.output = []
        self.slow = slow
        self.interruption = Interruption()

    async def start(self, status, headers):
        self.started = True
        self.output.append((status, headers))

    async def write(self, data):
        await asyncio.sleep(self.slow)
        self.output.append(data)

    async def end(self):
        self.output.append("end")


def down(client, **options):
    settings = {"ping_interval": 0.05, "idle_timeout": 5.0, **options}
    return StreamDelivery(client, [(b"x", b"y")], b"ping", **settings)


def test_pings_are_sent_only_after_silence():
    async def main():
        client = SlowClient()
        stream = down(client)
        for _ in range(6):
            await asyncio.sleep(0.02)
            await stream.write(b"word")
        assert b"ping" not in client.output
        await asyncio.sleep(0.12)
        assert client.output.count(b"ping") == 2
        await stream.end()
        await asyncio.sleep(0.1)
        assert client.output[-1] == "end"

    run_virtual(main())


def test_ping_starts_the_response_but_is_not_content():
    async def main():
        client = SlowClient()
        stream = down(client)
        await asyncio.sleep(0.08)
        assert client.output[0] == (200, [(b"x", b"y")]) and client.output[1] == b"ping"
        assert stream.state == "alive" and not stream.has_output and stream.time_to_first_chunk is None
        stream.close()

    run_virtual(main())


def test_ping_does_not_interrupt_a_write_in_progress():
    async def main():
        client = SlowClient(slow=0.15)
        stream = down(client)
        await stream.write(b"word")
        assert client.output[1:] == [b"word"]
        stream.close()

    run_virtual(main())


def test_upstream_silence_times_out():
    async def main():
        client = SlowClient()
        stream = down(client, idle_timeout=0.1, ping_interval=10)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(5)
        assert client.interruption.caught("upstream_idle")
        stream.close()

    run_virtual(main())


def test_upstream_keep_alive_resets_the_timeout_and_is_not_forwarded():
    async def main():
        client = SlowClient()
        stream = down(client, idle_timeout=0.1, ping_interval=10)
        for _ in range(5):
            await asyncio.sleep(0.05)
            stream.note_activity()
        assert not client.output
        stream.close()

    run_virtual(main())


def test_empty_stream_sends_headers_and_end():
    async def main():
        client = SlowClient()
        await down(client).end()
        assert client.output == [(200, [(b"x", b"y")]), "end"]

    run_virtual(main())


def test_pending_ping_is_written_before_the_end():
    async def main():
        client = SlowClient(slow=0.1)
        stream = down(client, ping_interval=0.03, frames=ArrayFrames())
        await asyncio.sleep(0.05)  # the first ping is on its way, and the next one is due
        await stream.end()
        assert client.output[1:] == [b"ping", b"[]", "end"]
        await asyncio.sleep(0.2)
        assert client.output[-1] == "end"
        stream.close()

    run_virtual(main())


def test_second_ping_waits_until_the_first_is_written():
    async def main():
        client = SlowClient(slow=0.15)
        stream = down(client, ping_interval=0.03)
        await asyncio.sleep(0.1)
        await stream.write(b"word")
        await stream.end()
        assert client.output[1:] == [b"ping", b"word", "end"]
        await asyncio.sleep(0.2)
        assert client.output[-1] == "end"
        stream.close()

    run_virtual(main())


def test_data_received_during_a_process_pause_prevents_the_timeout():
    async def main():
        stream = down(SlowClient(), idle_timeout=0.1, ping_interval=10)
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, stream.note_activity)  # it has come, and is read after the timer
        loop.advance(0.3)
        await asyncio.sleep(0.07)
        stream.close()

    run_virtual(main())


STATES = ("silent", "alive", "streaming", "ended")
STEPS = ("respond", "ping", "write", "end", "abandon")


@every_case("state", STATES)
@every_case("step", STEPS)
def test_step_is_allowed_exactly_if_the_table_lists_it(state, step):
    delivery = Delivery(SlowClient())
    delivery.state = state
    if (state, step) in TRANSITIONS:
        delivery.advance(step)
        assert delivery.state == TRANSITIONS[state, step]
    else:
        with pytest.raises(IllegalStep, match=f"{state} does not allow '{step}'"):
            delivery.advance(step)
        assert delivery.state == state


def test_every_state_is_reached_and_can_end():
    assert {state for state, _ in TRANSITIONS} == set(STATES) == {*TRANSITIONS.values(), "silent"}
    assert all(TRANSITIONS[state, "abandon"] == "ended" for state in STATES)
    assert {step for state, step in TRANSITIONS if state == "ended"} == {"abandon"}


def test_states_follow_a_stream():
    async def main():
        stream = down(SlowClient())
        seen = [stream.state]
        await asyncio.sleep(0.08)
        seen.append(stream.state)
        await stream.write(b"word")
        seen.append(stream.state)
        await stream.end()
        with pytest.raises(IllegalStep):
            await stream.write(b"more")
        return [*seen, stream.state]

    assert run_virtual(main()) == ["silent", "alive", "streaming", "ended"]
