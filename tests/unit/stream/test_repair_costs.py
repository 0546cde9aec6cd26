"""The cost of repairing hostile text: linear in its length, with a bounded number of readings."""

import pytest

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
    "text after the object": ('{"a": "x"}', " <b", ""),
}


@pytest.mark.finding("R")
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_repair_takes_linear_time(hostile):
    start, piece, end = hostile

    def repair(count):
        for policy in ("safe", "aggressive"):
            repair_arguments(start + piece * count + end, SCHEMA, policy=policy, names=("f",))

    repair(1)  # compile the schema
    assert_linear([(count + 100, count_work(lambda count=count: repair(count))) for count in (100, 400)], slack=1.6)


@pytest.mark.finding("R")
def test_number_of_readings_is_bounded(monkeypatch):
    reads = []
    read = stream_repair._read
    monkeypatch.setattr(stream_repair, "_read", lambda *given: reads.append(1) or read(*given))
    repair_arguments('"a": "' + '"x", "b": "' * 500, SCHEMA, policy="aggressive")
    assert 1 < len(reads) <= 1 + 4 * MAX_INTERPRETATIONS + 4


@pytest.mark.finding("R")
def test_long_text_is_read_in_one_way_only():
    for long in ('{"a": "' + "x" * MAX_READ + '" "b": []}', '"a": "' + "x" * MAX_READ + '"}'):
        assert not list(checked_readings(long))
        assert not list(interpretations(long))
        with pytest.raises(BrokenJSON):
            repair_json(long)
    assert repair_json('{"a" = "' + "x" * MAX_READ + '"}').steps == ("wrong_separator",)
