"""Calls without their end, and code blocks with JSON that is not a call."""

import pytest

import toolwire
from tables import every_case
from toolwire import Text, Tool, ToolCall

WEATHER = Tool("get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}}})
ARRAY = '[TOOL_CALLS] [{"name": "get_weather"'
FENCED = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```'


def parse(name, text, *, finished=True, tools=(WEATHER,)):
    """Parse a text in every chunking of equal pieces, and check that the result does not depend on it."""
    form = toolwire.text.get(name)
    whole = form.parse(text, tools, finished=finished)
    for size in range(1, len(text)):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert form.parse_pieces(pieces, tools, finished=finished) == whole
    return whole


@every_case("name", ["mistral_v3_json", "mistral_v11", "mistral_v11_callid"])
@every_case("finished", [False, True])
@every_case(
    ("rest", "raw"),
    [
        (', "arguments": {"city": "Pa', '{"city": "Pa'),
        (', "arguments": {', "{"),
        (', "arguments": ', ""),
        (', "arguments": "{\\"ci', ""),
        (', "arg', ""),
        ("", ""),
    ],
)
def test_truncated_call_that_waits_for_its_id_is_emitted(name, finished, rest, raw):
    parsed = parse(name, ARRAY + rest, finished=finished)
    assert parsed.parts == (ToolCall("call00000", "get_weather", raw=raw, state="truncated"),)
    assert [note.code for note in parsed.diagnostics] == ["truncated"]


@pytest.mark.parametrize("name", ["mistral_v3_json", "mistral_v11"])
def test_call_truncated_inside_its_id_is_complete(name):
    parsed = parse(name, f'{ARRAY}, "arguments": {{"city": "Paris"}}, "id": "abc', finished=False)
    assert [(call.arguments, call.state) for call in parsed.calls] == [({"city": "Paris"}, "complete")]
    assert [note.code for note in parsed.diagnostics] == ["unclosed"]


@pytest.mark.one_in(5)
@every_case("name", ["generic_json", "xlam", "llama3_json", "json_array"])
@every_case("finished", [False, True])
@every_case("tools", [(), (WEATHER,)])
@every_case("before", ["", "Here is package.json:\n"])
@every_case(
    "block",
    [
        '```json\n{"name": "my-app", "version": "1.0"}\n```',
        '```json\n[{"name": "Bob", "age": 3}]\n```\nDone.\n',
        '```json\n[{"name": "Bob"}, {"name": "Eve"}]\n```\n',
        '```json\n{"version": "1.0", "nam',
        '```json\n{"name": "my-app", "ver',
        "```json\n[1, 2]\n```",
        "```json\n",
    ],
)
def test_code_block_with_data_is_text(name, finished, tools, before, block):
    parsed = parse(name, before + block, finished=finished, tools=tools)
    assert parsed.parts == (Text(before + block),)
    assert parsed.diagnostics == ()


@pytest.mark.parametrize("name", ["generic_json", "xlam"])
def test_code_block_with_an_offered_name_or_with_arguments_is_a_call(name):
    for block in ('{"name": "get_weather"}', '[{"name": "other", "arguments": {}}]', '{"arguments": {}, "name": "x"}'):
        parsed = parse(name, f"I call it.\n```json\n{block}\n```\nDone.")
        assert [(call.arguments, call.state) for call in parsed.calls] == [({}, "complete")]
        assert parsed.text == "I call it.\n\nDone."


@every_case(
    "rest", ["", "\n", "<｜end▁of▁sentence｜>", "<｜tool▁calls▁end｜>", "\n<｜tool▁calls▁end｜><｜end▁of▁sentence｜>"]
)
@every_case("finished", [False, True])
def test_fence_without_closing_token_is_not_text(rest, finished):
    parsed = parse("deepseek_v3", f"<｜tool▁calls▁begin｜>{FENCED}{rest}", finished=finished)
    (call,) = parsed.parts
    assert (call.arguments, call.state) == ({"city": "Paris"}, "complete")
    assert [note.code for note in parsed.diagnostics] == ["unclosed"]


def test_call_after_a_fence_without_closing_token_is_read():
    parsed = parse("deepseek_v3", f"{FENCED}\n{FENCED}<｜tool▁call▁end｜>")
    assert [call.arguments for call in parsed.calls] == [{"city": "Paris"}] * 2
    assert parsed.text == ""


def test_code_block_after_arguments_without_a_fence_is_text():
    text = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n{"city": "Paris"}\n```python\nx\n```'
    assert parse("deepseek_v3", text).text == "\n```python\nx\n```"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("hermes", "<tool_call>", "</tool_call>"), ("jamba", "<tool_calls>[", "]</tool_calls>")],
)
@pytest.mark.parametrize(
    "rest", ['city: "Paris"}', '"arguments" {"city": "Paris"}}', '\'arguments\': {"city": "}"}}', "xx}"]
)
def test_call_with_a_malformed_member_instead_of_arguments_is_invalid(name, before, after, rest):
    parsed = parse(name, f'{before}{{"name": "get_weather", {rest}{after} Done.')
    call, text = parsed.parts
    assert (call.name, call.arguments, call.state) == ("get_weather", None, "invalid")
    assert call.raw
    assert rest.endswith(call.raw)
    assert text == Text(" Done.")
    assert [note.code for note in parsed.diagnostics] == ["malformed"]


@pytest.mark.parametrize("name", ["json_array", "xlam", "generic_json"])
def test_white_space_after_an_array_without_its_bracket_is_kept(name):
    parsed = parse(name, '[{"name": "get_weather", "arguments": {}} \n Done.')
    assert parsed.text == " \n Done."
    assert [note.code for note in parsed.diagnostics] == ["unclosed"]
