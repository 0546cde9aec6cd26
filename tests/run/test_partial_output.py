"""Partial outputs: prefixes of the final value, at a linear cost."""

import json

import pytest

from tables import every_case
from toolwire.ir.events import CallDelta, CallEnd, CallStart, ResponseStart, TextDelta, TextEnd, TextStart
from toolwire.run import OutputPlan, StructuredOutput
from toolwire.run.session.partial_output import ArgumentsReader, PartialOutput, PartialReader

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "sizes": {"type": "array"}}}
VALUE = {"name": 'Ann "A" \U0001f600 1e5', "sizes": [12, -3.5e2, True, None, {"a": [10]}], "last": 120}


class PlannedReader:
    """A reader with its plan."""

    def __init__(self, mode="native", schema=SCHEMA):
        self._reader, self._plan = PartialReader(), OutputPlan(StructuredOutput(schema).resolve(), mode)

    def feed(self, event):
        return self._reader.feed(event, self._plan)


def text_events(pieces, key=1):
    return [ResponseStart(), TextStart(key), *(TextDelta.of(key, piece) for piece in pieces), TextEnd(key)]


def is_prefix(partial, final):
    if isinstance(final, dict):
        return isinstance(partial, dict) and all(is_prefix(partial[key], final[key]) for key in partial)
    if isinstance(final, list):
        return isinstance(partial, list) and all(map(is_prefix, partial, final)) and len(partial) <= len(final)
    return final.startswith(partial) if isinstance(final, str) else partial == final


@every_case("size", [1, 2, 3, 7, 1000])
@every_case("fence", [False, True])
@every_case("ascii_only", [False, True])
def test_partial_values_are_prefixes_of_the_final_value(size, fence, ascii_only):
    text = json.dumps(VALUE, ensure_ascii=ascii_only)
    text = f"```json\n{text}\n```" if fence else text
    reader = PlannedReader()
    events = text_events(text[start : start + size] for start in range(0, len(text), size))
    values = [found.value for event in events if (found := reader.feed(event))]
    assert all(is_prefix(value, VALUE) for value in values)
    assert fence or values[-1] == VALUE
    assert size > 100 or len(values) > 20 // size


def test_incomplete_numbers_and_literals_are_withheld():
    reader = PlannedReader(schema={"type": "array"})
    events = text_events(["[1", "2", ", tr", "ue", ", -", "1.5", "e3", "]"])
    values = [found.value for event in events if (found := reader.feed(event))]
    assert values == [[], [12], [12, True], [12, True, -1500.0]]


def test_scalar_appears_at_its_end():
    reader = PlannedReader(schema={"type": "integer"})
    assert [found.value for event in text_events(["4", "2"]) if (found := reader.feed(event))] == [42]


def test_arguments_of_the_final_answer_are_read_without_their_wrapper():
    reader = PlannedReader("tool", {"type": "array", "items": {"type": "string"}})
    events = [ResponseStart(), TextStart(0), TextDelta.of(0, "[1, 2]"), TextEnd(0), CallStart(1, "c", "final_answer")]
    events += [CallDelta.of(1, piece) for piece in ('{"res', 'ult": ["a', 'b", "c"', "]}")]
    events += [CallEnd(1), CallStart(2, "d", "search"), CallDelta.of(2, '{"result": ["z"]}'), CallEnd(2)]
    values = [found.value for event in events if (found := reader.feed(event))]
    assert values == [["a"], ["ab", "c"]]


def call_events(pieces, key=1, name="send", **fields):
    start = CallStart(key, f"c{key}", name, **fields)
    return [start, *(CallDelta.of(key, piece) for piece in pieces), CallEnd(key)]


def read_arguments(events, plan=None):
    reader = ArgumentsReader()
    return [found for event in events if (found := reader.feed(event, plan))]


@pytest.mark.finding("NU6")
@pytest.mark.parametrize("ascii_only", [False, True])
def test_partial_arguments_are_prefixes_of_the_arguments_under_every_chunking(ascii_only):
    text = json.dumps(VALUE, ensure_ascii=ascii_only)
    chunkings = [
        [text[start : start + size] for start in range(0, len(text), size)] for size in range(1, len(text) + 1)
    ]
    chunkings += [[text[:cut], text[cut:]] for cut in range(len(text))]
    for pieces in chunkings:
        found = read_arguments(call_events(pieces))
        assert all((one.key, one.id, one.name) == (1, "c1", "send") for one in found)
        values = [one.arguments for one in found]
        assert all(is_prefix(value, VALUE) for value in values) and all(map(is_prefix, values, values[1:]))
        assert values[-1] == VALUE


@pytest.mark.finding("NU6")
def test_interleaved_calls_have_their_own_partial_arguments():
    first, second = call_events(['{"a": "x', 'y"}']), call_events(['{"b": [1', ", 2]}"], key=2, name="count")
    found = read_arguments([event for pair in zip(first, second, strict=True) for event in pair])
    assert [(one.id, one.arguments) for one in found] == [
        ("c1", {"a": "x"}),
        ("c2", {"b": []}),
        ("c1", {"a": "xy"}),
        ("c2", {"b": [1, 2]}),
    ]


@pytest.mark.finding("NU6")
def test_freeform_final_and_invalid_calls_have_no_partial_arguments():
    plan = OutputPlan(StructuredOutput(SCHEMA).resolve(), "tool")
    events = [
        *call_events(["{}"], kind="freeform"),
        *call_events(["{}"], choice=1),
        *call_events(["{}"], name="final_answer"),
        *call_events(["[1]"]),
        *call_events(["no JSON"]),
    ]
    assert read_arguments(events, plan) == []


def test_every_answer_is_an_attempt():
    reader = PlannedReader()
    events = [*text_events(['{"name": "a"}']), *text_events(['{"name": "b"}'])]
    found = [one for event in events if (one := reader.feed(event))]
    assert found == [PartialOutput({"name": "a"}, 1), PartialOutput({"name": "b"}, 2)]


def test_prose_and_other_choices_have_no_partial_output():
    reader = PlannedReader()
    events = [*text_events(["Hello ", '{"a": 1}']), TextStart(5, choice=1), TextDelta.of(5, '{"name": "a"}')]
    assert not any(reader.feed(event) for event in events)


@pytest.mark.parametrize("text", ['{"a": "' + "x" * 200_000 + '"}', "[" + "1," * 100_000 + "1]", "1" * 200_000 + "x"])
def test_characters_read_are_linear_in_the_text(text, monkeypatch):
    from toolwire.run.session import partial_output

    read = []
    original = partial_output._parse
    monkeypatch.setattr(partial_output, "_parse", lambda text: read.append(len(text)) or original(text))
    reader = PlannedReader()
    for event in text_events(text[start : start + 4] for start in range(0, len(text), 4)):
        reader.feed(event)
    assert sum(read) <= 40 * len(text)
