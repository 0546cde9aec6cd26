"""Frames of a WebSocket client, and of the server's answer, without a library: RFC 6455, section 5.2."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455, 1.3
_MASK = b"\x37\xfa\x21\x3d"  # RFC 6455, 5.7


class Received(NamedTuple):
    """A frame of the server; `code` is the close code of a close frame with one."""

    opcode: int
    payload: bytes

    @property
    def code(self) -> int | None:
        is_close = self.opcode == CLOSE and len(self.payload) >= 2
        return struct.unpack(">H", self.payload[:2])[0] if is_close else None


def handshake(path: str = "/v1/responses", **headers: str) -> bytes:
    """Return the head of a handshake. Headers with the value "" are left out; `_` in a name is `-`."""
    fields = {
        "host": "localhost",
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_key": KEY,
        "sec_websocket_version": "13",
        **headers,
    }
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    reserved: int = 0,
    mask: bytes | None = _MASK,
    length: int = 0,
) -> bytes:
    """Encode a frame. `mask` None: without one. `length` 2 or 8: that many bytes for the length, also if fewer suffice."""
    first = (fin << 7) | (reserved << 4) | opcode
    masked = 0 if mask is None else 0x80
    size = len(payload)
    if length == 8 or size > 0xFFFF:
        head = struct.pack(">BBQ", first, masked | 127, size)
    elif length == 2 or size > 125:
        head = struct.pack(">BBH", first, masked | 126, size)
    else:
        head = struct.pack(">BB", first, masked | size)
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[number % 4] for number, byte in enumerate(payload))


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack(">H", code) + reason)


def read_frames(data: bytes) -> list[Received]:
    """Read the frames of a server, which are whole, unmasked, and have minimal lengths."""
    frames = []
    while data:
        first, size = data[0], data[1]
        assert first & 0xF0 == 0x80, "a fragment, or reserved bits"
        start = 2
        if size == 126:
            [size] = struct.unpack_from(">H", data, 2)
            start = 4
            assert size > 125
        elif size == 127:
            [size] = struct.unpack_from(">Q", data, 2)
            start = 10
            assert size > 0xFFFF
        assert len(data) >= start + size, "an incomplete frame"
        frames.append(Received(first & 15, data[start : start + size]))
        data = data[start + size :]
    return frames


def exchange(address: tuple[str, int], data: bytes, head: bytes | None = None) -> tuple[bytes, list[Received]]:
    """Send data after a handshake, and return the head of the answer and all frames until the server ends the connection."""
    with socket.create_connection(address) as connection:
        connection.settimeout(30)
        connection.sendall((handshake() if head is None else head) + data)
        answer = b""
        while received := connection.recv(65536):
            answer += received
        head, _, rest = answer.partition(b"\r\n\r\n")
        return head, read_frames(rest) if head.startswith(b"HTTP/1.1 101") else []
