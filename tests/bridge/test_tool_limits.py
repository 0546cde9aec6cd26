"""More tools than the target accepts: named tools are kept, a chooser fills the rest, nothing depends on the position."""

from itertools import permutations

import pytest

import toolwire
from recordings import WIRES
from tables import every_case
from toolwire.ir import ConfigError, EncodeError, Message, Text, ToolCall, ToolChoice
from toolwire.ir.losses import Losses
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.run import choose_by_words
from toolwire.stream.strict import parse_object
from toolwire.wire import get

LIMIT = get("openai_chat").limits.tools
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = tuple(toolwire.Tool(f"tool_{number}", f"Does thing {number}.", SCHEMA) for number in range(200))
USER = Message("user", (Text("What is the weather?"),))
WEATHER = toolwire.Tool("forecast", "Weather for the next days.", SCHEMA)


def history(*names):
    calls = tuple(ToolCall(f"c{number}", name, {}) for number, name in enumerate(names))
    return (USER, Message("assistant", calls), Message("user", tuple(call.result("ok") for call in calls)))


def names(request):
    return [tool.name for tool in request.tools]


@pytest.mark.finding("G23")
def test_named_tools_are_kept_and_the_others_are_refused_by_name():
    request = toolwire.Request("m", history("tool_190", "tool_150"), TOOLS, ToolChoice("tool", ("tool_170",)))
    prepared = toolwire.prepare(request, "openai_chat")
    assert names(prepared.request) == ["tool_150", "tool_170", "tool_190"]
    refused = {loss.path: loss for loss in prepared.losses if loss.concept == "tool"}
    assert len(refused) == 197
    for path, loss in refused.items():
        name = TOOLS[int(path.rpartition("/")[2])].name
        assert (loss.action, loss.severity) == ("dropped", "error")
        assert repr(name) in loss.detail and "200" in loss.detail and str(LIMIT) in loss.detail


@pytest.mark.finding("G23")
def test_no_tool_is_chosen_if_none_is_named():
    with pytest.raises(EncodeError) as caught:
        toolwire.prepare(toolwire.Request("m", (USER,), TOOLS), "openai_chat")
    assert "200 tools" in str(caught.value) and str(LIMIT) in str(caught.value)
    assert caught.value.pointer == "/tools" and "choose=" in caught.value.hint


@pytest.mark.finding("G23")
def test_named_tools_above_the_limit_are_an_error():
    request = toolwire.Request("m", history(*names(toolwire.Request(tools=TOOLS[:129]))), TOOLS)
    with pytest.raises(EncodeError, match="129 tools are named in the history"):
        toolwire.prepare(request, "openai_chat", choose=choose_by_words)


@pytest.mark.finding("G23")
def test_chooser_fills_the_places_that_named_tools_leave():
    asked = []

    def choose(request, tools, count):
        asked.append((len(tools), count))
        return [*reversed(tools)][:count]

    request = toolwire.Request("m", history("tool_3", "tool_1"), TOOLS, ToolChoice("tool", ("tool_2",)))
    prepared = toolwire.prepare(request, "openai_chat", choose=choose)
    assert asked == [(197, LIMIT - 3)]
    assert names(prepared.request) == [f"tool_{number}" for number in (1, 2, 3, *range(200 - LIMIT + 3, 200))]
    left_out = [loss for loss in prepared.losses if loss.concept == "tool"]
    assert len(left_out) == 200 - LIMIT and {loss.severity for loss in left_out} == {"warning"}
    assert all(repr(TOOLS[int(loss.path[7:])].name) in loss.detail for loss in left_out)


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (lambda tools: [tool.name for tool in tools[:3]], "must return tools, got str"),
        (lambda tools: "tool_1", "must return tools, got str"),
        (lambda tools: None, "must return tools, got NoneType"),
        (lambda tools: [toolwire.Tool("unknown")], "returned 'unknown', which is not one of the tools"),
        (lambda tools: tools, f"returned 200 tools, but only {LIMIT} may be chosen"),
        (lambda tools: [], "returned none of 200 tools"),
    ],
)
def test_error_names_a_chooser_that_breaks_its_contract(chosen, problem):
    def pick_some(request, tools, count):
        return chosen(tools)

    with pytest.raises(ConfigError, match=f"pick_some {problem}") as caught:
        toolwire.prepare(toolwire.Request("m", (USER,), TOOLS), "openai_chat", choose=pick_some)
    assert "at most `count`" in caught.value.hint


def test_chooser_may_add_nothing_to_named_tools():
    request = toolwire.Request("m", history("tool_3"), TOOLS)
    assert names(toolwire.prepare(request, "openai_chat", choose=lambda *_: ()).request) == ["tool_3"]


@pytest.mark.finding("G23")
@pytest.mark.parametrize("position", [0, 60, 200])
def test_choice_by_words_does_not_depend_on_the_position(position):
    tools = (*TOOLS[:position], WEATHER, *TOOLS[position:])
    prepared = toolwire.prepare(toolwire.Request("m", (USER,), tools), "openai_chat", choose=choose_by_words)
    chosen = names(prepared.request)
    assert "forecast" in chosen and len(chosen) == LIMIT
    assert chosen == [tool.name for tool in tools if tool.name in set(chosen)]
    assert set(chosen) == {"forecast", *sorted(names(toolwire.Request(tools=TOOLS)))[: LIMIT - 1]}


@pytest.mark.finding("G23")
def test_built_in_tools_are_always_kept():
    search = toolwire.Tool("googleSearch", kind="builtin", extra={"gemini": {"googleSearch": {}}})
    many = tuple(toolwire.Tool(f"t{number}", input_schema=SCHEMA) for number in range(600))
    prepared = toolwire.prepare(toolwire.Request("m", (USER,), (*many, search)), "gemini", choose=choose_by_words)
    assert len(prepared.request.tools) == get("gemini").limits.tools and prepared.request.tools[-1] == search


@pytest.mark.finding("G23")
@every_case(("source", "target"), list(permutations(WIRES, 2)))
def test_translated_requests_refuse_by_name_unless_a_chooser_is_passed(source, target):
    many = tuple(toolwire.Tool(f"t{number}", input_schema=SCHEMA) for number in range(600))
    body = get(source).encode_request(toolwire.Request("m", (USER,), (*many, WEATHER))).body
    limit = get(target).limits.tools
    if limit is None:
        translated = toolwire.translate(body, source=source, target=target, model="m")
        assert len(get(target).decode_request(translated.body).tools) == 601
        return
    with pytest.raises(EncodeError, match="601 tools"):
        toolwire.translate(body, source=source, target=target, model="m")
    translated = toolwire.translate(body, source=source, target=target, model="m", choose=choose_by_words)
    sent = names(get(target).decode_request(translated.body))
    assert len(sent) == limit and "forecast" in sent
    assert sum(loss.concept == "tool" for loss in translated.losses) == 601 - limit


@pytest.mark.finding("G23")
def test_list_of_tools_above_the_limit_is_refused_unless_a_chooser_is_passed():
    declared = get("anthropic").encode_tools(TOOLS)[0]
    with pytest.raises(EncodeError, match="200 tools"):
        toolwire.translate(declared, source="anthropic", target="openai_chat", kind="tools")
    chosen = toolwire.translate(
        declared, source="anthropic", target="openai_chat", kind="tools", choose=choose_by_words
    )
    assert len(chosen.body) == LIMIT


@pytest.mark.finding("G23")
def test_answer_to_a_request_above_the_limit_is_translated():
    request = get("anthropic").encode_request(toolwire.Request("m", (USER,), TOOLS)).body
    call = {"id": "c1", "type": "function", "function": {"name": "tool_199", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"id": "a", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    translated = toolwire.translate(answer, source="openai_chat", target="anthropic", kind="response", request=request)
    assert translated.body["content"][0]["name"] == "tool_199"


@pytest.mark.finding("G23")
def test_model_clients_choose_by_words():
    endpoint = resolve("openai-chat/gpt-5.6", {}, key="secret-0123456789")
    losses = Losses()
    request = toolwire.Request("m", (USER,), (*TOOLS, WEATHER))
    sent = parse_object(EndpointRequest(request, endpoint, stream=False, text=None, losses=losses).body)
    assert len(sent["tools"]) == LIMIT and sent["tools"][-1]["function"]["name"] == "forecast"
    assert sum(loss.concept == "tool" for loss in losses) == 201 - LIMIT
