"""The decision about each request: the bound on requests in flight, and the two states of the bound on queueing time."""

import asyncio
import threading

import pytest

from toolwire.asgi import admission as module
from toolwire.asgi.admission import Admission, ConnectionCounts, max_requests, memory_limit
from toolwire.asgi.offload import LARGE, Offload
from virtual_time import in_virtual_time

LATE = 0.05  # seconds; above the bound of every test


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Turns:
    """An admission, and the turns of its loop."""

    def __init__(self, limit=1000):
        self.clock = Clock()
        self.refusals = []
        self.admission = Admission(limit, 0.01, self.clock)
        self.admission.on_refusal = self.refusals.append

    def turn(self, delay, *, seconds=None):
        self.clock.now += delay if seconds is None else seconds
        self.admission.begin_turn(self.clock.now, delay)

    def overload(self):
        for _ in range(3):
            self.turn(LATE)

    def admitted(self, requests):
        """Return how many of these requests are admitted."""
        count = 0
        for _ in range(requests):
            self.admission.remaining -= 1
            count += self.admission.find_refusal() is None
        return count


@pytest.mark.finding("OP3")
def test_requests_in_flight_are_bounded():
    turns = Turns(limit=2)
    admission = turns.admission
    admission.in_flight = 1
    assert turns.admitted(1) == 1
    admission.in_flight = 2
    assert turns.admitted(3) == 0
    assert turns.refusals == ["requests"] * 3
    admission.in_flight = 1
    assert turns.admitted(1) == 1


@pytest.mark.finding("OP3")
def test_one_long_turn_refuses_nothing():
    turns = Turns()
    turns.turn(2.0)
    turns.turn(0.001)
    turns.turn(LATE)
    turns.turn(LATE)
    assert turns.admitted(100) == 100
    assert not turns.admission.is_overloaded


@pytest.mark.finding("OP3")
def test_burst_is_admitted_unless_the_turn_before_was_late():
    """Otherwise each turn of an overloaded loop would be longer by a factor than the turn before."""
    turns = Turns()
    turns.turn(0.0)
    assert turns.admitted(1000) == 1000
    turns.turn(0.02)
    assert turns.admitted(1000) == 1000
    turns.turn(0.04)
    assert turns.admitted(1000) == 128
    assert turns.admission.is_overloaded


@pytest.mark.finding("OP3")
def test_queue_that_never_becomes_short_is_an_overload():
    turns = Turns()
    turns.overload()
    assert turns.admission.is_overloaded
    turns.turn(LATE)
    assert turns.admitted(100) == 2  # and 98 are refused
    turns.turn(LATE)
    assert turns.admitted(1) == 1
    turns.turn(LATE)
    assert turns.admitted(100) == 2  # the rest of a quota is not added to the next one
    assert turns.refusals == ["delay"] * 196


@pytest.mark.finding("OP3")
def test_turns_that_are_not_late_admit_more():
    turns = Turns()
    turns.overload()
    turns.turn(LATE)
    counts = []
    for _ in range(4):
        counts.append(turns.admitted(100))
        turns.turn(0.0)
    assert counts == [2, 4, 8, 16]
    turns.turn(LATE)
    assert turns.admitted(100) == 2


@pytest.mark.finding("OP3")
def test_overload_ends_a_second_after_its_last_refusal():
    turns = Turns()
    turns.overload()
    turns.turn(LATE)
    turns.admitted(10)
    turns.turn(LATE, seconds=0.9)
    assert turns.admission.is_overloaded
    turns.turn(0.0, seconds=0.2)
    assert not turns.admission.is_overloaded
    assert turns.admitted(100) == 100


@in_virtual_time
async def test_measuring_ends_with_the_last_request():
    admission = Admission(10, 0.01, clock=asyncio.get_running_loop().time)
    admission.in_flight = 1
    admission.start_measuring()
    await asyncio.sleep(1)
    assert admission.is_measuring
    admission.in_flight = 0
    await asyncio.sleep(1)
    assert not admission.is_measuring


class Waiting:
    """Two threads, and calls in them that end when `ends` is set. Each client has one of the threads."""

    def __init__(self):
        self.clock = Clock()
        self.offload = Offload(threads=2, max_delay=0.01, clock=self.clock)
        self.ends = threading.Event()
        self.calls = []

    async def call(self, *clients, work=None):
        started = [
            asyncio.ensure_future(self.offload.run(client, LARGE + 1, work or self.ends.wait)) for client in clients
        ]
        self.calls += started
        await asyncio.sleep(0)
        return started

    async def end(self):
        self.ends.set()
        await asyncio.gather(*self.calls)


@pytest.mark.finding("OP3")
def test_client_is_late_after_its_calls_waited_for_a_while():
    async def run():
        waiting = Waiting()
        offload, clock = waiting.offload, waiting.clock
        await waiting.call("a", "a", "a")
        clock.now += 0.1
        assert not offload.is_late("a", LARGE + 1)  # a burst
        clock.now += 0.2
        assert offload.is_late("a", LARGE + 1)
        assert not offload.is_late("a", LARGE)  # which needs no thread
        assert not offload.is_late("b", LARGE + 1)  # which has a thread of its own
        await waiting.end()
        assert not offload.is_late("a", LARGE + 1)

    asyncio.run(run())


@pytest.mark.finding("OP3")
def test_client_whose_calls_start_in_time_is_not_late():
    """Its queue is never empty, but short."""

    async def run():
        waiting = Waiting()
        offload, clock = waiting.offload, waiting.clock
        gates = [threading.Event() for _ in range(10)]
        started = [(await waiting.call("a", work=gate.wait))[0] for gate in gates]
        for gate, call in zip(gates, started, strict=True):
            assert not offload.is_late("a", LARGE + 1)
            clock.now += 0.005
            gate.set()
            await call
        await waiting.end()

    asyncio.run(run())


@pytest.mark.finding("OP3")
def test_cancelled_call_does_not_make_its_client_late():
    """The client's oldest call is gone, and the next one has just begun to wait."""

    async def run():
        waiting = Waiting()
        offload, clock = waiting.offload, waiting.clock
        *_, cancelled = await waiting.call("a", "a")
        clock.now += 1.0
        await waiting.call("a")
        assert offload.is_late("a", LARGE + 1)
        waiting.calls.remove(cancelled)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        assert not offload.is_late("a", LARGE + 1)
        last = waiting.calls.pop()
        last.cancel()
        await asyncio.wait({last})
        assert not offload.waiting
        await waiting.end()

    asyncio.run(run())


@pytest.mark.finding("OP3")
def test_large_request_of_another_client_is_late_if_all_threads_are():
    async def run():
        waiting = Waiting()
        offload, clock = waiting.offload, waiting.clock
        await waiting.call("a", "b", "a", "b")
        clock.now += 1.0
        assert not offload.is_late("c", LARGE + 1)  # the clients that wait have their share, so the next thread is free
        await waiting.call("c")
        assert not offload.is_late("d", LARGE + 1)
        clock.now += 0.3
        assert offload.is_late("d", LARGE + 1)
        await waiting.end()

    asyncio.run(run())


@pytest.mark.finding("OP3")
def test_default_is_bounded_by_memory_and_descriptors(monkeypatch):
    by_descriptors = ConnectionCounts.from_descriptors().limit
    monkeypatch.setattr("toolwire.asgi.admission.memory_limit", lambda: None)
    assert max_requests() == by_descriptors
    monkeypatch.setattr("toolwire.asgi.admission.memory_limit", lambda: 64 * 1024 * 1024)
    assert max_requests() == 512
    assert max_requests(workers=4) == 128
    monkeypatch.setattr("toolwire.asgi.admission.memory_limit", lambda: 1024)
    assert max_requests() == 16


@pytest.mark.finding("OP3")
def test_memory_is_limited_by_the_control_groups(tmp_path, monkeypatch):
    groups = tmp_path / "cgroup"
    inner = groups / "system.slice" / "toolwire.service"
    inner.mkdir(parents=True)
    monkeypatch.setattr(module, "_CGROUP", groups)
    monkeypatch.setattr(module, "_OWN_GROUPS", tmp_path / "own")
    (tmp_path / "own").write_text("0::/system.slice/toolwire.service\n")
    (inner / "memory.max").write_text("max\n")
    whole = memory_limit()
    assert whole is not None and whole > 2**20
    (groups / "system.slice" / "memory.max").write_text("1048576\n")
    assert memory_limit() == 2**20
    (groups / "memory").mkdir()
    (groups / "memory" / "memory.limit_in_bytes").write_text("524288\n")
    (tmp_path / "own").write_text("9:memory:/docker/abc\n2:cpu:/\n")
    assert memory_limit() == 2**19
