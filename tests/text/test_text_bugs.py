"""Numbered cases: the bugs of parsers in the field, each by the property that rules it out."""

import json

import pytest

import toolwire.text
from tables import every_case
from text_turns import TOOLS, events, given, in_pieces, read, splits_of, states, streamed, text_of, tool
from toolwire.ir import CallDelta, CallEnd, CallStart, ReasoningDelta, ToolCall
from toolwire.testing.stream_checks import merge_deltas
from waiting import cpu_guard
from work_counter import assert_linear, count_work

SIZES = (1_000, 2_000, 4_000)
PARIS = ("get_weather", {"city": "Paris"})
LIMA = ("get_weather", {"city": "Lima", "unit": "C"})


def turn(name, *calls):
    return toolwire.text.get(name).calls.write([ToolCall(f"abcdefg{i:02}", *call) for i, call in enumerate(calls)])


def assert_lossless_at_every_split(name, *calls, text=None):
    text = turn(name, *calls) if text is None else text
    for pieces in splits_of(text):
        found = events(name, pieces)
        assert streamed(found) == list(calls), pieces
        assert text_of(found) == "", pieces


@pytest.mark.parser_bug(1)
def test_opening_tag_split_across_chunks_is_recognised():
    assert_lossless_at_every_split("internlm2", PARIS)


@pytest.mark.parser_bug(2)
def test_arguments_do_not_depend_on_the_chunk_size():
    assert_lossless_at_every_split("step3", PARIS, LIMA)


@pytest.mark.parser_bug(3)
@every_case("name", ["hermes", "qwen3_xml", "llama3_json", "kimi_k2", "deepseek_v31"])
@every_case("size", [2, 3, 8, 40, 1000])
def test_arguments_are_equal_for_every_streaming_interval(name, size):
    assert streamed(events(name, in_pieces(turn(name, PARIS, LIMA), size))) == [PARIS, LIMA]


@pytest.mark.parser_bug(4)
def test_end_of_stream_repeats_no_arguments():
    assert_lossless_at_every_split("xlam", PARIS, LIMA)


@pytest.mark.parser_bug(5)
def test_non_string_values_are_streamed_with_their_type():
    assert_lossless_at_every_split(
        "qwen3_xml", ("write", {"lines": 12, "content": "x"}), ("write", {"content": "y", "lines": -3})
    )


@pytest.mark.parser_bug(6)
@every_case("length", range(1, len("<tool_call>")))
def test_incomplete_opening_tag_is_text(length):
    text = "so " + "<tool_call>"[:length]
    assert read("hermes", text).text == text
    assert text_of(events("hermes", list(text))) == text


@pytest.mark.parser_bug(7)
@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "kimi_k2", "minimax_m2", "glm45"])
def test_truncated_turn_keeps_complete_calls_and_leaks_no_markup(name):
    text = turn(name, PARIS, LIMA)
    cut = text[: text.index("Lima") + 2]
    found = events(name, [cut], finished=False)
    assert states(found) == ["complete", "truncated"]
    assert text_of(found) == ""
    assert merge_deltas(events(name, list(cut), finished=False)) == merge_deltas(found)


@pytest.mark.parser_bug(8)
def test_streamed_json_is_closed_at_every_split():
    assert_lossless_at_every_split("glm47", ("write", {"content": 'a "quoted" word\n', "lines": 3}), PARIS)


def parse_quickly(name, text, size):
    """Read a text, and check on its prefixes that the cost is linear."""
    assert_linear([(most, count_work(lambda most=most: events(name, in_pieces(text[:most], size)))) for most in SIZES])
    with cpu_guard():
        return events(name, in_pieces(text, size))


@pytest.mark.parser_bug(9)
def test_long_argument_is_parsed_in_linear_time():
    value = "x" * 100_000
    assert streamed(parse_quickly("inkling", turn("inkling", ("write", {"content": value})), 4)) == [
        ("write", {"content": value})
    ]


@pytest.mark.parser_bug(10)
def test_long_reasoning_is_emitted_at_once_and_not_buffered():
    parser = toolwire.text.get("qwen3_xml").parser(TOOLS)
    parser.feed("<think>")
    for _ in range(2000):
        said = [event.text for event in parser.feed("so then I looked < at it ") if isinstance(event, ReasoningDelta)]
        assert len("".join(said)) >= 20, "what is safe is passed on at once"
        assert len(parser._reader.text) - parser._reader.at < 20, "and not kept"


@pytest.mark.parser_bug(11)
@pytest.mark.parametrize("name", ["hermes", "llama3_json", "qwen3_xml", "pythonic"])
def test_streamed_json_is_not_closed_before_the_model_closes_it(name):
    text = turn(name, ("write", {"content": "x [ { y", "lines": 3}))
    whole = "".join(event.text for event in events(name, [text]) if isinstance(event, CallDelta))
    for length in range(len(text)):
        sent = "".join(
            event.text for event in events(name, [text[:length]], close=False) if isinstance(event, CallDelta)
        )
        assert whole.startswith(sent)


def sent_before(name, mark):
    """What of the value has gone out when only the text before `mark` is there."""
    text = turn(name, ("write", {"content": "first second third"}))
    found = events(name, [text[: text.index(mark)]], close=False)
    return "".join(event.text for event in found if isinstance(event, CallDelta))


@pytest.mark.parser_bug(12)
def test_qwen_arguments_are_streamed():
    assert "first second" in sent_before("qwen3_xml", "third")


@pytest.mark.parser_bug(13)
@pytest.mark.parametrize("name", ["qwen3_xml", "seed_oss", "function_xml", "minimax_m2", "deepseek_dsml_v4"])
def test_closing_tag_inside_a_value_does_not_end_it(name):
    call = ("write", {"content": "<a>\n</parameter> </｜DSML｜parameter>\n</a>", "path": "x"})
    assert_lossless_at_every_split(name, call)


@pytest.mark.parser_bug(14)
def test_glm_strings_are_streamed():
    assert "first second" in sent_before("glm45", "third")


@pytest.mark.parser_bug(15)
def test_incomplete_delimiter_is_not_emitted():
    assert_lossless_at_every_split("gemma4", ("write", {"content": "a <| b", "lines": 2}), PARIS)


@pytest.mark.parser_bug(16)
@every_case("name", toolwire.text.names())
def test_every_delta_belongs_to_a_call_with_id_and_name(name):
    started = set()
    for event in events(name, list(turn(name, PARIS))):
        if isinstance(event, CallStart):
            assert event.id
            assert event.name == "get_weather"
            started.add(event.key)
        elif isinstance(event, (CallDelta, CallEnd)):
            assert event.key in started
    assert len(started) == 1


@pytest.mark.parser_bug(17)
@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "glm45", "deepseek_v31", "kimi_k2"])
def test_call_inside_unclosed_reasoning_is_recognised(name):
    parsed = read(name, "<think>I had better look." + turn(name, PARIS))
    assert given(parsed) == [PARIS]
    assert parsed.text == ""


@pytest.mark.parser_bug(18)
@pytest.mark.parametrize("name", ["mistral_v11", "mistral_v3_json", "mistral_v11_callid"])
def test_parallel_mistral_calls_are_all_parsed(name):
    assert_lossless_at_every_split(name, PARIS, LIMA)


@pytest.mark.parser_bug(19)
@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>commentary to=functions.ping<|end|>x",
        "<|channel|><|channel|>analysis<|message|>x",
        "<|start|><|message|>x",
        "<|channel|>commentary to=<|message|>x<|call|>",
        "<|channel|>analysis to=functions.<|constrain|>x",
        "<|message|>x<|constrain|>",
    ],
)
def test_malformed_header_does_not_raise(text):
    for pieces in splits_of(text):
        assert merge_deltas(events("harmony", pieces)) == merge_deltas(events("harmony", [text]))


@pytest.mark.parser_bug(20)
@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "mistral_v11", "deepseek_v3"])
def test_two_calls_keep_their_arguments_at_every_split(name):
    assert_lossless_at_every_split(
        name, ("write", {"content": "} ] { [", "path": '"'}), ("write", {"content": "second"})
    )


@pytest.mark.parser_bug(21)
@every_case("name", [name for name in toolwire.text.names() if not toolwire.text.get(name).one_call])
def test_all_calls_in_one_chunk_are_parsed(name):
    assert streamed(events(name, [turn(name, PARIS, LIMA, PARIS)])) == [PARIS, LIMA, PARIS]


@pytest.mark.parser_bug(22)
def test_kimi_call_id_with_hyphens_and_a_running_number_is_kept():
    tools = [tool("get-the_weather.v2", city="string")]
    text = (
        "<|tool_call_begin|>functions.get-the_weather.v2:12<|tool_call_argument_begin|>"
        '{"city": "Paris"}<|tool_call_end|>'
    )
    call = read("kimi_k2", text, tools).calls[0]
    assert (call.name, call.id) == ("get-the_weather.v2", "functions.get-the_weather.v2:12")
    assert str(toolwire.text.get("kimi_k2").render_call(call, tools)).count("functions.get-the_weather.v2:12") == 1


@pytest.mark.parser_bug(23)
def test_tool_name_is_emitted_only_when_complete():
    tools = [tool("ask", q="string"), tool("ask_followup_question", q="string")]
    for name in ("glm45", "glm47", "hermes", "functionary_v31", "pythonic"):
        text = turn(name, ("ask_followup_question", {"q": "why"}))
        for pieces in splits_of(text):
            assert streamed(events(name, pieces, tools)) == [("ask_followup_question", {"q": "why"})], pieces


@pytest.mark.parser_bug(24)
@pytest.mark.parametrize("name", ["deepseek_dsml_v32", "deepseek_dsml_v4", "minimax_m2", "kimi_k3"])
def test_calls_in_an_unclosed_section_are_kept(name):
    closer = toolwire.text.get(name).calls.section_close
    parsed = read(name, turn(name, PARIS, LIMA).removesuffix(closer))
    assert given(parsed) == [PARIS, LIMA]
    assert "unclosed" in [one.code for one in parsed.diagnostics]


@pytest.mark.parser_bug(25)
@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "kimi_k2", "lfm2", "gemma4", "deepseek_v31"])
def test_text_around_calls_is_kept(name):
    text = f"Before it.\n{turn(name, PARIS)}\nBehind it."
    for pieces in splits_of(text):
        found = events(name, pieces)
        assert text_of(found) == "Before it.\n\nBehind it.", pieces
        assert streamed(found) == [PARIS]


@pytest.mark.parser_bug(26)
@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "pythonic", "react", "json_array"])
def test_emitted_events_are_never_retracted(name):
    text = "Well.\n" + turn(name, PARIS) + "\nSo [1] and <b>."
    whole = events(name, [text])
    for length in range(len(text)):
        sofar = events(name, [text[:length]], close=False)
        assert text_of(whole).startswith(text_of(sofar))
        assert [e for e in whole if isinstance(e, CallStart)][: len(states(sofar))] == [
            e for e in sofar if isinstance(e, CallStart)
        ][: len(states(sofar))]


@pytest.mark.parser_bug(27)
def test_argument_order_and_white_space_do_not_matter():
    text = (
        "<tool_call><function=get_weather>\n\n\n<parameter=unit>C</parameter>   "
        "<parameter=city>\nParis\n</parameter></function>\r\n  </tool_call>"
    )
    assert given(read("qwen3_xml", text)) == [("get_weather", {"unit": "C", "city": "Paris"})]


@pytest.mark.parser_bug(28)
def test_arguments_that_are_not_json_are_kept_as_raw_text():
    call = read(
        "harmony", "<|channel|>commentary to=functions.write <|constrain|>json<|message|>print(1)<|call|>"
    ).calls[0]
    assert (call.state, call.arguments, call.raw) == ("invalid", None, "print(1)")


@pytest.mark.parser_bug(29)
@pytest.mark.parametrize("name", ["harmony", "hermes", "mistral_v11", "functionary_v31"])
def test_call_start_is_emitted_before_the_call_ends(name):
    text = turn(name, ("write", {"content": "first second third"}))
    found = events(name, [text[: text.index("third")]], close=False)
    assert [event.name for event in found if isinstance(event, CallStart)] == ["write"]
    assert text_of(found) == ""


@pytest.mark.parser_bug(30)
def test_parallel_calls_have_distinct_keys():
    found = events("hermes", list(turn("hermes", PARIS, LIMA)))
    keys = [event.key for event in found if isinstance(event, CallStart)]
    assert len(set(keys)) == 2
    assert streamed(found) == given(read("hermes", turn("hermes", PARIS, LIMA)))


@pytest.mark.parser_bug(31)
def test_malformed_function_tags_of_real_models_are_parsed():
    assert given(read("function_xml", "<function=get_weather>\n<parameter=city>Paris</parameter>\n")) == [PARIS]
    assert given(read("function_xml", "<function=get_weather>\n<parameter=city=Paris</parameter>\n</function>")) == [
        PARIS
    ]
    assert given(read("function_xml", "<function=get_weather>\n</function>")) == [("get_weather", {})]
    prompt = toolwire.text.get("function_xml").render_tools(TOOLS)
    assert "<function=get_weather>" in prompt, "the example calls a tool that there is"
    assert "example" not in prompt


@pytest.mark.parser_bug(32)
def test_truncated_calls_are_never_repaired_in_any_format():
    assert_lossless_at_every_split("qwen3_xml", ("write", {"content": "</parameter></parameter>"}))
    array = '[TOOL_CALLS][{"name": "ping", "arguments": {}}]'
    header = "[TOOL_CALLS]ping[ARGS]{}"
    assert given(read("mistral_v11", array)) == given(read("mistral_v11", header)) == [("ping", {})]
    for name in toolwire.text.names():
        text = turn(name, PARIS)
        parsed = read(name, text[: text.index("Paris") + 3], finished=False)
        assert given(parsed) == []
        assert all(call.arguments is None for call in parsed.calls)
        assert json.dumps([one.code for one in parsed.diagnostics]).count("truncated") == 1
