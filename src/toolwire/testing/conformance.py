"""The conformance suites: checks that every wire and every text format must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from .. import text
from ..ir.errors import ToolwireError
from ..ir.events import ResponseEnd
from ..ir.folding import fold
from ..ir.parts import Text, ToolCall, ToolResult
from ..ir.pointer import JSON
from ..ir.response import Stop
from ..text.engine.format import Format, Parsed
from ..wire import get, names
from ..wire.protocol import Wire
from .assertions import differences, plain, same, strip_extra
from .pair_checks import PAIR_CHECKS
from .stream_checks import STREAM_CHECKS, merge_deltas
from .vectors import TextVector, Vector

_INTRUDERS: list[JSON] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "null",
    [],
    {},
    [None],
    [[]],
    {"type": "?"},
    {"": {}},
    "\x00",
    10**30,
]


def mutations(document: JSON, random: Random, count: int) -> Iterator[JSON]:
    """Yield `count` copies of `document`, each with one value replaced, removed, renamed or duplicated."""
    for _ in range(count):
        yield _mutate(document, random)


def _mutate(value: JSON, random: Random) -> JSON:
    """Return a copy of a document with one value removed, replaced, renamed or repeated at a random depth."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        changed: dict[str, Any] = dict(value)
        match random.randrange(6):
            case 0:
                del changed[key]
            case 1:
                changed[key] = random.choice(_INTRUDERS)
            case 2:
                changed[random.choice(["type", "id", "x", key.upper()])] = changed.pop(key)
            case _:
                changed[key] = _mutate(value[key], random)
        return changed
    if isinstance(value, list) and value and random.random() < 0.85:
        index = random.randrange(len(value))
        items = list(value)
        match random.randrange(6):
            case 0:
                del items[index]
            case 1:
                items[index] = random.choice(_INTRUDERS)
            case 2:
                items.insert(index, items[index])
            case _:
                items[index] = _mutate(items[index], random)
        return items
    return random.choice(_INTRUDERS)


# Checks for documents: requests, responses, declarations, errors.


def _decode(wire: Wire, vector: Vector) -> object:
    """Decode the body of a vector by its kind."""
    if vector.kind == "error":
        return wire.decode_error(vector.status, vector.body)
    return getattr(wire, f"decode_{vector.kind}")(vector.body)


def _encode(wire: Wire, vector: Vector, value: object) -> JSON:
    """Encode a decoded value by the kind of its vector."""
    written = getattr(wire, f"encode_{vector.kind}")(value)
    return written[0] if vector.kind == "tools" else written.body


def _check_round_trip(wire: Wire, vector: Vector) -> None:
    written = _encode(wire, vector, _decode(wire, vector))
    differing = differences(written, vector.body)
    assert not differing, f"differs at {differing}\nwritten {written}\nvector  {vector.body}"


def _check_meaning(wire: Wire, vector: Vector) -> None:
    if vector.meaning is None:
        return
    found = strip_extra(plain(_decode(wire, vector)))
    differing = differences(found, vector.meaning)
    assert not differing, f"differs at {differing}\nfound   {found}\nmeaning {vector.meaning}"


def _check_detection(wire: Wire, vector: Vector) -> None:
    judge = wire.detection.get(vector.kind)
    points = 0 if judge is None else judge(vector.body)
    assert points, f"{wire.name} does not recognise its own {vector.kind}"


def _check_mutations(wire: Wire, vector: Vector) -> None:
    """Mutate the document: decoding and encoding may raise only ToolwireError."""
    for mutated in mutations(vector.body, Random(vector.name), 60):
        try:
            value = _decode(wire, Vector(vector.name, vector.source, vector.kind, mutated, status=vector.status))
            _encode(wire, vector, value)
        except ToolwireError:
            continue


DOCUMENT_CHECKS = (
    ("round trip", _check_round_trip),
    ("has the stated meaning", _check_meaning),
    ("is recognised", _check_detection),
    ("survives mutation", _check_mutations),
)


# The conformance suite for wires: the checks that every wire must pass.
#
# decode, encode and decode again give the same value                  (same wire: the same document)
# the meaning is the one that the vector states
# any chunking of a stream gives the same events; folded, they are the whole response
# a stream that stops before its terminal mark raises TruncatedStream; after it, only usage may be missing
# broken input raises only toolwire's errors
# to every other wire and back: equal, except for the reported losses


_REQUIRED_KINDS = {"request", "response", "stream", "error"}


class Check:
    """One check. Calling it raises AssertionError with the reason if the check fails."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self._run = run

    def __call__(self) -> None:
        self._run()

    def __str__(self) -> str:
        return self.name


def wire_checks(wire: Wire | str, vectors: Iterable[Vector], others: Iterable[str] | None = None) -> list[Check]:
    """Return all checks of a wire. `others`: the wires for round trips; by default all registered ones."""
    codec = get(wire) if isinstance(wire, str) else wire
    vectors = list(vectors)
    checks = [Check("vectors exist", partial(_has_vectors, codec, vectors))]
    for vector in vectors:
        for about, run in STREAM_CHECKS if vector.kind == "stream" else DOCUMENT_CHECKS:
            checks.append(Check(f"{vector}: {about}", partial(run, codec, vector)))
        for other_wire in names() if others is None else others:
            run_pair = PAIR_CHECKS.get(vector.kind)
            if run_pair is not None and other_wire != codec.name:
                checks.append(
                    Check(f"{vector}: to {other_wire} and back", partial(run_pair, codec, vector, get(other_wire)))
                )
    return checks


def _has_vectors(wire: Wire, vectors: list[Vector]) -> None:
    missing = _REQUIRED_KINDS - {vector.kind for vector in vectors}
    assert not missing, f"{wire.name} has no vectors for {', '.join(sorted(missing))}"
    for vector in vectors:
        assert vector.source.strip(), f"{vector} has no source"


# The conformance suite for text formats: the checks that every format must pass.
#
# the calls, the text, the reasoning and the diagnostics are those that the vector states
# any chunking of the text gives the same events as the whole text
# a parsed turn has the parts of its events
# in a truncated text, only complete calls are marked complete
# complete calls can be written and parse back unchanged, or the writer reports a loss
# broken text raises nothing
# tools are declared and results rendered


_MIN_VECTORS = 10  # fewer cannot cover one call, several, none and a broken one; not measured
_MAX_EXHAUSTIVE_LENGTH = 1000  # positions at which a stream is split: all of most vectors, a sample of a long one
_MUTANTS = 10  # of each vector; the suite has many vectors, not measured


def text_checks(form: Format | str, vectors: Iterable[TextVector]) -> list[Check]:
    """Return all checks of a format."""
    form = text.get(form) if isinstance(form, str) else form
    vectors = list(vectors)
    checks = [Check("vectors exist", partial(_has_text_vectors, form, vectors))]
    if not vectors:
        return checks
    checks.append(Check("tools and results are rendered", partial(_check_rendering, form, vectors[0])))
    for vector in vectors:
        for about, run in _CHECKS:
            checks.append(Check(f"{vector}: {about}", partial(run, form, vector)))
    return checks


def read_pieces(form: Format, vector: TextVector, pieces: Iterable[str]) -> tuple[object, ...]:
    """Parse a text that arrives in `pieces` into a value to compare, which does not depend on the chunking."""
    parser = form.parser(vector.tools, reasoning=vector.thinking)
    events = [event for piece in pieces for event in parser.feed(piece)]
    stopped = parser.should_stop
    events += parser.close(finished=vector.finished)
    return merge_deltas(events), parser.diagnostics, stopped


def _has_text_vectors(form: Format, vectors: list[TextVector]) -> None:
    assert len(vectors) >= _MIN_VECTORS, f"{form.name} has too few vectors: {len(vectors)}"
    assert any(call.state == "complete" for vector in vectors for call in vector.calls), "no vector has a call"
    for vector in vectors:
        assert vector.source.strip(), f"{vector} has no source"


def _check_rendering(form: Format, vector: TextVector) -> None:
    """Check that every tool is declared, that no tools give no text, and that a result contains its text."""
    declared = form.render_tools(vector.tools)
    for tool in vector.tools:
        assert tool.name in declared, f"{tool.name} is not declared"
    assert form.render_tools([]) == "", "render_tools must return an empty text without tools"
    rendered = form.render_result(ToolResult("abcdefghi", "get_weather", (Text("22 degrees"),)))
    assert "22 degrees" in rendered, "the rendered text does not contain the result"


def _check_vector(form: Format, vector: TextVector) -> None:
    differing = vector.differences(_parse(form, vector, vector.text, finished=vector.finished))
    assert not differing, "\n".join(differing)


def _parse(form: Format, vector: TextVector, text: str, *, finished: bool = True) -> Parsed:
    return form.parse(text, vector.tools, finished=finished, reasoning=vector.thinking)


def _check_cuts(form: Format, vector: TextVector) -> None:
    expected = read_pieces(form, vector, [vector.text])
    for pieces in _iterate_cuts(vector.text, Random(vector.name)):
        assert read_pieces(form, vector, pieces) == expected, f"cut as {pieces}: different events"


def _check_parts(form: Format, vector: TextVector) -> None:
    """Check that `parse`, which builds no deltas, returns the parts of the events."""
    parser = form.parser(vector.tools)
    events = [*parser.feed(vector.text), *parser.close(finished=vector.finished), ResponseEnd((Stop("stop"),))]
    parsed = form.parse(vector.text, vector.tools, finished=vector.finished)
    assert parsed.parts == fold(events).parts, f"{parsed.parts} differ from those of the events"
    assert list(parsed.diagnostics) == parser.diagnostics, "the diagnostics differ from those of the events"


def _iterate_cuts(text: str, random: Random) -> Iterator[list[str]]:
    """Yield chunkings of a text: single characters, two pieces, and some random ones."""
    yield list(text)
    for position in _cut_positions(text, random):
        yield [text[:position], text[position:]]
    for count in (2, 5, 11):
        edges = sorted(random.randrange(len(text) + 1) for _ in range(count))
        yield [text[start:end] for start, end in pairwise([0, *edges, len(text)])]


def _cut_positions(text: str, random: Random) -> list[int]:
    """Return every position in a text; in a long one, a random sample."""
    positions = range(len(text))
    return (
        list(positions)
        if len(positions) <= _MAX_EXHAUSTIVE_LENGTH
        else sorted(random.sample(positions, _MAX_EXHAUSTIVE_LENGTH))
    )


def _check_prefixes(form: Format, vector: TextVector) -> None:
    """Assert for truncated texts that each call marked complete is the same as in the whole text."""
    expected = [call for call in _parse(form, vector, vector.text).calls if call.state == "complete"]
    for length in _cut_positions(vector.text, Random(vector.name)):
        cut = _parse(form, vector, vector.text[:length], finished=False)
        done = [call for call in cut.calls if call.state == "complete"]
        assert len(done) <= len(expected), f"cut at {length}: surplus call {done[-1]}"
        for call, there in zip(done, expected, strict=False):
            alike = call.name == there.name and same(call.arguments, there.arguments)
            assert alike, f"cut at {length}: {call} marked complete, but the whole text has {there}"


def _check_text_round_trip(form: Format, vector: TextVector) -> None:
    """Assert that the complete calls are the same after rendering and parsing; a reported loss excuses a difference."""
    calls = [call for call in _parse(form, vector, vector.text).calls if call.state == "complete"]
    if not calls:
        return
    written = form.render_calls(calls, vector.tools)
    if written.losses:
        return
    reparsed = form.parse(written.text, vector.tools).calls
    assert same(_call_meanings(reparsed), _call_meanings(calls)), f"{written.text!r} parses as {reparsed}"


def _call_meanings(calls: Iterable[ToolCall]) -> list[object]:
    return [[call.name, call.arguments, call.state] for call in calls]


def _check_text_mutations(form: Format, vector: TextVector) -> None:
    """Assert for mutated texts that parsing raises nothing, and that the events do not depend on the chunking."""
    random = Random(vector.name)
    text = vector.text
    for _ in range(_MUTANTS):
        position, length = random.randrange(len(text) + 1), random.randrange(1, 12)
        mutant = random.choice(
            (
                text[:position] + text[position + length :],
                text[:position] + text[position : position + length] + text[position:],
                text[:position] + random.choice("<>{}[]()\"'\\|=:,\n 0é\x00") + text[position + 1 :],
                text[position:] + text[:position],
            )
        )
        cut = [mutant[:position], mutant[position:]]
        expected = read_pieces(form, vector, [mutant])
        assert read_pieces(form, vector, cut) == expected, f"{mutant!r} cut at {position}: different events"


_CHECKS = (
    ("matches the vector", _check_vector),
    ("cut at every position", _check_cuts),
    ("parts of the events", _check_parts),
    ("truncated at every position", _check_prefixes),
    ("round trip", _check_text_round_trip),
    ("survives mutation", _check_text_mutations),
)
