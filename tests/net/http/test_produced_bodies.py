"""Request bodies that are sent while they are produced."""

import asyncio

import pytest
import uvloop

from raw_server import OK, open_transport, post_request, server
from toolwire.ir.errors import ConfigError
from toolwire.net import StreamedBody
from waiting import SAFETY

RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
on_both_loops = pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)


async def produce(*chunks):
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)


async def read_body(reader):
    """The head of a request, and its body, with a length or in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b"content-length" in head:
        return head, await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    body = b""
    while size := int((await reader.readline()).strip(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return head, body


async def collect(reader, writer, seen):
    while True:
        seen["requests"].append(await read_body(reader))
        writer.write(OK)


@on_both_loops
@pytest.mark.parametrize("chunks", [(), (b"",), (b"a",), (b"a", b"", b"bc"), (b"x" * 300_000, b"y" * 300_000)])
@pytest.mark.parametrize("has_length", [True, False])
def test_streamed_body_arrives_whole(chunks, has_length, run):
    async def check():
        whole = b"".join(chunks)
        async with server(collect) as there, open_transport() as transport:
            body = StreamedBody(produce(*chunks), len(whole) if has_length else None)
            assert (await post_request(transport, there["url"], body))[2] == b"hi"
            assert (await post_request(transport, there["url"], b"next"))[2] == b"hi"
        (head, sent), (_, after) = there["requests"]
        assert (sent, after) == (whole, b"next")
        assert (b"content-length: %d\r\n" % len(whole) in head) == has_length
        assert (b"transfer-encoding: chunked\r\n" in head) != has_length
        assert there["connections"] == 1

    run(check())


@on_both_loops
def test_body_is_produced_as_fast_as_the_server_reads(run):
    produced = 0

    async def endless():
        nonlocal produced
        while True:
            produced += 65_536
            yield bytes(65_536)

    async def never_read(reader, writer, seen):
        writer.transport.pause_reading()
        await seen["over"].wait()

    async def check():
        async with server(never_read) as there, open_transport() as transport:
            there["over"] = asyncio.Event()
            task = asyncio.create_task(post_request(transport, there["url"], StreamedBody(endless())))
            before = -1
            while before != produced:  # until the buffers of both sides are full
                before = produced
                await asyncio.sleep(0.3)
            assert 0 < produced < 64 * 1024 * 1024
            task.cancel()
            await asyncio.wait({task})
            there["over"].set()
        assert produced == before

    run(check())


@on_both_loops
@pytest.mark.parametrize("reads_body", [True, False])
def test_early_response_ends_the_upload(reads_body, run):
    """The source is silent, and the server refuses the request before its end."""
    is_closed = False

    async def silent():
        nonlocal is_closed
        try:
            yield b"begin"
            await asyncio.sleep(SAFETY)
        finally:
            is_closed = True

    async def refuse(reader, writer, seen):
        head = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" in head and reads_body:
            await reader.readuntil(b"begin")
        writer.write(OK.replace(b"200 OK", b"413 Too Large") if b"chunked" in head else OK)
        await reader.read()

    async def check():
        async with server(refuse) as there, open_transport(connections=1) as transport:
            status, _, body = await post_request(transport, there["url"], StreamedBody(silent()))
            assert (status, body, is_closed) == (413, b"hi", True)
            assert (await post_request(transport, there["url"]))[0] == 200
            assert there["connections"] == 2  # the first cannot be reused

    run(check())


@on_both_loops
@pytest.mark.parametrize(
    ("length", "message"), [(3, "longer than its length of 3"), (9, "4 bytes shorter than its length")]
)
def test_body_that_contradicts_its_length_is_never_completed(length, message, run):
    async def check():
        async with server(collect) as there, open_transport(connections=1) as transport:
            with pytest.raises(ConfigError, match=message):
                await post_request(transport, there["url"], StreamedBody(produce(b"hel", b"lo"), length))
            assert (await post_request(transport, there["url"]))[2] == b"hi"
        assert [body for _, body in there["requests"] if body != b"{}"] in ([], [b"hel"])

    run(check())


class SourceFailed(Exception):
    pass


@on_both_loops
def test_error_of_the_source_is_raised_and_closes_the_connection(run):
    async def fail():
        yield b"begin"
        raise SourceFailed

    async def check():
        async with server(collect) as there, open_transport(connections=1) as transport:
            with pytest.raises(SourceFailed):
                await post_request(transport, there["url"], StreamedBody(fail()))
            await asyncio.wait_for(there["closed"].wait(), SAFETY)
            assert (await post_request(transport, there["url"]))[2] == b"hi"

    run(check())


@on_both_loops
@pytest.mark.parametrize("reason", ["deadline", "closed"])
def test_failure_during_a_silent_upload_is_noticed(reason, run):
    async def silent():
        yield b"begin"
        await asyncio.sleep(SAFETY)

    async def respond(reader, writer, seen):
        await reader.readuntil(b"begin")
        if reason == "deadline":
            await reader.read()

    async def check():
        async with server(respond) as there, open_transport(connections=1) as transport:
            error = TimeoutError if reason == "deadline" else ConnectionError
            while not there["connections"]:  # the deadline may also pass before the server accepts
                with pytest.raises(error):
                    await post_request(
                        transport, there["url"], StreamedBody(silent()), 0.2 if reason == "deadline" else SAFETY
                    )
            await asyncio.wait_for(there["closed"].wait(), SAFETY)

    run(check())


@on_both_loops
def test_streamed_body_never_uses_an_idle_connection(run):
    """The server may be about to close it, and the body could not be sent again. Idle connections stay limited."""

    async def check():
        async with server(collect) as there, open_transport(connections=2) as transport:
            for number in range(6):
                body = StreamedBody(produce(b"a")) if number % 2 else b"{}"
                assert (await post_request(transport, there["url"], body))[2] == b"hi"
            assert there["connections"] == 4

    run(check())
