"""Text of malformed calls is kept, and markup does not leak into the text."""

import json
import re

import pytest

import toolwire
from tables import every_case
from toolwire import Reasoning, Text, Tool, ToolCall

WEATHER = Tool(
    "get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
)
CALLS = (
    ToolCall("a1b2c3d4e5", "get_weather", {"city": "Oslo", "days": 3}),
    ToolCall("f6g7h8i9j0", "get_weather", {"city": "Rome"}),
)
FORMATS = toolwire.text.names()


def parse_every_cut(name, text, tools=(WEATHER,), **options):
    form = toolwire.text.get(name)
    whole = form.parse(text, tools, **options)
    for size in (1, 2, 3, 7, 13):
        assert form.parse_pieces([text[at : at + size] for at in range(0, len(text), size)], tools, **options) == whole
    return whole


def written_calls(name):
    form = toolwire.text.get(name)
    return form.calls.write(CALLS[:1] if form.one_call else CALLS)


@pytest.mark.finding("T11")
@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("kimi_k3", "<|open|>tools<|sep|>some words<|close|>tools<|sep|>", "some words"),
        ("kimi_k3", "<|open|>tools<|sep|><|open|>call bad<|sep|>words<|close|>call<|sep|>", " badwords"),
        ("step3", "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>words<｜tool_call_end｜>", "words"),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>two words\n```json\n{}\n```<｜tool▁call▁end｜>",
            "two words\n```json\n{}\n```",
        ),
        (
            "minicpm4",
            "<|tool_call_start|>\n```python\nimport os\n```\n<|tool_call_end|>",
            "\n```python\nimport os\n```\n",
        ),
    ],
)
def test_rejected_call_keeps_its_text_without_parts_of_markers(name, text, kept):
    parsed = parse_every_cut(name, text)
    assert parsed.parts == (Text(kept),)
    assert [note.code for note in parsed.diagnostics] == ["malformed"]


HEADERS = {
    "harmony": r"<\|(?:channel|start)\|>.*?<\|message\|>",
    "muse_glimmer": r"<\|start\|>.*?<\|message\|>",
    "inkling": r"<\|message_model\|>[^<]*<",
    "solar_open": r"<\|tool_call:begin\|>[^<]*<",
}
ATTRIBUTES = r' (?:index|type|string)="[^"]*"'
"""Headers and attributes, which select a channel, a type or an id. Their other text is ignored."""


@pytest.mark.one_in(3)
@pytest.mark.finding("T11")
@every_case("name", FORMATS)
def test_a_word_anywhere_in_a_call_is_never_lost(name):
    """The word is in a text, in the reasoning, in a call (its raw text if it is invalid), or in a diagnostic."""
    form, word = toolwire.text.get(name), "Zq7k"
    text = f"Hello {written_calls(name)}"
    spans = re.finditer(f"{ATTRIBUTES}|{HEADERS.get(name, ATTRIBUTES)}", text)
    headers = {at for found in spans for at in range(found.start(), found.end())}
    for at in range(len(text) + 1):
        if at in headers:
            continue
        parsed = form.parse(text[:at] + word + text[at:], [WEATHER])
        found = [_content(part) for part in parsed.parts] + [note.detail for note in parsed.diagnostics]
        assert any(word in one for one in found), f"{text[:at]}{word}: {parsed}"


def _content(part):
    if isinstance(part, (Text, Reasoning)):
        return part.text
    return f"{part.id} {part.name} {part.raw} {json.dumps(part.arguments)}"


@pytest.mark.finding("T11")
@pytest.mark.parametrize("name", ["hermes", "mistral_v3_json", "llama3_json", "apriel"])
def test_arguments_under_an_unknown_name_make_the_call_invalid(name):
    text = written_calls(name).replace('"arguments"', '"input"').replace('"parameters"', '"input"')
    parsed = parse_every_cut(name, text)
    assert {call.state for call in parsed.calls} == {"invalid"}
    assert {note.code for note in parsed.diagnostics} == {"malformed", "invalid_arguments"}


END_TOKENS = {
    "anthropic_legacy_xml": (),
    "apertus": ("<|assistant_end|>",),
    "apriel": ("<|end|>",),
    "cline_xml": (),
    "cohere_action": ("<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_RESPONSE|>", "<|END_TEXT|>"),
    "cohere_rplus": ("<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
    "deepseek_dsml_v32": ("<｜end▁of▁sentence｜>",),
    "deepseek_dsml_v4": ("<｜end▁of▁sentence｜>",),
    "deepseek_dsml_v41": ("<｜end▁of▁sentence｜>",),
    "deepseek_v3": ("<｜end▁of▁sentence｜>",),
    "deepseek_v31": ("<｜end▁of▁sentence｜>",),
    "dots": ("<|endofresponse|>",),
    "ernie45": ("</s>", "<|im_end|>"),
    "firefunction_v2": ("<|eot_id|>",),
    "function_xml": (),
    "functionary_v31": ("<|eot_id|>", "<|eom_id|>"),
    "functionary_v32": ("<|eot_id|>",),
    "functiongemma": ("<end_of_turn>", "<eos>"),
    "gemma4": ("<turn|>", "<eos>"),
    "generic_json": (),
    "gigachat3": ("</s>", "<|message_sep|>"),
    "gigachat35": ("</s>", "<|message_sep|>"),
    "glm45": ("<|user|>", "<|observation|>", "<|endoftext|>"),
    "glm47": ("<|user|>", "<|observation|>", "<|endoftext|>"),
    "gorilla": ("<|EOT|>",),
    "granite3": ("<|end_of_text|>",),
    "granite_20b_fc": ("<|endoftext|>",),
    "harmony": ("<|return|>", "<|call|>", "<|end|>"),
    "hermes": ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>"),
    "hunyuan": ("<｜hy_eos｜>",),
    "hunyuan_a13b": ("<|eos|>",),
    "hy3": ("<｜hy_eos:opensource｜>",),
    "inkling": ("<|end_message|>", "<|content_model_end_sampling|>"),
    "internlm2": ("<|im_end|>",),
    "iquest_q1": (),
    "jamba": ("<|eom|>",),
    "json_array": (),
    "k2_horizon": ("<|ifm|im_end|>",),
    "kimi_k2": ("<|im_end|>",),
    "kimi_k3": ("<|end_of_msg|>", "<|close|>message<|sep|>"),
    "lfm2": ("<|im_end|>",),
    "llama3_json": ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    "llama4_pythonic": ("<|eot|>", "<|eom|>"),
    "longcat": ("</longcat_s>",),
    "minicpm4": ("<|im_end|>", "</s>"),
    "minicpm5": ("<|im_end|>", "</s>"),
    "minimax_m1": ("<end_of_sentence>",),
    "minimax_m2": ("[e~[",),
    "minimax_m3": ("[e~[",),
    "mistral_v11": ("</s>",),
    "mistral_v11_callid": ("</s>",),
    "mistral_v3_json": ("</s>",),
    "muse_glimmer": ("<|eot|>", "<|eom|>"),
    "nemotron_v2": ("<SPECIAL_12>",),
    "nexusraven": ("<bot_end>",),
    "olmo3": ("<|im_end|>", "<|endoftext|>"),
    "phi4mini": ("<|end|>", "<|endoftext|>"),
    "plamo3": ("<|plamo:tag|>",),
    "poolside_v1": ("</assistant>",),
    "pythonic": ("<|eot_id|>",),
    "qwen3_xml": ("<|im_end|>", "<|endoftext|>"),
    "react": (),
    "seed_oss": ("<seed:eos>",),
    "solar_open": ("<|end|>", "<|flush|>", "<|calls|>"),
    "step3": ("<｜end▁of▁sentence｜>", "<|EOT|>"),
    "toolformer": (),
    "trinity": ("<|im_end|>",),
    "xlam": ("<|im_end|>", "<|eot_id|>"),
}
"""The tokens that end a turn, from the chat templates. Formats for any model have none; the one of IQuest is not known."""


@pytest.mark.finding("T13")
@every_case("name", FORMATS)
def test_end_of_turn_tokens_are_not_text(name):
    for token in END_TOKENS[name]:
        assert parse_every_cut(name, f"Hello{token}").parts == (Text("Hello"),)
        parsed = parse_every_cut(name, written_calls(name) + token)
        assert parsed.text == ""
        assert {call.state for call in parsed.calls} == {"complete"}


@pytest.mark.finding("T13")
@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("cohere_action", "<|START_RESPONSE|>foo <co>bar</co: 0:[1,2],1:[3,4]>.<|END_RESPONSE|>", "foo bar."),
        ("cohere_rplus", "foo <co: 0>bar</co: 0>, <co: 0,1>baz</co: 0,1>.", "foo bar, baz."),
        ("cohere_action", "5 <co 6 and </co: no end\nmore", "5 <co 6 and </co: no end\nmore"),
        ("granite3", "It is <|start_of_cite|> {document_id: 1}my fact <|end_of_cite|>.", "It is my fact ."),
    ],
)
def test_marks_of_citations_are_not_text(name, text, shown):
    assert parse_every_cut(name, text).parts == (Text(shown),)


@pytest.mark.finding("T13")
def test_marks_of_citations_are_not_reasoning():
    text = "<|START_THINKING|>a <co>rainbow</co: 0:[1]><|END_THINKING|><|START_RESPONSE|>foo<|END_RESPONSE|>"
    assert parse_every_cut("cohere_action", text).parts == (Reasoning("a rainbow"), Text("foo"))


OBJECT = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


@pytest.mark.finding("T13")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", f"<tool_call>\n{OBJECT}}}\n</tool_call>"),
        ("hermes", f"<tool_call>\n{OBJECT}]\n</tool_call>"),
        ("longcat", f"<longcat_tool_call>\n{OBJECT}}}\n</longcat_tool_call>"),
        ("jamba", f"<tool_calls>[{OBJECT}}}]</tool_calls>"),
        (
            "kimi_k2",
            '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}}<|tool_call_end|>',
        ),
        ("deepseek_v31", '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}}<｜tool▁call▁end｜>'),
    ],
)
def test_surplus_bracket_before_a_closer_is_reported_and_not_text(name, text):
    parsed = parse_every_cut(name, text)
    assert parsed.text == ""
    assert [(call.state, call.arguments) for call in parsed.calls] == [("complete", {"city": "Oslo"})]
    assert "malformed" in {note.code for note in parsed.diagnostics}


@pytest.mark.finding("T13")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3_json", f"[{OBJECT}]"),
        ("llama3_json", f"```json\n{OBJECT}\n```"),
        ("llama3_json", f"```\n{OBJECT}\n```"),
        ("llama3_json", f"```json\n[{OBJECT}]\n```"),
        ("json_array", f"```json\n[{OBJECT}]\n```"),
        ("pythonic", "```python\n[get_weather(city='Oslo')]\n```"),
        ("hermes", f"```json\n<tool_call>\n{OBJECT}\n</tool_call>\n```"),
    ],
)
def test_brackets_and_fences_around_a_call_are_not_text(name, text):
    parsed = parse_every_cut(name, text)
    assert parsed.text == ""
    assert [call.arguments for call in parsed.calls] == [{"city": "Oslo"}]


@pytest.mark.finding("T13")
def test_brackets_after_text_belong_to_the_calls():
    parsed = parse_every_cut("llama3_json", f"I look: [{OBJECT}, {OBJECT}]")
    assert (parsed.text, len(parsed.calls)) == ("I look: ", 2)


@pytest.mark.finding("T13")
@every_case("text", ['```json\n{"a": 1}\n```\n', "```\ncode\n```", "[1] see", '[{"a": 1}]', "```json\n"])
@every_case("name", ["llama3_json", "hermes", "pythonic", "json_array", "qwen3_xml"])
def test_code_and_lists_that_are_not_calls_stay_text(name, text):
    assert parse_every_cut(name, text).parts == (Text(text),)


@pytest.mark.one_in(3)
@pytest.mark.finding("T13")
@every_case("name", FORMATS)
def test_beginning_of_a_closer_is_not_text_in_a_truncated_turn(name):
    form, text = toolwire.text.get(name), written_calls(name)
    for length in range(len(text)):
        parsed = form.parse(text[:length], [WEATHER], finished=False)
        if parsed.calls and not parsed.text[:1].isalnum():  # a word may be an answer
            assert parsed.text == "", f"{text[:length]!r}: {parsed}"
