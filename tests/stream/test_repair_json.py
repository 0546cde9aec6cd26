"""Broken JSON: what has one meaning is read, what has none or several is refused, and what was cut off stays cut off."""

import pytest

from tables import every_case
from toolwire.ir import BrokenJSON
from toolwire.stream.attempt import GUESSES
from toolwire.stream.repair import interpretations, repair_json
from waiting import cpu_guard
from work_counter import assert_linear, count_work

READ = [
    ('{"a": 1,}', {"a": 1}, "trailing_comma"),
    ("{'a': 'say \"x\"'}", {"a": 'say "x"'}, "single_quotes"),
    ("{'a': 'it\\'s'}", {"a": "it's"}, "single_quotes"),
    ("{“a”: “x”}", {"a": "x"}, "smart_quotes"),
    ("{a-b: {$c: 1}}", {"a-b": {"$c": 1}}, "unquoted_key"),
    ('{"a": -0x1F, "b": .5, "c": 5., "d": -.5e3, "e": 0b101, "f": +2E1}', None, "number_form"),
    ('{"a": 1 /* } */}', {"a": 1}, "comment"),
    ('{"a": 1} // that is all', {"a": 1}, "prose"),
    ('{"a":\u00a01}', {"a": 1}, "odd_space"),
    ('{"a": "\x00\x1f\r"}', {"a": "\x00\x1f\r"}, "control_character"),
    (r'{"a": "\d\" \q"}', {"a": '\\d" \\q'}, "lone_backslash"),
    (r'{"a": "C:\users"}', {"a": r"C:\users"}, "lone_backslash"),
    ('<tool_call>\n{"a": 1}', {"a": 1}, "tool_token"),
    ('[TOOL_CALLS]{"a": 1}', {"a": 1}, "tool_token"),
    ('{"a": 1}<｜tool▁call▁end｜>', {"a": 1}, "tool_token"),
    ('Call weather with:\n```json\n{"a": 1}', {"a": 1}, "prose"),
    ('{"a": [{"b": "x"}', {"a": [{"b": "x"}]}, "closed_containers"),
    ('{"a": true', {"a": True}, "closed_containers"),
    ('{"a": 1}]}', {"a": 1}, "surplus_closer"),
]


@every_case(("text", "value", "step"), READ)
def test_unambiguous_json_errors_are_repaired(text, value, step):
    found = repair_json(text)
    assert found.steps == (step,)
    assert step not in GUESSES
    assert found.value == ({"a": -31, "b": 0.5, "c": 5.0, "d": -500.0, "e": 5, "f": 20.0} if value is None else value)


def test_repair_steps_are_listed_once_in_text_order():
    found = repair_json("```\n{a: 'x', b: [True,],}\n``` <|im_end|>")
    assert found.value == {"a": "x", "b": [True]}
    assert found.steps == (
        "code_fence", "tool_token", "unquoted_key", "single_quotes", "python_literal", "trailing_comma",
    )  # fmt: skip


REFUSED = [
    ("", "invalid", ""),
    ("no object here", "invalid", ""),
    ('{"a": NaN}', "invalid", "/a"),
    ('{"a": -Infinity}', "invalid", "/a"),
    ('{"a": 1e400, }', "invalid", "/a"),
    ('{"a": 1, a: 2}', "invalid", "/a"),
    ('{"a": "\\ud83d",}', "invalid", "/a"),
    ('{"a": 007}', "invalid", "/a"),
    ('{"a": x}', "invalid", "/a"),
    ('{"a": [1,,2]}', "invalid", "/a/1"),
    ('{"a": [1, 2}', "invalid", "/a/1"),
    ('{"a": 1 "b": 2}', "invalid", "/a"),
    ('{"a" 1}', "invalid", "/a"),
    ('{"a": "x" y"}', "invalid", "/a"),
    ('{"a": "\\u12"}', "invalid", "/a"),
    ('{"a": "\\u{1F600}"}', "invalid", "/a"),
    ('{"a": "x"}, "b": 2}', "invalid", ""),
    ('{"a": 1} "b": 2', "invalid", ""),
    ('weather(city={"a": 1})', "invalid", ""),
    ('a = {"b": 1}', "invalid", ""),
    ('a: {"b": 1}', "invalid", ""),
    ('x: 1\na: {"b": 1}', "invalid", ""),
    ('b": 1, "a": {"c": 2}', "invalid", ""),
    ('"b": 1, "a": {"c": 2}', "ambiguous", ""),
    ('{"a": 1} {"a": 2}', "ambiguous", ""),
    ('{"a": 1}, [2]', "ambiguous", ""),
    (r'{"a": "C:\Users\new"}', "ambiguous", "/a"),
    (r'{"a": "\d\\."}', "ambiguous", "/a"),
    (r"""{"a": "print('it\'s')"}""", "ambiguous", "/a"),
    (r'{"a": "\x41"}', "ambiguous", "/a"),
    ('{"a": "x\\\ny"}', "ambiguous", "/a"),
    ("{“a”: “x “y” z”}", "ambiguous", "/a"),
    ("{", "truncated", ""),
    ('{"a": [', "truncated", "/a/0"),
    ('{"a": 1,', "truncated", "/a"),
    ('{"a"', "truncated", "/a"),
    ('{"a', "truncated", ""),
    ('{"a":', "truncated", "/a"),
    ('{"a": 12', "truncated", "/a"),
    ('{"a": 12</tool_call>', "truncated", "/a"),
    ('{"a": tru', "truncated", "/a"),
    ('{"a": "x', "truncated", "/a"),
    ('{"a": "x\\', "truncated", "/a"),
    ('{"a": "x\\u00', "truncated", "/a"),
    ('{"a": 1, // "b": 2}', "truncated", "/a"),
    ('{"a": 1 /* and', "truncated", "/a"),
    ("[" * 201, "invalid", "/0" * 200),
]


@every_case(("text", "reason", "pointer"), REFUSED)
def test_ambiguous_or_meaningless_text_is_rejected(text, reason, pointer):
    with pytest.raises(BrokenJSON) as caught:
        repair_json(text)
    assert (caught.value.reason, caught.value.pointer) == (reason, pointer)
    assert (reason == "truncated") == caught.value.message.startswith("truncated")


@pytest.mark.parametrize("text", ['{"a": 1', '{"a": [1]', '{"a": "x"'])
def test_open_containers_are_truncated_if_the_model_was_stopped(text):
    with pytest.raises(BrokenJSON, match="truncated"):
        repair_json(text, finished=False)


def test_complete_text_is_repaired_even_if_the_model_was_stopped():
    assert repair_json('{"a": 1,}', finished=False).value == {"a": 1}


READINGS = [
    ('{"a": 1 "b": 2}', [{"a": 1, "b": 2}]),
    ('{"a" 1, "b": 2}', [{"a": 1, "b": 2}]),
    ('["a" "b"]', [["a", "b"], ['a" "b']]),
    ('{"a": 007}', [{"a": 7}, {"a": "007"}]),
    ('{"mode": 0755}', [{"mode": 755}, {"mode": "0755"}, {"mode": 493}]),
    ("[1,000]", []),
    ('{"a": New York, "b": 1}', [{"a": "New York", "b": 1}]),
    ('{"a": undefined}', []),
    ('{"a": http://x}', []),
    (r'{"a": "C:\Users\new"}', [{"a": "C:\\Users\new"}, {"a": "C:\\Users\\new"}]),
    (r'{"a": "\U0001F600"}', [{"a": "\\U0001F600"}, {"a": "\U0001f600"}]),
    (r'{"a": "\U0000d800"}', [{"a": "\\U0000d800"}]),
    (r'{"a": "\x41"}', [{"a": "\\x41"}, {"a": "A"}]),
    ('{"a": "say "hi" now"}', [{"a": 'say "hi" now'}]),
    ("{'a': 'it's late'}", [{"a": "it's late"}]),
    ('{"a": "5" wide"}', []),  # an odd quote may as well be a missing one
    ('{"a": "x, "b": "y"}', []),
    ('{"a": "say "x", or "y", now", "b": 1}', [{"a": 'say "x", or "y", now', "b": 1}]),
    ('{"a": "say "x", "b": "y" now"}', []),  # nothing that looks like structure is swallowed
    ('{"a": "x",, "b": "y"}', [{"a": "x", "b": "y"}]),
    ('{"a": "x", my key: "y"}', []),
    ('{"a": "x"\n"b": "y"}', [{"a": "x", "b": "y"}]),
    ('{"a": "x" "b": 1} as you asked', []),
    ('{"a": "one', []),
]


@pytest.mark.parametrize("code", ['f("x", "y")', 'd = {"k": "v"}', 'x = ["5"]', 'x = [""]'])
def test_quoted_code_is_an_alternative_that_is_not_used(code):
    assert [(found.value, found.doubtful) for found in interpretations(f'{{"a": "{code}", "b": 1}}')] == [
        ({"a": code, "b": 1}, True)
    ]


@every_case(("text", "values"), READINGS)
def test_all_readings_of_ambiguous_text_are_listed(text, values):
    assert [found.value for found in interpretations(text)] == values


def test_too_many_readings_are_rejected():
    text = '{"a": "say "hi" ' + '", "b": "' * 80 + '"}'
    with pytest.raises(BrokenJSON, match="more than 64 readings"):
        list(interpretations(text))


LONG = 20_000
ENDLESS = {
    "quotes": '{"a": ' + "'\"" * LONG,
    "escapes": '{"a": "' + r"\d\n" * LONG + '"}',
    "inner quotes": '{"a": "' + '"x", ' * LONG,
    "zeros": '{"a": ' + "0" * LONG + "x}",
    "spaces": " " * LONG + "x",
    "spaced": '{"a": "b" ' + '" ' * LONG,
    "tokens": '{"a": 1,}' + "<x>" * LONG,
    "fences": "```" * LONG,
    "comments": '{"a": 1, ' + "/**/" * LONG,
    "brackets": "[" * LONG,
    "closers": "{}," + "}" * LONG,
    "commas": "[" + "1," * LONG,
    "prose": "a " * LONG + "( {",
    "keys": "{" + "a:1," * LONG,
    "words": '{"a": ' + "x " * LONG,
    "hashes": '{"a": ' + "# " * LONG,
}


@pytest.mark.one_in(17)
@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_long_texts_take_linear_time(text):
    def read_both(text):
        for read in (repair_json, lambda text: next(interpretations(text), None)):
            try:
                read(text)
            except BrokenJSON:
                pass

    assert_linear([(size, count_work(lambda size=size: read_both(text[:size]))) for size in (500, 2_000)])
    with cpu_guard():  # squared, it would be minutes
        read_both(text)
