"""Masks of a tool set in a text format: tool choices, special tokens, token limits, and several formats."""

import random

import pytest

from byte_tokenizer import accepts, allowed_tokens, make_backend, make_tokenizer, random_text
from grammar_cases import CALLS, NOW, TOOLS, WEATHER
from toolwire import text
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import ToolCall
from toolwire.ir.tools import Tool, ToolChoice
from toolwire.mask import MaskTokenizer, ToolMask
from toolwire.schema import validator

REQUIRED = ToolChoice("required")


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def special_tokenizer(*markers):
    backend = make_backend()
    backend.add_special_tokens(list(markers))
    return MaskTokenizer.from_tokenizer(backend, 320)


def accepts_with_tokens(mask, written):
    """Return True if the text is allowed, with each special token as one token."""
    state = mask.start()
    for token in mask.tokenizer.engine.tokenize_str(written, parse_special=True):
        if token not in allowed_tokens(state):
            return False
        state.accept(token)
    return state.is_complete


def test_text_is_free_until_the_trigger_and_masked_after_it(tokenizer):
    mask = ToolMask(TOOLS, tokenizer)
    state = mask.start()
    texts = {token for token, text in enumerate(tokenizer.token_bytes) if text and text.isascii()}
    assert texts <= set(allowed_tokens(state))
    for token in tokenizer.encode('Let me look.\n<tool_call>\n{"name": "'):
        state.accept(token)
    allowed = {tokenizer.token_bytes[token][:1] for token in allowed_tokens(state)}
    assert allowed == {b"g", b"n", b"s"}
    assert not state.is_complete


def test_a_required_call_begins_at_the_start(tokenizer):
    mask = ToolMask(TOOLS, tokenizer, "qwen3_xml", REQUIRED, may_reason=False)
    allowed = {tokenizer.token_bytes[token] for token in allowed_tokens(mask.start())}
    assert allowed == {b"<"}


def test_one_tool_forces_its_name(tokenizer):
    mask = ToolMask(TOOLS, tokenizer, "glm45", ToolChoice("tool", ("now",)))
    assert accepts(mask, "<tool_call>now\n</tool_call>")
    assert not accepts(mask, text.get("glm45").render_call(CALLS[0], TOOLS).text)


def test_a_mask_without_parallel_calls_ends_after_one(tokenizer):
    form = text.get("hermes")
    one, two = form.render_call(CALLS[2]).text, form.render_calls(CALLS[2:4]).text
    assert accepts(ToolMask(TOOLS, tokenizer, form, REQUIRED), two)
    assert accepts(ToolMask(TOOLS, tokenizer, form, REQUIRED, False), one)
    for choice in (REQUIRED, ToolChoice("auto")):
        state = ToolMask(TOOLS, tokenizer, form, choice, False).start()
        for token in tokenizer.encode(one):
            state.accept(token)
        assert allowed_tokens(state) == [tokenizer.end_token]


def test_no_call_is_possible_with_the_choice_none(tokenizer):
    mask = ToolMask(TOOLS, tokenizer, "hermes", ToolChoice("none"))
    assert accepts(mask, "<think>no</think>Just text with <b>tags</b>.")
    assert not accepts(mask, "<tool_call>")


def test_a_marker_that_is_a_special_token_is_allowed_only_as_that_token():
    tokenizer = special_tokenizer("<tool_call>", "</tool_call>")
    written = text.get("hermes").render_call(CALLS[0], TOOLS).text
    for choice in (REQUIRED, ToolChoice("auto")):
        mask = ToolMask(TOOLS, tokenizer, "hermes", choice)
        assert accepts_with_tokens(mask, written)
        state = mask.start()
        spelled = tokenizer.engine.greedy_tokenize(written)
        assert tokenizer.decode(spelled) == written
        assert state.matcher.validate_tokens(spelled) < len(spelled)
    mask = ToolMask(TOOLS, tokenizer)
    assert accepts_with_tokens(mask, f"<think>a draft</think>Text {written} and {written}")


def test_a_marker_inside_reasoning_that_is_a_special_token_does_not_open_a_call():
    tokenizer = special_tokenizer("<think>", "</think>", "<tool_call>", "</tool_call>")
    mask = ToolMask(TOOLS, tokenizer, "hermes", REQUIRED)
    written = text.get("hermes").render_call(CALLS[2], TOOLS).text
    assert accepts_with_tokens(mask, f"<think>now?</think>\n\n{written}")
    assert not accepts_with_tokens(mask, f"<think>{written}")


def test_messages_of_harmony_are_free_and_its_calls_are_masked():
    markers = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>", "<|return|>")
    tokenizer = special_tokenizer(*markers)
    mask = ToolMask(TOOLS, tokenizer, "harmony")
    thought = "<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant"
    written = text.get("harmony").render_call(CALLS[0], TOOLS).text
    assert accepts_with_tokens(mask, thought + written)
    assert accepts_with_tokens(mask, f"{thought}<|channel|>final<|message|>Done.")
    assert not accepts_with_tokens(mask, thought + written.replace("get_weather", "other"))
    assert accepts_with_tokens(ToolMask(TOOLS, tokenizer, "harmony", REQUIRED), thought + written)


def test_the_end_token_may_be_a_marker_of_the_format():
    backend = make_backend()
    backend.add_special_tokens(["<|call|>"])
    tokenizer = MaskTokenizer.from_tokenizer(backend, 320, end_token=backend.token_to_id("<|call|>"))
    mask = ToolMask([NOW], tokenizer, "harmony", REQUIRED, False)
    state = mask.start()
    for token in tokenizer.encode("<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"):
        state.accept(token)
    assert allowed_tokens(state) == [tokenizer.end_token]


@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "glm45", "pythonic", "gemma4", "mistral_v11", "minimax_m3"])
@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice("tool", ("get_weather",))], ids=["required", "tool"])
def test_random_outputs_are_closed_in_time_and_valid(tokenizer, name, choice):
    mask = ToolMask([WEATHER, NOW], tokenizer, name, choice, may_reason=False)
    validators = {tool.name: validator(tool.input_schema) for tool in (WEATHER, NOW)}
    left = {one.keyword for one in mask.residual}
    for seed in range(3):
        written = random_text(mask, random.Random(seed), 400).finish()
        calls = mask.format.parse(written, [WEATHER, NOW]).calls
        assert calls, written
        for call in calls:
            assert call.state == "complete", written
            problems = validators[call.name].problems(call.arguments)
            assert {problem.keyword for problem in problems} <= left, (problems, written)


def test_residual_keywords_and_triggers_are_those_of_the_grammar(tokenizer):
    mask = ToolMask(TOOLS, tokenizer, "llama3_json")
    assert mask.triggers == mask.grammar.triggers
    assert mask.residual == text.get("llama3_json").grammar(TOOLS).residual


def test_an_unknown_format_is_refused(tokenizer):
    with pytest.raises(ConfigError, match="unknown text format"):
        ToolMask(TOOLS, tokenizer, "hermez")


SEND = Tool(
    "send",
    input_schema={
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "count": {"type": "integer"},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        },
        "required": ["to", "where"],
    },
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", text.names())
def test_required_calls_are_finished_by_every_format_if_the_limit_allows_them(tokenizer, name):
    mask = ToolMask([SEND, NOW], tokenizer, name, REQUIRED)
    shortest = ToolCall(id="a1b2c3d4e", name="send", arguments={"to": "", "where": {"lat": 0}})
    limit = 2 * len(tokenizer.encode(mask.format.render_call(shortest, [SEND]).text))
    for seed in range(2):
        state = random_text(mask, random.Random(seed), limit)
        calls = mask.format.parse(state.finish(), [SEND, NOW]).calls
        assert calls, state.text
        assert {call.state for call in calls} == {"complete"}, state.text


@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "llama4_pythonic", "harmony", "react"])
@pytest.mark.parametrize("limit", [1, 5, 40])
def test_text_that_leaves_no_room_for_a_call_continues_up_to_the_limit(tokenizer, name, limit):
    state = ToolMask([SEND, NOW], tokenizer, name).start(limit)
    written = tokenizer.encode("It is a fine day. " * 3)[:limit]
    for token in written[: limit - min(3, limit // 4)]:
        assert token in allowed_tokens(state), state.text
        state.accept(token)
    assert state.finish()


def test_a_call_that_the_limit_does_not_allow_is_not_begun(tokenizer):
    state = ToolMask([SEND, NOW], tokenizer, "hermes").start(30)
    trigger = tokenizer.encode("<tool_call>")
    for token in trigger[:-1]:
        state.accept(token)
        allowed = allowed_tokens(state)
    assert trigger[-1] not in allowed


def test_text_after_a_call_ends_where_the_limit_allows_no_other_call(tokenizer):
    written = tokenizer.encode(text.get("hermes").render_call(CALLS[2]).text)
    state = ToolMask([SEND, NOW], tokenizer, "hermes").start(len(written) + 200)
    for token in written:
        state.accept(token)
    while not state.is_finished:
        state.accept(
            next(token for token in (tokenizer.encode("a")[0], tokenizer.end_token) if token in allowed_tokens(state))
        )
    assert [call.name for call in state_calls(state)] == ["now"]


def state_calls(state):
    return text.get("hermes").parse(state.finish(), [SEND, NOW]).calls
