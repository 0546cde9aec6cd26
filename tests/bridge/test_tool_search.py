"""Tool search and deferred tools: between Anthropic and Responses, and on wires that have neither."""

import json
import random
from itertools import permutations

import pytest
from msgspec.structs import replace

import toolwire
from recordings import WIRES
from tables import every_case
from toolwire import Request, Tool, ToolCall, ToolChoice
from toolwire.audit import check_body
from toolwire.ir import Message, Opaque, Text, fold, found_in_history, search_tool
from toolwire.wire import get

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", "Weather for a city.", CITY)
ALERTS = Tool("get.alerts", "Weather alerts for a city.", CITY)
CLOCK = Tool("clock", "The time.", CITY)
USER = Message("user", (Text("Weather in Oslo?"),))
LOOKUP = ToolCall("call_s", "search_tools", {"query": "weather"}, kind="search")
USE = ToolCall("call_1", "get_weather", {"city": "Oslo"})
TURN = (Message("assistant", (USE,)), Message("user", (USE.result("sun"),)))
NATIVE = ("anthropic", "openai_responses")
MODELS = {"anthropic": "claude-sonnet-5", "openai_responses": "gpt-5.6", "gemini": "gemini-3-pro"}


def agent_request(*found, turns=()):
    """Return the request of an agent whose search has found some tools."""
    searched = ()
    if found:
        text = "\n".join(f"{tool.name}: {tool.description}" for tool in found)
        result = replace(LOOKUP.result(text), found=tuple(tool.name for tool in found))
        searched = (Message("assistant", (LOOKUP,)), Message("user", (result,)))
    loaded = tuple(replace(tool, deferred=True) for tool in found)
    return Request("m", (USER, *searched, *turns), (CLOCK, search_tool(), *loaded))


def written(request, wire, **options):
    request = replace(request, model=MODELS.get(wire, "m"))
    prepared = toolwire.prepare(request, wire, **options)
    body, more = get(wire).encode_request(prepared.request)
    return body, [*prepared.losses, *more], prepared


def declared_names(wire, body):
    return [tool.name for tool in get(wire).decode_request(body).tools]


def hosted_request(wire, *turns):
    search = {
        "anthropic": Tool(
            "tool_search_tool_bm25",
            kind="builtin",
            extra={"anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}},
        ),
        "openai_responses": Tool("tool_search", kind="builtin", extra={"openai_responses": {"type": "tool_search"}}),
    }[wire]
    tools = (search, CLOCK, *(replace(tool, deferred=True) for tool in (WEATHER, ALERTS)))
    return Request("m", (USER, *turns), tools)


HOSTED = {
    "anthropic": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "weather"}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "get_weather"}],
            },
        },
    ],
    "openai_responses": [
        {
            "type": "tool_search_call",
            "id": "tsc_1",
            "call_id": None,
            "execution": "server",
            "arguments": {"paths": ["get_weather"]},
            "status": "completed",
        },
        {
            "type": "tool_search_output",
            "id": "tso_1",
            "call_id": None,
            "execution": "server",
            "status": "completed",
            "tools": [
                {
                    "type": "function",
                    "name": "get_weather",
                    "description": "Weather for a city.",
                    "parameters": CITY,
                    "strict": False,
                    "defer_loading": True,
                }
            ],
        },
    ],
}


def hosted_parts(wire):
    return tuple(Opaque(wire, block["type"], block) for block in HOSTED[wire])


def response_of(wire, *blocks):
    if wire == "anthropic":
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": list(blocks),
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": list(blocks)}


CALL_ITEMS = {
    "anthropic": {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}},
    "openai_responses": {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "get_weather",
        "namespace": "get_weather",
        "arguments": '{"city":"Oslo"}',
        "status": "completed",
    },
}


# searches that the caller runs


def test_search_of_the_caller_is_an_own_function_with_references_on_anthropic():
    body, losses, _ = written(agent_request(WEATHER, ALERTS, turns=TURN), "anthropic")
    assert check_body(body, "anthropic") == []
    assert [(tool["name"], tool.get("defer_loading")) for tool in body["tools"]][:3] == [
        ("clock", None),
        ("search_tools", None),
        ("get_weather", True),
    ]
    renamed = body["tools"][3]["name"]
    assert renamed.startswith("get_alerts") and body["tools"][3]["defer_loading"] is True
    references = [{"type": "tool_reference", "tool_name": name} for name in ("get_weather", renamed)]
    result = {"type": "tool_result", "tool_use_id": "call_s", "content": references}
    assert body["messages"][2]["content"] == [result]
    assert {loss.severity for loss in losses} == {"info"}


def test_search_of_the_caller_is_a_client_tool_search_on_responses():
    body, losses, _ = written(agent_request(WEATHER, turns=TURN), "openai_responses")
    assert check_body(body, "openai") == []
    assert [tool["type"] for tool in body["tools"]] == ["function", "tool_search"]
    assert body["tools"][1]["execution"] == "client" and body["tools"][1]["description"]
    call, output, use, _ = body["input"][1:]
    assert (call["type"], call["execution"], call["call_id"]) == ("tool_search_call", "client", "call_s")
    assert call["arguments"] == {"query": "weather"}
    assert (output["type"], output["execution"], output["call_id"]) == ("tool_search_output", "client", "call_s")
    assert [(tool["name"], tool["parameters"]) for tool in output["tools"]] == [("get_weather", CITY)]
    assert use["namespace"] == "get_weather", "a loaded function is in a namespace of its own name"
    assert {loss.severity for loss in losses} == {"info"}


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire not in NATIVE])
def test_found_tools_are_appended_on_other_wires(wire):
    empty, _, _ = written(agent_request(), wire)
    body, losses, prepared = written(agent_request(ALERTS, WEATHER), wire)
    names = declared_names(wire, body)
    assert names[:2] == declared_names(wire, empty) == ["clock", "search_tools"]
    assert [prepared.exchange.original_name(None, name)[1] for name in names[2:]] == ["get.alerts", "get_weather"]
    assert "get.alerts: Weather alerts" in json.dumps(body), "the text of the result reaches the model"
    assert [loss.severity for loss in losses if loss.concept == "prompt prefix"] == ["info"]


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire not in NATIVE])
def test_tool_that_follows_a_found_one_stays_after_it(wire):
    """A gateway declares a tool that the model has called after the found ones, which are before it in the prompt."""
    before = agent_request(WEATHER, turns=TURN)
    after = replace(before, tools=(*before.tools, Tool("later", "A later tool.", CITY)))
    names = declared_names(wire, written(before, wire)[0])
    assert names == ["clock", "search_tools", "get_weather"]
    assert declared_names(wire, written(after, wire)[0]) == [*names, "later"]


@pytest.mark.parametrize("wire", NATIVE)
def test_found_tools_leave_the_beginning_of_the_prompt_unchanged(wire):
    before, _, _ = written(agent_request(), wire)
    after, losses, _ = written(agent_request(WEATHER, ALERTS), wire)

    def prompt_tools(body):
        return [tool for tool in body["tools"] if not tool.get("defer_loading")]

    assert prompt_tools(after) == prompt_tools(before)
    assert (
        after["messages" if wire == "anthropic" else "input"][:1]
        == before["messages" if wire == "anthropic" else "input"]
    )
    assert not any(loss.concept == "prompt prefix" for loss in losses)


@pytest.mark.parametrize("wire", WIRES)
def test_call_of_the_search_has_its_kind_on_every_wire(wire):
    _, _, prepared = written(agent_request(WEATHER), wire)
    fitted = ToolCall("c9", "search_tools", {"query": "x"}, kind="search" if wire == "openai_responses" else "function")
    answer = get(wire).decode_response(get(wire).encode_response(toolwire.Response("r", "m", (fitted,))).body)
    (call,) = prepared.exchange.restore(answer).calls
    assert (call.name, call.kind, call.arguments, call.state) == ("search_tools", "search", {"query": "x"}, "complete")


@every_case(("source", "target"), list(permutations(WIRES, 2)))
def test_history_of_a_search_reaches_every_other_wire(source, target):
    request, _, _ = written(agent_request(WEATHER, turns=TURN), source)
    translated = toolwire.translate(request, source=source, target=target, model=MODELS.get(target, "m"))
    decoded = get(target).decode_request(translated.body)
    names = [part.name for message in decoded.messages for part in message.parts if isinstance(part, ToolCall)]
    assert names == ["search_tools", "get_weather"]
    assert "get_weather" in [tool.name for tool in decoded.tools]
    if source in NATIVE and target in NATIVE:
        assert found_in_history(decoded.messages) == ("get_weather",)
        assert next(tool for tool in decoded.tools if tool.name == "get_weather").deferred


def test_own_search_of_an_anthropic_client_is_recognised_by_its_references():
    tools = (
        Tool("lookup", "Find tools.", {"type": "object", "properties": {}}),
        CLOCK,
        *(replace(tool, deferred=True) for tool in (WEATHER, ALERTS)),
    )
    call = ToolCall("c", "lookup", {})
    result = replace(call.result(), found=("get_weather",), parts=())
    request = Request("m", (USER, Message("assistant", (call,)), Message("user", (result,))), tools)
    body, losses, prepared = written(request, "openai_responses")
    assert [tool["type"] for tool in body["tools"]] == ["tool_search", "function"]
    assert [item["type"] for item in body["input"][1:]] == ["tool_search_call", "tool_search_output"]
    assert any(loss.path == "/tools/3" and loss.concept == "deferred tool" for loss in losses)
    item = {**HOSTED["openai_responses"][0], "execution": "client", "call_id": "c2", "arguments": {"query": "y"}}
    answer = get("openai_responses").decode_response(response_of("openai_responses", item))
    (returned,) = prepared.exchange.restore(answer).calls
    assert (returned.name, returned.kind, returned.arguments) == ("lookup", "function", {"query": "y"})


def test_deferred_tools_of_a_coding_agent_wait_for_its_search():
    """Claude Code declares ToolSearch beside deferred tools, before any search."""
    tools = (Tool("ToolSearch", "Find tools.", CITY), CLOCK, replace(WEATHER, deferred=True))
    body, _, _ = written(Request("m", (USER,), tools), "openai_chat")
    assert declared_names("openai_chat", body) == ["ToolSearch", "clock"]
    without_search, losses, _ = written(Request("m", (USER,), tools[1:]), "openai_chat")
    assert declared_names("openai_chat", without_search) == ["clock", "get_weather"]
    assert any(loss.concept == "deferred loading" for loss in losses)


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "anthropic"])
def test_deferred_tool_that_the_conversation_names_is_declared(wire):
    """The client has removed the search that found it, or forces it by the tool choice."""
    deferred = [replace(tool, deferred=True) for tool in (ALERTS, WEATHER)]
    request = Request("m", (USER, *TURN), (Tool("ToolSearch", "Find tools.", CITY), *deferred, CLOCK))
    body, losses, _ = written(request, wire)
    assert declared_names(wire, body) == [declared_names(wire, body)[0], "clock", "get_weather"]
    assert not [tool for tool in get(wire).decode_request(body).tools if tool.deferred]
    assert [loss.path for loss in losses if loss.concept == "deferred tool"] == ["/tools/1"]
    if wire != "ollama":  # it has no tool choice
        forced = replace(request, messages=(USER,), choice=ToolChoice("tool", ("get_weather",)))
        body, losses, _ = written(forced, wire)
        decoded = get(wire).decode_request(body)
        assert [tool.name for tool in decoded.tools][1:] == ["clock", "get_weather"]
        assert decoded.choice.names == ("get_weather",)
        assert {loss.severity for loss in losses} == {"info"}
    assert not check_body(body, wire)


def test_deferred_tools_are_declared_if_their_search_is_not_sent():
    """Anthropic refuses a request whose tools are all deferred."""
    weather = replace(WEATHER, deferred=True)
    allowed = ToolChoice("allowed", ("get_weather",))  # without the search, which is left out
    body, _, _ = written(Request("m", (USER,), (search_tool(), weather), allowed), "anthropic")
    assert [(tool["name"], "defer_loading" in tool) for tool in body["tools"]] == [("get_weather", False)]
    result = replace(LOOKUP.result("get_weather"), found=("get_weather",))  # its call is not in the history
    turns = (Message("user", (result, Text("Weather in Oslo?"))),)
    body, _, _ = written(Request("m", turns, (CLOCK, weather)), "anthropic")
    assert [(tool["name"], "defer_loading" in tool) for tool in body["tools"]] == [
        ("clock", False),
        ("get_weather", False),
    ]


def test_function_of_the_same_name_is_not_a_search():
    plain = Tool("search_tools", "Search the workshop.", CITY)
    call = ToolCall("c", "search_tools", {"city": "Oslo"})
    turns = (USER, Message("assistant", (call,)), Message("user", (call.result("a hammer"),)))
    body, losses, _ = written(Request("m", turns, (plain,)), "openai_responses")
    assert body["tools"][0]["type"] == "function" and body["input"][2]["output"] == "a hammer"
    assert not losses


# searches that the provider runs


@pytest.mark.parametrize(("source", "target"), [NATIVE, NATIVE[::-1]])
def test_search_of_the_provider_is_translated(source, target):
    turn = Message("assistant", (*hosted_parts(source), USE))
    request = hosted_request(source, turn, Message("user", (USE.result("sun"),)))
    body, losses, _ = written(request, target)
    assert check_body(body, {"anthropic": "anthropic", "openai_responses": "openai"}[target]) == []
    assert {loss.severity for loss in losses} <= {"info"}
    search = body["tools"][0]
    assert search["type"] == ("tool_search" if target == "openai_responses" else "tool_search_tool_bm25_20251119")
    assert [tool.get("defer_loading") for tool in body["tools"][1:]] == [None, True, True]
    if target == "openai_responses":
        call, output, use, _ = body["input"][1:]
        assert call["arguments"] == {"query": "weather"} and output["tools"][0]["parameters"] == CITY
        assert call["execution"] == output["execution"] == "server" and "id" not in call
        assert use["namespace"] == "get_weather"
    else:
        call, result, use = body["messages"][1]["content"]
        assert call["name"] == "tool_search_tool_bm25" and call["input"] == {"query": "get_weather"}
        assert result["tool_use_id"] == call["id"] and call["id"].startswith("srvtoolu_")
        references = result["content"]["tool_references"]
        assert references == [{"type": "tool_reference", "tool_name": "get_weather"}]
        assert use["type"] == "tool_use"


def test_search_by_regular_expressions_is_a_warning():
    declared = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    search = Tool("tool_search_tool_regex", kind="builtin", extra={"anthropic": declared})
    request = Request("m", (USER,), (search, replace(WEATHER, deferred=True)))
    _, losses, _ = written(request, "openai_responses")
    assert [(loss.severity, loss.path) for loss in losses] == [("warning", "/tools/0")]


@pytest.mark.parametrize("source", NATIVE)
@pytest.mark.parametrize("target", [wire for wire in WIRES if wire not in NATIVE])
def test_wire_without_search_declares_all_tools_or_the_search_of_the_caller(source, target):
    request = hosted_request(source, Message("assistant", (*hosted_parts(source), USE)), *TURN[1:])
    body, losses, _ = written(request, target)
    assert len(declared_names(target, body)) == 3 and {loss.severity for loss in losses} <= {"info", "warning"}
    body, losses, prepared = written(request, target, runs_search=True)
    names = declared_names(target, body)
    assert names == ["search_tools", "clock", "get_weather"], "the search has found one tool"
    assert any(loss.concept == "prompt prefix" for loss in losses)
    assert prepared.exchange.original_name(None, "search_tools") == (None, "search_tools")


@pytest.mark.parametrize(("upstream", "client"), [NATIVE, NATIVE[::-1]])
def test_answer_with_a_search_of_the_provider_is_translated(upstream, client):
    request = get(client).encode_request(hosted_request(client)).body
    answer = response_of(upstream, *HOSTED[upstream], CALL_ITEMS[upstream])
    translated = toolwire.translate(answer, source=upstream, target=client, kind="response", request=request)
    if client == "anthropic":
        call, result, use = translated.body["content"]
        assert (call["type"], result["type"], use["type"]) == (
            "server_tool_use",
            "tool_search_tool_result",
            "tool_use",
        )
        assert result["tool_use_id"] == call["id"]
        assert result["content"]["tool_references"] == [{"type": "tool_reference", "tool_name": "get_weather"}]
        assert use["name"] == "get_weather"
    else:
        call, output, use = translated.body["output"]
        assert (call["type"], output["type"], use["type"]) == (
            "tool_search_call",
            "tool_search_output",
            "function_call",
        )
        assert call["id"] and output["id"] and call["execution"] == output["execution"] == "server"
        assert [tool["name"] for tool in output["tools"]] == ["get_weather"]
        assert output["tools"][0]["defer_loading"] is True


def split_randomly(data, seed):
    chooser = random.Random(seed)
    while data:
        size = chooser.randint(1, 40)
        yield data[:size]
        data = data[size:]


def stream_of(wire, answer):
    encoder = get(wire).stream_encoder()
    return b"".join(encoder.feed(event) for event in toolwire.unfold(get(wire).decode_response(answer)))


@every_case("seed", range(3))
@every_case("is_hosted", [True, False], ids=["of the provider", "of the caller"])
@every_case(("upstream", "client"), [NATIVE, NATIVE[::-1]])
def test_stream_of_a_search_has_the_content_of_the_whole_answer(upstream, client, is_hosted, seed):
    if is_hosted:
        request = hosted_request(client)
        answer = response_of(upstream, *HOSTED[upstream], CALL_ITEMS[upstream])
    else:
        request = agent_request()
        item = {**HOSTED["openai_responses"][0], "execution": "client", "call_id": "c", "arguments": {"query": "y"}}
        block = {"type": "tool_use", "id": "c", "name": "search_tools", "input": {"query": "y"}}
        answer = response_of(upstream, block if upstream == "anthropic" else item)
    body, _, _ = written(request, client)
    whole = toolwire.translate(answer, source=upstream, target=client, kind="response", request=body).body
    translation = toolwire.translate_stream(source=upstream, target=client, request=body)
    data = b"".join(translation.feed(piece) for piece in split_randomly(stream_of(upstream, answer), seed))
    decoder = get(client).stream_decoder()
    streamed = fold([*decoder.feed(data + translation.close()), *decoder.close()])
    expected = get(client).decode_response(whole)
    assert translation.error is None
    assert [_without_form(part) for part in streamed.parts] == [_without_form(part) for part in expected.parts]
    assert streamed.stop.reason == expected.stop.reason == "tool_calls"
    if not is_hosted:
        kind = "search" if client == "openai_responses" else "function"
        assert [(call.kind, call.arguments) for call in streamed.calls] == [(kind, {"query": "y"})]


def _without_form(part):
    return part if isinstance(part, Opaque) else replace(part, extra={}, raw=None)


def test_error_of_a_search_survives_both_wires():
    call, result = HOSTED["anthropic"]
    error = {"type": "tool_search_tool_result_error", "error_code": "unavailable"}
    document = response_of("anthropic", call, {**result, "content": error})
    there = toolwire.translate(document, source="anthropic", target="openai_responses", kind="response").body
    assert [item["status"] for item in there["output"]] == ["completed", "incomplete"]
    back = toolwire.translate(there, source="openai_responses", target="anthropic", kind="response").body
    assert back["content"][1]["content"] == error


def test_result_without_a_call_is_dropped():
    result = hosted_parts("openai_responses")[1]
    request = hosted_request("openai_responses", Message("assistant", (result, Text("ok"))), USER)
    body, losses, _ = written(request, "anthropic")
    assert body["messages"][1]["content"] == "ok"
    assert any(loss.concept == "result of a tool search" for loss in losses)


def test_emulated_tools_wait_for_the_search():
    tools = (Tool("ToolSearch", "Find tools.", CITY), *(replace(tool, deferred=True) for tool in (WEATHER, ALERTS)))
    call = ToolCall("c", "ToolSearch", {"city": "x"})
    result = replace(call.result(), found=("get_weather",), parts=())
    turns = (Message("assistant", (call,)), Message("user", (result,)))
    before = toolwire.emulate(Request("m", (USER,), tools), "hermes").request
    after = toolwire.emulate(Request("m", (USER, *turns), tools), "hermes").request
    assert ["get_weather" in before.messages[0].text, "get.alerts" in before.messages[0].text] == [False, False]
    assert ["get_weather" in after.messages[0].text, "get.alerts" in after.messages[0].text] == [True, False]
    assert "Found tools: get_weather" in after.messages[-1].text
