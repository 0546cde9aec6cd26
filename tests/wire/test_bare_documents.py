"""Documents without the fields that identify their wire, as programs store them."""

import pytest

from toolwire import detect, translate_response, translate_tools, wire

BARE = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
ANSWER = {"content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "x"}}], "stop_reason": "tool_use"}


@pytest.mark.finding("U14")
@pytest.mark.parametrize("document", [BARE, [BARE], {"tools": [BARE]}, {"name": "f", "parameters": {}}])
def test_bare_functions_are_detected_as_tools(document):
    found = detect(document)
    assert (found.wire, found.kind) == ("openai_chat", "tools")


@pytest.mark.finding("U14")
@pytest.mark.parametrize("target", ["anthropic", "gemini", "ollama", "openai_responses", "mcp"])
def test_bare_functions_are_translated(target):
    translated = translate_tools([BARE], source="openai_chat", target=target)
    assert all(loss.severity == "info" for loss in translated.losses)
    assert "'a'" in str(translated.body)


def test_bare_function_is_written_as_it_was_read():
    chat = wire.get("openai_chat")
    given = {**BARE, "unknown": 1, "strict": True}
    written, losses = chat.encode_tools(chat.decode_tools([given]))
    assert (written, list(losses)) == ([given], [])


def test_loss_of_a_bare_function_points_into_it():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}
    translated = translate_tools([{**BARE, "parameters": schema}], source="openai_chat", target="gemini")
    assert {loss.path for loss in translated.losses} <= {"/0/parameters/properties/a/pattern", "/0/parameters"}


@pytest.mark.finding("U14")
@pytest.mark.parametrize("document", [ANSWER, {**ANSWER, "role": "assistant"}])
def test_anthropic_answer_without_constants_is_detected(document):
    found = detect(document)
    assert (found.wire, found.kind) == ("anthropic", "response")
    answer = translate_response(document, source="anthropic", target="openai_chat").body
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"


@pytest.mark.parametrize(
    ("document", "wire_name"),
    [
        ({**BARE, "type": "function"}, "openai_responses"),
        ({"name": "f", "input_schema": {}}, "anthropic"),
        ({"name": "f", "inputSchema": {}}, "mcp"),
        ({"name": "f", "parametersJsonSchema": {}}, "gemini"),
    ],
)
def test_own_fields_decide_before_the_bare_shape(document, wire_name):
    assert detect([document]).wire == wire_name
