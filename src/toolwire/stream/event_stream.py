"""Amazon's binary event stream: messages with typed headers, a payload, and two checksums.

    [total length u32][headers length u32][CRC-32 of these 8 bytes]
    [headers][payload][CRC-32 of everything before]

    header:  [name length u8][name][type u8][value]

All numbers are big-endian. The CRC of the message continues from the bytes of the prelude, so it covers the prelude's own
CRC, too. Three kinds of messages exist: events (`:event-type`), exceptions, which a service sends within an answer of
status 200 (`:exception-type`), and errors without a payload (`:error-code`, `:error-message`).

Sources: botocore 1.44.5, eventstream.py, which also has these limits;
https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Callable, Mapping
from struct import Struct, error
from typing import NamedTuple, TypeAlias

from ..ir.errors import EncodeError, ProtocolError, TruncatedStream

HeaderValue: TypeAlias = bool | int | bytes | str

_PRELUDE = Struct("!III")  # total length, headers length, CRC
_LENGTHS, _CRC, _U16 = Struct("!II"), Struct("!I"), Struct("!H")
_CRC_SIZE = _CRC.size  # bytes
_MAX_HEADERS = 128 * 1024  # botocore's limit
_MAX_PAYLOAD = 24 * 1024 * 1024  # botocore's limit
_MAX_STRING = 0x7FFF  # the length is a u16, but SDKs in other languages read it as a signed number
_STRING = 7  # the type of a header
_UUID_SIZE = 16  # bytes
_JSON_TYPE = "application/json"
_HINT = "retry the request: the stream was damaged on its way"


class EventMessage(NamedTuple):
    """One message of an event stream."""

    headers: Mapping[str, HeaderValue]
    payload: bytes

    def text(self, header: str) -> str:
        """Return a header, or an empty text if it is absent or not a string."""
        value = self.headers.get(header)
        return value if type(value) is str else ""


class EventStreamDecoder:
    """Decode bytes incrementally into complete messages.

    Messages before a damaged one are returned first; the next call raises. Nothing after it is read, because the length
    of a damaged message is unknown.
    """

    __slots__ = ("_broken", "_buffer", "_length")

    def __init__(self) -> None:
        self._buffer = bytearray()  # the unfinished message
        self._length = 0  # of the unfinished message; 0 until its prelude has been read
        self._broken: ProtocolError | None = None

    def feed(self, data: bytes) -> list[EventMessage]:
        """Return the messages that `data` completed. Raise ProtocolError for a wrong checksum, length or header."""
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        messages: list[EventMessage] = []
        try:
            while (message := self._take_message()) is not None:
                messages.append(message)
        except ProtocolError as broken:
            self._broken = broken
            if not messages:
                raise
        return messages

    @property
    def is_between_messages(self) -> bool:
        return not self._buffer and self._broken is None

    def close(self) -> list[EventMessage]:
        """End the input. Raise TruncatedStream if it ends in the middle of a message."""
        if self._broken is not None:
            raise self._broken
        if self._buffer:
            raise TruncatedStream("the stream stopped in the middle of an event", hint="send the request again")
        return []

    def _take_message(self) -> EventMessage | None:
        """Remove the first message from the buffer, or return None if it is not complete."""
        if not self._length and len(self._buffer) >= _PRELUDE.size:
            self._length = _read_length(bytes(self._buffer[: _PRELUDE.size]))
        if not self._length or len(self._buffer) < self._length:
            return None
        data = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length = 0
        return _read_message(data)


def is_event_stream(data: bytes) -> bool:
    """Return whether the data begins with a prelude, whose checksum no other format has."""
    if len(data) < _PRELUDE.size:
        return False
    checksum: int = _PRELUDE.unpack_from(data)[2]
    return crc32(data[: _PRELUDE.size - _CRC_SIZE]) == checksum


def cut_messages(buffer: bytearray) -> bytes:
    """Remove the complete messages from the start of `buffer` and return their bytes, without a look at their content."""
    end = 0
    while len(buffer) - end >= _CRC_SIZE:
        length = int.from_bytes(buffer[end : end + _CRC_SIZE], "big")
        if not _PRELUDE.size <= length <= len(buffer) - end:
            break
        end += length
    messages = bytes(buffer[:end])
    del buffer[:end]
    return messages


def _read_length(prelude: bytes) -> int:
    """Return the length of a message, which is checked before any of its bytes are kept."""
    total, headers, crc = _PRELUDE.unpack(prelude)
    _check_crc(prelude[:-_CRC_SIZE], crc, "prelude of an event")
    if headers > _MAX_HEADERS:
        raise _damaged(f"the headers of an event have {headers} bytes, more than {_MAX_HEADERS}")
    payload = total - headers - _PRELUDE.size - _CRC_SIZE
    if not 0 <= payload <= _MAX_PAYLOAD:
        raise _damaged(f"the payload of an event has {payload} bytes, not 0 to {_MAX_PAYLOAD}")
    return int(total)


def _read_message(data: bytes) -> EventMessage:
    _check_crc(data[:-_CRC_SIZE], _CRC.unpack(data[-_CRC_SIZE:])[0], "event")
    headers_end = _PRELUDE.size + _PRELUDE.unpack_from(data)[1]
    return EventMessage(_read_headers(data[_PRELUDE.size : headers_end]), data[headers_end:-_CRC_SIZE])


def _check_crc(data: bytes, expected: int, label: str) -> None:
    if (found := crc32(data)) != expected:
        raise _damaged(f"{label}: the checksum is {found:08x}, not {expected:08x}")


def _damaged(message: str) -> ProtocolError:
    return ProtocolError(message, hint=_HINT, status=502)


def _read_headers(data: bytes) -> dict[str, HeaderValue]:
    """Read all headers. Raise ProtocolError for an unknown type, a repeated name, or a value beyond their end."""
    headers: dict[str, HeaderValue] = {}
    position = 0
    try:
        while position < len(data):
            end = position + 1 + data[position]
            name, kind = data[position + 1 : end].decode(), data[end]
            if name in headers:
                raise _damaged(f"the header {name!r} of an event is repeated")
            read = _READERS.get(kind)
            if read is None:
                raise _damaged(f"the header {name!r} of an event has the unknown type {kind}")
            headers[name], position = read(data, end + 1)
    except (IndexError, UnicodeDecodeError, error) as cause:
        raise _damaged("the headers of an event cannot be read") from cause
    return headers


_HeaderReader: TypeAlias = Callable[[bytes, int], tuple[HeaderValue, int]]


def _number(form: str) -> _HeaderReader:
    number = Struct(form)

    def read(data: bytes, position: int) -> tuple[HeaderValue, int]:
        return number.unpack_from(data, position)[0], position + number.size

    return read


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    start = position + _U16.size
    return _take(data, start, start + _U16.unpack_from(data, position)[0])


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    value, end = _read_bytes(data, position)
    return value.decode(), end


def _take(data: bytes, start: int, end: int) -> tuple[bytes, int]:
    if end > len(data):
        raise IndexError
    return data[start:end], end


_READERS: dict[int, _HeaderReader] = {
    0: lambda _, position: (True, position),
    1: lambda _, position: (False, position),
    2: _number("!b"),
    3: _number("!h"),
    4: _number("!i"),
    5: _number("!q"),
    6: _read_bytes,
    _STRING: _read_string,
    8: _number("!q"),  # a time, in milliseconds
    9: lambda data, position: _take(data, position, position + _UUID_SIZE),
}


def encode_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return the bytes of a message. Raise EncodeError for a header or a payload beyond the limits."""
    parts: list[bytes] = []
    for name, value in headers.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        if not 0 < len(name_bytes) < 256 or len(value_bytes) > _MAX_STRING:
            raise EncodeError(f"the header {name!r} is too long for an event", hint=f"at most {_MAX_STRING} bytes")
        parts += bytes([len(name_bytes)]), name_bytes, bytes([_STRING]), _U16.pack(len(value_bytes)), value_bytes
    written = b"".join(parts)
    if len(written) > _MAX_HEADERS or len(payload) > _MAX_PAYLOAD:
        raise EncodeError(f"an event of {len(payload)} bytes is too long", hint=f"at most {_MAX_PAYLOAD} bytes")
    lengths = _LENGTHS.pack(_PRELUDE.size + len(written) + len(payload) + _CRC_SIZE, len(written))
    message = b"%b%b%b%b" % (lengths, _CRC.pack(crc32(lengths)), written, payload)
    return message + _CRC.pack(crc32(message))


def encode_event(kind: str, payload: bytes) -> bytes:
    """Return the message of an event of type `kind` with a JSON payload.

    >>> [message] = EventStreamDecoder().feed(encode_event("messageStart", b'{"role":"assistant"}'))
    >>> message.text(":event-type"), message.payload
    ('messageStart', b'{"role":"assistant"}')
    """
    return encode_message({":event-type": kind, ":content-type": _JSON_TYPE, ":message-type": "event"}, payload)


def encode_exception(kind: str, payload: bytes) -> bytes:
    """Return the message of an exception, by which a service reports an error within an answer."""
    return encode_message({":exception-type": kind, ":content-type": _JSON_TYPE, ":message-type": "exception"}, payload)
