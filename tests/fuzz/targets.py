"""The targets of the fuzzer, with their invariants. Each check compares with an independent reading of the same bytes.

A parser of pieces must give the same result for any cut; a document that is accepted must mean the same to the standard
library; a refusal is a typed error, and has a reason that the standard library shares or that the module documents.
"""

import asyncio
import codecs
import json
import math
import re

from engine import Target
from request_target import TARGET as REQUEST_TARGET

from toolwire.asgi.websocket_frames import WebSocketFrames
from toolwire.gateway.request.field_scan import FieldFound, FieldScan, InvalidPiece
from toolwire.ir.errors import ProtocolError
from toolwire.net.http.connection import HttpConnection
from toolwire.stream.framing import ArrayDecoder, NDJSONDecoder, SSEDecoder
from toolwire.stream.repair import repair_json
from toolwire.stream.scanner import Scanner
from toolwire.stream.strict import count_values, parse, parse_partial

JSON_TOKENS = [
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b'""',
        b"{}",
        b"[]",
        b"null",
        b"true",
        b"-0",
        b"1e400",
        b"1E+308",
    ),
    *(
        b"0.1",
        b"-",
        b"\\u0041",
        b"\\ud83d\\ude00",
        b"\\ud800",
        b"\\n",
        b"\xc3\xa9",
        b"\xf0\x9f\x98\x80",
        b"\xed\xa0\x80",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\x00",
        b"\n",
        b" ",
        b"NaN",
        b"Infinity",
        b'"a":',
        b'"model":',
        b'{"a":1}',
        b"[1,2]",
        b"1" * 30,
    ),
]
JSON_SEEDS = [
    b'{"model": "m", "messages": [{"role": "user", "content": "Hi \\u00e9 \xf0\x9f\x98\x80"}], "n": [1, -2.5e3, true, null]}',
    b"[]",
    b'"text"',
    b"-1.5E+10",
]
_FIRST_WORDS = re.compile(r"[^\d\"'(/{\[]*")


def shape_of(error: BaseException) -> str:
    """Return the type of an error and the words before the first number, name or pointer."""
    return f"{type(error).__name__}: {_FIRST_WORDS.match(str(error))[0]}"


def cut(data, random):
    """Cut data into pieces, most of them short."""
    pieces, position = [], 0
    while position < len(data):
        size = random.choice((1, 1, 2, 3, 8, 64, 1024))
        pieces.append(data[position : position + size])
        position += size
    return pieces


def equal(one, other):
    """Compare two JSON values exactly: 1, 1.0 and true differ, and so do 0.0 and -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return one == other


def read_with_standard_library(data):
    """Return the value in a list, or None for text that is not JSON, or has a name twice or a number without a value."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
        return [json.loads(text, parse_constant=_refuse, parse_float=_read_float, object_pairs_hook=_read_object)]
    except (ValueError, RecursionError):
        return None


def _refuse(name):
    raise ValueError(name)


def _read_float(text):
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def _read_object(members):
    return dict(members) if len(dict(members)) == len(members) else _refuse("duplicate")


OWN_REASONS = re.compile("surrogate|200 levels|4,300 digits")


def check_json(data, _random):
    """The strict parser agrees with the standard library, but for its own reasons to refuse."""
    reference = read_with_standard_library(data)
    try:
        value = parse(data)
    except ProtocolError as error:
        assert reference is None or OWN_REASONS.search(error.message), (error.message, reference)
        return shape_of(error)
    assert reference is not None
    assert equal(value, reference[0])
    assert count_values(data) >= 0
    return type(value).__name__, count_values(data).bit_length()


def check_partial(data, _random):
    """A truncated object has the complete members of the whole object, and repairs are valid documents."""
    text = data.decode("utf-8", "replace")
    found = parse_partial(text)
    assert isinstance(found, dict)
    try:
        repaired = repair_json(text)
    except ProtocolError as error:
        return shape_of(error)
    assert equal(parse(json.dumps(repaired.value)), repaired.value)
    reference = read_with_standard_library(text.encode())
    if reference is not None and not repaired.steps:
        assert equal(repaired.value, reference[0])
    return tuple(sorted(set(repaired.steps)))


def check_scanner(data, random):
    """The scanner finds the same arguments for any cut, and agrees with the parser about a complete document."""
    text = data.decode("utf-8", "replace")
    whole, pieces = Scanner(), Scanner()
    expected = whole.feed(text)
    found = [argument for piece in cut(text, random) for argument in pieces.feed(piece)]
    assert (found, pieces.complete, pieces.invalid) == (expected, whole.complete, whole.invalid)
    try:
        value = parse(text)
    except ProtocolError:
        return whole.complete, whole.invalid, min(len(found), 4)
    if text.startswith("\ufeff"):  # only whole documents may have it
        assert whole.invalid
    elif isinstance(value, dict):
        assert whole.complete
        assert not whole.invalid
        assert equal({name: parse(raw) for name, raw in found}, value)
    else:
        assert whole.invalid
    return type(value).__name__, min(len(found), 4)


def decode_pieces(decoder, pieces):
    """Return the frames of all pieces, or the error."""
    try:
        frames = [frame for piece in pieces for frame in decoder.feed(piece)]
        return frames + decoder.close()
    except ProtocolError as error:
        return shape_of(error)


def read_events(data):
    """Server-sent events as the specification writes them, line by line; the last event may lack its blank line."""
    text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, name, lines = [], b"", []
    for line in [*text.split(b"\n"), b""]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if lines:
                events.append((name, b"\n".join(lines)))
            name, lines = b"", []
        elif field == b"data":
            lines.append(value)
        elif field == b"event":
            name = value
    return events


def check_events(data, random):
    expected = read_events(data)
    assert decode_pieces(SSEDecoder(), [data]) == expected
    assert decode_pieces(SSEDecoder(), cut(data, random)) == expected
    limited = decode_pieces(SSEDecoder(64), cut(data, random))
    assert isinstance(limited, str) or limited == expected
    return min(len(expected), 5), isinstance(limited, str), any(name for name, _ in expected)


def check_lines(data, random):
    text = data.replace(b"\r", b"\n")
    first, *others = text.split(b"\n")
    expected = [line for line in map(bytes.strip, [first.removeprefix(b"\xef\xbb\xbf"), *others]) if line]
    assert decode_pieces(NDJSONDecoder(), [data]) == expected
    assert decode_pieces(NDJSONDecoder(), cut(data, random)) == expected
    limited = decode_pieces(NDJSONDecoder(16), cut(data, random))
    assert isinstance(limited, str) or limited == expected
    return min(len(expected), 5), isinstance(limited, str)


def check_array(data, random):
    whole = decode_pieces(ArrayDecoder(), [data])
    assert decode_pieces(ArrayDecoder(), cut(data, random)) == whole
    reference = read_with_standard_library(data)
    if reference is not None and isinstance(reference[0], list):
        objects = [item for item in reference[0] if isinstance(item, dict | list)]
        assert [json.loads(element) for element in whole] == objects
    return min(len(whole), 5), reference is not None


NAMES = ("model", "api_key")
RENAMED = {"max_tokens": "max_out"}


def scan_fields(pieces, renamed=None):
    """Return the kind of the result, and the forwarded bytes or the error."""
    field_scan, sent = FieldScan(NAMES, renamed), b""
    try:
        for piece in pieces:
            sent += field_scan.feed(piece)
        sent += field_scan.held
        field_scan.close()
    except FieldFound as found:
        return "found", found.name
    except InvalidPiece as error:
        return "invalid", str(error)
    return "accepted", sent


def check_fields(data, random):
    """A document that the scan lets pass has none of the fields for the parser, in any cut, and is otherwise unchanged."""
    kind, result = scan_fields([data])
    pieces = cut(data, random)
    # of two reasons to refuse a document, the first one in a piece is reported
    assert (scan_fields(pieces)[0] == "accepted") == (kind == "accepted")
    renamed_kind, renamed = scan_fields(pieces, RENAMED)
    try:
        value = parse(data)
    except ProtocolError:
        return kind, shape_of(ValueError(result)) if kind == "invalid" else ""
    if not isinstance(value, dict):
        assert kind == "invalid"
        return kind, type(value).__name__
    assert kind != "invalid" or data.startswith(b"\xef\xbb\xbf"), result
    if kind == "accepted":
        assert not value.keys() & set(NAMES)
        assert result == data
    if kind == "found" and result:  # without its name, it has escaped letters
        assert result in value
    if renamed_kind == "accepted":
        assert not value.keys() & set(NAMES)
        assert len(renamed) == len(data)
        assert equal(parse(renamed), {RENAMED.get(name, name): item for name, item in value.items()})
    return kind, renamed_kind


class _Upstream(asyncio.Transport):
    """The side of a server that sends what the fuzzer says."""

    def __init__(self):
        super().__init__()
        self.is_closed = self.is_paused = False

    def write(self, data):
        pass

    def is_closing(self):
        return self.is_closed

    def abort(self):
        self.is_closed = True

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False


async def read_response(pieces, *, is_head):
    """Return the outcome of a response in pieces: status, headers, body, the error, and whether the connection is reused."""
    loop = asyncio.get_running_loop()
    connection, upstream = HttpConnection(loop), _Upstream()
    connection.connection_made(upstream)
    connection.begin(loop.time() + 3600, expects_body=not is_head)
    status, body, error = 0, b"", ""
    for piece in pieces:
        if upstream.is_closed:
            break
        connection.data_received(piece)
    connection.connection_lost(None)
    try:
        await connection.read_head()
        status = connection.status
        while data := await connection.read():
            body += data
    except (ConnectionError, TimeoutError) as failure:
        error = shape_of(failure)
    return status, connection.headers if status else {}, body, error, connection.end()


_loop = asyncio.new_event_loop()


def check_response(data, random):
    """A response means the same in any cut, unless it is refused while a part of it is unread."""
    is_head = random.random() < 0.2
    whole = _loop.run_until_complete(read_response([data], is_head=is_head))
    status, headers, body, error, is_reused = _loop.run_until_complete(
        read_response(cut(data, random), is_head=is_head)
    )
    if not whole[3] and not error:
        assert (status, headers, body) == whole[:3]
        if not is_head:
            assert is_reused == whole[4]
    if is_head:
        assert not body
        assert not is_reused
    if not whole[3]:
        assert not error, error  # a complete response is complete in any cut
    assert 200 <= status < 600 or not status
    return status // 100, whole[3], bool(body), "transfer-encoding" in headers, "content-encoding" in headers


# WebSocket frames of a client. The reading for comparison follows RFC 6455, section 5, without the library.

FRAMES_LIMIT = 1000  # bytes of a message


def make_frame(opcode, payload, *, fin=True, mask=b"\x01\x02\x03\x04"):
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2)
    masked = bytes(byte ^ mask[number % 4] for number, byte in enumerate(payload))
    return bytes([fin << 7 | opcode]) + length + mask + masked


def read_frames(data):
    """Return the messages, and whether the connection is open: no close frame and no violation was received."""
    messages, fragments, kind = [], None, None
    utf8 = codecs.getincrementaldecoder("utf-8")()
    position = 0
    while True:
        head = data[position : position + 2]
        if len(head) < 2:
            return messages, True
        fin, opcode, size = head[0] >> 7, head[0] & 15, head[1] & 127
        if opcode not in (0, 1, 2, 8, 9, 10) or not head[1] & 0x80:
            return messages, False
        position += 2
        wide = {126: 2, 127: 8}.get(size, 0)
        if len(data) < position + wide:
            return messages, True
        size = int.from_bytes(data[position : position + wide]) if wide else size
        position += wide
        is_control = opcode >= 8
        if size + sum(map(len, fragments or ())) > FRAMES_LIMIT:  # control frames count, too
            return messages, False
        if len(data) < position + 4 + size:
            return messages, True
        mask, payload = data[position : position + 4], data[position + 4 : position + 4 + size]
        payload = bytes(byte ^ mask[number % 4] for number, byte in enumerate(payload))
        position += 4 + size
        if head[0] & 0x70 or (is_control and (not fin or size > 125)):
            return messages, False
        if opcode == 8:
            return messages, False
        if is_control:
            continue
        if (opcode == 0) != (fragments is not None):
            return messages, False
        if opcode:
            kind, fragments = opcode, []
            utf8.reset()
        fragments.append(payload)
        if kind == 1:
            try:
                utf8.decode(payload, bool(fin))
            except UnicodeDecodeError:
                return messages, False
        if fin:
            whole = b"".join(fragments)
            messages.append(whole.decode() if kind == 1 else whole)
            fragments = None


def receive_frames(pieces):
    frames, messages = WebSocketFrames(FRAMES_LIMIT), []
    for piece in pieces:
        messages += frames.receive(piece)
        frames.take()
    return messages, frames.is_open


def check_frames(data, random):
    whole = receive_frames([data])
    assert whole == read_frames(data)
    assert receive_frames(cut(data, random)) == whole
    return min(len(whole[0]), 5), whole[1]


RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
TARGETS = [
    Target(
        "frames",
        check_frames,
        [
            *(make_frame(opcode, payload) for opcode in (1, 2, 8, 9, 10) for payload in (b"", b"ab", b"\xc3\xa9")),
            *(make_frame(opcode, b"ab\xc3", fin=False) for opcode in (0, 1, 2)),
            *(make_frame(0, b"\xa9"), make_frame(8, b"\x03\xe8bye"), make_frame(1, b"x" * 300)),
            *(b"\x81\xfe\x00\x05", b"\x81\xff" + bytes(7) + b"\x05", b"\xff", b"\x80"),
        ],
        [
            make_frame(1, b"{}") + make_frame(9, b"?") + make_frame(2, b"\xff\x00") + make_frame(8, b"\x03\xe8"),
            make_frame(1, b"a\xc3", fin=False) + make_frame(10, b"") + make_frame(0, b"\xa9"),
            make_frame(1, b"x" * 900) + make_frame(2, b"y" * 600, fin=False) + make_frame(0, b"y" * 600),
        ],
    ),
    Target("json", check_json, JSON_TOKENS, JSON_SEEDS),
    Target(
        "partial",
        check_partial,
        [
            *JSON_TOKENS,
            b"'",
            b"//",
            b"/*",
            b"*/",
            b"True",
            b"None",
            b"```json\n",
            b"<think>",
            b"</think>",
            b"\xe2\x80\x9c",
        ],
        [*JSON_SEEDS, b'{\'a\': True, b: [1,,2], "c": "x', b'```json\n{"a": 1}\n```', b"<think>x</think> {a: .5}"],
    ),
    Target("scanner", check_scanner, JSON_TOKENS, JSON_SEEDS),
    Target(
        "events",
        check_events,
        [
            b"data:",
            b"data: ",
            b"event: x",
            b"id: 1",
            b"retry: 10",
            b":",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\xef\xbb\xbf",
            b"[DONE]",
        ],
        [
            b'event: a\ndata: {"x": 1}\n\n: comment\n\ndata: [DONE]\r\n\r\n',
            b"\xef\xbb\xbfdata: 1\rdata: 2\r\rid: 3\n\n",
        ],
    ),
    Target(
        "lines", check_lines, [b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b" ", b"{}"], [b'{"a": 1}\n\n{"b": 2}\r\n[3]']
    ),
    Target("array", check_array, JSON_TOKENS, [b'[{"a": [1, "]"]}, {"b": "\\"}"}]', *JSON_SEEDS]),
    Target(
        "fields",
        check_fields,
        [*JSON_TOKENS, b'"api_key":', b'"max_tokens":', b'"max_out":', b'"m\\u006fdel"', b" " * 300, b"x" * 300],
        [b'{"messages": [{"model": 1}], "max_tokens": 5, "s": "\\"model\\":"}', b'{"a":{"model":{}}}', *JSON_SEEDS],
    ),
    Target(
        "response",
        check_response,
        [
            *(
                b"\r\n",
                b"\n",
                b"\r\n\r\n",
                b":",
                b" ",
                b"0\r\n\r\n",
                b"5\r\nhello\r\n",
                b"HTTP/1.1 ",
                b"HTTP/1.0 ",
                b"100",
                b"204",
            ),
            *(
                b"content-length: 5\r\n",
                b"transfer-encoding: chunked\r\n",
                b"connection: close\r\n",
                b"content-encoding: gzip\r\n",
            ),
            *(b"upgrade: x\r\n", b"x: y\r\n", b";ext", b"ffffffff", b"\x1f\x8b\x08\x00", b"\x00", b"\xff", RESPONSE),
        ],
        [
            RESPONSE + b"content-length: 5\r\n\r\nhello",
            RESPONSE + b"transfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nt: 1\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 Not Found\r\nconnection: close\r\n\r\nno",
            RESPONSE + b"content-length: 2\r\n\r\nhi" + RESPONSE + b"content-length: 0\r\n\r\n",
        ],
    ),
    REQUEST_TARGET,
]
