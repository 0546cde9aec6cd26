"""Frames of our server, by the case list of Autobahn's test suite, in every chunking, and over a real connection.

The numbers are those of Autobahn's cases (https://github.com/crossbario/autobahn-testsuite). Cases of permessage-deflate
(12 and 13) do not apply: no extension is negotiated, and a bit of one fails the connection.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import NamedTuple

import pytest
from asgi_servers import running
from memory_connection import Client, settle

from raw_websocket import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    close,
    exchange,
    frame,
    handshake,
    read_frames,
)
from toolwire.asgi.admission import DefaultLimits
from toolwire.asgi.websocket import open_websocket
from toolwire.asgi.websocket_frames import WebSocketFrames

LIMIT = 100_000  # bytes of a message
NORMAL = close(1000)
HI = frame(TEXT, b"hi")
UTF8 = "Hello-µ@ßöäüàá-UTF-8!! κόσμε 😀".encode()


class Case(NamedTuple):
    """Data of a client, and what an echo answers before the close frame with `code`; None: a close frame without one.

    Messages before a violation in the same data need not be answered: `echoes` are those that must be.
    """

    data: bytes
    code: int | None = 1000
    echoes: tuple[tuple[int, bytes], ...] = ()


def echo(opcode, payload):
    """A message that is sent back, and the end of the connection."""
    return Case(frame(opcode, payload) + NORMAL, 1000, ((opcode, payload),))


def fragments(opcode, *pieces, between=b""):
    """A message in fragments."""
    frames = [
        frame(CONTINUATION if number else opcode, piece, fin=number == len(pieces) - 1)
        for number, piece in enumerate(pieces)
    ]
    return between.join(frames)


def split(text, size):
    return [text[start : start + size] for start in range(0, len(text), size)]


CASES = {
    **{f"1.1 text of {size}": echo(TEXT, b"*" * size) for size in (0, 125, 126, 127, 128, 65535, 65536)},
    **{f"1.2 binary of {size}": echo(BINARY, b"\xfe" * size) for size in (0, 125, 126, 127, 128, 65535, 65536)},
    "2.1 ping": Case(frame(PING) + NORMAL, 1000, ((PONG, b""),)),
    "2.3 ping with bytes": Case(frame(PING, b"\x00\xff\xfe") + NORMAL, 1000, ((PONG, b"\x00\xff\xfe"),)),
    "2.4 ping of 125": Case(frame(PING, b"\xfe" * 125) + NORMAL, 1000, ((PONG, b"\xfe" * 125),)),
    "2.5 ping of 126": Case(frame(PING, b"\xfe" * 126), 1002),
    "2.7 unsolicited pong": Case(frame(PONG, b"x") + NORMAL),
    "2.10 ten pings": Case(
        b"".join(frame(PING, b"%d" % number) for number in range(10)) + NORMAL,
        1000,
        tuple((PONG, b"%d" % number) for number in range(10)),
    ),
    **{f"3 reserved bits {bits}": Case(frame(TEXT, b"x", reserved=bits), 1002) for bits in range(1, 8)},
    **{f"3 reserved bits {bits} of a ping": Case(frame(PING, reserved=bits), 1002) for bits in (1, 4)},
    **{f"4 opcode {code}": Case(frame(code, b"x"), 1002) for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "5.1 fragmented ping": Case(fragments(PING, b"a", b"b"), 1002),
    "5.2 fragmented pong": Case(fragments(PONG, b"a", b"b"), 1002),
    "5.3 fragments": Case(fragments(TEXT, b"a", b"b") + NORMAL, 1000, ((TEXT, b"ab"),)),
    "5.5 fragments of a binary message": Case(
        fragments(BINARY, b"\x00", b"\xff") + NORMAL, 1000, ((BINARY, b"\x00\xff"),)
    ),
    "5.6 ping between fragments": Case(
        fragments(TEXT, b"a", b"b", between=frame(PING, b"p")) + NORMAL, 1000, ((PONG, b"p"), (TEXT, b"ab"))
    ),
    "5.9 continuation of nothing": Case(frame(CONTINUATION, b"x"), 1002),
    "5.10 continuation of nothing, not final": Case(frame(CONTINUATION, b"x", fin=False), 1002),
    "5.15 continuation after a message": Case(
        fragments(TEXT, b"a", b"b") + frame(CONTINUATION, b"c"), 1002, ((TEXT, b"ab"),)
    ),
    "5.18 text in a fragmented message": Case(frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
    "5.19 many fragments": Case(fragments(TEXT, *[b"x"] * 300) + NORMAL, 1000, ((TEXT, b"x" * 300),)),
    "6.1 empty fragments": Case(fragments(TEXT, b"", b"", b"") + NORMAL, 1000, ((TEXT, b""),)),
    "6.1 empty fragments around text": Case(fragments(TEXT, b"", b"x", b"") + NORMAL, 1000, ((TEXT, b"x"),)),
    "6.2 UTF-8": echo(TEXT, UTF8),
    **{
        f"6.2 UTF-8 in fragments of {size}": Case(fragments(TEXT, *split(UTF8, size)) + NORMAL, 1000, ((TEXT, UTF8),))
        for size in (1, 2, 3)
    },
    "6.2 code point in two fragments with a ping between": Case(
        fragments(TEXT, b"\xce", b"\xba", between=frame(PING)) + NORMAL, 1000, ((PONG, b""), (TEXT, b"\xce\xba"))
    ),
    **{
        f"6.3-6.21 {name}": Case(frame(TEXT, text), 1007)
        for name, text in {
            "surrogate in UTF-8": b"\xed\xa0\x80",
            "pair of surrogates": b"\xed\xa0\x80\xed\xb0\x80",
            "overlong slash": b"\xc0\xaf",
            "overlong slash of 3": b"\xe0\x80\xaf",
            "overlong NUL": b"\xf0\x80\x80\x80",
            "beyond U+10FFFF": b"\xf4\x90\x80\x80",
            "5 bytes": b"\xf8\x88\x80\x80\x80",
            "lonely continuation": b"\x80",
            "truncated": b"abc\xce",
            "impossible byte": b"\xfe",
            "Autobahn's example": b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        }.items()
    },
    **{
        f"6.22 {name}": echo(TEXT, text.encode())
        for name, text in {"U+0000": "\0", "U+FFFF": "\uffff", "U+10FFFF": "\U0010ffff", "U+D7FF": "\ud7ff"}.items()
    },
    "6.4 invalid in the second fragment": Case(fragments(TEXT, b"abc", b"\xff", b"def"), 1007),
    "6.4 truncated at the last fragment": Case(fragments(TEXT, b"abc", b"\xce"), 1007),
    "6 binary that is not UTF-8": echo(BINARY, b"\xff\xfe"),
    "7.1.1 message and close": echo(TEXT, b"Hello World!"),
    "7.1.2 two closes": Case(NORMAL + NORMAL),
    "7.1.3 ping after a close": Case(NORMAL + frame(PING)),
    "7.1.4 text after a close": Case(NORMAL + HI),
    "7.1.5 close in a fragmented message": Case(frame(TEXT, b"a", fin=False) + NORMAL, 1002),
    "7.3.1 close without a code": Case(frame(CLOSE), None),
    "7.3.2 close with one byte": Case(frame(CLOSE, b"\x03"), 1002),
    "7.3.5 close with the longest reason": Case(close(1000, b"x" * 123)),
    "7.3.6 close with too long a reason": Case(close(1000, b"x" * 124), 1002),
    "7.5.1 close with an invalid reason": Case(close(1000, b"\xed\xa0\x80"), 1007),
    **{
        f"7.7 close code {code}": Case(close(code), code)
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    },
    **{
        f"7.9 invalid close code {code}": Case(close(code), 1002)
        for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535)
    },
    "9 largest message": echo(TEXT, b"*" * LIMIT),
    "9 message that is too large": Case(frame(TEXT, b"*" * (LIMIT + 1)), 1009),
    "9 fragments that are too large": Case(fragments(TEXT, b"*" * LIMIT, b"*"), 1009),
    "9 fragments of one byte": Case(fragments(BINARY, *[b"x"] * 1000) + NORMAL, 1000, ((BINARY, b"x" * 1000),)),
    "9 announced size of 8 exabytes": Case(struct.pack(">BBQ", 0x81, 0xFF, 2**63 - 1) + b"mask", 1009),
    "masking: none": Case(frame(TEXT, b"x", mask=None), 1002),
    "masking: none for a close": Case(frame(CLOSE, mask=None), 1002),
    "masking: of zeros": Case(frame(TEXT, b"x", mask=bytes(4)) + NORMAL, 1000, ((TEXT, b"x"),)),
}


async def echo_app(scope, receive, send):
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
    assert message["type"] == "websocket.disconnect"


def limits():
    return DefaultLimits(body=LIMIT)


def chat(data, size=None):
    """Return the frames that the server has answered to data in chunks, and whether it has ended its side."""

    async def main():
        client = Client(echo_app, upgrade=open_websocket, limits=limits)
        await client.send(handshake())
        head = len(client.connection.written)
        assert client.connection.written.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        await client.send(data, size)
        await settle()
        is_closed = client.connection.closed
        client.protocol.connection_lost(None)
        await settle()
        return read_frames(client.connection.written[head:]), is_closed

    return asyncio.run(main())


def check(case, frames, *, is_split):
    *answers, end = frames
    assert (end.opcode, end.code) == (CLOSE, case.code)
    if is_split:
        assert tuple(answers) == case.echoes
    else:  # a close in the same data as a message may be answered first
        assert set(answers) <= set(case.echoes)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [None, 1, 7, 4096])
def test_case_of_autobahn_in_memory(name, size):
    case = CASES[name]
    if size in (1, 7) and len(case.data) > 5000:
        pytest.skip("many chunks, which the other sizes have, too")
    frames, is_closed = chat(case.data, size)
    assert is_closed
    check(case, frames, is_split=size == 1)


def test_cases_of_autobahn_over_connections():
    with running("own", echo_app, upgrade=open_websocket, limits=limits) as address:
        for case in CASES.values():
            head, frames = exchange(address, case.data)
            assert b"sec-websocket-accept: " + ACCEPT in head and b"extensions" not in head
            check(case, frames, is_split=False)


def test_pongs_and_messages_keep_their_order_in_any_chunking():
    data = b"".join(HI + frame(PING, b"%d" % number) for number in range(5)) + fragments(TEXT, b"\xce", b"\xba")
    expected = None
    for size in itertools.chain(range(1, 20), [None]):
        frames = WebSocketFrames(LIMIT)
        messages = []
        for start in range(0, len(data), size or len(data)):
            messages += frames.receive(data[start : start + (size or len(data))])
        written, is_end = frames.take()
        result = (messages, read_frames(written), is_end)
        expected = expected or result
        assert result == expected
    assert expected[0] == ["hi"] * 5 + ["κ"] and not expected[2]


@pytest.mark.parametrize(
    "head",
    [
        handshake(sec_websocket_key=""),
        handshake(sec_websocket_key="c2hvcnQ="),
        handshake(sec_websocket_version="8"),
        handshake(content_length="2") + b"hi",
        handshake(transfer_encoding="chunked") + b"0\r\n\r\n",
        handshake().replace(b"GET", b"POST"),
        handshake().replace(b"HTTP/1.1", b"HTTP/1.0"),
        handshake(upgrade="h2c"),
    ],
)
def test_invalid_handshake_is_a_request_over_http(head):
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope["type"])
        await send({"type": "http.response.start", "status": 426, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b""})

    async def main():
        client = Client(app, upgrade=open_websocket)
        return await client.send(head)

    assert asyncio.run(main()).startswith(b"HTTP/1.1 426")
    assert scopes == ["http"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"type": "websocket.close"}], b"HTTP/1.1 403 "),
        (
            [
                {"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-a", b"b")]},
                {"type": "websocket.http.response.body", "body": b"no", "more_body": True},
                {"type": "websocket.http.response.body", "body": b"ne"},
            ],
            b"HTTP/1.1 401 ",
        ),
        ([], b"HTTP/1.1 500 "),
        ([{"type": "websocket.send", "text": "early"}], b"HTTP/1.1 500 "),
    ],
)
def test_refused_handshake_gets_an_answer_over_http(messages, expected):
    async def app(scope, receive, send):
        for message in messages:
            await send(message)

    async def main():
        client = Client(app, upgrade=open_websocket)
        await client.send(handshake() + HI)
        return client.connection.written, client.connection.closed

    written, is_closed = asyncio.run(main())
    assert written.startswith(expected) and is_closed
    if b" 401 " in expected:
        assert b"x-a: b\r\n" in written and written.endswith(b"\r\n\r\nnone")


@pytest.mark.parametrize(("fails", "code"), [(False, 1000), (True, 1011)])
def test_end_of_the_application_closes_the_connection(fails, code):
    async def app(scope, receive, send):
        await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][1]})
        if fails:
            raise OSError("lost")

    async def main():
        client = Client(app, upgrade=open_websocket)
        await client.send(handshake(sec_websocket_protocol="a, b"))
        return client.connection.written

    head, _, rest = asyncio.run(main()).partition(b"\r\n\r\n")
    assert b"sec-websocket-protocol: b" in head
    assert [received.code for received in read_frames(rest)] == [code]


def test_application_that_reads_slowly_pauses_the_client():
    go_on = asyncio.Event()
    received = []

    async def app(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await go_on.wait()
        while (message := await receive())["type"] == "websocket.receive":
            received.append(message["text"])

    async def main():
        client = Client(app, upgrade=open_websocket)
        await client.send(handshake() + frame(TEXT, b"x" * 60_000))
        assert not client.connection.read_paused
        await client.send(frame(TEXT) * 100)  # an empty message takes memory, too
        assert client.connection.read_paused
        go_on.set()
        await settle()
        await settle()
        assert not client.connection.read_paused
        await client.send(NORMAL)

    asyncio.run(main())
    assert [len(text) for text in received] == [60_000] + [0] * 100


@pytest.mark.parametrize("small", [frame(CONTINUATION, fin=False), frame(PONG), frame(CONTINUATION, b"x", fin=False)])
def test_many_small_frames_do_not_delay_other_clients(small):
    """They are parsed in several turns of the event loop, in order, and reading pauses meanwhile."""

    async def main():
        client = Client(echo_app, upgrade=open_websocket, limits=limits)
        await client.send(handshake())
        start = len(client.connection.written)
        count = 20_000
        data = frame(TEXT, b"a", fin=False) + small * count + frame(CONTINUATION, b"b")
        client.protocol.data_received(data[:-4])
        client.protocol.data_received(data[-4:])
        turns = 0
        while client.connection.read_paused and turns < count:
            turns += 1
            await asyncio.sleep(0)
        assert count / 3000 < turns < count
        await settle()
        await client.send(NORMAL)
        return read_frames(client.connection.written[start:])

    echoed, end = asyncio.run(main())
    assert echoed.payload == b"a" + b"x" * (20_000 if len(small) > 6 else 0) + b"b" and end.code == 1000


@pytest.mark.parametrize("is_accepted", [True, False])
def test_client_that_does_not_read_its_pongs_is_disconnected(is_accepted):
    """A client that reads a byte from time to time would keep them, and get more and more, otherwise."""
    go_on = asyncio.Event()

    async def app(scope, receive, send):
        await receive()
        if not is_accepted:
            await go_on.wait()
        await send({"type": "websocket.accept"})
        assert (await receive())["type"] == "websocket.disconnect"

    async def main():
        client = Client(app, upgrade=open_websocket)
        await client.send(handshake())
        if is_accepted:
            await client.send(frame(PING) * 5000)
            assert not client.connection.closed
            client.protocol.pause_writing()
        start = len(client.connection.written)
        for _ in range(100):
            client.protocol.data_received(frame(PING, b"x" * 125) * 100)
        go_on.set()
        await settle()
        return client.connection.written[start:].rpartition(b"\r\n\r\n")[2]

    received = read_frames(asyncio.run(main()))
    assert received[-1].code == 1008 and 300 < len(received) < 1000


def test_silent_client_is_pinged_and_then_aborted(virtual_time):
    async def main():
        client = Client(echo_app, upgrade=open_websocket)
        await client.send(handshake())
        head = len(client.connection.written)
        await asyncio.sleep(31)
        assert [received.opcode for received in read_frames(client.connection.written[head:])] == [PING]
        await client.send(frame(PONG))
        await asyncio.sleep(45)
        assert not client.connection.closed
        await asyncio.sleep(60)
        return client.connection.aborted

    assert asyncio.run(main())


@pytest.mark.parametrize(
    ("first", "more"),
    [(frame(TEXT, b"a", fin=False), frame(CONTINUATION, b"a", fin=False)), (frame(TEXT, b"abc" * 50)[:9], b"a")],
)
def test_message_that_stays_incomplete_closes_the_connection(virtual_time, first, more):
    async def main():
        client = Client(echo_app, upgrade=open_websocket)
        await client.send(handshake())
        head = len(client.connection.written)
        await client.send(first)
        for _ in range(9):
            await asyncio.sleep(10)
            if not client.connection.closed:
                await client.send(more)
        return [received.code for received in read_frames(client.connection.written[head:])]

    assert asyncio.run(main()) == [1008]
