"""A forced call that is sent as the schema of the answer.

The answers are composed: the envelope of the lines is that of tests/vectors/wire/ollama.json, the text is a call as the
grammar of the schema allows it.
"""

import json
from random import Random

import pytest

import toolwire
from toolwire.bridge.translation.required_call import call_schema
from toolwire.ir import Losses, Message, OutputFormat, Response, Stop, fold
from toolwire.schema import validator
from toolwire.testing import bytewise, every_split, random_chunks, same
from toolwire.wire import ModelCapabilities, get
from toolwire.wire.models import vendors
from toolwire.wire.models.vendor_codecs import vendor_codec

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}}
CITY["required"] = ["city"]
TOOLS = (
    toolwire.Tool("weather.now", "The weather in a city", CITY),
    toolwire.Tool("clock", "The time"),
    toolwire.Tool("run", "Run code", kind="freeform"),
    # any value: its arguments have another shape on Ollama
    toolwire.Tool("note", "Keep a value", {"type": "object", "properties": {"value": {}}}),
)
USER = Message("user", (toolwire.Text("How is the weather in Paris?"),))
REQUIRED = toolwire.ToolChoice("required")
HEAD = {"model": "qwen3", "created_at": "2026-08-21T18:48:22.196249Z"}
END = {"done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 18}
CLIENTS = ("openai_chat", "anthropic", "gemini", "openai_responses")


def ask(choice=REQUIRED, tools=TOOLS, parallel=None, **fields):
    return toolwire.Request("qwen3", (USER,), tools, choice, parallel, **fields)


def body_of(request, wire="ollama", **options):
    prepared = toolwire.prepare(request, wire, **options)
    body, more = get(wire).encode_request(prepared.request)
    return body, [*prepared.losses, *more], prepared


def whole(content, **end):
    return {**HEAD, "message": {"role": "assistant", "content": content}, **END, **end}


def lines(pieces, **end):
    said = [{**HEAD, "message": {"role": "assistant", "content": one}, "done": False} for one in pieces]
    last = {**HEAD, "message": {"role": "assistant", "content": ""}, **END, **end}
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*said, last])


def restore_stream(prepared, chunks, client="openai_chat"):
    decoder = get("ollama").stream_decoder()
    restorer = prepared.exchange.make_restorer(client=get(client).capabilities)
    events = [event for data in chunks for event in decoder.feed(data)] + decoder.close()
    return fold([restored for event in events for restored in restorer.feed(event)])


def wire_name(prepared, number):
    return prepared.request.tools[number].name


@pytest.mark.parametrize("parallel", [None, False, True])
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (REQUIRED, ["weather.now", "clock", "run", "note"]),
        (toolwire.ToolChoice("tool", ("clock",)), ["clock"]),
        (toolwire.ToolChoice("allowed", ("clock", "note"), True), ["clock", "note"]),
    ],
)
def test_forced_choice_is_sent_as_the_schema_of_the_answer(choice, names, parallel):
    body, losses, prepared = body_of(ask(choice, parallel=parallel))
    schema = body["format"]
    if parallel:
        assert (schema["type"], schema["minItems"]) == ("array", 1)
        schema = schema["items"]
    shapes = schema.get("anyOf", [schema])
    called = [prepared.exchange.original_name(None, shape["properties"]["name"]["const"])[1] for shape in shapes]
    assert called == names
    assert "tool_choice" not in body and body["tools"]
    assert [loss.severity for loss in losses if loss.path in ("/choice", "/parallel")].count("error") == 0


def test_grammar_has_the_constraints_that_a_declaration_of_ollama_lacks():
    body, _, _ = body_of(ask())
    arguments = body["format"]["anyOf"][0]["properties"]["arguments"]
    assert arguments["properties"]["days"] == {"type": "integer", "minimum": 1}
    assert "minimum" not in body["tools"][0]["function"]["parameters"]["properties"]["days"]


def test_unenforced_keywords_are_reported():
    listed = {
        "type": "object",
        "properties": {"n": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}},
    }
    _, losses, _ = body_of(ask(tools=(toolwire.Tool("f", "", listed),)))
    [loss] = [loss for loss in losses if loss.concept == "constraints of the call"]
    assert (loss.path, loss.action) == ("/tools/0/input_schema", "weakened")
    assert "uniqueItems" in loss.detail


def test_definitions_are_at_the_root_and_belong_to_their_tool():
    def tree(kind):
        node = {"type": "object", "properties": {"value": {"type": kind}, "next": {"$ref": "#/$defs/node"}}}
        return {"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}

    tools = (toolwire.Tool("a", "", tree("string")), toolwire.Tool("b", "", tree("integer")))
    described = ModelCapabilities(choice_by_schema="declared")
    body, _, _ = body_of(ask(tools=tools), "openai_chat", capabilities=described)
    schema = body["response_format"]["json_schema"]["schema"]
    check = validator(schema)
    assert not check.problems({"name": "a", "arguments": {"root": {"value": "x", "next": {"value": "y"}}}})
    assert not check.problems({"name": "b", "arguments": {"root": {"value": 1, "next": {"value": 2}}}})
    assert check.problems({"name": "a", "arguments": {"root": {"value": "x", "next": {"value": 2}}}})
    assert check.problems({"name": "b", "arguments": {"root": {"value": "x"}}})
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("kind", "arguments", "raw"),
    [
        (0, {"city": "Paris"}, None),
        (1, {}, None),
        (2, {"input": "print(1)"}, "print(1)"),
        (3, {"value": "[1, 2]"}, None),
    ],
)
def test_text_becomes_the_call(kind, arguments, raw):
    _, _, prepared = body_of(ask())
    text = json.dumps({"name": wire_name(prepared, kind), "arguments": arguments})
    answer = prepared.exchange.restore(get("ollama").decode_response(whole(text)))
    [call] = answer.parts
    assert (call.name, call.state) == (TOOLS[kind].name, "complete")
    assert call.id
    if raw is not None:
        assert (call.kind, call.raw) == ("freeform", raw)
    elif kind == 3:
        assert call.arguments == {"value": [1, 2]}  # in the shape of the original schema
    else:
        assert call.arguments == arguments
    assert answer.stop.reason == "tool_calls"


def test_array_becomes_parallel_calls_with_distinct_ids():
    _, _, prepared = body_of(ask(parallel=True))
    calls = [{"name": wire_name(prepared, 0), "arguments": {"city": city}} for city in ("Paris", "Rome")]
    answer = prepared.exchange.restore(get("ollama").decode_response(whole(json.dumps(calls))))
    assert [call.arguments["city"] for call in answer.calls] == ["Paris", "Rome"]
    assert len({call.id for call in answer.calls}) == 2


def test_ids_differ_from_those_of_the_history():
    _, _, first = body_of(ask())
    said = get("ollama").decode_response(whole(json.dumps({"name": wire_name(first, 1), "arguments": {}})))
    call = first.exchange.restore(said).calls[0]
    history = (USER, Message("assistant", (call,)), Message("tool", (toolwire.ToolResult(call.id, "clock", ()),)))
    body, _, again = body_of(toolwire.Request("qwen3", history, TOOLS, REQUIRED))
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "clock"  # native in the history
    assert again.exchange.restore(said).calls[0].id != call.id


@pytest.mark.parametrize("client", CLIENTS)
def test_stream_and_whole_answer_are_equal_in_every_chunking(client):
    _, _, prepared = body_of(ask(parallel=True))
    arguments = {"city": 'Saint-"Denis" {é🌍}\n', "days": 3}
    text = json.dumps(
        [{"name": wire_name(prepared, 0), "arguments": arguments}, {"name": "clock", "arguments": {}}],
        ensure_ascii=False,
    )
    capabilities = get(client).capabilities
    answer = prepared.exchange.restore(get("ollama").decode_response(whole(text)), client=capabilities)
    assert [call.arguments for call in answer.calls] == [arguments, {}]
    assert restore_stream(prepared, bytewise(lines(list(text))), client).parts == answer.parts
    for first, second in [(text[:at], text[at:]) for at in range(len(text))]:
        streamed = restore_stream(prepared, [lines([first, second])], client)
        assert (streamed.parts, streamed.stop) == (answer.parts, answer.stop)


def test_bytes_may_be_split_anywhere():
    _, _, prepared = body_of(ask())
    data = lines(['{"name": "clo', 'ck", "argu', 'ments": {}}'])
    expected = restore_stream(prepared, [data])
    assert [call.name for call in expected.calls] == ["clock"]
    for chunks in every_split(data):
        assert restore_stream(prepared, chunks) == expected
    random = Random(14)
    for _ in range(50):
        assert same(restore_stream(prepared, random_chunks(data, random, 7)), expected)


@pytest.mark.parametrize("client", CLIENTS)
def test_native_calls_pass_through(client):
    """Ollama parses bare JSON itself if the template of the model writes calls so."""
    _, _, prepared = body_of(ask())
    call = {"id": "call_a1", "function": {"index": 0, "name": wire_name(prepared, 0), "arguments": {"city": "Paris"}}}
    said = {**HEAD, "message": {"role": "assistant", "content": "", "tool_calls": [call]}, **END}
    losses = Losses()
    answer = prepared.exchange.restore(get("ollama").decode_response(said), losses, get(client).capabilities)
    assert [(one.id, one.name, one.arguments) for one in answer.calls] == [
        ("call_a1", "weather.now", {"city": "Paris"})
    ]
    assert (answer.stop.reason, list(losses)) == ("tool_calls", [])
    streamed = restore_stream(prepared, [json.dumps(said).encode()], client)
    assert streamed.parts == answer.parts


def test_thinking_before_the_call_is_kept():
    _, _, prepared = body_of(ask())
    said = whole('{"name": "clock", "arguments": {}}')
    said["message"]["thinking"] = "The time, then."
    answer = prepared.exchange.restore(get("ollama").decode_response(said))
    assert [type(part).__name__ for part in answer.parts] == ["Reasoning", "ToolCall"]


@pytest.mark.parametrize("client", CLIENTS)
def test_truncated_call_is_not_complete(client):
    """A client that gets objects would run it, so there the answer has another end."""
    _, _, prepared = body_of(ask())
    text = '{"name": "clock", "arguments": {"zone": "Eur'
    answer = prepared.exchange.restore(
        get("ollama").decode_response(whole(text, done_reason="length")), client=get(client).capabilities
    )
    assert [call.state for call in answer.calls] == ["truncated"]
    assert answer.stop == Stop("length")
    assert restore_stream(prepared, [lines(list(text), done_reason="length")], client).parts == answer.parts


@pytest.mark.parametrize("text", ["It is sunny.", '{"city": "Paris"}', ""])
def test_answer_without_a_call_is_text_and_a_loss(text):
    """Ollama does not apply the schema if a thinking model answers without thinking."""
    _, _, prepared = body_of(ask())
    for said in (get("ollama").decode_response(whole(text)), fold_lines(text)):
        losses = Losses()
        answer = prepared.exchange.restore(said, losses)
        assert (answer.text, answer.calls) == (text, ())
        assert [(loss.path, loss.concept, loss.severity) for loss in losses] == [("/parts", "required call", "error")]


def fold_lines(text):
    decoder = get("ollama").stream_decoder()
    return fold([*decoder.feed(lines(list(text))), *decoder.close()])


def test_refused_answer_is_no_loss():
    _, _, prepared = body_of(ask())
    losses = Losses()
    prepared.exchange.restore(Response(parts=(), stop=Stop("length")), losses)
    assert not list(losses)


def test_structured_output_keeps_the_loss():
    """There is one schema of the answer, and the request already has one."""
    output = OutputFormat("json_schema", {"type": "object", "properties": {"a": {"type": "string"}}}, strict=True)
    body, losses, prepared = body_of(ask(output=output))
    assert body["format"]["properties"].keys() == {"a"}
    assert [loss.concept for loss in losses if loss.severity == "error"] == ["tool choice required"]
    assert prepared.exchange.required is None


@pytest.mark.parametrize("choice", [None, toolwire.ToolChoice("auto"), toolwire.ToolChoice("none")])
def test_free_choice_has_no_schema(choice):
    body, _, prepared = body_of(ask(choice))
    assert "format" not in body
    assert prepared.exchange.required is None


def test_ollamas_chat_endpoint_gets_the_schema_as_response_format():
    codec = vendor_codec(vendors.find("ollama-chat"))
    prepared = toolwire.prepare(ask(), codec)
    body, _ = codec.encode_request(prepared.request)
    assert "tool_choice" not in body
    assert len(body["response_format"]["json_schema"]["schema"]["anyOf"]) == len(TOOLS)


def test_model_whose_template_drops_tools_gets_them_in_the_instructions():
    described = ModelCapabilities(choice_by_schema="stated")
    body, _, prepared = body_of(ask(), "openai_chat", capabilities=described)
    assert "The weather in a city" in body["messages"][0]["content"]
    assert body["messages"][0]["role"] == "system"
    assert body["response_format"]["type"] == "json_schema"
    assert "tool_choice" not in body
    text = json.dumps({"name": wire_name(prepared, 0), "arguments": {"city": "Rome"}})
    message = {"role": "assistant", "content": text}
    said = {
        "id": "1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    answer = prepared.exchange.restore(get("openai_chat").decode_response(said))
    assert [call.arguments for call in answer.calls] == [{"city": "Rome"}]


@pytest.mark.parametrize("client", CLIENTS)
def test_translated_documents_have_the_forced_call(client):
    request = ask(toolwire.ToolChoice("tool", ("clock",)))
    sent, _, _ = body_of(request, client)
    there = toolwire.translate(sent, source=client, target="ollama", model="qwen3")
    assert there.body["format"]["properties"]["name"] == {"const": "clock"}
    text = '{"name": "clock", "arguments": {}}'
    back = toolwire.translate(whole(text), source="ollama", target=client, kind="response", request=sent)
    assert [call.name for call in get(client).decode_response(back.body).calls] == ["clock"]
    stream = toolwire.translate_stream(source="ollama", target=client, request=sent)
    data = b"".join([*map(stream.feed, bytewise(lines(list(text)))), stream.close()])
    decoder = get(client).stream_decoder()
    assert [call.name for call in fold([*decoder.feed(data), *decoder.close()]).calls] == ["clock"]


def test_reference_of_a_parameter_that_is_named_like_a_keyword_is_moved():
    schema = {
        "type": "object",
        "properties": {"default": {"$ref": "#/$defs/Colour"}},
        "$defs": {"Colour": {"enum": ["red", "blue"]}},
    }
    found = call_schema([toolwire.Tool("paint", input_schema=schema)], parallel=False)
    assert found["properties"]["arguments"]["properties"]["default"] == {"$ref": "#/$defs/tool0_Colour"}
    assert found["$defs"] == {"tool0_Colour": {"enum": ["red", "blue"]}}
