"""Emulation with a raw prompt: the end of the prompt, the parts of the answer, and the losses."""

import pytest

from toolwire import (
    EmulationSettings,
    Media,
    Message,
    Reasoning,
    Request,
    Response,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    emulate,
)
from toolwire.ir.errors import ConfigError
from toolwire.ir.events import CallEnd, CallStart, ResponseEnd, TextDelta, TextStart
from toolwire.ir.request import OutputFormat, Params, ReasoningConfig
from toolwire.ir.response import Stop

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", "The weather", CITY)
CLOCK = Tool("get_time", "The time", {"type": "object", "properties": {}})
HERMES = EmulationSettings("hermes", via="completions")
THINKING = EmulationSettings("hermes", via="completions", reasoning="open")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def ask(*messages: Message, **fields) -> Request:
    return Request("qwen3-8b", messages or (Message("user", (Text("Weather?"),)),), (WEATHER, CLOCK), **fields)


def prompt_of(request: Request, settings: EmulationSettings = HERMES) -> str:
    [message] = emulate(request, settings).request.messages
    [part] = message.parts
    return part.text


def answer(text: str, reason: str = "stop") -> Response:
    return Response(parts=(Text(text),) if text else (), stop=Stop(reason))


def test_request_is_one_prompt_without_tools():
    request = ask(params=Params(stop=("END",), temperature=0.5))
    sent = emulate(request, HERMES).request
    assert (sent.tools, sent.choice, sent.parallel, sent.reasoning) == ((), None, None, None)
    assert sent.params.temperature == 0.5
    assert sent.params.stop == ("<|im_end|>", "<|im_start|>", "END")
    prompt = prompt_of(request)
    assert prompt.startswith("<|im_start|>system\n# Tools") and "get_time" in prompt
    assert prompt.endswith("<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n")


def test_stop_sequences_of_the_format_are_added_if_calls_are_allowed():
    settings = EmulationSettings("function_xml", via="completions", template="chatml")
    assert emulate(ask(), settings).request.params.stop[0] == "</function"
    assert "</function" not in emulate(ask(choice=ToolChoice("none")), settings).request.params.stop


def test_tools_are_not_declared_if_calls_are_forbidden():
    prompt = prompt_of(ask(choice=ToolChoice("none")))
    assert "get_weather" not in prompt and "do not call a function" in prompt


@pytest.mark.parametrize(
    ("choice", "opening"),
    [
        (ToolChoice("required"), '<tool_call>\n{"name": "'),
        (ToolChoice("tool", ("get_weather",)), '<tool_call>\n{"name": "get_weather", "arguments": {"'),
        (ToolChoice("auto"), ""),
        (None, ""),
    ],
)
def test_required_call_is_begun_and_read_as_part_of_the_answer(choice, opening):
    emulation = emulate(ask(choice=choice), HERMES)
    prompt = emulation.request.messages[0].parts[0].text
    assert prompt.endswith(f"<|im_start|>assistant\n{opening}")
    [call] = emulation.restore(answer(CALL[len(opening) :])).calls
    assert (call.name, call.arguments, call.state) == ("get_weather", {"city": "Paris"}, "complete")


def test_required_call_without_an_answer_is_truncated_and_never_complete():
    response = emulate(ask(choice=ToolChoice("tool", ("get_weather",))), HERMES).restore(answer("", "length"))
    assert [call.state for call in response.calls] == ["truncated"] and response.stop.reason == "length"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_opened_reasoning_is_read_without_the_marker_of_the_prompt(size):
    emulation = emulate(ask(), THINKING)
    assert emulation.request.messages[0].parts[0].text.endswith("<|im_start|>assistant\n<think>\n")
    reader = emulation.make_restorer()
    said = f"Paris, then.\n</think>\n\n{CALL}"
    events = [*reader.feed(TextStart(0))]
    for start in range(0, len(said), size):
        events += reader.feed(TextDelta.of(0, said[start : start + size]))
    events += reader.feed(ResponseEnd((Stop("stop"),)))
    texts = "".join(event.text for event in events if type(event).__name__ == "ReasoningDelta")
    assert texts == "Paris, then.\n"
    assert [event.arguments for event in events if isinstance(event, CallEnd)] == [{"city": "Paris"}]


@pytest.mark.parametrize(
    ("settings", "config", "end"),
    [
        (THINKING, ReasoningConfig("off"), "<think>\n\n</think>\n\n"),
        (THINKING, ReasoningConfig("auto", "high"), "<think>\n"),
        (EmulationSettings("hermes", "completions", reasoning="closed"), None, "<think>\n\n</think>\n\n"),
        (EmulationSettings("hermes", "completions", reasoning="closed"), ReasoningConfig("auto"), "<think>\n"),
        (HERMES, ReasoningConfig("off"), ""),
    ],
)
def test_request_turns_reasoning_on_and_off_unless_the_model_decides(settings, config, end):
    assert prompt_of(ask(reasoning=config), settings).endswith(f"<|im_start|>assistant\n{end}")


def test_forced_call_and_enforced_form_have_no_reasoning():
    forced = prompt_of(ask(choice=ToolChoice("required")), THINKING)
    assert forced.endswith('<think>\n\n</think>\n\n<tool_call>\n{"name": "')
    output = OutputFormat("json_schema", CITY, "answer")
    request = Request("qwen3", (Message("user", (Text("Hi"),)),), output=output)
    emulation = emulate(request, THINKING)
    assert emulation.request.messages[0].parts[0].text.endswith("</think>\n\n") and emulation.request.output == output


def test_form_of_the_answer_is_not_enforced_on_calls():
    emulation = emulate(ask(output=OutputFormat("json")), HERMES)
    assert emulation.request.output is None
    assert [loss.path for loss in emulation.losses] == ["/output"]


def test_history_has_calls_results_and_only_the_reasoning_of_the_current_turn():
    old, new = Reasoning("old thought"), Reasoning("new thought")
    call = ToolCall("c1", "get_weather", {"city": "Paris"})
    request = ask(
        Message("user", (Text("Hi"),)),
        Message("assistant", (old, Text("Hello."))),
        Message("user", (Text("Weather?"),)),
        Message("assistant", (new, Text("I look."), call)),
        Message("user", (ToolResult("c1", None, (Text("rain"),)),)),
    )
    emulation = emulate(request, HERMES)
    prompt = emulation.request.messages[0].parts[0].text
    assert "old thought" not in prompt
    assert prompt.endswith(
        "<|im_start|>assistant\n<think>\nnew thought\n</think>\n\nI look.\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert [(loss.path, loss.severity) for loss in emulation.losses] == [("/messages/1", "info")]


def test_results_have_the_role_of_the_template():
    call = ToolCall("c1", "get_weather", {"city": "Paris"})
    messages = (
        Message("user", (Text("Hi"),)),
        Message("assistant", (call,)),
        Message("user", (ToolResult("c1", "get_weather", (Text("rain"),)), Text("And?"))),
    )
    prompt = prompt_of(Request("llama-3.1-8b", messages, (WEATHER,)), EmulationSettings("llama3_json", "completions"))
    assert prompt.endswith(
        "<|start_header_id|>ipython<|end_header_id|>\n\nrain<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd?"
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_model_that_continues_after_results_gets_no_new_marker():
    call = ToolCall("c1", "get_weather", {"city": "Paris"})
    result = ToolResult("c1", "get_weather", (Text("rain"),))
    messages = (Message("user", (Text("Hi"),)), Message("assistant", (call,)), Message("user", (result,)))
    request = Request("deepseek-v3.1", messages, (WEATHER,))
    prompt = prompt_of(request, EmulationSettings("deepseek_v31", "completions", reasoning="open"))
    assert prompt.endswith("<｜end▁of▁sentence｜><｜tool▁output▁begin｜>rain<｜tool▁output▁end｜>")


def test_tools_are_a_turn_of_their_own_where_the_template_has_one():
    request = Request(
        "mistral-small-2506", (Message("system", (Text("Be brief."),)), Message("user", (Text("Hi"),))), (CLOCK,)
    )
    prompt = prompt_of(request, EmulationSettings("mistral_v11_callid", "completions"))
    assert prompt.startswith("[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][AVAILABLE_TOOLS][{")
    assert prompt.endswith("}][/AVAILABLE_TOOLS][INST]Hi[/INST]")


def test_own_last_message_is_continued():
    request = ask(Message("user", (Text("Count."),)), Message("assistant", (Text("One, "),)))
    assert prompt_of(request, THINKING).endswith("<|im_start|>assistant\nOne, ")


def test_media_is_a_loss_before_anything_is_sent():
    request = ask(Message("user", (Text("What is it? "), Media("image", url="https://example.com/a.png"))))
    emulation = emulate(request, HERMES)
    [loss] = emulation.losses
    assert (loss.path, loss.concept, loss.action, loss.severity) == ("/messages/0", "image", "dropped", "error")
    assert "[image left out]" in emulation.request.messages[0].parts[0].text


def test_stream_can_stop_after_the_one_allowed_call():
    reader = emulate(ask(parallel=False), HERMES).make_restorer()
    reader.feed(TextStart(0))
    reader.feed(TextDelta.of(0, CALL.partition("}")[0]))
    assert not reader.should_stop
    reader.feed(TextDelta.of(0, "}}\n"))
    assert reader.should_stop
    assert reader.close()[-1].stops[0].reason == "tool_calls"


def test_stream_of_an_answer_with_several_calls_is_read_to_its_end():
    reader = emulate(ask(), HERMES).make_restorer()
    events = [*reader.feed(TextStart(0)), *reader.feed(TextDelta.of(0, f"{CALL}\n{CALL}"))]
    assert sum(isinstance(event, CallStart) for event in events) == 2 and not reader.should_stop


def test_retry_contains_the_begun_call_and_stays_a_prompt():
    emulation = emulate(ask(choice=ToolChoice("tool", ("get_weather",))), HERMES)
    retry = emulation.retry(answer('city": Paris}}\n</tool_call>'))
    assert retry is not None
    prompt = retry.request.messages[0].parts[0].text
    assert '"arguments": {"city": Paris}}' in prompt and "could not be read" in prompt
    assert prompt.endswith('<tool_call>\n{"name": "get_weather", "arguments": {"')


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (EmulationSettings("hermes", template="chatml"), "template has no effect"),
        (EmulationSettings("hermes", reasoning="open"), "reasoning has no effect"),
        (EmulationSettings("generic_json", "completions"), "no chat template is known"),
        (EmulationSettings("hermes", "completions", "chatlm"), "unknown chat template 'chatlm'"),
        (EmulationSettings("seed_oss", "completions", "chatml", "open"), "does not read the reasoning"),
        (EmulationSettings("hermes", "completion"), "unknown endpoint 'completion'"),
        (EmulationSettings("hermess", "completions"), "unknown text format"),
    ],
)
def test_invalid_settings_are_refused_with_the_fix(settings, match):
    with pytest.raises(ConfigError, match=match) as error:
        emulate(Request("some-model", (Message("user", (Text("Hi"),)),)), settings)
    assert error.value.hint
