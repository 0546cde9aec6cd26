"""The official SDKs as judges: where they accumulate an answer from a deviant stream, ours is the same."""

import json
import warnings

import anthropic
import httpx
import httpx2
import pytest
from google.genai._api_client import HttpResponse
from openai import OpenAI, OpenAIError
from openai.lib.streaming.chat import ChatCompletionStreamState

from deviations import decode, load_deviations
from tables import every_case

# Errors by which an SDK refuses a stream; anything else is an error of the test.
REFUSALS = (RuntimeError, TypeError, AttributeError, AssertionError, ValueError, IndexError, KeyError, OpenAIError, anthropic.AnthropicError)  # fmt: skip
STREAMS = [deviation for deviation in load_deviations() if deviation.events and deviation.is_answer]


def client_of(package, data):
    """An HTTP client of `httpx` or `httpx2` that answers every request with one stream."""
    headers = {"content-type": "text/event-stream"}
    transport = package.MockTransport(lambda request: package.Response(200, headers=headers, content=data))
    return package.Client(transport=transport)


def chat(data):
    client = OpenAI(api_key="k", base_url="http://judge", http_client=client_of(httpx, data))
    state = ChatCompletionStreamState()
    for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
        state.handle_chunk(chunk)
    choice = state.current_completion_snapshot.choices[0]
    message = choice.message
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]
    if message.function_call is not None:
        calls.append([message.function_call.name, message.function_call.arguments])
    return {"text": message.content or "", "calls": [[name, json.loads(text or "{}") or {}] for name, text in calls]}


def responses(data):
    client = OpenAI(api_key="k", base_url="http://judge", http_client=client_of(httpx, data))
    with client.responses.stream(model="m", input="") as stream:
        response = stream.get_final_response()
    calls = [[item.name, item.arguments] for item in response.output if item.type == "function_call"]
    return {"text": response.output_text, "calls": [[name, json.loads(text or "{}") or {}] for name, text in calls]}


def messages(data):
    client = anthropic.Anthropic(api_key="k", base_url="http://judge", http_client=client_of(httpx2, data))
    with client.messages.stream(model="m", max_tokens=1, messages=[]) as stream:
        message = stream.get_final_message()
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "calls": [[block.name, block.input] for block in message.content if block.type == "tool_use"],
    }


def generate_content(data):
    response = HttpResponse({}, httpx.Response(200, stream=httpx.ByteStream(data)))
    parts = [
        part
        for chunk in response.segments()
        for candidate in chunk.get("candidates", ())
        for part in candidate.get("content", {}).get("parts", ())
    ]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    return {
        "text": "".join(part.get("text", "") for part in parts),
        "calls": [[call["name"], call.get("args") or {}] for call in calls],
    }


def ollama(data):
    """Read lines as the ollama SDK does: httpx splits them, every line is one JSON document."""
    lines = [json.loads(line) for line in httpx.Response(200, stream=httpx.ByteStream(data)).iter_lines()]
    found = [line.get("message") or {} for line in lines]
    calls = [call["function"] for message in found for call in message.get("tool_calls", ())]
    return {
        "text": "".join(message.get("content") or "" for message in found),
        "calls": [[call["name"], call.get("arguments") or {}] for call in calls],
    }


SDKS = {
    "openai_chat": chat,
    "openai_responses": responses,
    "anthropic": messages,
    "gemini": generate_content,
    "ollama": ollama,
}


JUDGED = [deviation for deviation in STREAMS if deviation.wire in SDKS]


def accumulate(deviation):
    """Return the answer that the SDK makes of a stream; None if it refuses the stream."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of types that the SDK does not know
        try:
            return SDKS[deviation.wire](deviation.data)
        except REFUSALS:
            return None


@every_case("deviation", JUDGED, ids=repr)
def test_sdk_accumulates_the_same_answer_unless_the_vector_says_why_not(deviation):
    theirs, ours = accumulate(deviation), decode(deviation)
    if theirs is None:
        return  # it reads no complete answer
    is_same = theirs == {key: ours[key] for key in theirs}
    assert is_same != bool(deviation.sdk), (theirs, ours)


@pytest.mark.parametrize("wire", SDKS)
def test_each_sdk_judges_several_deviations(wire):
    answers = [accumulate(deviation) for deviation in JUDGED if deviation.wire == wire and not deviation.sdk]
    assert sum(answer is not None for answer in answers) >= 8
