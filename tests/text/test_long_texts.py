"""Long texts take other paths than short ones, with the same result."""

import random

import pytest

import toolwire.text
from tables import every_case
from toolwire.ir import ProtocolError, ResponseEnd, Stop, Tool, ToolCall, fold
from toolwire.stream.strict import parse
from toolwire.text.engine.json_end_scanner import JsonEndScanner
from toolwire.text.engine.markers import Fences
from toolwire.text.engine.reader import Terminals

TOOL = Tool("write", None, {"type": "object", "properties": {"text": {"type": "string"}}})
LITERALS = (
    ("<a>", "</a>", "\n<a>", "\r\n<a>", "[X]", "<"),
    ("\nfoo", "foo", "\n\nfoo", "bar", "<bar"),
    ("]<]m[>[", "[TOOL", "<x", "<xy", "functools["),
    ("\n</p>", "</p>", "\r\n</p>", "<p=", "\n<p=", "\r\n<p=", "<f="),
)


def first_literal(literals, text, at):
    found = [(text.find(one, at), -len(one), one) for one in literals if text.find(one, at) >= 0]
    return (min(found)[0], min(found)[2]) if found else (len(text), None)


@pytest.mark.parametrize("literals", LITERALS)
def test_first_and_longest_literal_is_found_at_any_distance(literals):
    choose = random.Random(1)
    search = Terminals(literals)
    pieces = [*literals, *(one[:2] for one in literals), "\n", "\r", "<"]
    for length in [choose.randrange(3000) for _ in range(300)]:
        filler = ["z"] * choose.choice((1, 20, 2000))
        text = "".join(choose.choice(pieces) if choose.random() < 0.1 else choose.choice(filler) for _ in range(length))
        text = "z" * choose.choice((0, 250, 260, 1000)) + text
        at = choose.randrange(len(text) + 1)
        assert search.next(text, at, ended=True) == first_literal(literals, text, at)


@every_case("backslashes", range(8))
@every_case("size", [1, 2, 3, 1000])
@every_case("before", ["", "x" * 100])
def test_quote_after_an_odd_number_of_backslashes_is_escaped(backslashes, size, before):
    text = '"' + before + "\\" * backslashes + '" tail'
    scanner, position = JsonEndScanner(), 0
    while position < len(text) and not scanner.done:
        position += scanner.feed(text[position : position + size], 0)
    assert scanner.done == (backslashes % 2 == 0)
    if scanner.done:
        assert text[:position].endswith('"')


@pytest.mark.parametrize(
    "text, end",
    [
        ('{"a": 1, "b": "x", "c": true} tail', 29),
        ('[1, "a", null , -2.5e3] tail', 23),
        ('{"a": [1, {"b": "c"}], "d": "' + "x" * 100 + '", "e": 1}', 139),
        ('{"a": 1 "b": 2}', None),
        ('{"a": 1, 2}', None),
        ('[1, "a": 2]', None),
        ('{"a", "b"}', None),
    ],
)
def test_runs_of_short_members_follow_the_grammar(text, end):
    whole, single = JsonEndScanner(), JsonEndScanner()
    stop = whole.feed(text, 0)
    position = 0
    while position < len(text) and not (single.done or single.failed):
        step = single.feed(text[position], 0)
        position += step
    assert (stop, whole.done, whole.failed) == (position, single.done, single.failed)
    assert (stop if whole.done else None) == end


@pytest.mark.parametrize(
    "text, quoted",
    [
        ("plain\n" * 50 + "```\ncode\n", True),
        ("plain\n" * 50 + "```\ncode\n```\n" + "plain\n" * 50, False),
        ("plain\n" * 50 + "~~~\ncode\n" + "more\n" * 50, True),
        ("\n" * 50 + "```\ncode\n", False),
        (" " * 300 + "text\n```\ncode\n", True),
        ("plain\n" * 50 + "see `code", True),
    ],
)
def test_quoted_code_in_long_text_does_not_depend_on_the_chunking(text, quoted):
    whole, single = Fences(), Fences()
    whole.feed(text)
    for character in text:
        single.feed(character)
    assert whole.in_code == single.in_code == quoted


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400 + ".0"])
@pytest.mark.parametrize("shape", ['{{"text": "{0}", "n": {1}}}', '{{"n": {1}, "text": "{0}"}}', '[["{0}", [{1}]]]'])
def test_infinite_number_beside_a_long_string_is_refused(number, shape):
    with pytest.raises(ProtocolError, match="number out of range"):
        parse(shape.format("x" * 5000, number))


def read_events(form, text):
    parser = form.parser([TOOL])
    events = [*parser.feed(text), *parser.close(), ResponseEnd((Stop("stop"),))]
    return fold(events).parts, tuple(parser.diagnostics)


@pytest.mark.one_in(5)
@every_case("name", toolwire.text.names())
def test_long_turn_has_the_parts_of_its_events(name):
    form = toolwire.text.get(name)
    value = 'Some "text", it\'s long \\ and has é and `code`.\n' * 10
    text = "Before.\n" * 40 + form.calls.write([ToolCall("abcdefghi", "write", {"text": value})])
    for turn in (text, text[:-30], text + "\nAfter.\n" * 40):
        parsed = form.parse(turn, [TOOL])
        assert (parsed.parts, parsed.diagnostics) == read_events(form, turn)
        assert parsed == form.parse_pieces([turn[at : at + 7] for at in range(0, len(turn), 7)], [TOOL])
