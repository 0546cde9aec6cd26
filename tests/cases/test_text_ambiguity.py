"""Numbered cases: what a grammar of raw text must decide."""

import pytest
from text_turns import TOOLS, cuttings, events, given, read, streamed, tool


def qwen(**arguments):
    given = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function=write>\n{given}</function>\n</tool_call>"


def keeps(name, text, expected, tools=TOOLS):
    assert given(read(name, text, tools)) == expected
    for pieces in cuttings(text):
        assert streamed(events(name, pieces, tools)) == expected, pieces


@pytest.mark.ambiguity(1)
def test_a_value_contains_the_closer_of_a_value():
    keeps("qwen3_xml", qwen(content="a </parameter> b"), [("write", {"content": "a </parameter> b"})])


@pytest.mark.ambiguity(2)
def test_a_value_contains_the_closer_of_the_call():
    value = "a </function> b\n</function>\nc"
    keeps("qwen3_xml", qwen(content=value, path="x"), [("write", {"content": value, "path": "x"})])


@pytest.mark.ambiguity(3)
def test_a_value_contains_the_closer_of_the_section():
    keeps("qwen3_xml", qwen(content="a </tool_call> b"), [("write", {"content": "a </tool_call> b"})])


@pytest.mark.ambiguity(4)
def test_a_value_contains_a_whole_call_of_another_tool():
    quoted = "<function=other>\n<parameter=a>\n1\n</parameter>\n</function>"
    keeps("qwen3_xml", qwen(content=f"see {quoted} there"), [("write", {"content": f"see {quoted} there"})])


@pytest.mark.ambiguity(5)
def test_a_json_string_contains_the_closer():
    text = '<tool_call>\n{"name": "write", "arguments": {"content": "a </tool_call> b"}}\n</tool_call>'
    keeps("hermes", text, [("write", {"content": "a </tool_call> b"})])


@pytest.mark.ambiguity(6)
@pytest.mark.parametrize("kind, value", [("string", "007"), ("integer", 7), ("number", 7)])
def test_the_schema_says_what_a_text_means_and_never_its_look(kind, value):
    keeps(
        "qwen3_xml",
        qwen(lines="007" if kind != "number" else "7"),
        [("write", {"lines": value})],
        [tool("write", lines=kind)],
    )


@pytest.mark.ambiguity(7)
def test_a_missing_closer_before_the_next_argument_is_implied():
    text = qwen(content="x", path="y").replace("x\n</parameter>\n", "x\n")
    keeps("qwen3_xml", text, [("write", {"content": "x", "path": "y"})])


@pytest.mark.ambiguity(8)
@pytest.mark.parametrize(
    "name, value", [("qwen3_xml", "\n x \n"), ("seed_oss", "\n\n x \n\n"), ("function_xml", "\n\n x \n\n")]
)
def test_one_line_break_on_each_side_is_the_tags_where_the_format_says_so(name, value):
    call = "<function=write>\n<parameter=content>\n\n x \n\n</parameter>\n</function>"
    text = {
        "qwen3_xml": f"<tool_call>\n{call}\n</tool_call>",
        "seed_oss": f"<seed:tool_call>\n{call}\n</seed:tool_call>",
    }
    keeps(name, text.get(name, call), [("write", {"content": value})])
