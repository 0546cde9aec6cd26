"""Numbered cases: what a grammar of raw text must decide."""

import pytest

from text_turns import TOOLS, events, given, read, splits_of, streamed, tool


def qwen(**arguments):
    given = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function=write>\n{given}</function>\n</tool_call>"


def assert_parsed_at_every_split(name, text, expected, tools=TOOLS):
    assert given(read(name, text, tools)) == expected
    for pieces in splits_of(text):
        assert streamed(events(name, pieces, tools)) == expected, pieces


@pytest.mark.ambiguity(1)
def test_value_may_contain_the_parameter_closing_tag():
    assert_parsed_at_every_split(
        "qwen3_xml", qwen(content="a </parameter> b"), [("write", {"content": "a </parameter> b"})]
    )


@pytest.mark.ambiguity(2)
def test_value_may_contain_the_function_closing_tag():
    value = "a </function> b\n</function>\nc"
    assert_parsed_at_every_split(
        "qwen3_xml", qwen(content=value, path="x"), [("write", {"content": value, "path": "x"})]
    )


@pytest.mark.ambiguity(3)
def test_value_may_contain_the_tool_call_closing_tag():
    assert_parsed_at_every_split(
        "qwen3_xml", qwen(content="a </tool_call> b"), [("write", {"content": "a </tool_call> b"})]
    )


@pytest.mark.ambiguity(4)
def test_value_may_contain_a_complete_call_of_another_tool():
    quoted = "<function=other>\n<parameter=a>\n1\n</parameter>\n</function>"
    assert_parsed_at_every_split(
        "qwen3_xml", qwen(content=f"see {quoted} there"), [("write", {"content": f"see {quoted} there"})]
    )


@pytest.mark.ambiguity(5)
def test_json_string_may_contain_the_closing_tag():
    text = '<tool_call>\n{"name": "write", "arguments": {"content": "a </tool_call> b"}}\n</tool_call>'
    assert_parsed_at_every_split("hermes", text, [("write", {"content": "a </tool_call> b"})])


@pytest.mark.ambiguity(6)
@pytest.mark.parametrize("kind, value", [("string", "007"), ("integer", 7), ("number", 7)])
def test_argument_type_follows_the_schema_and_not_the_spelling(kind, value):
    assert_parsed_at_every_split(
        "qwen3_xml",
        qwen(lines="007" if kind != "number" else "7"),
        [("write", {"lines": value})],
        [tool("write", lines=kind)],
    )


@pytest.mark.ambiguity(7)
def test_missing_closing_tag_before_the_next_argument_is_implied():
    text = qwen(content="x", path="y").replace("x\n</parameter>\n", "x\n")
    assert_parsed_at_every_split("qwen3_xml", text, [("write", {"content": "x", "path": "y"})])


@pytest.mark.ambiguity(8)
@pytest.mark.parametrize(
    "name, value", [("qwen3_xml", "\n x \n"), ("seed_oss", "\n\n x \n\n"), ("function_xml", "\n\n x \n\n")]
)
def test_line_breaks_next_to_tags_are_trimmed_as_the_format_requires(name, value):
    call = "<function=write>\n<parameter=content>\n\n x \n\n</parameter>\n</function>"
    text = {
        "qwen3_xml": f"<tool_call>\n{call}\n</tool_call>",
        "seed_oss": f"<seed:tool_call>\n{call}\n</seed:tool_call>",
    }
    assert_parsed_at_every_split(name, text.get(name, call), [("write", {"content": value})])
