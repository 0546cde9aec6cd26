"""`calls` and `detect` read an assistant's message without the response around it, in every wire's form."""

import json

import pytest

import toolwire
from tables import every_case
from toolwire.bridge.translation.detection import detect
from toolwire.ir.errors import ProtocolError, ToolwireError
from toolwire.ir.response import Stop

ARGUMENTS = {"city": "Paris"}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": json.dumps(ARGUMENTS)}}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "look", "input": ARGUMENTS}
FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": json.dumps(ARGUMENTS)}
OUTPUT_TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]}
BARE = {
    "a Chat message": ("openai_chat", {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}),
    "a Chat message with text": ("openai_chat", {"role": "assistant", "content": "See", "tool_calls": [CHAT_CALL]}),
    "a Chat message with the old call": (
        "openai_chat",
        {"role": "assistant", "content": None, "function_call": CHAT_CALL["function"]},
    ),
    "Gemini content": ("gemini", {"role": "model", "parts": [{"functionCall": {"name": "look", "args": ARGUMENTS}}]}),
    "an Anthropic message": (
        "anthropic",
        {"role": "assistant", "content": [{"type": "text", "text": "See"}, TOOL_USE]},
    ),
    "Anthropic content": ("anthropic", [{"type": "text", "text": "Let me see."}, TOOL_USE]),
    "an Anthropic block": ("anthropic", TOOL_USE),
    "Responses output": (
        "openai_responses",
        [{"type": "reasoning", "id": "r", "summary": []}, OUTPUT_TEXT, FUNCTION_CALL],
    ),
    "a Responses item": ("openai_responses", FUNCTION_CALL),
    "an Ollama message": (
        "ollama",
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": ARGUMENTS}}]},
    ),
}


@pytest.mark.finding("LE7")
@every_case("text", [False, True], ids=["parsed", "text"])
@every_case(("wire", "body"), BARE.values(), ids=list(BARE))
def test_bare_message_is_detected_and_its_calls_are_read(wire, body, text):
    body = json.dumps(body) if text else body
    assert detect(body) == toolwire.bridge.Detected(wire, "message")
    for found in (toolwire.calls(body), toolwire.calls(body, wire)):
        ((name, arguments, state),) = [(call.name, call.arguments, call.state) for call in found]
        assert (name, arguments, state) == ("look", ARGUMENTS, "complete")
        assert all(call.id for call in found)


@pytest.mark.finding("LE7")
@every_case(
    "body",
    [
        {"role": "assistant"},
        {"role": "user", "content": "hi"},
        {"role": "tool", "content": "sun", "tool_call_id": "c1"},
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
        [{"type": "no such type"}],
        {"type": "no such type"},
        [],
        [[]],
        [1],
        {"role": "model", "parts": [{"functionCall": 1}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": 1}}]},
        {"role": []},
        {"type": []},
    ],
)
def test_other_documents_are_refused(body):
    with pytest.raises(ProtocolError):
        detect(body)
    for wire in (None, *toolwire.wire.names()):
        with pytest.raises(ToolwireError):
            toolwire.calls(body, wire)


@pytest.mark.finding("LE7")
def test_truncated_arguments_of_a_bare_message_are_not_complete():
    call = {**CHAT_CALL, "function": {"name": "look", "arguments": '{"city": "Pa'}}
    (found,) = toolwire.calls({"role": "assistant", "content": None, "tool_calls": [call]})
    assert found.state == "truncated"


@pytest.mark.finding("LE7")
def test_messages_of_the_official_sdks_are_read():
    anthropic = pytest.importorskip("anthropic.types")
    openai = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    genai = pytest.importorskip("google.genai.types")
    chat = openai.ChatCompletionMessage(role="assistant", tool_calls=[CHAT_CALL])
    blocks = [anthropic.ToolUseBlock(**TOOL_USE, caller={"type": "direct"})]
    output = [responses.ResponseFunctionToolCall(**FUNCTION_CALL)]
    content = genai.Content(role="model", parts=[genai.Part.from_function_call(name="look", args=ARGUMENTS)])
    for body, wire in (
        (chat, "openai_chat"),
        (blocks, "anthropic"),
        (blocks[0], "anthropic"),
        (output, "openai_responses"),
        (content, "gemini"),
        (chat.model_dump(), "openai_chat"),
        ([block.model_dump() for block in blocks], "anthropic"),
        ([item.model_dump() for item in output], "openai_responses"),
        (content.model_dump(mode="json"), "gemini"),
        (content.model_dump(mode="json", by_alias=True, exclude_none=True), "gemini"),
    ):
        assert detect(body).wire == wire
        assert [call.arguments for call in toolwire.calls(body)] == [ARGUMENTS]


SDK_ANSWERS = {
    "openai_chat": ("openai.types.chat", "ChatCompletion", lambda response: response.choices[0].message),
    "openai_responses": ("openai.types.responses", "Response", lambda response: response.output),
    "anthropic": ("anthropic.types", "Message", lambda response: response.content),
    "gemini": ("google.genai.types", "GenerateContentResponse", lambda response: response.candidates[0].content),
    "ollama": ("ollama", "ChatResponse", lambda response: response.message),
}


@pytest.mark.finding("LE7")
@pytest.mark.parametrize("wire", SDK_ANSWERS)
def test_objects_of_the_official_sdks_are_read(wire):
    """`calls(response)` and `calls(response.choices[0].message)`, as an SDK returns them."""
    module, name, take_message = SDK_ANSWERS[wire]
    model = getattr(pytest.importorskip(module), name)
    call = toolwire.ToolCall("c1", "look", ARGUMENTS)
    answer = toolwire.Response(parts=(call,), stop=Stop("tool_calls"))
    body = toolwire.wire.get(wire).encode_response(answer, toolwire.Request("m")).body
    response = model.model_validate(body)
    for value, kind in ((response, "response"), (take_message(response), "message")):
        assert detect(value) == toolwire.bridge.Detected(wire, kind)
        for found in (toolwire.calls(value), toolwire.calls(value, wire)):
            assert [(call.name, call.arguments) for call in found] == [("look", ARGUMENTS)]
