"""Edges of the engine that no vector of one format stands for."""

import json

import pytest

import toolwire.text
from toolwire.ir import Tool
from toolwire.ir.events import CallDelta, TextDelta
from toolwire.ir.text import unescape
from toolwire.testing import TextVector
from toolwire.testing.text_suite import read_pieces

LONG = "a" * 120
TOOLS = (
    Tool("f", None, {"type": "object", "properties": {"a": {"type": "string"}, LONG: {"type": "string"}}}),
    Tool(LONG, None, {"type": "object", "properties": {"a": {"type": "string"}}}),
)


def parse(name, text):
    return toolwire.text.get(name).parse(text, TOOLS)


@pytest.mark.parametrize(
    "name, text",
    [
        (
            "qwen3_xml",
            "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>" + " " * 600 + "</function></tool_call>",
        ),
        ("qwen3_xml", "<function=f><parameter=a>x</parameter><parameter=" + "k" * 600 + ">y</parameter></function>"),
        ("function_xml", "<function=" + "x" * 300 + "<think>hm</think>"),
        ("cohere_rplus", '```\nAction:\n```json\n[{"tool_name": "f", "parameters": {"a":]Action:\n```json\n[]\n```'),
        ("pythonic", "[f(x 'y'), f(xyz), f(a='b')]"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1x, "b": 2, "c": [1]}}</tool_call>'),
    ],
)
def test_limits_do_not_depend_on_how_the_text_is_cut(name, text):
    form, vector = toolwire.text.get(name), TextVector("", "", text, tools=TOOLS)
    whole = read_pieces(form, vector, [text])
    for size in (1, 2, 3, 7, 50, 257):
        assert read_pieces(form, vector, [text[i : i + size] for i in range(0, len(text), size)]) == whole


def test_names_of_any_length_are_tags():
    assert parse("cline_xml", f"<{LONG}>\n<a>x</a>\n</{LONG}>").calls[0].arguments == {"a": "x"}
    assert parse("cline_xml", f"<f>\n<{LONG}>x</{LONG}>\n</f>").calls[0].arguments == {LONG: "x"}


def test_nonsense_is_told_once():
    parsed = parse("cline_xml", "<f>" + "<b>no</b>" * 50 + "<a>x</a></f>")
    assert parsed.calls[0].arguments == {"a": "x"}
    assert [one.code for one in parsed.diagnostics] == ["malformed"]


def test_a_prompt_of_python_is_no_recipient():
    text = "Try:\n>>> x = 1\n>>>print(x)\n1"
    assert parse("functionary_v32", text).text == text


def test_white_space_in_front_of_text_is_the_texts():
    for name in ("gorilla", "nexusraven"):
        form = toolwire.text.get(name)
        assert parse(name, f"{form.calls.open[0]}f(a='x')  and so on").text == "  and so on"


def test_what_was_cut_off_is_complete_only_where_nothing_can_follow():
    form = toolwire.text.get("minicpm5")
    text = '<function name="f"><param name="a">x</param></function>'
    assert form.parse(text, TOOLS).calls[0].state == "complete"
    assert form.parse(text, TOOLS, finished=False).calls[0].state == "truncated"
    assert form.parse(text + "\nso", TOOLS, finished=False).calls[0].state == "complete"


@pytest.mark.parametrize("cut", range(len("<function=f>\n"), len("<function=f>\n<parameter=a>\nx\n</parameter>")))
def test_a_call_that_stops_before_its_end_is_truncated_wherever_it_stops(cut):
    (call,) = parse("qwen3_xml", "<function=f>\n<parameter=a>\nx\n</parameter>"[:cut]).calls
    assert call.state == "truncated"


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("muse_glimmer", "to=x is", "to=x is"),
        ("kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{", "{"),
        (
            "minimax_m3",
            ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a> Par',
            '{"a":" Par',
        ),
        ("minicpm5", '<function name="f"><param name="a">Par', ""),
    ],
)
def test_what_is_certain_is_told_before_more_comes(name, text, told):
    parser = toolwire.text.get(name).parser(TOOLS)
    events = [event for character in text for event in parser.feed(character)]
    assert "".join(event.text for event in events if isinstance(event, (TextDelta, CallDelta))) == told


def test_a_bare_call_is_flagged_once_and_only_for_a_tool_that_was_offered():
    text = '{"name": "f", "arguments": {}} {"name": "f", "arguments": {}} {"name": "g"}'
    parsed = parse("hermes", text)
    assert parsed.text == text
    assert [(one.code, one.position) for one in parsed.diagnostics] == [("other_format", 0)]
    assert not toolwire.text.get("hermes").parse(text).diagnostics


@pytest.mark.parametrize(
    "name, text",
    [
        ("pythonic", "[f(a='b', c=??)]"),
        ("pythonic", "[f(a='b', a='c')]"),
        ("pythonic", "[f(??)]"),
        ("qwen3_xml", "<function=f><parameter=a>x</parameter><parameter=a>y</parameter></function>"),
    ],
)
def test_a_call_that_is_not_to_be_run_is_not_closed(name, text):
    """Clients of Chat go by the text of the arguments: what parses is run, and nothing at all means no arguments."""
    (call,) = parse(name, text).calls
    assert call.state == "invalid"
    events = toolwire.text.get(name).parser(TOOLS)
    written = b"".join(event.escaped for event in [*events.feed(text), *events.close()] if isinstance(event, CallDelta))
    assert unescape(written) == call.raw
    with pytest.raises(ValueError, match=r"Expecting|delimiter"):
        json.loads(call.raw)
