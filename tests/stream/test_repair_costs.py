"""The cost of repairing hostile text: linear in its length, with a bounded number of readings."""

import pytest

from tables import every_case
from toolwire.ir import BrokenJSON
from toolwire.schema import repair_arguments
from toolwire.stream import repair as stream_repair
from toolwire.stream.repair import MAX_INTERPRETATIONS, MAX_READ, checked_readings, interpretations, repair_json
from work_counter import assert_linear, count_work

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}},
    "required": ["a"],
}
HOSTILE = {
    "commas": ('{"a": "x"', ",", '"b": []}'),
    "separators": ("{", "a=1;", "}"),
    "over-escaped quotes": ('{\\"a\\": \\"', 'x\\\\\\"', '\\"}'),
    "over-escaped members": ("{", '\\"a\\": \\"x\\",', "}"),
    "backslashes": ("{", "\\", "}"),
    "escaped line feeds": ("{", "\\n", "}"),
    "openers of reasoning": ("", "<think>", '{"a": "x"}'),
    "reasoning": ("", "<think></think>", '{"a": "x"}'),
    "halves of marks": ("", "<think", ""),
    "less-than signs": ("", "<", '{"a": "x"}'),
    "closers of reasoning": ("", "</think>", '{"a": "x"}'),
    "calls": ("", "f(", ""),
    "keyword arguments": ("f(", "a=1,", ")"),
    "full-width braces": ("", "\uff5b", ""),
    "members": ("", '"a": "x", ', "}"),
    "quotations": ('{"a": "', '"x" ', '"}'),
    "concatenations": ('{"a": ', '"x" + ', '"y"}'),
    "triple quotes": ('{"a": ', '"""', "}"),
    "holes": ('{"a": "x", "b": [', '"y",,', "]}"),
    "wrappers": ("", '{"arguments":', ""),
    "equals signs": ('{"a"', "= ", '"x"}'),
    "comments": ('{"a": "x"', "/* x */", "}"),
    "escapes of other languages": ('{"a": "', "\\x41", '"}'),
    "strings with escapes of other languages": ('{"a": "x", "b": [', '"\\x41",', "]}"),
    "strings with some escapes": ('{"a": "x", "b": [', '"\\d\\n",', "]}"),
    "leading zeros": ('{"a": [', "07,", "1]}"),
    "single backslashes": ('{"a": "\\x41\\x41', "\\d", '"}'),
    "plus signs": ('{"a": "x", "b": [', "+1,", "1]}"),
    "text after the object": ('{"a": "x"}', " <b", ""),
}


@pytest.mark.finding("R")
@every_case("hostile", HOSTILE.values(), ids=HOSTILE)
def test_repair_takes_linear_time(hostile):
    start, piece, end = hostile

    def repair(count):
        for policy in ("safe", "aggressive"):
            repair_arguments(start + piece * count + end, SCHEMA, policy=policy, names=("f",))

    repair(1)  # compile the schema
    assert_linear([(count + 50, count_work(lambda count=count: repair(count))) for count in (50, 200)], slack=1.6)


@pytest.mark.finding("R")
def test_number_of_readings_is_bounded(monkeypatch):
    reads = []
    read = stream_repair._read
    monkeypatch.setattr(stream_repair, "_read", lambda *given: reads.append(1) or read(*given))
    repair_arguments('"a": "' + '"x", "b": "' * 500, SCHEMA, policy="aggressive")
    assert 1 < len(reads) <= 1 + 4 * MAX_INTERPRETATIONS + 4


@pytest.mark.finding("TX2")
def test_text_with_many_strings_of_code_is_read_a_few_times(monkeypatch):
    """Each of these strings has several ends: one reading after the other takes seconds."""
    reads = []
    read = stream_repair._read
    monkeypatch.setattr(stream_repair, "_read", lambda *given: reads.append(1) or read(*given))
    found = repair_arguments('{"b": ["' + 'f("x")", ",{"a": 1} ' * 400 + '"]}', SCHEMA, policy="aggressive")
    assert [problem.keyword for problem in found.problems] == ["ambiguous"]
    assert len(reads) < 8


@pytest.mark.finding("R")
def test_long_text_is_read_in_one_way_only():
    for long in ('{"a": "' + "x" * MAX_READ + '" "b": []}', '"a": "' + "x" * MAX_READ + '"}'):
        assert not list(checked_readings(long))
        assert not list(interpretations(long))
        with pytest.raises(BrokenJSON):
            repair_json(long)
    assert repair_json('{"a" = "' + "x" * MAX_READ + '"}').steps == ("wrong_separator",)


INDEPENDENT = {
    "one string": '{"a": "' + "\\x41" * 5_000 + '"}',
    "many strings": '{"a": "x", "b": [' + ", ".join(['"\\x41"'] * 5_000) + "]}",
    "some escapes in each string": '{"a": "x", "b": [' + ", ".join(['"\\d\\n"'] * 5_000) + "]}",
    "leading zeros": '{"a": "x", "b": [' + ", ".join(["007"] * 5_000) + "]}",
}


@pytest.mark.finding("R")
@pytest.mark.parametrize("text", INDEPENDENT.values(), ids=INDEPENDENT)
def test_many_independent_choices_are_refused_without_trying_them(text):
    repair_arguments("{}", SCHEMA)  # compile the schema
    found = []
    work = count_work(lambda: found.append(repair_arguments(text, SCHEMA, policy="aggressive")))
    assert [problem.keyword for problem in found[0].problems] == ["ambiguous"]
    assert work < 5_000  # not even one pass over the text


@pytest.mark.finding("R")
def test_text_in_many_pieces_is_read_few_times(monkeypatch):
    reads = []
    read = stream_repair._read
    monkeypatch.setattr(stream_repair, "_read", lambda *given: reads.append(1) or read(*given))
    for count, least, most in ((100, 30, 140), (50_000, 3, 8)):
        reads.clear()
        found = repair_arguments('{"a": "' + "\\x41" * 4 + "\\d" * count + '"}', SCHEMA, policy="aggressive")
        assert [problem.keyword for problem in found.problems] == ["ambiguous"]
        assert least <= len(reads) <= most
