"""Settings of an earlier request lead to the same request, body and losses as settings that are read again."""

import json

import pytest
from hypothesis import given
from msgspec.structs import replace

from canonical import requests
from combinations import for_every
from recordings import WIRES
from toolwire.bridge import prepare
from toolwire.bridge.conversation import known_settings
from toolwire.bridge.conversation.known_settings import read_request
from toolwire.ir.errors import ProtocolError, ToolwireError
from toolwire.ir.losses import Losses
from toolwire.ir.request import Params
from toolwire.ir.text import to_bytes
from toolwire.stream.strict import parse_object
from toolwire.wire import get
from toolwire.wire.models.profiles import match_capabilities

SOURCES = [wire for wire in WIRES if get(wire).settings is not None]
MODELS = {"openai_chat": "gpt-4o", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-pro-preview"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}
TOOL = {"type": "function", "function": {"name": "run", "description": "Run it", "parameters": SCHEMA}}
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "tools": [TOOL], "temperature": 1}


def read(body, wire="openai_chat"):
    return read_request(get(wire), parse_object(json.dumps(body)))


def outcome(request, target, settings):
    """The body, the losses in their order, and the origin of each tool; or the error."""
    wire = get(target)
    model = match_capabilities(wire, MODELS.get(target, request.model)).capabilities
    try:
        prepared = prepare(request, wire, capabilities=model, settings=settings)
        body, losses = prepared.encode(wire)
    except ToolwireError as error:
        return str(error)
    tools = range(len(prepared.request.tools))
    return (
        to_bytes(body),
        [*prepared.losses],
        [*losses],
        [prepared.origin(f"/tools/{index}") for index in tools],
        prepared.exchange.original_name(None, "run"),
        prepared.exchange.lifts.keys(),
    )


@given(request=requests())
@for_every(source=SOURCES, target=WIRES)
def test_any_request_has_the_same_outcome_with_known_settings(source, target, request):
    try:
        body = prepare(request, source).encode(get(source)).body
    except ToolwireError:
        return
    data = to_bytes(body)
    expected = get(source).decode_request(parse_object(data))
    result = outcome(expected, target, None)
    for messages in (expected.messages, expected.messages[:1], expected.messages):
        decoded, settings = read_request(get(source), parse_object(data))
        assert to_bytes_of(decoded) == to_bytes_of(expected)
        if settings is None:  # they depend on the conversation
            continue
        assert settings.request.messages == ()
        other = replace(decoded, messages=messages)
        assert outcome(other, target, settings) == outcome(replace(expected, messages=messages), target, None)
    assert outcome(decoded, target, settings) == result


def to_bytes_of(request):
    """The JSON of a request, in which 1 and 1.0 differ."""
    return to_bytes([str(request), request.model])


def test_settings_are_shared_by_requests_of_other_conversations():
    first, second = read(BODY)[1], read({**BODY, "messages": [{"role": "user", "content": "Bye."}]})[1]
    assert first is second


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 1.0},
        {"temperature": None},
        {"tools": []},
        {"tools": None},
        {"user": "u"},
        {"tools": [{**TOOL, "function": {**TOOL["function"], "parameters": {**SCHEMA, "required": []}}}]},
        {"tools": [{"function": TOOL["function"], "type": "function"}]},
    ],
)
def test_settings_of_another_spelling_are_not_shared(change):
    body = {**BODY, **change}
    request, settings = read(body)
    assert settings is not read(BODY)[1]
    assert to_bytes_of(request) == to_bytes_of(get("openai_chat").decode_request(parse_object(json.dumps(body))))


def test_settings_with_a_default_of_one_and_of_a_fraction_are_not_shared():
    other = json.loads(json.dumps(BODY).replace('"default": 1', '"default": 1.0'))
    tool = read(other)[0].tools[0]
    assert type(tool.input_schema["properties"]["n"]["default"]) is float
    assert type(read(BODY)[0].tools[0].input_schema["properties"]["n"]["default"]) is int


@pytest.mark.parametrize(
    "change", [{"tools": {}}, {"tools": ""}, {"tools": [1]}, {"temperature": "x"}, {"messages": [1], "tools": 1}]
)
def test_invalid_document_raises_the_same_error_each_time(change):
    document = parse_object(json.dumps({**BODY, **change}))
    with pytest.raises(ProtocolError) as expected:
        get("openai_chat").decode_request(document)
    for _ in range(2):
        with pytest.raises(ProtocolError) as caught:
            read_request(get("openai_chat"), document)
        assert (str(caught.value), caught.value.pointer) == (str(expected.value), expected.value.pointer)


@pytest.mark.parametrize(
    ("wire", "change"),
    [
        ("openai_chat", {"messages": []}),
        ("anthropic", {"system": ""}),
        ("anthropic", {"system": None}),
        ("openai_responses", {"input": []}),
        ("openai_responses", {"instructions": ""}),
    ],
)
def test_empty_field_of_a_conversation_is_read_as_without_known_settings(wire, change):
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi."}],
        "input": [{"role": "user", "content": "Hi."}],
    }
    body = {name: value for name, value in body.items() if name == "model" or (name == "input") == ("res" in wire)}
    for document in (body, {**body, **change}, body):
        request, settings = read(document, wire)
        assert settings is not None
        assert to_bytes_of(request) == to_bytes_of(get(wire).decode_request(parse_object(json.dumps(document))))


def test_integer_of_more_than_64_bits_is_read():
    request, settings = read({**BODY, "seed": 10**30})
    assert request.params.seed == 10**30
    assert read({**BODY, "seed": 10**30})[1] is settings


def test_known_settings_are_bounded():
    settings = [read({**BODY, "user": str(number)})[1] for number in range(100)]
    assert read({**BODY, "user": "99"})[1] is settings[-1]
    assert read({**BODY, "user": "0"})[1] is not settings[0]
    long = {**BODY, "user": "x" * 10_000}
    assert read(long)[1] is not read(long)[1]


def test_results_of_other_parameters_models_and_targets_are_not_shared():
    request, settings = read(BODY)
    chosen = [
        (replace(request, params=Params(temperature=temperature)), target)
        for temperature in (0.5, 1, 1.0, 5)
        for target in ("anthropic", "anthropic@2023-06-01", "gemini")
    ]
    expected = [outcome(other, target, None) for other, target in chosen]
    assert [outcome(other, target, settings) for other, target in chosen] == expected
    assert [outcome(other, target, settings) for other, target in chosen] == expected


def test_changed_tools_do_not_use_known_settings():
    request, settings = read(BODY)
    other = replace(request, tools=(replace(request.tools[0], name="walk"),))
    assert b"walk" in outcome(other, "anthropic", settings)[0]


def test_names_and_losses_of_one_request_are_not_in_the_next():
    request, settings = read({**BODY, "top_k": 1, "logit_bias": {"1": 1}})
    first = prepare(request, "anthropic", settings=settings)
    first.losses.add("/x", "x", "dropped", "x")
    first.exchange._names.to_wire(None, "another name")
    second = prepare(request, "anthropic", settings=settings)
    assert "x" not in {loss.path for loss in second.losses}
    assert (None, "another name") not in second.exchange._names.originals


def test_tools_are_read_once(monkeypatch):
    counted = []
    known_settings._read_tools.cache_clear()
    original = known_settings._ToolsEntry
    monkeypatch.setattr(known_settings, "_ToolsEntry", lambda tools: counted.append(tools) or original(tools))
    for user in ("a", "b", "a"):
        read({**BODY, "user": user})
    assert len(counted) == 1
    assert isinstance(Losses().copy(), Losses)
