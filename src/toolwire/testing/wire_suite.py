"""The conformance suite: everything that must hold for every wire, whoever wrote it.

decode, encode and decode again give the same                      (same wire: the document itself comes back)
the meaning is the one that the vector states
any cutting of a stream gives the same events; folded, they are the whole response
a stream that stops before its terminal mark is TruncatedStream; behind it, only usage may be missing
what is broken raises toolwire's errors and nothing else
to every other wire and back: equal, but for what the losses say
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random

from ..bridge.exchange import Exchange
from ..bridge.prepare import prepare
from ..ir.errors import ToolwireError, TruncatedStream
from ..ir.events import CallDelta, Event, Ping, ReasoningDelta, StreamFault, TextDelta
from ..ir.fold import Folder, fold, unfold
from ..ir.pointer import JSON
from ..ir.response import Response
from ..wire import get, names
from ..wire.protocol import Wire
from .chunks import bytewise, every_split, random_chunks
from .compare import differences, plain, same
from .mutate import mutations
from .pairs import unexplained_in_request, unexplained_in_response
from .vectors import Vector

__all__ = ["Check", "merged", "wire_checks"]


class Check:
    """One thing that must hold. Call it; AssertionError says what does not."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self._run = run

    def __call__(self) -> None:
        self._run()

    def __str__(self) -> str:
        return self.name


def wire_checks(wire: Wire | str, vectors: Iterable[Vector], others: Iterable[str] | None = None) -> list[Check]:
    """All checks of a wire. `others`: the wires to carry things to and from; by default all that are there."""
    codec = get(wire) if isinstance(wire, str) else wire
    vectors = list(vectors)
    checks = [Check("there are vectors", partial(_has_vectors, codec, vectors))]
    for vector in vectors:
        for about, run in _CHECKS[vector.kind]:
            checks.append(Check(f"{vector}: {about}", partial(run, codec, vector)))
        for other in names() if others is None else others:
            if other != codec.name and vector.kind in _PAIRS:
                run_pair = _PAIRS[vector.kind]
                checks.append(Check(f"{vector}: to {other} and back", partial(run_pair, codec, vector, get(other))))
    return checks


def _has_vectors(wire: Wire, vectors: list[Vector]) -> None:
    kinds = {vector.kind for vector in vectors}
    missing = {"request", "response", "stream", "error"} - kinds
    assert not missing, f"{wire.name} has no vectors for {', '.join(sorted(missing))}"
    for vector in vectors:
        assert vector.source.strip(), f"{vector} does not say where it comes from"


# requests, responses, tools, errors


def _decode(wire: Wire, vector: Vector) -> object:
    if vector.kind == "request":
        return wire.decode_request(vector.body)
    if vector.kind == "response":
        return wire.decode_response(vector.body)
    if vector.kind == "tools":
        return wire.decode_tools(vector.body)
    return wire.decode_error(vector.status, vector.body)


def _encode(wire: Wire, vector: Vector, value: object) -> JSON:
    if vector.kind == "request":
        return wire.encode_request(value).body  # type: ignore[arg-type]
    if vector.kind == "response":
        return wire.encode_response(value).body  # type: ignore[arg-type]
    if vector.kind == "tools":
        return wire.encode_tools(value)[0]  # type: ignore[arg-type]
    return wire.encode_error(value).body  # type: ignore[arg-type]


def _comes_back(wire: Wire, vector: Vector) -> None:
    written = _encode(wire, vector, _decode(wire, vector))
    differing = differences(written, vector.body)
    assert not differing, f"differs at {differing}\nwritten {written}\nvector  {vector.body}"


def _means(wire: Wire, vector: Vector) -> None:
    if vector.meaning is None:
        return
    found = without_extra(plain(_decode(wire, vector)))
    differing = differences(found, vector.meaning)
    assert not differing, f"differs at {differing}\nfound   {found}\nmeaning {vector.meaning}"


def _is_recognised(wire: Wire, vector: Vector) -> None:
    judge = wire.signs.get(vector.kind)
    points = 0 if judge is None else judge(vector.body)
    assert points, f"{wire.name} does not recognise its own {vector.kind}"


def _survives_mutation(wire: Wire, vector: Vector) -> None:
    for mutated in mutations(vector.body, Random(vector.name), 60):
        try:
            value = _decode(wire, Vector(vector.name, vector.source, vector.kind, mutated, status=vector.status))
            _encode(wire, vector, value)
        except ToolwireError:
            continue


def without_extra(value: JSON) -> JSON:
    """Meaning only: no fields that just one wire knows."""
    if isinstance(value, dict):
        return {key: without_extra(item) for key, item in value.items() if key != "extra"}
    if isinstance(value, list):
        return [without_extra(item) for item in value]
    return value


# streams


def _events(wire: Wire, chunks: Iterable[bytes]) -> list[Event]:
    decoder = wire.stream_decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


def merged(events: Iterable[Event]) -> list[Event]:
    """The events with adjacent deltas of one item joined: how a stream was cut does not show any more."""
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


def _any_split(wire: Wire, vector: Vector) -> None:
    whole = _events(wire, [vector.data])
    for first, second in every_split(vector.data):
        assert _events(wire, [first, second]) == whole, f"cut at {len(first)}: other events"


def _any_chunks(wire: Wire, vector: Vector) -> None:
    whole = _events(wire, [vector.data])
    assert _events(wire, bytewise(vector.data)) == whole, "byte by byte: other events"
    random = Random(vector.name)
    for pieces in (3, 7, 40):
        chunks = random_chunks(vector.data, random, pieces)
        assert _events(wire, chunks) == whole, f"cut at {[len(chunk) for chunk in chunks]}: other events"


def _line_ends(wire: Wire, vector: Vector) -> None:
    whole = _events(wire, [vector.data])
    for mark in (b"\r\n", b"\r"):
        assert _events(wire, [vector.data.replace(b"\n", mark)]) == whole, f"lines that end in {mark!r}: other events"
    assert _events(wire, [b"\xef\xbb\xbf" + vector.data]) == whole, "with a byte order mark: other events"


def _folds(wire: Wire, vector: Vector) -> None:
    if vector.whole is None:
        return
    folded, whole = fold(_events(wire, [vector.data])), wire.decode_response(vector.whole)
    differing = differences(folded, whole)
    assert not differing, f"differs at {differing}\nfolded {plain(folded)}\nwhole  {plain(whole)}"


def _stream_means(wire: Wire, vector: Vector) -> None:
    if vector.meaning is None:
        return
    found = without_extra(plain(fold(_events(wire, [vector.data]))))
    differing = differences(found, vector.meaning)
    assert not differing, f"differs at {differing}\nfound   {found}\nmeaning {vector.meaning}"


def _stream_comes_back(wire: Wire, vector: Vector) -> None:
    response = fold(_events(wire, [vector.data]))
    for events in (_events(wire, [vector.data]), list(unfold(response))):
        encoder = wire.stream_encoder()
        written = b"".join([encoder.feed(event) for event in events])
        again = fold(_events(wire, [written]))
        if response.fault is not None:
            assert same(again.fault, response.fault), f"another error: {again.fault}"
            continue
        differing = differences(again, response)
        assert not differing, f"differs at {differing}\nagain  {plain(again)}\nbefore {plain(response)}"


def _prefixes(wire: Wire, vector: Vector) -> None:
    """Cut anywhere: an error before the end, the same answer behind it."""
    data = vector.data
    end = _end_of_answer(wire, data)
    response = fold(_events(wire, [data]))
    for length in range(len(data)):
        try:
            cut = fold(_events(wire, [data[:length]]))
        except TruncatedStream:
            assert length < end, f"cut at {length}, behind the terminal mark: still truncated"
            continue
        assert length >= end - _FRAME_END, f"cut at {length}, before the terminal mark: taken for whole"
        assert same(_less_usage(cut), _less_usage(response)), f"cut at {length}: another answer"


_FRAME_END = 4  # the blank line behind a frame may be missing, in any spelling


def _end_of_answer(wire: Wire, data: bytes) -> int:
    """Behind the frame with the last terminal mark."""
    marks = list(re.finditer(wire.terminal, data))
    if not marks:
        assert any(isinstance(event, StreamFault) for event in _events(wire, [data])), "no terminal mark in the stream"
        return len(data)
    frame_end = data.find(b"\n\n", marks[-1].end())
    return len(data) if frame_end < 0 else frame_end + 2


def _less_usage(response: Response) -> JSON:
    return {key: value for key, value in plain(response).items() if key not in ("usage", "extra")}


def _stream_survives_mutation(wire: Wire, vector: Vector) -> None:
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


# pairs


def _request_pair(wire: Wire, vector: Vector, other: Wire) -> None:
    request = wire.decode_request(vector.body)
    try:
        prepared = prepare(request, other)
    except ToolwireError:
        return  # refused with a reason, before anything was sent
    written, losses = other.encode_request(prepared.request)
    back = other.decode_request(written)
    differing = unexplained_in_request(prepared.request, back, list(losses))
    assert not differing, f"{other.name} reads back something else at {differing}, without a loss"
    original = prepared.exchange.restore_request(back)
    explained = [*prepared.losses, *(replace_path(loss, prepared.origin(loss.path)) for loss in losses)]
    differing = unexplained_in_request(request, original, explained)
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in explained]}"


def replace_path(loss: object, path: str) -> object:
    from msgspec.structs import replace

    return replace(loss, path=path)  # type: ignore[type-var]


def _response_pair(wire: Wire, vector: Vector, other: Wire) -> None:
    response = Exchange().restore(wire.decode_response(vector.body))
    if response.fault is not None:
        return
    written, losses = other.encode_response(response)
    back = other.decode_response(written)
    differing = unexplained_in_response(response, back, list(losses))
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in losses]}\n{written}"


def _stream_pair(wire: Wire, vector: Vector, other: Wire) -> None:
    response = Exchange().restore(fold(_events(wire, [vector.data])))
    restorer = Exchange().restorer()
    encoder = other.stream_encoder()
    written = b"".join(
        [encoder.feed(restored) for event in _events(wire, [vector.data]) for restored in restorer.feed(event)]
    )
    back = fold(_events(other, [written]))
    if response.fault is not None:
        assert back.fault is not None, "the error did not arrive"
        return
    differing = unexplained_in_response(response, back, list(encoder.losses))
    assert not differing, (
        f"changed without a loss: {differing}\nlosses: {[str(x) for x in encoder.losses]}\n{written!r}"
    )


_DOCUMENT: list[tuple[str, Callable[[Wire, Vector], None]]] = [
    ("comes back as it was", _comes_back),
    ("means what it says", _means),
    ("is recognised", _is_recognised),
    ("survives mutation", _survives_mutation),
]
_CHECKS: dict[str, list[tuple[str, Callable[[Wire, Vector], None]]]] = {
    "request": _DOCUMENT,
    "response": _DOCUMENT,
    "tools": _DOCUMENT,
    "error": _DOCUMENT,
    "stream": [
        ("cut in two anywhere", _any_split),
        ("cut in many pieces", _any_chunks),
        ("other line ends", _line_ends),
        ("is the same as its whole", _folds),
        ("means what it says", _stream_means),
        ("comes back as it was", _stream_comes_back),
        ("cut short", _prefixes),
        ("survives mutation", _stream_survives_mutation),
    ],
}
_PAIRS: dict[str, Callable[[Wire, Vector, Wire], None]] = {
    "request": _request_pair,
    "response": _response_pair,
    "stream": _stream_pair,
}


def all_checks(files: Iterator[tuple[str, Iterable[Vector]]]) -> list[Check]:
    """The checks of several wires, each named after its wire."""
    return [Check(f"{name}: {check}", check) for name, vectors in files for check in wire_checks(name, vectors)]
