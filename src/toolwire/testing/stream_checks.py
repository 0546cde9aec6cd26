"""Checks for streams: any chunking gives the same events, folding gives the whole response, truncation is an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from random import Random

from ..ir.errors import ToolwireError, TruncatedStream
from ..ir.events import CallDelta, Event, Ping, ReasoningDelta, StreamFault, TextDelta
from ..ir.folding import Folder, fold, unfold
from ..ir.pointer import JSON
from ..ir.response import Response
from ..stream.event_stream import EventStreamDecoder
from ..wire.protocol import Wire
from ..wire.streaming.encoder import framing_of
from .assertions import differences, plain, same, strip_extra
from .vectors import Vector

# Ways to cut bytes into chunks. A decoder must give the same result for all of them.


def every_split(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the data in two pieces, cut at every position."""
    for position in range(len(data) + 1):
        yield data[:position], data[position:]


def bytewise(data: bytes) -> list[bytes]:
    """Return the data byte by byte."""
    return [data[position : position + 1] for position in range(len(data))]


def random_chunks(data: bytes, random: Random, pieces: int) -> list[bytes]:
    """Return the data in about `pieces` pieces, cut at random positions."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(max(pieces - 1, 0)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def decode_stream(wire: Wire, chunks: Iterable[bytes]) -> list[Event]:
    """Return all events of a stream that arrives in `chunks`."""
    decoder = wire.stream_decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


def merge_deltas(events: Iterable[Event]) -> list[Event]:
    """Join adjacent deltas of one item and drop pings, so that the result does not depend on the chunking."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if (
            isinstance(event, (TextDelta, CallDelta, ReasoningDelta))
            and type(last) is type(event)
            and last.key == event.key
            and getattr(last, "section", None) == getattr(event, "section", None)
        ):
            last = joined.pop()
            joined.append(type(event)(event.key, last.escaped + event.escaped, *_section(event)))  # type: ignore[union-attr]
        elif not isinstance(event, Ping):
            joined.append(event)
    return joined


def _section(event: Event) -> tuple[int | None, ...]:
    return (event.section,) if isinstance(event, ReasoningDelta) else ()


def _check_splits(wire: Wire, vector: Vector) -> None:
    expected = decode_stream(wire, [vector.data])
    for first, second in every_split(vector.data):
        assert decode_stream(wire, [first, second]) == expected, f"cut at {len(first)}: different events"


def _check_chunks(wire: Wire, vector: Vector) -> None:
    """Compare the events of random chunkings, and byte by byte, with the events of the whole stream."""
    expected = decode_stream(wire, [vector.data])
    assert decode_stream(wire, bytewise(vector.data)) == expected, "byte by byte: different events"
    random = Random(vector.name)
    for pieces in (3, 7, 40):
        chunks = random_chunks(vector.data, random, pieces)
        assert decode_stream(wire, chunks) == expected, f"cut at {[len(chunk) for chunk in chunks]}: different events"


def _check_line_ends(wire: Wire, vector: Vector) -> None:
    """Check that CRLF, CR and a byte order mark change nothing; server-sent events allow them."""
    if not framing_of(wire.name).terminators:
        return  # a binary stream has no lines
    expected = decode_stream(wire, [vector.data])
    for mark in (b"\r\n", b"\r"):
        assert decode_stream(wire, [vector.data.replace(b"\n", mark)]) == expected, (
            f"lines that end in {mark!r}: different events"
        )
    assert decode_stream(wire, [b"\xef\xbb\xbf" + vector.data]) == expected, "with a byte order mark: different events"


def _check_fold(wire: Wire, vector: Vector) -> None:
    if vector.whole is None:
        return
    folded, expected = fold(decode_stream(wire, [vector.data])), wire.decode_response(vector.whole)
    differing = differences(folded, expected)
    assert not differing, f"differs at {differing}\nfolded {plain(folded)}\nwhole  {plain(expected)}"


def _check_meaning(wire: Wire, vector: Vector) -> None:
    if vector.meaning is None:
        return
    found = strip_extra(plain(fold(decode_stream(wire, [vector.data]))))
    differing = differences(found, vector.meaning)
    assert not differing, f"differs at {differing}\nfound   {found}\nmeaning {vector.meaning}"


def _check_round_trip(wire: Wire, vector: Vector) -> None:
    """Assert that the response is the same after its events, or its unfolded form, are encoded and decoded."""
    response = fold(decode_stream(wire, [vector.data]))
    for events in (decode_stream(wire, [vector.data]), list(unfold(response))):
        encoder = wire.stream_encoder()
        written = b"".join([encoder.feed(event) for event in events])
        decoded_again = fold(decode_stream(wire, [written]))
        if response.fault is not None:
            assert same(decoded_again.fault, response.fault), f"different error: {decoded_again.fault}"
            continue
        differing = differences(decoded_again, response)
        assert not differing, f"differs at {differing}\nagain  {plain(decoded_again)}\nbefore {plain(response)}"


def _check_prefixes(wire: Wire, vector: Vector) -> None:
    """Assert for every cut of the stream: an error before the end of the answer, the same answer after it."""
    data = vector.data
    end = _end_of_answer(wire, data)
    response = fold(decode_stream(wire, [data]))
    for length in range(len(data)):
        try:
            cut = fold(decode_stream(wire, [data[:length]]))
        except TruncatedStream:
            assert length < end, f"cut at {length}, after the terminal mark: reported as truncated"
            continue
        assert length >= end - _FRAME_END, f"cut at {length}, before the terminal mark: accepted as complete"
        assert same(_drop_usage(cut), _drop_usage(response)), f"cut at {length}: different answer"


_FRAME_END = 4  # the blank line after a frame may be missing, with any line ends


def _end_of_answer(wire: Wire, data: bytes) -> int:
    """Return the end of the frame with the last terminal mark, or of the data if the stream ends with a fault."""
    marks = list(re.finditer(wire.terminal, data))
    if not marks:
        assert any(isinstance(event, StreamFault) for event in decode_stream(wire, [data])), (
            "no terminal mark in the stream"
        )
        return len(data)
    if not framing_of(wire.name).terminators:
        return _end_of_message(data, marks[-1].end())
    frame_end = data.find(b"\n\n", marks[-1].end())
    return len(data) if frame_end < 0 else frame_end + 2


def _end_of_message(data: bytes, position: int) -> int:
    """Return the end of the message of a binary event stream that contains `position`."""
    decoder = EventStreamDecoder()
    decoder.feed(data[:position])
    return next(end for end in range(position + 1, len(data) + 1) if decoder.feed(data[end - 1 : end]))


def _drop_usage(response: Response) -> JSON:
    return {key: value for key, value in plain(response).items() if key not in ("usage", "extra")}


def _check_mutations(wire: Wire, vector: Vector) -> None:
    """Decode mutated bytes of a stream, which may raise only `ToolwireError`."""
    random = Random(vector.name)
    data = vector.data
    for _ in range(60):
        position = random.randrange(len(data))
        mutated = random.choice(
            [
                data[:position] + bytes([random.randrange(256)]) + data[position + 1 :],
                data[:position] + data[position + random.randrange(1, 40) :],
                data[:position] + data[max(position - 30, 0) : position] + data[position:],
            ]
        )
        try:
            decoder = wire.stream_decoder()
            folder = Folder()
            for event in [*decoder.feed(mutated), *decoder.close()]:
                folder.feed(event)
            folder.response()
        except ToolwireError:
            continue


STREAM_CHECKS = (
    ("cut in two at every position", _check_splits),
    ("cut into many pieces", _check_chunks),
    ("other line ends", _check_line_ends),
    ("folds to the whole response", _check_fold),
    ("has the stated meaning", _check_meaning),
    ("round trip", _check_round_trip),
    ("truncated at every position", _check_prefixes),
    ("survives mutation", _check_mutations),
)
