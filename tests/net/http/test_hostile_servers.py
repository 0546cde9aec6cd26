"""The HTTP client against servers that break the protocol, on purpose or not, on both event loops.

Each case ends with an error of its kind, in time and without a secret in it. Afterwards the only slot of the pool is free, the next
request succeeds on a new connection, and no connection is left open.
"""

import asyncio
import ssl

import pytest
import uvloop

from raw_server import CHUNKED, OK, TLS, open_transport, post_request, request, server
from tables import every_case
from waiting import SAFETY, until

RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
on_both_loops = every_case("run", RUNNERS.values(), ids=RUNNERS)
HEAD = b"HTTP/1.1 200 OK\r\n"
IN_CHUNKS = HEAD + b"transfer-encoding: chunked\r\n\r\n"


class Flood:
    """Sends a prefix once, and a piece without end."""

    def __init__(self, prefix, piece):
        self.prefix = prefix
        self.piece = piece

    async def send(self, reader, writer):
        writer.write(self.prefix)
        while not writer.is_closing():
            writer.write(self.piece * (16_384 // len(self.piece) + 1))
            await writer.drain()


class Drip(Flood):
    """A flood in single pieces, with pauses."""

    async def send(self, reader, writer):
        writer.write(self.prefix)
        while not writer.is_closing():
            writer.write(self.piece)
            await writer.drain()
            await asyncio.sleep(0.005)


class Stall(Flood):
    """Sends a prefix, and nothing more."""

    def __init__(self, prefix):
        super().__init__(prefix, b"")

    async def send(self, reader, writer):
        writer.write(self.prefix)
        await reader.read()


NOT_HTTP = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80",
    "unknown version": b"HTTP/3.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
    "short status": b"HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nhi",
    "long status": b"HTTP/1.1 2000 OK\r\ncontent-length: 2\r\n\r\nhi",
    "text status": b"HTTP/1.1 OK\r\ncontent-length: 2\r\n\r\nhi",
    "status above 599": b"HTTP/1.1 999 OK\r\ncontent-length: 2\r\n\r\nhi",
    "status below 100": b"HTTP/1.1 099 OK\r\ncontent-length: 2\r\n\r\nhi",
    "header without a colon": HEAD + b"content-length\r\n\r\nhi",
    "space before the colon": HEAD + b"content-length : 2\r\n\r\nhi",
    "NUL in a header": HEAD + b"a: b\0c\r\ncontent-length: 2\r\n\r\nhi",
    "text length": HEAD + b"content-length: two\r\n\r\nhi",
    "negative length": HEAD + b"content-length: -2\r\n\r\nhi",
    "signed length": HEAD + b"content-length: +2\r\n\r\nhi",
    "huge length": HEAD + b"content-length: 99999999999999999999\r\n\r\nhi",
    "list of lengths": HEAD + b"content-length: 2, 2\r\n\r\nhi",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nhi!",
    "length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "chunks and length": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "text chunk size": IN_CHUNKS + b"zz\r\nhi\r\n0\r\n\r\n",
    "negative chunk size": IN_CHUNKS + b"-2\r\nhi\r\n0\r\n\r\n",
    "empty chunk size": IN_CHUNKS + b"\r\nhi\r\n0\r\n\r\n",
    "huge chunk size": IN_CHUNKS + b"fffffffffffffffff\r\nhi\r\n0\r\n\r\n",
    "spaces in a chunk size": IN_CHUNKS + b"2 2\r\nhi\r\n0\r\n\r\n",
    "chunk longer than its size": IN_CHUNKS + b"2\r\nhi!!\r\n0\r\n\r\n",
}
FRAMING = {
    "two transfer codings": HEAD
    + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "compressed chunks": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "coding after chunks": HEAD + b"transfer-encoding: chunked, gzip\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "unknown transfer coding": HEAD + b"transfer-encoding: xchunked\r\n\r\nhi",
    "identity transfer coding": HEAD + b"transfer-encoding: identity\r\n\r\nhi",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "unknown content coding": HEAD + b"content-encoding: br\r\ncontent-length: 2\r\n\r\nhi",
    "list of content codings": HEAD + b"content-encoding: gzip, gzip\r\ncontent-length: 2\r\n\r\nhi",
    "other protocol": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhi",
    "tunnel": b"HTTP/1.1 101 Switching Protocols\r\n\r\nhi",
    "not compressed": HEAD + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi",
    "many headers": HEAD + b"".join(b"x-%d: y\r\n" % number for number in range(300)) + b"content-length: 2\r\n\r\nhi",
}
CUT_OFF = {
    "nothing": b"",
    "half a status line": b"HTTP/1.1 20",
    "half a head": HEAD + b"content-le",
    "half a body": HEAD + b"content-length: 9\r\n\r\nhi",
    "half a chunk": IN_CHUNKS + b"9\r\nhi",
    "no last chunk": IN_CHUNKS + b"2\r\nhi\r\n",
    "half the trailers": IN_CHUNKS + b"2\r\nhi\r\n0\r\nx-a: ",
    "interim response only": b"HTTP/1.1 100 Continue\r\n\r\n",
}
ENDLESS = {
    "status line": Flood(HEAD[:-2], b"x"),
    "header name": Flood(HEAD, b"x"),
    "header value": Flood(HEAD + b"x: ", b"y"),
    "headers": Flood(HEAD, b"same: y\r\n"),
    "interim responses": Flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim headers": Flood(b"HTTP/1.1 103 Early Hints\r\n", b"link: y\r\n"),
    "zeros of a chunk size": Flood(IN_CHUNKS, b"0"),
    "chunk extension": Flood(IN_CHUNKS + b"2;", b"x"),
    "chunk extensions": Flood(IN_CHUNKS, b"1;" + b"x" * 2000 + b"\r\na\r\n"),
    "trailer": Flood(IN_CHUNKS + b"2\r\nhi\r\n0\r\nx: ", b"y"),
    "trailers": Flood(IN_CHUNKS + b"2\r\nhi\r\n0\r\n", b"x: y\r\n"),
}
SLOW = {
    "silence": Stall(b""),
    "slow status line": Drip(b"HTTP/1.1 200 ", b"x"),
    "slow head": Drip(HEAD, b"x: y\r\n"),
    "silence after the head": Stall(HEAD + b"content-length: 9\r\n\r\n"),
    "silence in the body": Stall(HEAD + b"content-length: 9\r\n\r\nhi"),
    "silence in a chunk": Stall(IN_CHUNKS + b"9\r\nhi"),
    "slow body": Drip(IN_CHUNKS, b"1\r\na\r\n"),
    "interim response and silence": Stall(b"HTTP/1.1 100 Continue\r\n\r\n"),
}


def hostile_once(answer, how="close"):
    """Answer the first request with `answer`, and all others well. The first connection is then closed, reset or left."""

    async def respond(reader, writer, seen):
        seen["open"] = seen.get("open", 0) + 1
        try:
            while True:
                seen["requests"].append(await request(reader))
                if len(seen["requests"]) > 1:
                    writer.write(OK)
                    continue
                if isinstance(answer, Flood):
                    await answer.send(reader, writer)
                    return
                writer.write(answer)
                await writer.drain()
                if how == "reset":
                    writer.transport.abort()
                if how != "keep":
                    return
        finally:
            seen["open"] -= 1

    return respond


async def check_failure(answer, error, message, how="close", seconds=SAFETY):
    async with server(hostile_once(answer, how)) as there, open_transport(connections=1) as transport:
        with pytest.raises(error, match=message) as raised:
            await post_request(transport, there["url"], seconds=seconds)
        assert "secret" not in str(raised.value)
        assert (await post_request(transport, there["url"]))[2] == b"hi"
        await until(lambda: there["open"] == 1)  # that of the second request, which is idle
        assert there["connections"] == 2
    await until(lambda: there["open"] == 0)


@on_both_loops
@every_case("answer", NOT_HTTP.values(), ids=NOT_HTTP)
@every_case("how", ["close", "keep"])
def test_invalid_http_is_refused(answer, how, run):
    run(check_failure(answer, ConnectionError, "not HTTP", how))


@on_both_loops
@every_case("answer", FRAMING.values(), ids=FRAMING)
@every_case("how", ["close", "keep"])
def test_unsupported_response_is_refused(answer, how, run):
    run(check_failure(answer, ConnectionError, "transfer coding|content-encoding|another protocol|256 headers", how))


@on_both_loops
@every_case("answer", CUT_OFF.values(), ids=CUT_OFF)
@every_case("how", ["close", "reset"])
def test_truncated_response_is_an_error(answer, how, run):
    run(check_failure(answer, ConnectionError, "closed before the end of the response", how))


@on_both_loops
@every_case("answer", ENDLESS.values(), ids=ENDLESS)
def test_endless_framing_is_refused(answer, run):
    run(check_failure(answer, ConnectionError, "64 KiB|not HTTP"))


@on_both_loops
@pytest.mark.parametrize("answer", SLOW.values(), ids=SLOW)  # each waits for its deadline
def test_slow_response_ends_at_the_deadline(answer, run):
    run(check_failure(answer, TimeoutError, "the deadline passed", seconds=1.0))


# responses that are valid, with something after them


NO_BODY = {
    "no content": b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    "no content, and chunks": b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
    "empty body": HEAD + b"content-length: 0\r\n\r\n",
}
FORGED = OK.replace(b"hi", b"no")


@on_both_loops
@every_case("answer", NO_BODY.values(), ids=NO_BODY)
@every_case("rest", [b"", b"extra", FORGED], ids=["nothing", "bytes", "response"])
def test_bytes_after_a_response_without_body_are_not_read(answer, rest, run):
    async def check():
        async with server(hostile_once(answer + rest, "keep")) as there, open_transport(connections=1) as transport:
            assert (await post_request(transport, there["url"]))[2] == b""
            assert (await post_request(transport, there["url"]))[2] == b"hi"
            assert there["connections"] == (2 if rest else 1)

    run(check())


@on_both_loops
@every_case("answer", [OK, CHUNKED], ids=["length", "chunks"])
@every_case("rest", [b"extra", FORGED], ids=["bytes", "response"])
@every_case("is_late", [False, True], ids=["together", "later"])
def test_bytes_after_a_response_are_never_the_next_response(answer, rest, is_late, run):
    async def respond(reader, writer, seen):
        seen["requests"].append(await request(reader))
        is_first = len(seen["requests"]) == 1
        if is_first and not is_late:
            writer.write(answer + rest)
        else:
            writer.write(answer if is_first else OK)
            await seen["read"].wait()
            writer.write(rest)
        await reader.read()

    async def check():
        async with server(respond) as there, open_transport(connections=1) as transport:
            there["read"] = asyncio.Event()
            assert (await post_request(transport, there["url"]))[0] == 200
            there["read"].set()
            await asyncio.wait_for(there["closed"].wait(), SAFETY)  # by the client
            assert (await post_request(transport, there["url"]))[2] == b"hi"
            assert there["connections"] == 2

    run(check())


@on_both_loops
def test_response_to_head_has_no_body(run):
    async def respond(reader, writer, seen):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(HEAD + b"content-length: 1000\r\n\r\n")

    async def check():
        async with server(respond) as there, open_transport(connections=1) as transport:
            for _ in range(2):
                async with transport.send("HEAD", f"{there['url']}/", {}, {}, b"", SAFETY) as reply:
                    assert (reply.status, reply.headers["content-length"], await reply.read()) == (200, "1000", b"")

    run(check())


@on_both_loops
@every_case("status", [301, 302, 303, 307, 308])
def test_redirect_is_not_followed(status, run):
    async def check():
        async with server(hostile_once(OK)) as other:
            answer = b"HTTP/1.1 %d Found\r\nlocation: %b/\r\ncontent-length: 0\r\n\r\n" % (
                status,
                other["url"].encode(),
            )
            async with server(hostile_once(answer)) as there, open_transport() as transport:
                assert (await post_request(transport, there["url"]))[0] == status
            assert other["connections"] == 0

    run(check())


@on_both_loops
def test_trailer_does_not_replace_a_header(run):
    async def check():
        answer = (
            HEAD
            + b"x-a: head\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-a: trailer\r\nx-b: trailer\r\n\r\n"
        )
        async with server(hostile_once(answer)) as there, open_transport() as transport:
            status, headers, body = await post_request(transport, there["url"])
            assert (status, headers["x-a"], "x-b" in headers, body) == (200, "head", False, b"hi")

    run(check())


@on_both_loops
def test_reply_cannot_be_read_after_its_request(run):
    """Its connection may already carry the response to another request."""

    async def check():
        async with server(hostile_once(OK, "keep")) as there, open_transport() as transport:
            async with transport.post(f"{there['url']}/", {}, {}, b"", SAFETY) as reply:
                assert await reply.read() == b"hi"
            with pytest.raises(ConnectionError, match="after its request had ended"):
                await reply.read()
            assert (reply.status, reply.headers["x-a"]) == (200, "b")

    run(check())


# hostile TLS


def server_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


GREETINGS = {"plain HTTP": OK, "garbage": b"\x16\x03\x03\xff\xff" * 10, "nothing": b""}


@on_both_loops
@every_case("greeting", GREETINGS.values(), ids=GREETINGS)
def test_failed_handshake_reports_that_nothing_was_sent(greeting, run):
    async def respond(reader, writer, seen):
        await reader.read(1)
        writer.write(greeting)

    async def check():
        async with server(respond) as there, open_transport(connections=1) as transport:
            for _ in range(2):
                with pytest.raises(ConnectionRefusedError):
                    await post_request(transport, there["url"].replace("http:", "https:"))

    run(check())


@on_both_loops
def test_silent_handshake_ends_at_the_connect_timeout(run):
    async def respond(reader, writer, seen):
        await reader.read()

    async def check():
        async with server(respond) as there, open_transport(connections=1, connect_timeout=0.1) as transport:
            while there["connections"] < 2:  # the time may also pass before the server accepts
                with pytest.raises(TimeoutError, match="no connection was established in time"):
                    await post_request(transport, there["url"].replace("http:", "https:"))
            await asyncio.wait_for(there["closed"].wait(), SAFETY)

    run(check())


@on_both_loops
@every_case("answer", [FRAMING["compressed chunks"], *list(CUT_OFF.values())[:4]])
def test_hostile_response_over_tls_is_refused(answer, run):
    async def check():
        roots = [(TLS / "ca.pem").read_bytes()]
        async with (
            server(hostile_once(answer), ssl=server_context()) as there,
            open_transport(connections=1, roots=roots) as transport,
        ):
            with pytest.raises(ConnectionError):
                await post_request(transport, there["url"])
            assert (await post_request(transport, there["url"]))[2] == b"hi"
            await until(lambda: there["open"] == 1)

    run(check())


# cancellation and slots


@on_both_loops
def test_cancelled_requests_leave_no_slot_occupied(run):
    async def respond(reader, writer, seen):
        seen["requests"].append(await request(reader))
        seen["asked"].set()
        if len(seen["requests"]) > 1:
            writer.write(OK)
        await reader.read()

    async def check():
        async with server(respond) as there, open_transport(connections=1) as transport:
            tasks = [asyncio.create_task(post_request(transport, there["url"])) for _ in range(5)]
            await there["asked"].wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() for task in tasks)
            assert (await post_request(transport, there["url"]))[2] == b"hi"
            assert len(there["requests"]) == 2

    run(check())


@on_both_loops
def test_waiting_request_gets_the_slot_of_a_failed_one(run):
    async def check():
        async with server(hostile_once(b"garbage", "keep")) as there, open_transport(connections=1) as transport:
            results = await asyncio.gather(
                *(post_request(transport, there["url"]) for _ in range(3)), return_exceptions=True
            )
            assert [type(result) for result in results] == [ConnectionError, tuple, tuple]

    run(check())
