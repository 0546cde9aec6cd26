"""The raw completion endpoints of two wires: one prompt in, text out.

The documents are those of the servers' own references: llama.cpp's answers were recorded from a local server, Ollama's
are in the form that its `docs/api.md` shows for `/api/generate`, because no server was at hand.
"""

import json

import pytest

from toolwire import Message, Request, Text
from toolwire.ir.errors import ConfigError, TruncatedStream
from toolwire.ir.events import ResponseEnd, StreamFault, TextDelta
from toolwire.ir.folding import fold
from toolwire.ir.request import OutputFormat, Params
from toolwire.ir.response import Usage
from toolwire.wire import get, names

TOKENS = ("<tool_call>", "</tool_call>")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
REQUEST = Request(
    "m",
    (Message("user", (Text("<|im_start|>user\nHi"),)),),
    params=Params(max_tokens=12, temperature=0.5, top_p=0.9, seed=7, stop=("<|im_end|>",) * 1 + tuple("abcdef")),
)


def completions(name: str):
    return get(name).at_completions(TOKENS)


def chunk(text: str, finish: str | None = None, **more) -> bytes:
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
    document = {"choices": [choice], "created": 1794811247, "model": "m", "object": "text_completion", "id": "c-1"}
    return b"data: " + json.dumps({**document, **more}).encode() + b"\n\n"


USAGE = {
    "completion_tokens": 4,
    "prompt_tokens": 11,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 10},
}
CHAT_STREAM = (
    chunk("I") + chunk("'m") + chunk(" ok") + chunk("", "length", usage=USAGE, timings={}) + b"data: [DONE]\n\n"
)
OLLAMA_LINES = [
    {"model": "m", "created_at": "2026-08-22T10:00:00Z", "response": "The", "done": False},
    {"model": "m", "created_at": "2026-08-22T10:00:00Z", "response": " sky", "done": False},
    {
        "model": "m",
        "created_at": "2026-08-22T10:00:00Z",
        "response": "",
        "done": True,
        "done_reason": "stop",
        "context": [1, 2, 3],
        "total_duration": 10706818083,
        "prompt_eval_count": 26,
        "eval_count": 259,
    },
]
OLLAMA_STREAM = b"".join(json.dumps(line).encode() + b"\n" for line in OLLAMA_LINES)


def test_chat_servers_get_a_prompt_and_the_tokens_to_keep():
    wire = completions("openai_chat")
    assert wire.path("m", stream=True) == "/v1/completions"
    body, losses = wire.encode_request(REQUEST)
    assert body == {
        "model": "m",
        "prompt": "<|im_start|>user\nHi",
        "preserved_tokens": ["<tool_call>", "</tool_call>"],
        "skip_special_tokens": False,
        "max_tokens": 12,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["<|im_end|>", "a", "b", "c", "d", "e", "f"],
    }
    assert not losses


def test_ollama_gets_a_raw_prompt_and_does_not_remove_the_reasoning():
    wire = completions("ollama")
    assert wire.path("m", stream=True) == "/api/generate"
    body, losses = wire.encode_request(REQUEST)
    assert body == {
        "model": "m",
        "prompt": "<|im_start|>user\nHi",
        "raw": True,
        "think": False,
        "stream": False,
        "options": {
            "num_predict": 12,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 7,
            "stop": ["<|im_end|>", "a", "b", "c", "d", "e", "f"],
        },
    }
    assert not losses


def test_enforced_schema_has_the_field_of_each_server():
    request = Request("m", REQUEST.messages, output=OutputFormat("json_schema", SCHEMA, "answer"))
    body, _ = completions("openai_chat").encode_request(request)
    assert body["json_schema"] == SCHEMA and body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert completions("ollama").encode_request(request).body["format"] == SCHEMA
    json_mode = Request("m", REQUEST.messages, output=OutputFormat("json"))
    assert completions("openai_chat").encode_request(json_mode).body["json_schema"] == {"type": "object"}


def test_fields_of_the_server_and_the_request_for_usage_are_sent():
    request = Request(
        "m",
        REQUEST.messages,
        params=Params(include_usage=True),
        stream=True,
        extra={"openai_chat": {"grammar": "root"}},
    )
    body, _ = completions("openai_chat").encode_request(request)
    assert body["grammar"] == "root" and body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_log_probabilities_are_a_loss():
    request = Request("m", REQUEST.messages, params=Params(logprobs=True, top_logprobs=2))
    body, losses = completions("openai_chat").encode_request(request)
    assert "logprobs" not in body and {loss.path for loss in losses} == {"/params/logprobs", "/params/top_logprobs"}


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("name", "data", "text", "reason", "usage"),
    [
        ("openai_chat", CHAT_STREAM, "I'm ok", "length", Usage(11, 4, cached=10)),
        ("ollama", OLLAMA_STREAM, "The sky", "stop", Usage(26, 259)),
    ],
)
def test_stream_is_text_with_its_end_and_usage(name, data, text, reason, usage, size):
    decoder = completions(name).stream_decoder()
    events = [event for start in range(0, len(data), size) for event in decoder.feed(data[start : start + size])]
    events += decoder.close()
    response = fold(events)
    assert (response.text, response.stop.reason, response.usage) == (text, reason, usage)
    assert isinstance(events[-1], ResponseEnd) and any(isinstance(event, TextDelta) for event in events)
    assert "context" not in response.extra.get("ollama", {})


def test_whole_answers_are_text():
    document = json.loads(chunk("Hi", "stop", usage=USAGE)[6:])
    response = completions("openai_chat").decode_response(document)
    assert (response.text, response.stop.reason, response.usage.input) == ("Hi", "stop", 11)
    response = completions("ollama").decode_response({**OLLAMA_LINES[-1], "response": "The sky"})
    assert (response.text, response.stop.reason, response.usage) == ("The sky", "stop", Usage(26, 259))


def test_truncated_streams_are_detected():
    for name, data in (("openai_chat", chunk("I")), ("ollama", OLLAMA_STREAM.split(b"\n")[0] + b"\n")):
        decoder = completions(name).stream_decoder()
        decoder.feed(data)
        with pytest.raises(TruncatedStream):
            decoder.close()


def test_errors_in_a_stream_are_faults():
    error = b'data: {"error":{"code":500,"message":"out of memory","type":"server_error"}}\n\n'
    for name, data in (("openai_chat", error), ("ollama", b'{"error":"out of memory"}\n')):
        [event] = completions(name).stream_decoder().feed(data)
        assert isinstance(event, StreamFault) and "out of memory" in event.fault.message


def test_other_wires_have_no_completion_endpoint():
    for name in set(names()) - {"openai_chat", "ollama"}:
        with pytest.raises(ConfigError, match="no raw completion endpoint") as error:
            get(name).at_completions()
        assert error.value.hint
