r"""Shared base of the stream decoders: framing, the end of a stream, surrogate pairs, and fields that arrive in fragments.

A subclass turns one frame into events (`_frame`), reports whether the answer is complete (`_is_complete`) and closes it
(`_finish`). Frames are server-sent events unless it overrides `_frames` and `_last_frames`. Servers that cannot stream
answer a request for a stream with one JSON document (`_read_document`). A body that begins with a brace in place of a
field of an event is such a document, or it has a chunk in each line.

A provider that streams UTF-16 may cut a pair in two: `"\ud83d"` in one delta, `"\ude00"` in the next. A strict JSON
parser rejects both halves, so they are parsed as private-use characters and joined, per item, by `_escape`. Frames
without them do not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import ClassVar

from ...ir.errors import ProtocolError, TruncatedStream
from ...ir.events import Event
from ...ir.folding import unfold
from ...ir.losses import Losses
from ...ir.pointer import JSON, Object, join
from ...ir.response import Response
from ...ir.text import escape
from ...stream.framing import LIMIT, SSEDecoder
from ...stream.strict import parse_object

# The content of a JSON string that needs no further check: no \u escapes, no control characters. For fast paths.
FAST_STRING = rb'"([^"\\\x00-\x1f]*+(?:\\["\\/bfnrt][^"\\\x00-\x1f]*+)*+)"'
# The contents of several such strings, one in each line.
_PLAIN_TEXTS = re.compile(rb'[^"\\\x00-\x1f]*+(?:(?:\\["\\/bfnrt]|\n)[^"\\\x00-\x1f]*+)*+').match
_MARK = 16  # bytes before the text of a delta, by which a run is split
_WINDOW = 8 * 1024  # bytes that are split to find a run, which may end after the first of them
END_MARKERS = frozenset({b"[DONE]", b'"[DONE]"', b"[done]"})
_BOM = b"\xef\xbb\xbf"


class BaseStreamDecoder:
    """Decode bytes into events. The events do not depend on how the bytes are cut into chunks."""

    text_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that arrive in fragments and may therefore hold half a surrogate pair."""

    def __init__(self) -> None:
        self.losses = Losses()
        self._sse = SSEDecoder()
        self.is_unreadable = False  # clients of this wire cannot read the stream, although we can
        self._over = False  # the answer has ended; later frames are ignored
        self._has_late_data = False
        self._has_end_marker = False
        self._head: bytes | None = b""  # the first bytes, until they show the framing
        self._document: bytearray | None = None  # a JSON document in place of events
        self._next_key = 0
        self._has_mapped_surrogates = False  # in the current frame
        self._pending_surrogates: dict[int, str] = {}  # by item: a first half without its second so far
        self._broken: ProtocolError | None = None  # every later call raises it

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completes. Events before an error come first; the next call raises it."""
        if self._broken is not None:
            raise self._broken
        events: list[Event] = []
        if not data:
            return events
        try:
            if self._head is not None:
                data = self._begin(data)
            if self._document is not None:
                self._append_document(data)
            elif data:
                self._feed(data, events)
        except ProtocolError as error:
            self._broken = error
            if not events:
                raise
        return events

    def _begin(self, data: bytes) -> bytes:
        """Return the first bytes after white space and a byte order mark, if any, and detect the framing."""
        assert self._head is not None
        head = (self._head + data).lstrip()
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        head = head.removeprefix(_BOM).lstrip()
        self._head = None if head else b""
        if head:
            self._detect_framing(head)
        return head

    def _detect_framing(self, head: bytes) -> None:
        if head[:1] == b"{":
            self._document = bytearray()
            self.is_unreadable = True

    def _append_document(self, data: bytes) -> None:
        assert self._document is not None
        self._document += data
        if len(self._document) > LIMIT:
            raise ProtocolError(f"document exceeds {LIMIT} bytes", status=502)

    def _feed(self, data: bytes, events: list[Event]) -> None:
        for name, payload in self._frames(data):
            self._read_frame(name, payload, events)

    def _read_frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode a frame. Data after the end is not part of the answer; a frame without data is a keep-alive."""
        if self._over:
            self._report_late_data(payload)
        elif payload.find(b"\n") >= 0 and len(documents := _split_documents(payload)) > 1:  # `in` is slower
            for document in documents:
                self._read_frame(name, document, events)
        elif payload[:1] == b"{" or (payload and not payload.isspace() and payload.strip() not in END_MARKERS):
            self._frame(name, payload, events)
        elif payload.strip():
            self._read_end_marker(events)

    def _read_end_marker(self, events: list[Event]) -> None:
        """Read the marker `[DONE]`, which only Chat defines; servers add it to streams of other wires."""
        self._has_end_marker = True

    def _report_late_data(self, payload: bytes) -> None:
        """Report data after the end of the answer, which the official clients do not read either."""
        if not self._has_late_data and payload.strip() not in END_MARKERS:
            self._has_late_data = True
            self.losses.add("", "data after the end", "dropped", "it came after the end of the answer", "info")

    def _is_between_events(self) -> bool:
        """Return whether the next byte may begin an event that needs nothing from earlier ones."""
        return self._broken is None and not self._over and not self._pending_surrogates and self._sse.is_between_frames

    def _frames(self, data: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Return the frames that `data` completes, as (name, payload)."""
        return self._sse.feed(data)

    def _last_frames(self) -> Iterable[tuple[bytes, bytes]]:
        return self._sse.close()

    def close(self) -> list[Event]:
        """Return the last events, or raise TruncatedStream; raise again the error that broke the stream."""
        if self._broken is not None:
            raise self._broken
        events: list[Event] = []
        if self._document is not None:
            self._close_document(bytes(self._document), events)
        for name, payload in self._last_frames():
            self._last_frame(name, payload, events)
        if not self._over:
            if not self._is_complete():
                raise TruncatedStream("the stream stopped before the end of the answer", hint="send the request again")
            self._finish(events)
            self._over = True
        return events

    def _close_document(self, data: bytes, events: list[Event]) -> None:
        """Read a document that came in place of events, or the chunks in its lines. TruncatedStream if it is cut."""
        documents = _split_documents(data)
        if len(documents) > 1:
            for document in documents:
                self._read_frame(b"", document, events)
            return
        try:
            whole = self._read_object(data)
        except ProtocolError as error:
            if "ends in the middle" not in error.message:
                raise
            raise TruncatedStream("the document ends in the middle", hint="send the request again") from error
        self._read_document(whole, events)

    def _read_document(self, document: Object, events: list[Event]) -> None:
        """Read a whole answer in place of a stream. Every decoder of events implements this."""
        raise NotImplementedError

    def _add_whole(self, response: Response, events: list[Event]) -> None:
        """Emit a whole answer."""
        events.extend(unfold(response))
        self._over = True

    def _last_frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Read the last frame, which lacks its blank line: it is either complete or truncated.

        Raise TruncatedStream for the latter.
        """
        try:
            self._read_frame(name, payload, events)
        except ProtocolError as error:
            if not self._is_complete():
                raise TruncatedStream(
                    "the stream stopped in the middle of an event", hint="send the request again"
                ) from error

    def _frame(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Decode one frame of the wire and append its events. Every decoder implements this."""
        raise NotImplementedError

    def _is_complete(self) -> bool:
        """Return True once the wire's end of an answer has arrived. Every decoder implements this."""
        raise NotImplementedError

    def _finish(self, events: list[Event]) -> None:
        """Append the events that end the open items and the answer. Every decoder implements this."""
        raise NotImplementedError

    @property
    def item_count(self) -> int:
        """The number of texts, calls and other items that have begun, also items without an event so far."""
        return self._next_key

    def _new_key(self) -> int:
        key = self._next_key
        self._next_key += 1
        return key

    def _read_object(self, payload: bytes) -> Object:
        """Parse the JSON object of an event; map halves of surrogate pairs. Raise ProtocolError with status 502."""
        self._has_mapped_surrogates = False
        try:
            return parse_object(payload)
        except ProtocolError as error:
            error.status = 502
            if b"\\u" not in payload:
                raise
        self._has_mapped_surrogates = True
        try:
            event = parse_object(_ESCAPE.sub(_map_surrogate, payload))
            _reject_lone_surrogates(event, self.text_fields)
        except ProtocolError as error:
            error.status = 502
            raise
        return event

    def _escape(self, key: int, text: str) -> bytes:
        """Escape the next text of item `key`; half a surrogate pair is kept until its other half arrives."""
        if not self._has_mapped_surrogates and not self._pending_surrogates:
            return escape(text)
        text = self._pending_surrogates.pop(key, "") + text
        if text and _is_high(text[-1]):
            self._pending_surrogates[key] = text[-1]
            text = text[:-1]
        return escape(join_mapped_surrogates(text))

    def _flush_surrogate(self, key: int) -> bytes:
        """Return U+FFFD if half a surrogate pair is still pending at the end of item `key`."""
        return "\ufffd".encode() if self._pending_surrogates.pop(key, None) is not None else b""


def _split_documents(payload: bytes) -> list[bytes]:
    """Return the documents of a payload of several lines: one in each line, or one over all of them.

    Some servers end an event with one line break instead of two, so that its data is joined with the next one's.
    """
    lines = [line for line in map(bytes.strip, payload.split(b"\n")) if line]
    is_separate = all(line in END_MARKERS or (line[:1] == b"{" and line[-1:] == b"}") for line in lines)
    return lines if is_separate else [payload]


# an escape sequence; a high surrogate with its partner, if it has one
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|u[dD][c-fC-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
_SURROGATE_BASE = 0x10F800  # plane 16, private use: U+10F800 represents U+D800, and so on
_PAIR = re.compile("[\U0010f800-\U0010fbff][\U0010fc00-\U0010ffff]")
_HALF = re.compile("[\U0010f800-\U0010ffff]")


_OBJECT_FIELDS = frozenset({"args", "arguments", "input"})  # an object under these keys is never cut


def _reject_lone_surrogates(value: JSON, spoken: frozenset[str]) -> None:
    """Raise for half a surrogate pair outside the fields in `spoken`, the text fields that may be cut inside a pair."""
    for key, inner in value.items() if type(value) is dict else enumerate(value):
        if type(inner) is str:
            if key not in spoken and _HALF.search(inner) is not None:
                raise ProtocolError("the text contains a lone surrogate", pointer=join(key), status=502)
        elif type(inner) is dict or type(inner) is list:
            try:
                _reject_lone_surrogates(inner, frozenset() if key in _OBJECT_FIELDS else spoken)
            except ProtocolError as error:
                raise error.within(key) from None


def join_mapped_surrogates(text: str) -> str:
    """Join the halves of surrogate pairs that `_read_object` has replaced; a lone half becomes U+FFFD."""
    return _HALF.sub("\ufffd", _PAIR.sub(_join_surrogates, text))


def is_utf8(data: bytes) -> bool:
    """Return whether a fragment that bypasses the JSON parser is valid UTF-8, and has no separator to escape."""
    if data.isascii():
        return True
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not ("\u2028" in text or "\u2029" in text or "\x85" in text)


def split_run(data: bytes, first: re.Match[bytes], group: int) -> tuple[list[bytes], int]:
    """Return the plain texts of the deltas after `first` that have the same bytes around them, and the end of the last.

    `first` has its text in `group`. Splitting is many times faster than matching; joining the texts proves the result.
    """
    start = first.end()
    before, after = data[first.start() : first.start(group)], data[first.end(group) : start]
    if not data.startswith(before, start):
        return [], start
    mark = before[-_MARK:]  # a search for all of it takes longer
    *pieces, rest = data[start + len(before) : start + _WINDOW].split(mark)
    overlap = len(after) + len(before) - len(mark)  # the bytes between a text and the next mark
    lines = b"\n".join([*map(itemgetter(slice(None, -overlap)), pieces), rest])
    plain = _PLAIN_TEXTS(lines)
    assert plain is not None  # it matches also nothing
    texts = plain[0].split(b"\n")
    if not lines.startswith(after, plain.end()):
        texts.pop()  # it is not plain, or not complete
    run = before + (after + before).join(texts) + after
    if texts and data.startswith(run, start) and is_utf8(run):
        return texts, start + len(run)
    return [], start


def _map_surrogate(found: re.Match[bytes]) -> bytes:
    text = found.group()
    if found[1] is not None or len(text) < 6:
        return text
    return chr(_SURROGATE_BASE + int(text[2:], 16) - 0xD800).encode()  # noqa: FURB166 - a backslash, not a zero


def _join_surrogates(pair: re.Match[str]) -> str:
    high, low = (ord(half) - _SURROGATE_BASE for half in pair.group())
    return chr(0x10000 + (high << 10) + (low - 0x400))


def _is_high(char: str) -> bool:
    return 0 <= ord(char) - _SURROGATE_BASE < 0x400


_GROWING = frozenset({"content", "data", "partial_json", "summary", "text", "thinking", "transcript"})


class Fragments:
    """Fields that no decoder interprets: collect their fragments with `add`, read them with `join`.

    A server may stream a field in fragments: the audio of an answer, OpenRouter's `reasoning_details`, a kind of block
    that is newer than this package. Objects are joined field by field and arrays element by element. Array elements
    with the same `index` and `type` are one element (the rule of OpenAI's SDK). Strings under a key that grows are
    concatenated. Any other value replaces its predecessor, because servers repeat such values in every fragment.
    Fragments are kept until `join` is called, so the cost is linear in their size.

    >>> fragments = Fragments()
    >>> fragments.add({"audio": {"id": "a", "transcript": "Hel"}})
    >>> fragments.add({"audio": {"transcript": "lo"}, "channel": "final"})
    >>> fragments.join()
    {'audio': {'id': 'a', 'transcript': 'Hello'}, 'channel': 'final'}
    """

    __slots__ = ("_growing", "_values")

    def __init__(self, growing: Collection[str] = _GROWING) -> None:
        self._growing = growing
        self._values: dict[str, list[JSON]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, fields: Object) -> None:
        """Add the fields of one fragment; null does not replace a value that is already there."""
        for key, value in fields.items():
            if value is None and key in self._values:
                continue
            if key in self._growing or type(value) is dict or type(value) is list:
                self._values.setdefault(key, []).append(value)
            else:
                self._values[key] = [value]

    def join(self) -> Object:
        return {key: self._join(key, values) for key, values in self._values.items()}

    def _join(self, key: str, values: list[JSON]) -> JSON:
        """Join the values of one field; values that cannot be joined give the last one."""
        if all(type(value) is dict for value in values):
            inner = Fragments(self._growing)
            for value in values:
                inner.add(value)
            return inner.join()
        if all(type(value) is list for value in values):
            return self._join_elements([element for value in values for element in value])
        texts = [value for value in values if type(value) is str]
        if texts and key in self._growing and len(texts) == sum(value is not None for value in values):
            return join_mapped_surrogates("".join(texts))
        return values[-1]

    def _join_elements(self, elements: list[JSON]) -> list[JSON]:
        """Join array elements with the same `index` and `type`; an element without an index remains on its own."""
        groups: dict[object, list[JSON]] = {}
        kinds: dict[int, str] = {}  # by index: the last type, for fragments that do not repeat it
        for number, element in enumerate(elements):
            index = element.get("index") if type(element) is dict else None
            if type(index) is not int:
                groups[f"#{number}"] = [element]
                continue
            kind = kinds[index] = str(element.get("type", kinds.get(index, "")))
            groups.setdefault((index, kind), []).append(element)
        return [self._join("", group) for group in groups.values()]
