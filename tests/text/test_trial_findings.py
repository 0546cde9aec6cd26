"""What a trial found: prose about tags, drafts in thoughts, orphans."""

import pytest
from msgspec.structs import replace

import toolwire
from toolwire import Reasoning, Text, Tool, ToolCall

WEATHER = Tool("get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}}})
WRITE = Tool("write_file", None, {"type": "object", "properties": {"content": {"type": "string"}}})
TOOLS = (WEATHER, WRITE)


def every_cut(form, text):
    fmt = form if not isinstance(form, str) else toolwire.text.get(form)
    whole = fmt.parse(text, TOOLS)
    for size in (1, 2, 3, 7, 13):
        assert fmt.parse_pieces([text[at : at + size] for at in range(0, len(text), size)], TOOLS) == whole
    return whole


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("glm45", "The tag `<tool_call>` is special. Here is the explanation you asked for."),
        ("glm47", "The tag `<tool_call>` is special. Here is the explanation you asked for."),
        ("qwen3_xml", "Example: `<function=NAME>` opens a call.\nThat is all you need to know.\n"),
        ("function_xml", "Example: `<function=NAME>` opens a call.\nThat is all you need to know.\n"),
        ("hermes", "I use the <tool_call>"),
        ("minicpm5", 'Write <function name="f"> and so on.'),
        ("kimi_k3", "all done<"),
    ],
)
def test_prose_about_tags_stays_text(form, text):
    parsed = every_cut(form, text)
    assert parsed.parts == (Text(text),)


LONDON = '<tool_call>{"name": "get_weather", "arguments": {"city": "London"}}</tool_call>'
PARIS = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


def test_drafted_call_in_closed_reasoning_stays_reasoning():
    parsed = every_cut("hermes", f"<think>maybe {LONDON}? no, Paris.</think>{PARIS}")
    thought, call = parsed.parts
    assert thought == Reasoning(f"maybe {LONDON}? no, Paris.")
    assert call.arguments == {"city": "Paris"}
    assert call.id == "call00000"
    assert [note.code for note in parsed.diagnostics] == ["draft"]


def test_call_in_unclosed_reasoning_is_recognised():
    parsed = every_cut("hermes", f"<think>I look it up. {PARIS}")
    assert [type(part) for part in parsed.parts] == [Reasoning, ToolCall]
    assert parsed.calls[0].state == "complete"


def test_two_drafted_calls_stay_reasoning():
    parsed = every_cut("hermes", f"<think>{LONDON} or {PARIS}, hm.</think>Where?")
    assert parsed.parts == (Reasoning(f"{LONDON} or {PARIS}, hm."), Text("Where?"))


def test_turn_may_begin_inside_reasoning():
    form = replace(toolwire.text.get("hermes"), thinking=True)
    parsed = every_cut(form, f"thinking </think>ok {PARIS}")
    assert parsed.parts[:2] == (Reasoning("thinking "), Text("ok "))
    assert len(parsed.calls) == 1


def test_unmatched_closing_tags_are_reported():
    text = (
        "<tool_call>\n<function=write_file>\n<parameter=content>\nx = '''\n</parameter>\n</function>\n</tool_call>\n'''\n"
        "print(x)\n</parameter>\n</function>\n</tool_call>"
    )
    parsed = every_cut("qwen3_xml", text)
    assert {note.code for note in parsed.diagnostics} == {"malformed"}


def test_closing_tag_of_an_unopened_section_is_consumed():
    text = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\nDone."
    parsed = every_cut("qwen3_xml", text)
    assert parsed.text == "\nDone."
    assert parsed.calls[0].arguments == {"city": "Paris"}


def test_json_call_after_text_is_recognised_for_an_offered_tool():
    text = 'Sure! {"name": "get_weather", "parameters": {"city": "Paris"}}'
    assert every_cut("llama3_json", text).calls[0].arguments == {"city": "Paris"}
    assert toolwire.text.get("llama3_json").parse(text).text == text, "without tools it may be anything"


def test_recipient_without_prefix_is_recognised_as_a_tool():
    text = '<|channel|>commentary to=get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
    assert every_cut("harmony", text).calls[0].name == "get_weather"


def test_windows_line_endings_are_accepted():
    text = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\r\n```json\r\n"
        '{"city": "Paris"}\r\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    )
    assert every_cut("deepseek_v3", text).calls[0].arguments == {"city": "Paris"}


def test_text_format_is_detected_from_the_model_name():
    assert toolwire.text.detect("NousResearch/Hermes-3-Llama-3.1-8B") == "hermes"
    assert toolwire.text.detect("meta-llama/Llama-3.1-8B-Instruct") == "llama3_json"
    assert toolwire.text.get("openhands").name == "function_xml"


def test_wrong_argument_types_raise_config_errors():
    from toolwire.ir.errors import ConfigError
    from toolwire.net.tools.runner import Runner

    with pytest.raises(ConfigError, match="requires str"):
        toolwire.text.get("hermes").parse(b"bytes")
    with pytest.raises(ConfigError, match="expected a Request"):
        toolwire.emulate({"model": "m"}, "hermes")
    with pytest.raises(ConfigError, match="list of calls"):
        Runner().run_sync(ToolCall("1", "f", {}))
