"""Edges of the engine that no vector of one format stands for."""

import json

import pytest

import toolwire.text
from tables import every_case
from toolwire.ir import Tool
from toolwire.ir.events import CallDelta, TextDelta
from toolwire.ir.text import unescape
from toolwire.testing import TextVector
from toolwire.testing.conformance import read_pieces

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
def test_limits_do_not_depend_on_how_the_text_is_split(name, text):
    form, vector = toolwire.text.get(name), TextVector("", "", text, tools=TOOLS)
    whole = read_pieces(form, vector, [text])
    for size in (1, 2, 3, 7, 50, 257):
        assert read_pieces(form, vector, [text[i : i + size] for i in range(0, len(text), size)]) == whole


def test_tag_names_may_have_any_length():
    assert parse("cline_xml", f"<{LONG}>\n<a>x</a>\n</{LONG}>").calls[0].arguments == {"a": "x"}
    assert parse("cline_xml", f"<f>\n<{LONG}>x</{LONG}>\n</f>").calls[0].arguments == {LONG: "x"}


def test_repeated_malformed_markup_is_reported_once():
    parsed = parse("cline_xml", "<f>" + "<b>no</b>" * 50 + "<a>x</a></f>")
    assert parsed.calls[0].arguments == {"a": "x"}
    assert [one.code for one in parsed.diagnostics] == ["malformed"]


def test_python_prompt_is_not_a_recipient():
    text = "Try:\n>>> x = 1\n>>>print(x)\n1"
    assert parse("functionary_v32", text).text == text


def test_white_space_between_call_and_text_is_kept():
    for name in ("gorilla", "nexusraven"):
        form = toolwire.text.get(name)
        assert parse(name, f"{form.calls.open[0]}f(a='x')  and so on").text == "  and so on"


def test_unfinished_turn_completes_a_call_only_when_text_follows():
    form = toolwire.text.get("minicpm5")
    text = '<function name="f"><param name="a">x</param></function>'
    assert form.parse(text, TOOLS).calls[0].state == "complete"
    assert form.parse(text, TOOLS, finished=False).calls[0].state == "truncated"
    assert form.parse(text + "\nso", TOOLS, finished=False).calls[0].state == "complete"


@every_case("cut", range(len("<function=f>\n"), len("<function=f>\n<parameter=a>\nx\n</parameter>")))
def test_incomplete_call_is_truncated_at_every_position(cut):
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
def test_unambiguous_text_is_emitted_at_once(name, text, told):
    parser = toolwire.text.get(name).parser(TOOLS)
    events = [event for character in text for event in parser.feed(character)]
    assert "".join(event.text for event in events if isinstance(event, (TextDelta, CallDelta))) == told


def test_bare_json_call_is_reported_once_and_only_for_an_offered_tool():
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
def test_invalid_call_has_arguments_that_do_not_parse(name, text):
    """Clients of Chat go by the text of the arguments: what parses is run, and nothing at all means no arguments."""
    (call,) = parse(name, text).calls
    assert call.state == "invalid"
    events = toolwire.text.get(name).parser(TOOLS)
    written = b"".join(event.escaped for event in [*events.feed(text), *events.close()] if isinstance(event, CallDelta))
    assert unescape(written) == call.raw
    with pytest.raises(ValueError, match=r"Expecting|delimiter"):
        json.loads(call.raw)
