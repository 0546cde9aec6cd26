"""Large work runs in threads, small work does not; clients take turns."""

import asyncio
import threading

import pytest

from toolwire.asgi.offload import LARGE, ClientOffload, Offload
from toolwire.gateway.answer.work import PIECE, StreamRelay
from toolwire.gateway.memory import MemoryBound, MemoryReservation, StreamMemory
from toolwire.gateway.observe.answer_stats import AnswerStats
from toolwire.ir.events import CallDelta, CallEnd, CallStart
from toolwire.stream.strict import count_values
from waiting import until


@pytest.mark.finding("Z11")
def test_only_large_work_leaves_the_thread_of_the_loop():
    async def main():
        offload = Offload()
        small = await offload.run("a", LARGE, threading.get_ident)
        large = await offload.run("a", LARGE + 1, threading.get_ident)
        return small, large

    small, large = asyncio.run(main())
    assert small == threading.get_ident() != large


@pytest.mark.finding("Z11")
def test_exceptions_of_large_work_are_raised():
    async def main():
        with pytest.raises(ZeroDivisionError):
            await Offload().run("a", LARGE + 1, lambda: 1 / 0)

    asyncio.run(main())


@pytest.mark.finding("Z11")
def test_clients_take_turns():
    """A client with three waiting calls does not delay the only call of another by all of them."""
    order = []

    async def main():
        offload, gate = Offload(threads=1), threading.Event()
        first = asyncio.ensure_future(offload.run("a", LARGE + 1, gate.wait))
        await asyncio.sleep(0)
        calls = [
            asyncio.ensure_future(offload.run(client, LARGE + 1, order.append, name))
            for client, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"))
        ]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, *calls)

    asyncio.run(main())
    assert order == ["a1", "b1", "a2", "a3"]


@pytest.mark.finding("Z11")
@pytest.mark.parametrize(("threads", "share"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_one_client_has_at_most_half_of_the_threads(threads, share):
    """Its further calls wait, although threads are free; another client is served at once."""

    async def main():
        offload, gate, started = Offload(threads), threading.Event(), []

        def work(number):
            started.append(number)
            gate.wait()

        calls = [asyncio.ensure_future(offload.run("a", LARGE + 1, work, number)) for number in range(6)]
        await until(lambda: len(started) == share)
        if threads > 1:
            for _ in range(3):
                assert await offload.run("b", LARGE + 1, lambda: "served") == "served"
        assert started == list(range(share))
        gate.set()
        await asyncio.gather(*calls)
        assert sorted(started) == list(range(6))

    asyncio.run(main())


@pytest.mark.finding("Z11")
def test_threads_of_cancelled_calls_are_free_again():
    """A client whose calls were cancelled, waiting or running, has its whole share again."""

    async def main():
        offload, gate, started = Offload(), threading.Event(), []

        def work(number):
            started.append(number)
            gate.wait()

        calls = [asyncio.ensure_future(offload.run("a", LARGE + 1, work, number)) for number in range(5)]
        await until(lambda: len(started) == 2)
        for call in calls:
            call.cancel()
        gate.set()
        await asyncio.wait(calls)
        assert started == [0, 1]
        both = threading.Barrier(2)
        again = [offload.run("a", LARGE + 1, both.wait, 10) for _ in range(2)]
        assert sorted(await asyncio.gather(*again)) == [0, 1]

    asyncio.run(main())


@pytest.mark.finding("Z11")
def test_cancelled_call_ends_with_its_thread():
    """Otherwise the thread would still use memory that no longer counts as used."""
    events = []

    async def main():
        offload, started, gate = Offload(threads=1), threading.Event(), threading.Event()

        def work():
            started.set()
            gate.wait()
            events.append("thread ended")

        call = asyncio.ensure_future(offload.run("a", LARGE + 1, work))
        waiting = asyncio.ensure_future(offload.run("a", LARGE + 1, events.append, "never called"))
        await until(started.is_set)
        call.cancel()
        waiting.cancel()
        await asyncio.sleep(0.01)
        assert not call.done()
        gate.set()
        await asyncio.wait({call, waiting})
        events.append("call ended")
        assert call.cancelled() and waiting.cancelled()
        assert await offload.run("a", LARGE + 1, lambda: "free") == "free"

    asyncio.run(main())
    assert events == ["thread ended", "call ended"]


class ChunkedReply:
    """A reply whose data has arrived: reading it never suspends the task."""

    status, headers = 200, {}

    def __init__(self, *chunks):
        self.chunks = list(chunks)

    async def read(self):
        return self.chunks.pop(0) if self.chunks else b""


class CollectingStream:
    """Outputs everything at a line break, and notes the thread of each feed."""

    content_bytes = item_count = 0

    def __init__(self):
        self.threads, self.pending = [], b""

    def feed(self, data):
        self.threads.append(threading.get_ident())
        self.pending += data
        if b"\n" not in data:
            return b""
        output, self.pending = self.pending, b""
        return output

    def close(self):
        return self.pending


def relay(*chunks, limit=2**30, stream=None, **options):
    """The pieces that were fed, the loop turns meanwhile, the stream and the memory."""
    stream = stream or CollectingStream()

    async def main():
        turns = 0

        async def tick():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        ticking = asyncio.ensure_future(tick())
        bound = MemoryBound(limit)
        memory = StreamMemory(MemoryReservation(bound), repeats_answer=False)
        stream.stats = AnswerStats()
        relay = StreamRelay(
            ChunkedReply(*chunks), stream, ClientOffload(Offload(), "a"), memory, stream.stats, **options
        )
        pieces, used = [], []
        while piece := await relay.read():
            await relay.feed(piece)
            pieces.append(piece)
            used.append(bound.used)
        await relay.close()
        assert bound.used == 0
        ticking.cancel()
        return pieces, turns, stream, used

    return asyncio.run(main())


@pytest.mark.finding("Z11")
def test_relay_yields_after_each_piece():
    data = b"x\n" * PIECE * 10
    pieces, turns, stream, _ = relay(data)
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) == PIECE and len(pieces) == 20
    assert turns >= 19
    assert set(stream.threads) == {threading.get_ident()}


@pytest.mark.finding("Z11")
def test_relay_yields_between_chunks_that_have_arrived():
    pieces, turns, _, _ = relay(*[b"x\n" * (PIECE // 4)] * 100)
    assert len(pieces) == 100 and turns >= 49


@pytest.mark.finding("Z10", "Z11")
def test_large_event_is_decoded_in_a_thread_and_counted():
    pieces, _, stream, used = relay(b"x" * (LARGE + PIECE), b"\n")
    assert stream.threads[0] == threading.get_ident() != stream.threads[-1]
    assert max(used) == 5 * LARGE and used[-1] == 0
    assert len(pieces) == LARGE // PIECE + 2


class CallStream(CollectingStream):
    """Each line is a call, whose arguments are its bytes; its line break ends it."""

    def feed(self, data):
        for line in data.splitlines(keepends=True):
            key = self.stats.ended_calls
            if len(self.stats.calls) == key:
                self.stats.add_event(CallStart(key, f"c{key}", "f"))
            self.stats.add_event(CallDelta(key, line))
            if line.endswith(b"\n"):
                self.stats.add_event(CallEnd(key, {}))
        return super().feed(data) or data


@pytest.mark.finding("Z11")
@pytest.mark.parametrize(
    ("chunks", "options", "threaded"),
    [
        ([b"tool_use", *[b"x" * 20_000] * 2, b"\n", b"x\n"], {}, [False, False, True, True, False]),
        ([b"tool_use", *[b"x" * 600] * 60, b"\n", b"x\n"], {}, [*[False] * 53, *[True] * 9, False]),
        ([b"text", b"tool_", b"use", b"x\n"], {"call_work": LARGE + 1}, [False, False, True, True]),
        ([b"text"] * 3, {"call_work": LARGE + 1}, [False] * 3),
        ([b"text"] * 2, {"call_work": LARGE + 1, "is_emulated": True}, [True] * 2),
        ([b"tool_use " * 40, b"x"], {}, [True, False]),
        ([b"function\n"] * 40, {}, [*[False] * 31, *[True] * 9]),
    ],
    ids=["large call", "fragments", "repair", "repair, only text", "emulated", "many calls", "many calls in pieces"],
)
def test_large_calls_and_many_calls_end_in_a_thread(chunks, options, threaded):
    _, _, stream, _ = relay(*chunks, stream=CallStream(), **options)
    assert [thread != threading.get_ident() for thread in stream.threads] == threaded


@pytest.mark.finding("Z11")
@pytest.mark.parametrize(
    ("document", "values"),
    [
        (b"{}", 1),
        (b"[1,2,3]", 3),
        (rb'{"a": "\\", "b": "\",[{", "c": [1]}', 4),
        (b'"' + b"," * 1_000_000 + b'"', 0),
        (b"[" + b"1," * 500_000 + b"1]", 500_001),
        (b'["' + b"\\\\" * 500_000 + b'",1]', 2),
        (b'["' + b'\\"' * 500_001 + b'",1,2]', 3),
        (b'["x' + b'\\",' * 500_001 + b'",1,2]', 3),
        (b'["' + b"a" * (256 * 1024 - 3) + b'\\",,,",2]', 2),
    ],
)
def test_values_outside_of_strings_are_counted(document, values):
    assert count_values(document) == values
