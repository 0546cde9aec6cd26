"""The beginning of a call that a prompt contains: every call of the tools begins with it, in every format."""

import pytest

from tables import every_case
from toolwire import Tool, ToolCall
from toolwire.text import get, names
from toolwire.text.engine.prompt import call_opening

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", "", CITY)
CLOCK = Tool("get_time", "", {"type": "object", "properties": {"zone": {"type": "string"}}})


ID_FIRST = ("cohere_action", "solar_open")  # the model writes the id of the call before the name


@every_case("name", names())
@every_case("tools", [(WEATHER,), (CLOCK,), (WEATHER, CLOCK)], ids=len)
def test_call_that_continues_the_opening_is_read(name, tools):
    form = get(name)
    opening = call_opening(form.calls, tools)
    for tool, arguments in ((WEATHER, {"city": "Paris"}), (CLOCK, {"zone": "CET"})):
        if tool in tools:
            written = form.calls.write([ToolCall("call00000", tool.name, arguments)])
            assert written.startswith(opening)
            parser = form.parser(tools)
            events = [*parser.feed(opening), *parser.feed(written[len(opening) :]), *parser.close()]
            assert any(getattr(event, "arguments", None) == arguments for event in events)


@every_case("name", names())
def test_opening_for_one_tool_contains_its_name(name):
    opening = call_opening(get(name).calls, (WEATHER,))
    assert "get_weather" in opening or (opening and name in ID_FIRST)


@pytest.mark.parametrize(
    ("name", "one", "several"),
    [
        ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"', '<tool_call>\n{"name": "'),
        ("qwen3_xml", "<tool_call>\n<function=get_weather>\n<parameter=", "<tool_call>\n<function="),
        ("mistral_v11_callid", "[TOOL_CALLS]get_weather[CALL_ID]", "[TOOL_CALLS]"),
        (
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
        ),
        (
            "harmony",
            '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"',
            "<|channel|>commentary to=functions.",
        ),
        ("pythonic", "[get_weather(", "["),
    ],
)
def test_opening_ends_where_the_model_has_a_choice(name, one, several):
    style = get(name).calls
    assert call_opening(style, (WEATHER,)) == one
    assert call_opening(style, (WEATHER, CLOCK)) == several


def test_tool_without_required_arguments_may_be_called_without_any():
    assert call_opening(get("hermes").calls, (CLOCK,)).endswith('"arguments": {')


def test_opening_without_tools_is_empty():
    assert call_opening(get("hermes").calls, ()) == ""
