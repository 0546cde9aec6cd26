"""The frames of a WebSocket (RFC 6455) without I/O, on the sans-IO layer of `websockets`.

wsproto was compared: it is the smaller package, but needs h11 beside it, and takes 4 to 7 times as long to receive a message
(45 µs instead of 11 for 200 bytes, 10 ms instead of 3 for 4 MB, since `websockets` unmasks in C), and half as much memory again for a
connection. `websockets` also had a dozen releases in the two years in which wsproto had two. It leaves two tasks to its
callers: joining fragments, and checking their UTF-8.

Extensions are never negotiated: permessage-deflate lets a few bytes of a client cost megabytes, and keeps 64 KB or more for
every connection (RFC 7692, 7.2).
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from logging import getLogger

import websockets.protocol
from websockets.exceptions import ProtocolError as InvalidFrame
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import SERVER, Protocol

_log = getLogger("toolwire.asgi")
_OPEN = websockets.protocol.State.OPEN
_FRAME_OVERHEAD = 64  # bytes of memory for a frame besides its payload, about; many empty ones do not count as nothing
_MAX_REASON = 123  # bytes of UTF-8 in a close frame, beside the code (RFC 6455, 5.5)


class WebSocketFrames:
    """The frames of a connection, as a server has them: bytes in, messages out, and the reverse, without I/O.

    frames = WebSocketFrames(max_size)
    messages = frames.receive(data)     # complete messages, texts as `str`
    frames.send("text")
    data, is_end = frames.take()        # to write; `is_end`: nothing more will follow
    """

    __slots__ = ("_decoder", "_fragments", "_is_text", "_protocol", "count", "pong_size")

    def __init__(self, max_size: int) -> None:
        self._protocol = Protocol(SERVER, state=_OPEN, max_size=max_size, logger=_log)
        self._decoder = getincrementaldecoder("utf-8")()
        self._is_text = True  # the message whose frames arrive
        self._fragments = bytearray()  # of an incomplete message; a list of many small ones would take much more memory
        self.count = 0  # of the frames that were received
        self.pong_size = 0  # bytes of memory for the answers to pings, since the owner has set it to 0

    def receive(self, data: bytes) -> list[str | bytes]:
        """Parse data, and return the messages that it completes. Pings are answered, and mistakes fail the connection.

        Fragments of a text are decoded at once, so that an invalid one fails early.
        """
        self._protocol.receive_data(data)
        messages: list[str | bytes] = []
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)  # not a request or an answer of the handshake
            self.count += 1
            if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
                self._is_text = frame.opcode is Opcode.TEXT
            elif frame.opcode is not Opcode.CONT:
                if frame.opcode is Opcode.PING:
                    self.pong_size += len(frame.data) + _FRAME_OVERHEAD
                continue
            data = bytes(frame.data)
            try:
                text = self._decoder.decode(data, frame.fin) if self._is_text else ""
            except UnicodeDecodeError:
                self.fail(CloseCode.INVALID_DATA, "a text message is not UTF-8")
                break
            if frame.fin and not self._fragments:
                messages.append(text if self._is_text else data)
                continue
            self._fragments += data
            if frame.fin:
                messages.append(self._fragments.decode() if self._is_text else bytes(self._fragments))
                self._fragments = bytearray()
        return messages

    @property
    def partial_size(self) -> int:
        """The bytes of the incomplete message, and of an incomplete frame."""
        return len(self._fragments) + len(self._protocol.reader.buffer)

    def receive_end(self) -> None:
        """Note that the client has closed its side, or that the connection is lost."""
        self._protocol.receive_eof()

    @property
    def is_open(self) -> bool:
        """True until a close frame was sent."""
        return self._protocol.state is _OPEN

    @property
    def close_code(self) -> int:
        """The code that the client sent; without one 1005, or 1006 if the client did not close the connection itself."""
        received = self._protocol.close_rcvd
        return int(CloseCode.ABNORMAL_CLOSURE) if received is None else int(received.code)

    @property
    def close_reason(self) -> str:
        received = self._protocol.close_rcvd
        return "" if received is None else received.reason

    def send(self, message: str | bytes) -> None:
        """Encode a message, in one frame."""
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)

    def ping(self) -> None:
        self._protocol.send_ping(b"")

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, if none was sent. A reason that is too long is cut. Raise ValueError for an invalid code."""
        if self.is_open:
            reason = reason.encode()[:_MAX_REASON].decode(errors="ignore")
            try:
                self._protocol.send_close(code, reason)
            except InvalidFrame as error:
                raise ValueError(f"the close code {code} cannot be sent") from error

    def fail(self, code: int, reason: str) -> None:
        """Send a close frame if none was sent, and ignore everything that the client sends."""
        self._protocol.fail(code, reason)

    def take(self) -> tuple[bytes, bool]:
        """Return the encoded data since the last call, and whether nothing more will follow."""
        writes = self._protocol.data_to_send()
        return b"".join(writes), b"" in writes
