"""Schemas on their way to a provider, and arguments on their way back."""

import json

import pytest

import toolwire
from toolwire.ir import InvalidArguments, fold
from toolwire.schema import lower, validator, violations
from toolwire.testing import every_split
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get

USER = {"role": "user", "content": "hi"}
TICKET = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 120},
        "severity": {"type": "string", "enum": ["low", "high"]},
        "component": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["title", "severity"],
}
STRICT = ["openai_strict", "anthropic_strict", "gemini", "gemini_json_schema"]


def anthropic_request(schema, strict=None, messages=(USER,), name="f"):
    declaration = {"name": name, "input_schema": schema}
    if strict is not None:
        declaration["strict"] = strict
    return {"model": "m", "max_tokens": 9, "messages": list(messages), "tools": [declaration]}


def chat_answer(arguments):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"id": "r", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


@pytest.mark.case("4")
def test_optional_property_of_a_strict_tool_is_sent_as_nullable_and_null_is_removed():
    request = anthropic_request(TICKET, strict=True)
    sent = toolwire.translate(request, source="anthropic", target="openai_chat").body["tools"][0]["function"]
    assert sent["strict"] is True
    assert sent["parameters"]["required"] == ["title", "severity", "component", "labels"]
    assert sent["parameters"]["properties"]["component"] == {"type": ["string", "null"]}
    answer = chat_answer({"title": "t", "severity": "low", "component": None, "labels": [{"key": "a", "value": "b"}]})
    back = toolwire.translate(answer, source="openai_chat", target="anthropic", kind="response", request=request).body
    assert back["content"][0]["input"] == {"title": "t", "severity": "low", "labels": {"a": "b"}}


def test_earlier_calls_are_encoded_for_the_lowered_schema():
    said = {"title": "t", "severity": "low", "labels": {"a": "b"}}
    messages = [
        USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": said}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}]},
    ]
    body = toolwire.translate(
        anthropic_request(TICKET, strict=True, messages=messages), source="anthropic", target="openai_chat"
    ).body
    written = json.loads(body["messages"][1]["tool_calls"][0]["function"]["arguments"])
    assert written == {"title": "t", "severity": "low", "component": None, "labels": [{"key": "a", "value": "b"}]}


ARGUMENTS = {
    "component": None,
    "title": 'a "quoted" é \U0001f600 title',
    "labels": [{"key": "a", "value": "b"}],
    "severity": "low",
}
LIFTED = {"title": ARGUMENTS["title"], "labels": {"a": "b"}, "severity": "low"}


def chat_stream(pieces):
    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({'id': 'r', 'model': 'm', 'choices': [choice]})}\n\n".encode()

    start = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    deltas = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
    return [chunk({"tool_calls": [start]}), *deltas, chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


@pytest.mark.parametrize("text", [json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, ensure_ascii=False, indent=1)])
def test_streamed_arguments_are_restored_at_every_split(text):
    request = anthropic_request(TICKET, strict=True)
    for pieces in [[text], list(text), *[[text[:at], text[at:]] for at in range(1, len(text), 3)]]:
        stream = toolwire.translate_stream(source="openai_chat", target="anthropic", request=request)
        written = b"".join(map(stream.feed, chat_stream(pieces))) + stream.close()
        (call,) = fold(decode_stream(get("anthropic"), [written])).calls
        assert call.arguments == LIFTED


def test_string_argument_is_streamed_before_the_call_ends():
    request = anthropic_request(TICKET, strict=True)
    stream = toolwire.translate_stream(source="openai_chat", target="anthropic", request=request)
    start, first, *_ = chat_stream(['{"component": null, "title": "a long ti'])
    assert b"a long ti" in stream.feed(start) + stream.feed(first)


@pytest.mark.case("76")
@pytest.mark.parametrize("name", STRICT)
def test_list_of_types_is_lowered_and_restored(name):
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    lowered = lower(schema, name)
    assert lowered.conforms
    for value in ({"a": "x"}, {"a": None}):
        assert lowered.lift(lowered.encode(value)) in (value, {})


@pytest.mark.case("77")
@pytest.mark.parametrize("name", ["openai_strict", "anthropic_strict", "gemini"])
def test_a_map_never_becomes_an_empty_object(name):
    schema = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}}}
    lowered = lower(schema, name)
    assert "key" in json.dumps(lowered.schema)
    closed = [("", "open object")] if name != "gemini" else []  # strict schemas close every object
    assert [(loss.path, loss.concept) for loss in lowered.losses] == [("/properties/m", "map"), *closed]
    assert lowered.lift(lowered.encode({"m": {"a": 1}})) == {"m": {"a": 1}}


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/n"}},
    "required": ["root"],
    "$defs": {
        "n": {
            "type": "object",
            "properties": {"v": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
            "required": ["v"],
        }
    },
}


@pytest.mark.case("78")
@pytest.mark.parametrize("name", ["openai_strict", "anthropic_strict", "gemini"])
def test_recursive_schema_is_lowered_and_its_values_restored(name):
    lowered = lower(TREE, name)
    value = {"root": {"v": "1", "kids": [{"v": "2", "kids": [{"v": "3", "kids": [{"v": "4", "kids": []}]}]}]}}
    assert lowered.conforms
    assert lowered.lift(lowered.encode(value)) == value
    told = [loss for loss in lowered.losses if loss.severity != "info"]
    assert bool(told) is (name != "openai_strict")


@pytest.mark.case("79")
def test_numeric_enum_is_sent_as_strings_to_gemini():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}}, "required": ["n"]}
    lowered = lower(schema, "gemini")
    assert lowered.schema["properties"]["n"] == {"type": "string", "enum": ["1", "2"]}
    assert lowered.lift({"n": "2"}) == {"n": 2}


@pytest.mark.case("80")
@pytest.mark.parametrize("name", STRICT)
def test_description_beside_a_reference_is_kept(name):
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/P", "description": "the place"}},
        "required": ["a"],
        "$defs": {"P": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    }
    lowered = lower(schema, name)
    assert lowered.conforms and "the place" in json.dumps(lowered.schema["properties"]["a"])


@pytest.mark.case("81")
@pytest.mark.parametrize("name", ["openai_strict", "anthropic_strict", "gemini"])
def test_all_of_two_objects_is_merged_into_one_object(name):
    one = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    two = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    lowered = lower({"type": "object", "properties": {"v": {"allOf": [one, two]}}, "required": ["v"]}, name)
    assert set(lowered.schema["properties"]["v"]["properties"]) == {"a", "b"}
    assert not [loss for loss in lowered.losses if loss.severity != "info"]


@pytest.mark.case("81b")
@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "gemini"])
def test_root_union_is_lowered_to_an_object_and_restored(target):
    schema = {
        "oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    }
    dialect = get(target).dialect
    lowered = lower(schema, dialect)
    assert lowered.schema["type"] == "object" and not violations(lowered.schema, lowered.dialect)
    assert lowered.lift(lowered.encode({"b": 1})) == {"b": 1}


@pytest.mark.case("81b")
@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
def test_alternative_required_properties_are_written_into_the_description(name):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    lowered = lower(schema, name)
    assert set(lowered.schema["properties"]) == {"a", "b"} and "anyOf" not in lowered.schema
    assert '"required":["a"]' in lowered.schema["description"]
    assert ("/anyOf", "weakened") in {(loss.path, loss.action) for loss in lowered.losses}
    assert not validator(schema).accepts(lowered.lift({}))


@pytest.mark.case("81c")
def test_tool_whose_schema_cannot_be_lowered_is_dropped_alone():
    def declared(name, schema):
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    endless = {"type": "object", "properties": {"a": {"type": "number", "default": float("nan")}}}
    body = {"model": "m", "messages": [USER], "tools": [declared("fine", TICKET), declared("broken", endless)]}
    translation = toolwire.translate(body, source="openai_chat", target="anthropic")
    assert [tool["name"] for tool in translation.body["tools"]] == ["fine"]
    assert [(loss.path, loss.severity) for loss in translation.losses if loss.concept == "tool"] == [
        ("/tools/1", "error")
    ]


def test_deeply_nested_schema_is_lowered():
    deep = {"type": "object", "properties": {}}
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    assert lower(deep, "gemini").schema["type"] == "object"


@pytest.mark.case("81d")
def test_exclusive_bounds_become_inclusive_on_gemini():
    whole = {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}}}
    assert lower(whole, "gemini").schema["properties"]["n"] == {"type": "integer", "minimum": 1}
    broken = {"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": 0}}}
    lowered = lower(broken, "gemini")
    assert lowered.schema["properties"]["n"]["minimum"] == 0
    assert [loss.path for loss in lowered.losses] == ["/properties/n/exclusiveMinimum"]


@pytest.mark.case("81e")
@pytest.mark.parametrize("name", ["openai_strict", "anthropic_strict", "gemini"])
def test_array_without_items_gets_an_items_schema(name):
    lowered = lower({"type": "object", "properties": {"l": {"type": "array"}}, "required": ["l"]}, name)
    assert lowered.schema["properties"]["l"]["items"]["type"] == "string"
    assert lowered.lift(lowered.encode({"l": [1, {"a": None}, "x"]})) == {"l": [1, {"a": None}, "x"]}


@pytest.mark.case("81f")
def test_unsupported_annotations_are_not_sent_to_gemini():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "x",
        "type": "object",
        "properties": {"a": {"type": "string", "title": "A", "x-order": 1, "optional": True}},
        "additionalProperties": False,
    }
    assert lower(schema, "gemini").schema == {
        "type": "object",
        "properties": {"a": {"type": "string", "title": "A"}},
    }


@pytest.mark.case("82")
def test_constraint_outside_the_dialect_is_checked_on_returned_arguments():
    schema = {"type": "object", "properties": {"n": {"type": "number", "minimum": 0.5}}, "required": ["n"]}
    lowered = lower(schema, "anthropic_strict")
    assert "minimum" not in lowered.schema["properties"]["n"]
    validator(schema).check(lowered.lift({"n": 1}))
    with pytest.raises(InvalidArguments, match=r"/n: 0.1 is less than the minimum of 0.5"):
        validator(schema).check(lowered.lift({"n": 0.1}))


@pytest.mark.case("89")
def test_keywords_ignored_by_ollama_are_written_into_the_description():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "how many"}}}
    assert lower(schema, "ollama").schema["properties"]["n"]["description"] == "how many (minimum: 1)"
    counts = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}}}
    told = lower(counts, "ollama").schema["properties"]["m"]["description"]
    assert told == 'additionalProperties: {"type":"integer"}'


def test_strict_is_dropped_with_a_loss_when_the_schema_exceeds_the_limits():
    many = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(60)}}
    translation = toolwire.translate(
        {
            "model": "m",
            "messages": [USER],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": many, "strict": True}}],
        },
        source="openai_chat",
        target="anthropic",
    )
    assert "strict" not in translation.body["tools"][0]
    assert translation.body["tools"][0]["input_schema"] == many
    assert ("/tools/0/function/strict", "strict") in {(loss.path, loss.concept) for loss in translation.losses}


def test_costliest_tool_loses_strict_when_the_request_exceeds_its_budget():
    def tool(name, count):
        properties = {f"p{number}": {"type": "string"} for number in range(count)}
        parameters = {"type": "object", "properties": properties, "additionalProperties": False}
        return {"type": "function", "function": {"name": name, "strict": True, "parameters": parameters}}

    body = {"model": "m", "messages": [USER], "tools": [tool("small", 5), tool("large", 20), tool("middle", 10)]}
    translation = toolwire.translate(body, source="openai_chat", target="anthropic")
    assert [declared.get("strict") for declared in translation.body["tools"]] == [True, None, True]


def test_loss_path_is_correct_for_a_property_named_like_a_wire_field():
    schema = {"type": "object", "properties": {"input_schema": {"type": "number", "minimum": 0.5}}}
    body = {
        "model": "m",
        "messages": [USER],
        "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}],
    }
    paths = [loss.path for loss in toolwire.translate(body, source="openai_chat", target="anthropic").losses]
    assert "/tools/0/function/parameters/properties/input_schema/minimum" in paths


def test_restored_arguments_are_equal_at_every_split_of_the_stream():
    request = anthropic_request(TICKET, strict=True)
    data = b"".join(chat_stream([json.dumps(ARGUMENTS)]))
    for first, second in list(every_split(data))[::7]:
        stream = toolwire.translate_stream(source="openai_chat", target="anthropic", request=request)
        written = stream.feed(first) + stream.feed(second) + stream.close()
        assert fold(decode_stream(get("anthropic"), [written])).calls[0].arguments == LIFTED
