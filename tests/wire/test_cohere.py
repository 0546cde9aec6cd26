"""Cohere's own rules: plans, strictness of the request, documents, citations, and its choice of calls."""

import asyncio
import json

import pytest

import toolwire
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir import Message, Request, Stop, Text, Tool, ToolCall, ToolChoice, fold, unfold
from toolwire.ir.response import Response
from toolwire.net import ModelClient
from toolwire.testing import Upstream, bytewise, same
from toolwire.wire import get

COHERE = get("cohere")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER, TIME = Tool("get_weather", input_schema=CITY), Tool("get_time", input_schema=CITY)
USER = Message("user", (Text("How is Paris?"),))
CALL = ToolCall("a", "get_weather", {"city": "Paris"}, '{"city":"Paris"}')


def frames(data):
    return [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]


def streamed(response):
    encoder = COHERE.stream_encoder()
    return b"".join([encoder.feed(event) for event in unfold(response)])


def decoded(data):
    decoder = COHERE.stream_decoder()
    return fold([event for piece in bytewise(data) for event in decoder.feed(piece)] + decoder.close())


def sse(*events):
    return "".join([f"data: {json.dumps(event)}\n\n" for event in events]).encode()


def test_text_before_calls_of_another_wire_is_the_plan():
    request = Request("m", (USER, Message("assistant", (Text("I look."), CALL))), (WEATHER,))
    body, losses = COHERE.encode_request(request)
    assert body["messages"][1]["tool_plan"] == "I look." and "content" not in body["messages"][1]
    assert not list(losses)
    assert COHERE.decode_request(body).messages[1].text == "I look."


def test_several_texts_before_calls_are_joined_with_a_loss():
    request = Request("m", (USER, Message("assistant", (Text("One."), Text("Two."), CALL))), (WEATHER,))
    body, losses = COHERE.encode_request(request)
    assert body["messages"][1]["tool_plan"] == "One.\n\nTwo."
    assert [loss.path for loss in losses] == ["/messages/1/parts/0", "/messages/1/parts/1"]


@pytest.mark.parametrize("place", ["content", "tool_plan"])
def test_text_of_an_answer_stays_in_its_place(place):
    text = [{"type": "text", "text": "I look."}] if place == "content" else "I look."
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", place: text, "tool_calls": [call]}
    response = COHERE.decode_response({"id": "r", "finish_reason": "TOOL_CALL", "message": message})
    assert COHERE.encode_response(response).body["message"] == message
    events = [frame["type"] for frame in frames(streamed(response))]
    assert ("tool-plan-delta" in events) is (place == "tool_plan")
    assert ("content-delta" in events) is (place == "content")
    assert same(decoded(streamed(response)), response)


@pytest.mark.case("75")
@pytest.mark.parametrize("as_list", [False, True])
def test_calls_of_a_stream_are_single_objects_or_lists(as_list):
    def event(kind, call):
        return {"type": kind, "index": 0, "delta": {"message": {"tool_calls": [call] if as_list else call}}}

    data = sse(
        event("tool-call-start", {"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}),
        event("tool-call-delta", {"function": {"arguments": '{"x":'}}),
        event("tool-call-delta", {"function": {"arguments": "1}"}}),
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}},
    )
    [call] = toolwire.calls(data)
    assert (call.id, call.name, call.arguments) == ("a", "f", {"x": 1})
    assert all(
        type(frame["delta"]["message"]["tool_calls"]) is dict
        for frame in frames(streamed(decoded(data)))
        if frame["type"] in ("tool-call-start", "tool-call-delta")
    )


@pytest.mark.parametrize(
    ("flags", "strict", "lost"),
    [
        ((True, True), True, []),
        ((False, False), False, []),
        ((None, None), None, []),
        ((True, None), None, ["/tools/0/strict"]),
        ((True, False), None, ["/tools/0/strict"]),
    ],
)
def test_strictness_belongs_to_all_tools(flags, strict, lost):
    tools = tuple(Tool(f"f{number}", input_schema=CITY, strict=flag) for number, flag in enumerate(flags))
    body, losses = COHERE.encode_request(Request("m", (USER,), tools))
    assert body.get("strict_tools") is strict
    assert [loss.path for loss in losses] == lost


def test_tool_without_a_required_parameter_is_not_strict():
    tools = (Tool("f", input_schema=CITY, strict=True), Tool("now", input_schema={"type": "object"}, strict=True))
    body, losses = COHERE.encode_request(Request("m", (USER,), tools))
    assert "strict_tools" not in body
    assert [loss.path for loss in losses] == ["/tools/0/strict", "/tools/1/strict"]


def test_choice_of_a_tool_is_a_required_call_of_the_only_tool():
    request = Request("m", (USER,), (WEATHER, TIME), ToolChoice("tool", ("get_time",)))
    prepared = prepare(request, COHERE)
    body = COHERE.encode_request(prepared.request).body
    assert body["tool_choice"] == "REQUIRED"
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_time"]
    assert {(loss.path, loss.severity) for loss in prepared.losses} == {("/choice", "info"), ("/tools/0", "info")}


def test_choice_of_an_unknown_tool_offers_all_tools():
    request = Request("m", (USER,), (WEATHER, TIME), ToolChoice("tool", ("nope",)))
    body = COHERE.encode_request(prepare(request, COHERE).request).body
    assert "tool_choice" not in body and len(body["tools"]) == 2


def test_request_documents_are_a_serious_loss_on_other_wires():
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "documents": ["Oslo: 3°C"]}
    for target in ("openai_chat", "anthropic", "gemini"):
        losses = toolwire.translate_request(body, source="cohere", target=target, model="m").losses
        assert ("/documents", "error") in [(loss.path, loss.severity) for loss in losses]


def test_document_of_a_result_is_text_on_other_wires():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    document = {"type": "document", "document": {"id": "d", "data": {"celsius": 22}}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [document]},
    ]
    body = {"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]}
    chat = toolwire.translate_request(body, source="cohere", target="openai_chat", model="m")
    assert json.loads(chat.body["messages"][2]["content"][0]["text"]) == {"celsius": 22}
    assert "/messages/2/content/0/document/id" in [loss.path for loss in chat.losses]


PAGE = {"url": "https://example.com/w", "title": "Weather", "snippet": "Sunny, 22C"}
CITATION = {
    "start": 0,
    "end": 5,
    "text": "Sunny",
    "sources": [{"type": "document", "id": "d1", "document": PAGE}],
    "type": "TEXT_CONTENT",
}
CITED = {
    "id": "r",
    "finish_reason": "COMPLETE",
    "message": {
        "role": "assistant",
        "content": [{"type": "text", "text": "Sunny, 22C"}],
        "citations": [CITATION, {**CITATION, "sources": [{"type": "tool", "id": "a:0", "tool_output": {"x": "y"}}]}],
    },
}


@pytest.mark.parametrize("stream", [False, True])
def test_citation_of_a_page_reaches_other_wires(stream):
    """A citation of a source without an address is a loss."""
    if stream:
        translation = toolwire.translate_stream(source="cohere", target="openai_chat")
        data = streamed(COHERE.decode_response(CITED))
        found = frames(translation.feed(data) + translation.close())
        message, losses = found[-1]["choices"][0]["delta"], translation.losses
    else:
        whole = toolwire.translate(CITED, source="cohere", target="openai_chat", kind="response")
        message, losses = whole.body["choices"][0]["message"], whole.losses
    [annotation] = message["annotations"]
    cited = annotation["url_citation"]
    assert (cited["url"], cited["title"]) == (PAGE["url"], PAGE["title"])
    assert (cited["start_index"], cited["end_index"]) == (0, 5)
    assert any(loss.path.endswith("/citations/1") for loss in losses)


@pytest.mark.parametrize("stream", [False, True])
def test_citation_of_another_wire_is_a_document(stream):
    """The client of Cohere gets the pages that a search of another provider cited."""
    annotation = {
        "type": "url_citation",
        "url_citation": {"start_index": 0, "end_index": 5, "url": "https://e.com", "title": "E"},
    }
    message = {"role": "assistant", "content": "Sunny, 22C", "annotations": [annotation]}
    chat = {
        "id": "r",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    body = toolwire.translate(chat, source="openai_chat", target="cohere", kind="response").body
    [citation] = body["message"]["citations"]
    assert citation["sources"][0]["document"]["url"] == "https://e.com"
    if stream:
        kinds = [frame["type"] for frame in frames(streamed(COHERE.decode_response(body)))]
        assert kinds[-3:] == ["citation-start", "citation-end", "message-end"]


def test_position_of_a_citation_is_used_only_if_the_text_has_it():
    wrong = {**CITED, "message": {**CITED["message"], "citations": [{**CITATION, "start": 1, "end": 6}]}}
    chat = toolwire.translate(wrong, source="cohere", target="openai_chat", kind="response").body
    cited = chat["choices"][0]["message"]["annotations"][0]["url_citation"]
    assert (cited["start_index"], cited["end_index"]) == (0, 0)


def test_model_and_time_of_an_answer_are_reported():
    _, losses = COHERE.encode_response(Response("r", "m", (Text("x"),), Stop("stop"), created=1))
    assert [(loss.path, loss.severity) for loss in losses] == [("/model", "info"), ("/created", "info")]


@pytest.mark.parametrize(("word", "kind", "status"), [("ERROR", "server", 502), ("TIMEOUT", "timeout", 504)])
def test_answer_that_ends_in_an_error_is_a_fault(word, kind, status):
    data = sse({"type": "message-end", "delta": {"finish_reason": word, "error": "out of capacity"}})
    fault = decoded(data).fault
    assert (fault.kind, fault.status, fault.message) == (kind, status, "out of capacity")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "tool-call-delta", "index": 3, "delta": {"message": {"tool_calls": {"function": {"arguments": "{"}}}}},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"id": "a"}}}},
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": 5}}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": []}}},
        {"type": "content-start", "index": 0, "delta": []},
    ],
)
def test_invalid_event_is_a_protocol_error(event):
    with pytest.raises(toolwire.ProtocolError):
        decoded(sse(event, {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}))


def test_second_message_in_a_stream_is_refused():
    with pytest.raises(toolwire.ProtocolError, match="starts while message 'r' is open"):
        decoded(sse({"type": "message-start", "id": "r"}, {"type": "message-start", "id": "s"}))


def test_top_k_and_penalties_are_kept_in_their_ranges():
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "presence_penalty": -1, "top_p": 1}
    sent = toolwire.translate_request(body, source="openai_chat", target="cohere", model="m").body
    assert (sent["presence_penalty"], sent["p"]) == (0, 0.99)
    gemini = {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"topK": 1000}}
    assert toolwire.translate_request(gemini, source="gemini", target="cohere", model="m").body["k"] == 500


@pytest.mark.parametrize("stream", [False, True])
def test_client_calls_a_model_of_cohere(stream, monkeypatch):
    """The key is Cohere's own variable, and the answer names no model."""
    answer = Response("r", "", (Text("I look."), CALL), Stop("tool_calls"))

    async def ask():
        async with Upstream(answer) as upstream:
            monkeypatch.setenv("CO_API_KEY", "secret")
            monkeypatch.setenv("CO_API_URL", upstream.url)
            async with ModelClient("cohere/command-a-03-2025") as client:
                request = Request("", (USER,), (WEATHER,), ToolChoice("required"))
                response = fold([e async for e in client.stream(request)]) if stream else await client.ask(request)
            return response, upstream.requests[0]

    response, received = asyncio.run(ask())
    assert [(call.id, call.name, call.arguments) for call in response.calls] == [
        ("a", "get_weather", {"city": "Paris"})
    ]
    assert (received.path, received.wire) == ("/v2/chat", "cohere")
    assert received.headers["authorization"] == "Bearer secret"
    assert received.request.choice == ToolChoice("required")
