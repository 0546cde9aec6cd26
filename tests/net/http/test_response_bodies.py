"""The body of a response, as the parser delivers it: only bytes of this response, and a limit on all others."""

import asyncio

import pytest

from toolwire.net.http.connection import HttpConnection
from waiting import SAFETY

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Transport:
    """Notes the calls of a connection."""

    def __init__(self):
        self.calls = []

    def is_closing(self):
        return "abort" in self.calls

    def __getattr__(self, name):
        return lambda *_: self.calls.append(name)


def receive(*reads, expects_body=True):
    """Return the body of a response, the error that ends it, and the calls of its transport."""

    async def main():
        connection, transport = HttpConnection(asyncio.get_running_loop()), Transport()
        connection.connection_made(transport)
        connection.begin(asyncio.get_running_loop().time() + 60, expects_body=expects_body)
        for data in reads:
            connection.data_received(data)
        body, error = [], None
        try:
            while data := await asyncio.wait_for(connection.read(), SAFETY):
                body.append(data)
        except ConnectionError as failure:
            error = str(failure)
        connection.end()
        return b"".join(body), error, transport.calls

    return asyncio.run(main())


@pytest.mark.parametrize("cut", [True, False])
def test_bytes_of_a_second_response_are_no_body(cut):
    first, second = HEAD % 2 + b"ok", HEAD % 4 + b"evil"
    reads = [first, second] if cut else [first + second]
    assert receive(*reads)[0] == b"ok"


def test_response_to_head_has_no_body():
    assert receive(HEAD % 4 + b"evil", expects_body=False) == (b"", None, [])


def test_long_chunk_extensions_are_rejected_between_small_chunks():
    chunk = b"1;" + b"x" * 1000 + b"\r\na\r\n"
    assert receive(CHUNKED, *[chunk] * 60, b"0\r\n\r\n")[:2] == (b"a" * 60, None)
    _, error, calls = receive(CHUNKED, *[chunk] * 80)
    assert "64 KiB" in error and "abort" in calls


def test_many_small_chunks_are_not_taken_for_overhead():
    reads = [b"1\r\na\r\n" * 1000] * 30
    assert receive(CHUNKED, *reads, b"0\r\n\r\n")[:2] == (b"a" * 30_000, None)


@pytest.mark.parametrize("reads", [[b"x" * 300_000], [b"x" * 100_000] * 3], ids=["one read", "several reads"])
def test_reading_pauses_while_too_many_bytes_are_unread(reads):
    assert receive(HEAD % 300_000, *reads) == (b"x" * 300_000, None, ["pause_reading", "resume_reading"])
