"""Streams on their way through, under every cut, and the client's end of them."""

import asyncio

import pytest

from toolwire import Message, Request, Response, Text, Tool, ToolCall, fold
from toolwire.gateway.downstream import ArrayFrames, Downstream
from toolwire.gateway.fronts import FRONTS
from toolwire.gateway.seen import Seen
from toolwire.gateway.streams import PassingStream, TranslatingStream
from toolwire.ir.events import ResponseStart, StreamFault, TextStart
from toolwire.ir.fold import unfold
from toolwire.ir.losses import Losses
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.wire import get
from virtual_time import run_virtual

ASKED = Request(
    messages=(Message("user", (Text("hi"),)),),
    tools=(Tool("f", "", {"type": "object", "properties": {}}),),
    stream=True,
)
ANSWER = Response(
    "id", "m", (Text("Zürich 😀\n\nok"), ToolCall("c1", "f", {"a": "b\n\n"})), Stop("tool_calls"), Usage(3, 4)
)
WIRES = ("anthropic", "gemini", "ollama", "openai_chat", "openai_responses")
every_wire = pytest.mark.parametrize("wire", WIRES)


def sound(wire):
    encoder = get(wire).stream_encoder(ASKED)
    return b"".join(encoder.feed(event) for event in unfold(ANSWER))


def passing(wire, key=None):
    return PassingStream(get(wire), ASKED, Seen(), FRONTS[wire], key)


def is_between_events(wire, data):
    return not data or data.endswith(FRONTS[wire].event_ends)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_an_event_goes_out_when_it_is_whole_though_its_end_comes_in_pieces(end):
    stream = passing("openai_chat")
    events = [event.replace(b"\n", end) + end * 2 for event in sound("openai_chat").split(b"\n\n") if event]
    for event in events:
        assert b"".join(stream.feed(bytes((byte,))) for byte in event) == event


@pytest.mark.one_in(5)
@every_wire
def test_what_goes_in_comes_out_however_it_is_cut(wire):
    data = sound(wire)
    for cut in range(len(data) + 1):
        stream = passing(wire)
        first, second = stream.feed(data[:cut]), stream.feed(data[cut:])
        assert first + second + stream.close() == data
        assert stream.fault is None and stream.ended
        assert is_between_events(wire, first)


@every_wire
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_what_goes_in_comes_out_in_small_pieces(wire, size):
    data = sound(wire)
    stream = passing(wire)
    out = b""
    for start in range(0, len(data), size):
        out += stream.feed(data[start : start + size])
        assert is_between_events(wire, out)
    assert out + stream.close() == data
    assert stream._seen.calls == ["f"]


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "ollama"])
def test_other_line_ends_pass_as_well(wire, end):
    data = sound(wire).replace(b"\n", end)
    for size in (1, 5, len(data)):
        stream = passing(wire)
        out = b"".join(stream.feed(data[start : start + size]) for start in range(0, len(data), size))
        assert out + stream.close() == data
        assert stream.fault is None


@pytest.mark.one_in(5)
@every_wire
def test_a_stream_that_is_cut_ends_in_an_error_of_its_own_wire(wire):
    data = sound(wire)
    for cut in range(len(data) * 2 // 3):
        stream = passing(wire)
        out = stream.feed(data[:cut]) + stream.close()
        if stream.fault is None:
            assert stream.ended
            continue
        decoder = get(wire).stream_decoder()
        faults = [one for one in [*decoder.feed(out), *decoder.close()] if isinstance(one, StreamFault)]
        assert len(faults) == 1
        assert stream.fault.code == "stream_truncated"


@every_wire
@pytest.mark.parametrize("noise", [b"{not json}", b'"{not json}"', b"[{not json}", b"\xff{not json}"])
def test_what_is_broken_is_not_passed_on(wire, noise):
    data = sound(wire)
    noise = noise + b"\n" if wire == "ollama" else b"data: " + noise + b"\n\n"
    end = FRONTS[wire].event_ends[0]
    cut = data.index(end, len(data) // 3) + len(end)
    stream = passing(wire)
    out = stream.feed(data[:cut] + noise) + stream.feed(data[cut:]) + stream.close()
    assert stream.fault is not None
    assert b"{not json}" not in out


@every_wire
def test_an_error_of_the_upstream_passes_without_the_key(wire):
    key = "sk-secret-0123456789"
    encoder = get(wire).stream_encoder(ASKED)
    first, *_ = unfold(ANSWER)
    data = encoder.feed(first) + encoder.feed(StreamFault(Fault("server", f"bad key {key}", 500)))
    stream = passing(wire, key)
    out = stream.feed(data) + stream.close()
    assert stream.fault is not None and key not in str(stream.fault)
    assert key.encode() not in out


@every_wire
def test_a_failure_on_the_way_is_an_error_event(wire):
    for before in (b"", sound(wire)[: len(sound(wire)) // 2]):
        stream = passing(wire)
        out = stream.feed(before) + stream.fail(Fault("timeout", "too slow", 504))
        assert stream.feed(b"more") == b"" and stream.close() == b""
        decoder = get(wire).stream_decoder()
        (fault,) = [one.fault for one in [*decoder.feed(out), *decoder.close()] if isinstance(one, StreamFault)]
        assert fault.message == "too slow"


def test_an_array_of_events_is_json_however_it_is_cut():
    import json

    data = sound("gemini")
    for size in (1, 3, 50, len(data)):
        frames = ArrayFrames()
        out = b"".join(frames.feed(data[start : start + size]) for start in range(0, len(data), size))
        items = json.loads(out + frames.close())
        decoder = get("gemini").stream_decoder()
        events = decoder.feed(b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in items))
        assert fold([*events, *decoder.close()]).calls[0].arguments == {"a": "b\n\n"}
    assert json.loads(ArrayFrames().close()) == []


class Client:
    """The end of a call, without a socket."""

    def __init__(self, slow=0.0):
        self.started = False
        self.said = []
        self.slow = slow

    async def start(self, status, headers):
        self.started = True
        self.said.append((status, headers))

    async def write(self, data):
        await asyncio.sleep(self.slow)
        self.said.append(data)

    async def end(self):
        self.said.append("end")


def down(client, **options):
    settings = {"every": 0.05, "silence": 5.0, **options}
    return Downstream(client, {"x": "y"}, b"ping", **settings)


def test_pings_come_after_silence_and_not_while_there_are_words():
    async def main():
        client = Client()
        stream = down(client)
        for _ in range(6):
            await asyncio.sleep(0.02)
            await stream.write(b"word")
        assert b"ping" not in client.said
        await asyncio.sleep(0.12)
        assert client.said.count(b"ping") == 2
        await stream.end()
        await asyncio.sleep(0.1)
        assert client.said[-1] == "end"

    run_virtual(main())


def test_a_ping_begins_the_answer_and_is_no_word():
    async def main():
        client = Client()
        stream = down(client)
        await asyncio.sleep(0.08)
        assert client.said[0] == (200, {"x": "y"}) and client.said[1] == b"ping"
        assert not stream.spoke and stream.first_after is None
        stream.close()

    run_virtual(main())


def test_no_ping_goes_into_a_write_that_is_under_way():
    async def main():
        client = Client(slow=0.15)
        stream = down(client)
        await stream.write(b"word")
        assert client.said[1:] == [b"word"]
        stream.close()

    run_virtual(main())


def test_silence_has_an_end():
    async def main():
        stream = down(Client(), silence=0.1, every=10)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(5)
        assert stream.gave_up
        asyncio.current_task().uncancel()
        stream.close()

    run_virtual(main())


def test_a_sign_of_life_of_the_upstream_is_none_of_the_clients():
    async def main():
        client = Client()
        stream = down(client, silence=0.1, every=10)
        for _ in range(5):
            await asyncio.sleep(0.05)
            stream.heard()
        assert not stream.gave_up and not client.said
        stream.close()

    run_virtual(main())


def test_a_stream_without_a_word_has_its_head_and_its_end():
    async def main():
        client = Client()
        await down(client).end()
        assert client.said == [(200, {"x": "y"}), "end"]

    run_virtual(main())


def test_a_ping_that_is_under_way_is_out_before_the_end_is():
    async def main():
        client = Client(slow=0.1)
        stream = down(client, every=0.03, frames=ArrayFrames())
        await asyncio.sleep(0.05)  # the first ping is on its way, and the next one is due
        await stream.end()
        assert client.said[1:] == [b"ping", b"[]", "end"]
        await asyncio.sleep(0.2)
        assert client.said[-1] == "end"
        stream.close()

    run_virtual(main())


def test_no_second_ping_begins_while_the_first_waits_for_the_client():
    async def main():
        client = Client(slow=0.15)
        stream = down(client, every=0.03)
        await asyncio.sleep(0.1)
        await stream.write(b"word")
        await stream.end()
        assert client.said[1:] == [b"ping", b"word", "end"]
        await asyncio.sleep(0.2)
        assert client.said[-1] == "end"
        stream.close()

    run_virtual(main())


def test_what_came_while_the_process_stood_still_counts():
    async def main():
        stream = down(Client(), silence=0.1, every=10)
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, stream.heard)  # it has come, and is read after the timer
        loop.advance(0.3)
        await asyncio.sleep(0.07)
        assert not stream.gave_up
        stream.close()

    run_virtual(main())


class OutOfOrder:
    """An upstream whose events no encoder accepts."""

    losses = Losses()
    should_stop = False

    def reading(self):
        return self

    def feed(self, data):
        return [ResponseStart("r", "m"), TextStart(0), ResponseStart("r", "m")]


@every_wire
def test_events_out_of_order_end_the_translated_stream_in_an_error(wire):
    stream = TranslatingStream(OutOfOrder(), wire, get(wire).stream_encoder(ASKED), Seen(), [], is_first=True)
    written = stream.feed(b"") + stream.feed(b"")
    assert stream.fault is not None and stream.fault.code == "stream_broken"
    decoder = get(wire).stream_decoder()
    assert isinstance([*decoder.feed(written), *decoder.close()][-1], StreamFault)
