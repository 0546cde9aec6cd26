"""Spans: where calls, names, arguments and reasoning are in the text."""

import itertools
import json
import re
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire.text
from places import TESTS
from tables import every_case
from toolwire.ir import Reasoning, Tool, ToolCall
from toolwire.testing import load_text_vectors
from toolwire.text import Span

VECTORS = TESTS / "vectors" / "text"
NAMES = toolwire.text.names()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = [Tool("get_weather", None, SCHEMA), Tool("find", None, SCHEMA)]
CALLS = [
    ToolCall("abcdefghi", "get_weather", {"city": "São x", "days": 3}),
    ToolCall("abcdefghj", "find", {"city": "y"}),
]


@cache
def vectors(name):
    return load_text_vectors(VECTORS / f"{name}.json")


def cut(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)]


def check_spans(text, parsed):
    """Check the rules that hold for every text."""
    spans = parsed.spans
    assert all(0 <= span.start <= span.end <= len(text) for span in spans)
    assert [span.start for span in spans] == sorted(span.start for span in spans)
    outer = [span for span in spans if span.kind in ("call", "reasoning")]
    for first, second in itertools.pairwise(outer):
        assert first.end <= second.start, "calls and reasoning overlap"
    calls = {span.part: span for span in spans if span.kind == "call"}
    assert list(calls) == [number for number, part in enumerate(parsed.parts) if isinstance(part, ToolCall)]
    thoughts = [span.part for span in spans if span.kind == "reasoning"]
    assert thoughts == [number for number, part in enumerate(parsed.parts) if isinstance(part, Reasoning)]
    for span in spans:
        if span.kind in ("name", "arguments"):
            call = calls[span.part]
            assert call.start <= span.start <= span.end <= call.end, f"{span} is outside {call}"
    for part, name in ((span.part, text[span.start : span.end]) for span in spans if span.kind == "name"):
        assert "\\" in name or parsed.parts[part].name in name


@pytest.mark.one_in(5)
@every_case("name", NAMES)
def test_spans_of_all_vectors_do_not_depend_on_the_chunking(name):
    form, choose = toolwire.text.get(name), Random(name)
    for vector in vectors(name):
        text = vector.text
        parsed = form.parse(text, vector.tools, finished=vector.finished, spans=True)
        check_spans(text, parsed)
        edges = sorted(choose.randrange(len(text) + 1) for _ in range(5))
        pieces = [text[start:end] for start, end in itertools.pairwise([0, *edges, len(text)])]
        for chunks in (list(text), pieces, cut(text, 3)):
            assert form.parse_pieces(chunks, vector.tools, finished=vector.finished, spans=True) == parsed, vector


@every_case("name", NAMES)
def test_spans_are_the_source_of_a_written_call(name):
    form = toolwire.text.get(name)
    calls = CALLS[: 1 if form.one_call else 2]
    text = form.calls.write(calls)
    parsed = form.parse(text, TOOLS, reasoning=False, spans=True)
    check_spans(text, parsed)
    source = {(span.kind, span.part): text[span.start : span.end] for span in parsed.spans}
    assert len(source) == 3 * len(calls)
    for part, call in enumerate(calls):
        assert source["name", part] == call.name
        assert source["name", part] in source["call", part]
        assert all(str(value) in source["arguments", part] for value in call.arguments.values())
        if source["arguments", part].startswith('{"'):
            assert json.loads(source["arguments", part]) == call.arguments
    rest = "".join(text[end:start] for end, start in gaps(text, parsed.spans))
    for token in (*form.noise, *form.ends_reasoning):
        rest = rest.replace(token, "")
    assert not rest.strip(" \n,;"), "the markup of the calls is not in their spans"


def gaps(text, spans):
    """The regions outside calls."""
    calls = [span for span in spans if span.kind == "call"]
    return list(zip([0, *(span.end for span in calls)], [*(span.start for span in calls), len(text)], strict=True))


@pytest.mark.one_in(5)
@every_case("name", NAMES)
def test_truncated_turns_have_spans_inside_the_text(name):
    form = toolwire.text.get(name)
    text = f"{form.reasoning[0][0] if form.reasoning else ''}" + form.calls.write(CALLS[:1])
    for length in range(len(text)):
        parsed = form.parse(text[:length], TOOLS, finished=False, spans=True)
        check_spans(text[:length], parsed)
        assert form.parse_pieces(list(text[:length]), TOOLS, finished=False, spans=True) == parsed


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_spans_of_any_text_do_not_depend_on_the_chunking(name, data):
    form = toolwire.text.get(name)
    written = form.calls.write(CALLS[:1])
    words = [
        *re.findall(r"<[^<>]*>|\w+|\s+|[^\w\s]", written),
        written,
        "text",
        "\n",
        '"',
        *itertools.chain(*form.reasoning),
    ]
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=12)))
    size = data.draw(st.integers(1, 9))
    parsed = form.parse(text, TOOLS, spans=True)
    check_spans(text, parsed)
    assert form.parse_pieces(cut(text, size), TOOLS, spans=True) == parsed


def test_spans_are_recorded_only_on_request():
    text = toolwire.text.get("hermes").calls.write(CALLS)
    parsed = toolwire.text.get("hermes").parse(text, TOOLS)
    parser = toolwire.text.get("hermes").parser(TOOLS)
    parser.feed(text)
    assert parsed.spans == parser.spans == ()


def test_incremental_parser_has_the_spans_of_the_whole_turn():
    form = toolwire.text.get("qwen3_xml")
    text = "<think>\nLook it up.\n</think>\nOne moment.\n" + form.calls.write(CALLS)
    parser = form.parser(TOOLS, spans=True)
    for piece in cut(text, 4):
        parser.feed(piece)
    parser.close()
    assert parser.spans == form.parse(text, TOOLS, spans=True).spans
    assert parser.spans[0] == Span("reasoning", 7, 20, 0)


def test_draft_in_reasoning_is_part_of_the_reasoning():
    text = '<think>a<tool_call>\n{"name": "find", "arguments": {}}\n</tool_call>b</think>c'
    parsed = toolwire.text.get("hermes").parse(text, TOOLS, spans=True)
    assert parsed.calls == ()
    (span,) = parsed.spans
    assert text[span.start : span.end] == parsed.parts[span.part].text


@pytest.mark.parametrize(
    "text, sources",
    [
        ('{"arguments": {"city": "x"}, "name": "find"}', ["find", '{"city": "x"}']),
        ('{"name": "find", "arguments": "{\\"city\\": \\"x\\"}"}', ["find", '"{\\"city\\": \\"x\\"}"']),
        ('{"name": "find", "arguments": {"city": oops}}', ["find", '{"city": oops}']),
        ('{"name": "find", "arguments": {"city": "x"', ["find", '{"city": "x"']),
    ],
)
def test_unusual_json_calls_have_spans(text, sources):
    whole = f"Text.\n<tool_call>{text}\n</tool_call>" if text.endswith("}") else f"Text.\n<tool_call>{text}"
    parsed = toolwire.text.get("hermes").parse(whole, TOOLS, spans=True)
    found = {span.kind: whole[span.start : span.end] for span in parsed.spans}
    assert [found["name"], found["arguments"]] == sources
    assert found["call"] == whole.removeprefix("Text.\n")
