"""The gateway's own HTTP client, against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import ssl
import threading
from contextlib import closing, suppress

import pytest

from raw_server import CHUNKED, OK, TLS, open_transport, post_once, post_request, request, respond_with, server
from toolwire.ir.errors import ConfigError
from toolwire.net.http.client import HttpTransport
from virtual_time import run_virtual
from waiting import SAFETY, until


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="not on this system")
def test_connections_notice_a_server_that_is_gone(monkeypatch):
    seen = []
    create_connection = asyncio.BaseEventLoop.create_connection

    async def observe(loop, *arguments, **options):
        transport, protocol = await create_connection(loop, *arguments, **options)
        seen.append(transport.get_extra_info("socket"))
        return transport, protocol

    async def check():
        async with server(respond_with(OK)) as there, open_transport() as transport:
            await post_request(transport, there["url"])
            assert seen[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert seen[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", observe)
    asyncio.run(check())


def test_connection_is_reused():
    async def check():
        async with server(respond_with(OK, CHUNKED, OK)) as there, open_transport() as transport:
            assert await post_request(transport, there["url"], b'{"a":1}', accept="json") == (
                200,
                {"content-length": "2", "x-a": "b"},
                b"hi",
            )
            assert (await post_request(transport, there["url"]))[2] == b"hi, y"
            assert (await post_request(transport, there["url"], b"x" * 300_000))[2] == b"hi"
        assert there["connections"] == 1
        head, body = there["requests"][0]
        assert head.startswith(b"POST /x?y=1 HTTP/1.1\r\nhost: localhost:")
        assert b"accept: json\r\nx-key: secret\r\n" in head
        assert body == b'{"a":1}'
        assert there["requests"][2][1] == b"x" * 300_000

    asyncio.run(check())


@pytest.mark.parametrize("size", [1, 2, 7])
def test_response_is_parsed_however_the_bytes_are_split(size):
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + CHUNKED

    async def slowly(reader, writer, seen):
        await request(reader)
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)

    async def check():
        async with server(slowly) as there:
            status, headers, body = await post_once(there["url"])
            assert (status, headers, body) == (200, {"transfer-encoding": "chunked"}, b"hi, y")

    asyncio.run(check())


def test_response_without_length_ends_when_the_connection_closes():
    async def check():
        async with (
            server(respond_with(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)) as there,
            open_transport() as transport,
        ):
            assert (await post_request(transport, there["url"]))[2] == b"all of it"
            assert (await post_request(transport, there["url"]))[2] == b"all of it"
            assert there["connections"] == 2

    asyncio.run(check())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "before the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhi", "before the end"),
        (b"", "before the end"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhi", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000 + b"\r\n", "64 KiB"),
    ],
)
def test_malformed_response_raises_connection_error(said, words):
    async def check():
        async with server(respond_with(said, close=True)) as there:
            with pytest.raises(ConnectionError, match=words):
                await post_once(there["url"])

    asyncio.run(check())


def test_refused_connection_raises_connection_error():
    async def check():
        with pytest.raises(ConnectionError):
            await post_once("http://127.0.0.1:9")

    asyncio.run(check())


def test_request_is_resent_when_a_reused_connection_closes_unanswered():
    async def once_each(reader, writer, seen):
        seen["requests"].append(await request(reader))
        writer.write(OK)
        await writer.drain()
        if len(seen["requests"]) == 2:
            return
        await request(reader)  # the second on this connection is read, and not answered

    async def check():
        async with server(once_each) as there, open_transport() as transport:
            await post_request(transport, there["url"])
            assert (await post_request(transport, there["url"]))[2] == b"hi"
            assert there["connections"] == 2

    run_virtual(check())  # a connection that closes much later is not replaced


async def _never_respond(reader, writer, seen):
    seen["requests"].append(await request(reader))
    seen["asked"].set()
    await reader.read()


def test_timeout_closes_the_connection():
    async def check():
        async with server(_never_respond) as there:
            with pytest.raises(TimeoutError):
                await post_once(there["url"], seconds=0.05)
            await asyncio.wait_for(there["closed"].wait(), SAFETY)

    run_virtual(check())


def test_cancellation_closes_the_connection_immediately():
    async def check():
        async with server(_never_respond) as there:
            asking = asyncio.ensure_future(post_once(there["url"]))
            await asyncio.wait_for(there["asked"].wait(), SAFETY)
            asking.cancel()
            await asyncio.wait_for(there["closed"].wait(), SAFETY)
            with pytest.raises(asyncio.CancelledError):
                await asking

    asyncio.run(check())


def test_cancellation_at_any_step_of_connecting_closes_the_socket():
    """Without the help of the garbage collector: it runs rarely, and descriptors are few."""

    async def cancel(listener):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with open_transport() as transport:
            for turns in range(12):  # of the event loop; the request is written in the last ones
                asking = asyncio.ensure_future(post_request(transport, url))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait({asking})
        await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0), backlog=20) as listener:
        gc.disable()
        try:
            asyncio.run(cancel(listener))
            listener.setblocking(False)
            count = 0
            with suppress(BlockingIOError):
                while True:
                    accepted, _ = listener.accept()
                    count += 1
                    with closing(accepted):
                        accepted.settimeout(SAFETY)
                        with suppress(ConnectionResetError):
                            while accepted.recv(1000):
                                continue
        finally:
            gc.enable()
    assert count > 5


def test_unread_response_applies_back_pressure_to_the_server():
    written = 0

    async def endless(reader, writer, seen):
        nonlocal written
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
            written += 65536

    async def check():
        async with server(endless) as there:
            async with open_transport() as transport, transport.post(f"{there['url']}/", {}, {}, b"", SAFETY) as reply:
                await reply.read()
                before = -1
                while before != written:  # until the buffers of both sides are full
                    before = written
                    await asyncio.sleep(0.3)
                    assert written < 32 * 1024 * 1024
                for _ in range(50):
                    await reply.read()
                await until(lambda: written > before)
            await asyncio.wait_for(there["closed"].wait(), SAFETY)

    asyncio.run(check())


def test_no_more_connections_than_allowed():
    at_once = most = 0

    async def counting(reader, writer, seen):
        nonlocal at_once, most
        while True:
            await request(reader)
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.01)
            at_once -= 1
            writer.write(OK)

    async def check():
        async with server(counting) as there, open_transport(connections=3) as transport:
            await asyncio.gather(*(post_request(transport, there["url"]) for _ in range(20)))
            assert most == 3
            assert there["connections"] == 3

    asyncio.run(check())


def test_certificates_are_checked():
    async def check():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
        async with server(respond_with(OK), ssl=context) as there:
            with pytest.raises(ConnectionError, match="is not trusted"):
                await post_once(there["url"])
            assert (await post_once(there["url"], roots=[(TLS / "ca.pem").read_bytes()]))[2] == b"hi"

    asyncio.run(check())


def test_invalid_urls_and_headers_are_rejected():
    for url in ("ftp://host/x", "http:///x", "http://host/a b", "http://host/\r\nx: y"):
        with pytest.raises(ConfigError):
            HttpTransport().post(url, {}, {}, b"", 1)
    with pytest.raises(ConfigError):
        HttpTransport().post("http://host/", {"a": "b\r\nc: d"}, {}, b"", 1)


def test_unsolicited_response_is_not_used_for_the_next_request():
    async def check():
        forged = OK.replace(b"hi", b"no")
        async with server(respond_with(OK + forged, OK)) as there, open_transport() as transport:
            assert (await post_request(transport, there["url"]))[2] == b"hi"
            assert (await post_request(transport, there["url"]))[2] == b"hi"

    asyncio.run(check())


def gzip_response(data):
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


def test_gzip_response_is_decompressed_in_bounded_pieces():
    async def check():
        bomb = gzip.compress(b"x" * 50_000_000)
        async with server(respond_with(gzip_response(bomb))) as there:
            async with open_transport() as transport, transport.post(f"{there['url']}/", {}, {}, b"", SAFETY) as reply:
                sizes = []
                while piece := await reply.read():
                    sizes.append(len(piece))
            assert sum(sizes) == 50_000_000
            assert max(sizes) <= 256 * 1024
        async with server(respond_with(gzip_response(b"not gzip"))) as there:
            with pytest.raises(ConnectionError, match="does not match its content-encoding"):
                await post_once(there["url"])
        async with server(respond_with(gzip_response(b"x").replace(b"gzip", b"br"))) as there:
            with pytest.raises(ConnectionError, match="unsupported content-encoding"):
                await post_once(there["url"])

    asyncio.run(check())


def test_request_that_may_have_been_processed_is_not_resent():
    async def works_and_dies(reader, writer, seen):
        seen["requests"].append(await request(reader))
        writer.write(OK)
        await writer.drain()
        seen["requests"].append(await request(reader))
        await asyncio.sleep(0.3)

    async def check():
        async with server(works_and_dies) as there, open_transport() as transport:
            await post_request(transport, there["url"])
            with pytest.raises(ConnectionError):
                await post_request(transport, there["url"])
            assert len(there["requests"]) == 2

    run_virtual(check())


def test_hanging_server_does_not_block_requests_to_other_servers():
    async def check():
        async with (
            server(_never_respond) as hanging,
            server(respond_with(OK)) as fine,
            open_transport(connections=2) as transport,
        ):
            waiting = [asyncio.ensure_future(post_request(transport, hanging["url"])) for _ in range(4)]
            await asyncio.wait_for(hanging["asked"].wait(), SAFETY)
            assert (await post_request(transport, fine["url"]))[2] == b"hi"
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(check())


def test_gzip_with_many_empty_members_is_decompressed():
    async def check():
        data = gzip.compress(b"first ") + gzip.compress(b"") * 2000 + gzip.compress(b"second")
        async with server(respond_with(gzip_response(data))) as there:
            assert (await post_once(there["url"]))[2] == b"first second"

    asyncio.run(check())


def test_gzip_members_larger_than_the_buffer_are_decompressed():
    """Members that end within a slice of the input, at its end, and after the limit of the output."""
    contents = [b"a" * size for size in (1, 300_000, 0, 16, 600_000)] + [bytes(range(256)) * 200] * 20

    async def check():
        data = b"".join(map(gzip.compress, contents))
        async with server(respond_with(gzip_response(data))) as there:
            assert (await post_once(there["url"]))[2] == b"".join(contents)

    asyncio.run(check())


def test_truncated_gzip_response_raises_connection_error():
    whole_answer = gzip.compress(b"hello" * 1000, mtime=0)
    cut = whole_answer[:-9]
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"

    async def check():
        answers = respond_with(head % len(whole_answer) + whole_answer, head % 0, head % len(cut) + cut)
        async with server(answers) as there, open_transport() as transport:
            assert (await post_request(transport, there["url"]))[2] == b"hello" * 1000
            assert (await post_request(transport, there["url"]))[2] == b""
            with pytest.raises(ConnectionError, match="is truncated"):
                await post_request(transport, there["url"])

    asyncio.run(check())


@pytest.mark.parametrize("filler", [b"x-%d: y\r\n", b"x-%d"], ids=["trailers", "one trailer"])
def test_unbounded_trailers_are_rejected(filler):
    async def pour(reader, writer, seen):
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n")
        for number in range(1_000_000):
            writer.write(filler % number)
            if number % 1000 == 0:
                await writer.drain()

    async def check():
        async with server(pour) as there, open_transport() as transport:
            with pytest.raises(ConnectionError, match="64 KiB"):
                await post_request(transport, there["url"], seconds=SAFETY)

    asyncio.run(check())


def test_connection_returned_after_transport_close_is_closed():
    async def later(reader, writer, seen):
        await request(reader)
        writer.write(OK[:-1])
        seen["asked"].set()
        await asyncio.sleep(0.1)
        writer.write(OK[-1:])
        await reader.read()

    async def check():
        async with server(later) as there, open_transport() as transport:
            work = asyncio.create_task(post_request(transport, there["url"]))
            await there["asked"].wait()
            await transport.aclose()
            assert (await work)[2] == b"hi"
            async with asyncio.timeout(SAFETY):
                await there["closed"].wait()

    asyncio.run(check())


def test_transport_works_in_successive_event_loops():
    """Connections belong to a loop, and end with it, even where nobody has closed the transport."""
    listening, threads = socket.create_server(("127.0.0.1", 0)), []
    closed = []

    def serve(connection):
        with connection:
            while connection.recv(65536):
                connection.sendall(OK)
        closed.append(1)

    def accept():
        for _ in range(4):
            threads.append(threading.Thread(target=serve, args=(listening.accept()[0],)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    transport, url = HttpTransport(connections=2), f"http://127.0.0.1:{listening.getsockname()[1]}"

    async def ask():
        return {body for _, _, body in await asyncio.gather(*(post_request(transport, url) for _ in range(6)))}

    with listening:
        assert [asyncio.run(ask()) for _ in range(2)] == [{b"hi"}] * 2
        accepting.join(SAFETY)
    for thread in threads:
        thread.join(SAFETY)
    assert len(closed) == 4


@pytest.mark.parametrize(("why", "message"), [("no room", "stayed in use"), ("no connection", "no connection")])
def test_connection_timeout_reports_that_nothing_was_sent(why, message):
    async def hang(reader, writer, seen):
        await reader.read()

    async def check():
        async with server(hang) as there, open_transport(connections=1, connect_timeout=0.1) as transport:
            work = asyncio.create_task(post_request(transport, there["url"], seconds=SAFETY))
            url = there["url"] if why == "no room" else "http://10.255.255.1:9"
            await asyncio.sleep(0.05)
            with pytest.raises(TimeoutError, match=message) as over:
                await post_request(transport, url, seconds=0.3)
            assert isinstance(over.value, ConnectionRefusedError)
            work.cancel()
            await asyncio.wait({work})

    async def stuck(*_, **__):
        await asyncio.sleep(3600)

    with pytest.MonkeyPatch.context() as patch:
        if why == "no connection":
            create = asyncio.BaseEventLoop.create_connection

            async def connect(loop, factory, host, port, **options):
                return await (stuck() if host == "10.255.255.1" else create(loop, factory, host, port, **options))

            patch.setattr(asyncio.BaseEventLoop, "create_connection", connect)
        run_virtual(check())


def test_malformed_url_raises_config_error():
    for url in ("http://[nonsense", "http://host:99999/"):
        with pytest.raises(ConfigError, match="invalid URL"):
            HttpTransport().post(url, {}, {}, b"", 1)


def test_prepared_request_is_sent_again_in_another_loop_and_after_a_close():
    transport = HttpTransport(environment={})

    async def check(prepared, there):
        for body in (b"1", b"22", b"x" * 100_000):
            async with prepared.send(body, SAFETY) as reply:
                assert (reply.status, await reply.read()) == (200, b"hi")
        await transport.aclose()
        async with prepared.send(b"333", SAFETY) as reply:
            assert await reply.read() == b"hi"
        await transport.aclose()
        assert [len(body) for _, body in there["requests"]] == [1, 2, 100_000, 3]
        assert there["requests"][0][0].startswith(b"POST /x HTTP/1.1\r\n")
        assert there["connections"] == 2

    async def serve_once(port):
        async with server(respond_with(OK), port=port) as there:
            prepared = prepared_requests.setdefault(
                "one", transport.prepare("POST", f"{there['url']}/x", {"accept": "json"}, {"x-key": "secret"})
            )
            await check(prepared, there)
            return int(there["url"].rpartition(":")[2])

    prepared_requests = {}
    port = asyncio.run(serve_once(0))
    asyncio.run(serve_once(port))


def test_idle_connections_are_limited_and_expire(monkeypatch):
    async def check():
        async with server(respond_with(OK)) as there, open_transport(connections=3) as transport:
            await asyncio.gather(*(post_request(transport, there["url"]) for _ in range(3)))
            monkeypatch.setattr("toolwire.net.http.requests._IDLE_TIMEOUT", 0.0)
            await asyncio.sleep(0.01)
            assert (await post_request(transport, there["url"]))[2] == b"hi"
            assert there["connections"] == 4

    asyncio.run(check())
