"""Notations of released models: Hy3, Solar Open, Trinity, Toolformer."""

import pytest

import toolwire
from tables import every_case
from toolwire import Reasoning, Text, Tool, ToolCall, ToolResult

WEATHER = Tool("get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}}})
CALCULATOR = Tool("Calculator", None, {"type": "object", "properties": {"expression": {"type": "string"}}})

HY3 = """<think:opensource>Look it up.</think:opensource>One moment.<tool_calls:opensource>
<tool_call:opensource>get_weather<tool_sep:opensource>
<arg_key:opensource>city</arg_key:opensource>
<arg_value:opensource>Paris</arg_value:opensource>
</tool_call:opensource>
</tool_calls:opensource><｜hy_eos:opensource｜>"""


def parse_every_cut(name, text, tools=(WEATHER, CALCULATOR)):
    form = toolwire.text.get(name)
    whole = form.parse(text, tools)
    for size in (1, 2, 3, 7, 13):
        assert form.parse_pieces([text[at : at + size] for at in range(0, len(text), size)], tools) == whole
    return whole


@pytest.mark.finding("T0")
@pytest.mark.parametrize("model", ["tencent/Hy3", "Hy3-FP8", "tencent/Hy3-preview"])
def test_hy3_tags_with_their_suffix_are_read(model):
    parsed = parse_every_cut(toolwire.text.detect(model), HY3)
    thought, text, call = parsed.parts
    assert (thought, text) == (Reasoning("Look it up."), Text("One moment."))
    assert (call.name, call.arguments, call.state) == ("get_weather", {"city": "Paris"}, "complete")
    assert not parsed.diagnostics


@pytest.mark.finding("T0")
def test_hy3_calls_are_written_with_the_suffix():
    form = toolwire.text.get(toolwire.text.detect("tencent/Hy3"))
    written = form.render_call(ToolCall("call00000", "get_weather", {"city": "Paris"}), [WEATHER])
    assert not written.losses
    assert written.text == HY3[HY3.index("<tool_calls") :].removesuffix("<｜hy_eos:opensource｜>")
    assert "<tool_response:opensource>\n22\n" in form.render_result(
        ToolResult("call00000", "get_weather", (Text("22"),))
    )
    assert toolwire.text.detect(HY3) == "hy3"


@pytest.mark.finding("T10")
def test_solar_open_turn_is_read():
    text = (
        "<|think|>Look it up.<|end|><|begin|>assistant<|content|>One moment.<|end|><|begin|>assistant<|tool_calls|>"
        "<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>"
        '{"city": "Paris"}<|tool_call:end|><|calls|>'
    )
    name = toolwire.text.detect("upstage/Solar-Open-100B")
    assert name == toolwire.text.detect(text)
    thought, said, call = parse_every_cut(name, text).parts
    assert (thought, said) == (Reasoning("Look it up."), Text("One moment."))
    assert (call.id, call.name, call.arguments) == ("a1b2c3d4e5", "get_weather", {"city": "Paris"})


@pytest.mark.finding("T10")
def test_an_id_that_is_given_twice_is_replaced():
    call = "<|tool_call:begin|>0000000000<|tool_call:name|>get_weather<|tool_call:args|>{}<|tool_call:end|>"
    assert [one.id for one in parse_every_cut("solar_open", call + call).calls] == ["0000000000", "call00001"]


@pytest.mark.finding("T10")
def test_trinity_makes_calls_inside_its_reasoning():
    call = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
    text = f"<think>I need it: {call} and now I wait.</think>Done."
    name = toolwire.text.detect("arcee-ai/Trinity-Mini")
    before, made, after, said = parse_every_cut(name, text).parts
    assert (before, after, said) == (Reasoning("I need it: "), Reasoning(" and now I wait."), Text("Done."))
    assert (made.name, made.state) == ("get_weather", "complete")


@pytest.mark.finding("T10")
@pytest.mark.parametrize(
    "call", ["[Calculator(400 / 1400)] →", "[Calculator(400 / 1400) →", "[Calculator(400 / 1400)->"]
)
def test_toolformer_call_ends_the_turn_at_its_arrow(call):
    form = toolwire.text.get("toolformer")
    parsed = parse_every_cut("toolformer", f"So 400 (or {call} 0.29] 29%)")
    assert parsed.text == "So 400 (or "
    assert [(one.name, one.arguments) for one in parsed.calls] == [("Calculator", {"expression": "400 / 1400"})]
    assert [note.code for note in parsed.diagnostics] == ["after_stop"]
    parser = form.parser([CALCULATOR])
    parser.feed(call)
    assert parser.should_stop
    assert form.stops == ("→",)
    assert toolwire.text.detect("Out of 1400, 400 (or [Calculator(400 / 1400) → 0.29] 29%)") == "toolformer"
    assert form.render_result(ToolResult("call00000", "Calculator", (Text("0.29"),))) == "→ 0.29"


@pytest.mark.finding("T10")
def test_toolformer_recognises_offered_tools_only():
    text = "See [Search(x)] and [1] in [Calculator(x) is defined]."
    assert parse_every_cut("toolformer", text).parts == (Text(text),)


CODE = Tool(
    "find",
    None,
    {"type": "object", "properties": {"code": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}},
)


@every_case(
    ("text", "value"), [("42", 42), ("-7", -7), ("007", "007"), ("+33123456789", "+33123456789"), ("-07", "-07")]
)
@every_case(
    ("name", "turn"),
    [
        ("qwen3_xml", "<tool_call>\n<function=find>\n<parameter=code>\n{}\n</parameter>\n</function>\n</tool_call>"),
        ("glm47", "<tool_call>find<arg_key>code</arg_key><arg_value>{}</arg_value></tool_call>"),
    ],
)
def test_number_with_a_sign_or_leading_zeros_is_a_string_if_the_schema_allows_one(name, turn, text, value):
    (call,) = parse_every_cut(name, turn.format(text), [CODE]).calls
    assert call.arguments == {"code": value}


def test_attributes_without_quotes_are_read():
    turn = "<minimax:tool_call>\n<invoke name=get_weather>\n<parameter name=city>Paris</parameter>\n</invoke>\n</minimax:tool_call>"
    (call,) = parse_every_cut("minimax_m2", turn).calls
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    spans = toolwire.text.get("minimax_m2").parse(turn, [WEATHER], spans=True).spans
    assert [turn[span.start : span.end] for span in spans if span.kind == "name"] == ["get_weather"]


@pytest.mark.parametrize(("text", "value"), [(".5", 0.5), ("-.5", -0.5), ("5.", 5.0), ("+1.5", 1.5)])
def test_python_number_without_digits_on_one_side_of_the_point(text, value):
    (call,) = parse_every_cut("pythonic", f"[get_weather(ratio={text})]").calls
    assert call.arguments == {"ratio": value}
