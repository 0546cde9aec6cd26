"""Answers on a blocking socket, read byte by byte as a client frames them: an independent reading of RFC 9112, 6.3."""

from __future__ import annotations

import re
from typing import NamedTuple


class RawAnswer(NamedTuple):
    """An answer. `head` has all of its bytes before the body."""

    status: int
    head: bytes
    body: bytes


class Reader:
    """A buffer before a socket."""

    def __init__(self, connection):
        self._connection = connection
        self._data = b""

    def _fill(self):
        received = self._connection.recv(65536)
        self._data += received
        return bool(received)

    def until(self, end):
        """Return the data up to `end`, or None if the connection ends before its first byte."""
        while end not in self._data:
            if not self._fill():
                assert not self._data, f"truncated: {self._data[:200]!r}"
                return None
        found, _, self._data = self._data.partition(end)
        return found + end

    def exactly(self, size):
        while len(self._data) < size:
            assert self._fill(), "truncated"
        found, self._data = self._data[:size], self._data[size:]
        return found

    def rest(self):
        while self._fill():
            pass
        found, self._data = self._data, b""
        return found


class MemoryReader(Reader):
    """A reader of data that have arrived, and of the end."""

    def __init__(self, data):
        self._data = data

    def _fill(self):
        return False


def read_answer(reader, method):
    """Read the next final answer, or None at the end of the connection."""
    while (head := reader.until(b"\r\n\r\n")) is not None:
        match = re.match(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n", head)
        assert match, head
        status = int(match[1])
        if status >= 200:
            return RawAnswer(status, head, _read_body(reader, method, status, head.lower()))
    return None


def _read_body(reader, method, status, head):
    coding = re.search(rb"\r\ntransfer-encoding: ([^\r]*)", head)
    length = re.findall(rb"\r\ncontent-length: (\d+)\r\n", head)
    assert not (coding and length), head
    assert len(length) <= 1, head
    if method == b"HEAD" or status in (204, 304):
        assert not coding or method == b"HEAD", head
        return b""
    if coding:
        body = b""
        while size := int(reader.until(b"\r\n"), 16):
            body += reader.exactly(size)
            assert reader.exactly(2) == b"\r\n"
        assert reader.exactly(2) == b"\r\n"
        return body
    return reader.exactly(int(length[0])) if length else reader.rest()


def says_close(answer):
    return b"\r\nconnection: close\r\n" in answer.head.lower()


def read_answers(connection, data):
    """Read the answers to these requests, up to one that closes the connection, which has to be closed then."""
    reader, answers = Reader(connection), []
    for method in re.findall(rb"(?:^|\n|hello)(GET|HEAD|POST) /", data):
        answer = read_answer(reader, method)
        if answer is None:
            break
        answers.append(answer)
        if says_close(answer):
            assert reader.rest() == b""
            break
    return answers
