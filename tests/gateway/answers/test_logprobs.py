"""Log probabilities reach the client across wires, whole and in streams; a wire without them reports a loss."""

from __future__ import annotations

import msgspec
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response as OpenAIResponse

from hostile import ask, decode_answer, gateway_to, recorded, run
from tables import every_case
from toolwire import Message, Request, Text, translate
from toolwire.ir.request import Params
from toolwire.wire import get

TOKENS = [
    {"token": "H", "logprob": -0.25, "bytes": [72], "top_logprobs": [{"token": "H", "logprob": -0.25, "bytes": [72]}, {"token": "Y", "logprob": -2.5, "bytes": [89]}]},
    {"token": "é", "logprob": -1.5, "bytes": [195, 169], "top_logprobs": [{"token": "é", "logprob": -1.5, "bytes": [195, 169]}]},
]  # fmt: skip
CANDIDATES = [[{"token": top["token"], "tokenId": 7, "logProbability": top["logprob"]} for top in token["top_logprobs"]] for token in TOKENS]  # fmt: skip
# the shapes of the SDKs' types: openai 3.51, google-genai 3.3; Ollama: LogprobsResult of api/types.go
DOCUMENTS = {
    "openai_chat": {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hé"}, "finish_reason": "stop", "logprobs": {"content": TOKENS, "refusal": None}}],
    },
    "openai_responses": {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Hé", "annotations": [], "logprobs": TOKENS}]}],
    },
    "gemini": {
        "candidates": [{
            "content": {"role": "model", "parts": [{"text": "Hé"}]}, "finishReason": "STOP",
            "logprobsResult": {"chosenCandidates": [top[0] for top in CANDIDATES], "topCandidates": [{"candidates": top} for top in CANDIDATES]},
        }],
        "modelVersion": "m", "responseId": "r",
    },
    "ollama": {
        "model": "m", "created_at": "2026-11-17T00:00:00Z", "message": {"role": "assistant", "content": "Hé"},
        "done": True, "done_reason": "stop", "logprobs": TOKENS,
    },
}  # fmt: skip
REQUEST = Request(messages=(Message("user", (Text("Hi"),)),), params=Params(logprobs=True, top_logprobs=2))
PAIRS = [(source, target) for source in DOCUMENTS for target in DOCUMENTS if source != target]


def tokens_of(wire, response):
    """Return the tokens that a client of the wire finds, in OpenAI's form."""
    form = get(wire).logprobs
    extras = {
        "stop": [response.stop.extra],
        "response": [response.extra],
        "text": [part.extra for part in response.parts],
    }
    found = [
        extra[form.scope][form.field] for extra in extras[form.position] if form.field in extra.get(form.scope, {})
    ]
    return [token for value in found for token in form.read(value)]


@pytest.mark.finding("GA5")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("wire", "front"), PAIRS)
@run
async def test_log_probabilities_reach_the_client(wire, front, stream):
    answer = get(wire).decode_response(DOCUMENTS[wire])
    async with gateway_to(answer) as (gateway, _):
        received = await ask(gateway, front, REQUEST, wire=wire, stream=stream)
        await recorded(gateway)
    assert tokens_of(front, decode_answer(received, front, stream=stream)) == TOKENS
    concepts = [loss.concept for loss in gateway.turns[0].losses]
    assert "choice logprobs" not in concepts and "logprobs" not in concepts
    assert ("token ids" in concepts) == (wire == "gemini")


@pytest.mark.finding("GA5")
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("source", DOCUMENTS)
def test_official_types_accept_the_converted_tokens(source, target):
    if source == target:
        document = DOCUMENTS[target]
    else:
        document = translate(DOCUMENTS[source], source=source, target=target, kind="response").body
    if target == "openai_chat":
        tokens = ChatCompletion.model_validate(document, strict=True).choices[0].logprobs.content
    else:
        tokens = OpenAIResponse.model_validate(document, strict=True).output[0].content[0].logprobs
    assert [token.model_dump() for token in tokens] == TOKENS


@pytest.mark.finding("GA5")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", DOCUMENTS)
@run
async def test_wire_without_log_probabilities_reports_their_loss(wire, stream):
    async with gateway_to(get(wire).decode_response(DOCUMENTS[wire])) as (gateway, _):
        await ask(gateway, "anthropic", wire=wire, stream=stream)
        await recorded(gateway)
    assert [loss for loss in gateway.turns[0].losses if "logprobs" in loss.concept]


@pytest.mark.finding("GA5")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@run
async def test_answer_without_text_reports_their_loss_to_responses(stream):
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    document = {**DOCUMENTS["openai_chat"], "choices": [{**DOCUMENTS["openai_chat"]["choices"][0], "message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}]}  # fmt: skip
    async with gateway_to(get("openai_chat").decode_response(document)) as (gateway, _):
        await ask(gateway, "openai_responses", wire="openai_chat", stream=stream)
        await recorded(gateway)
    assert [loss.concept for loss in gateway.turns[0].losses if "logprobs" in loss.concept] == ["logprobs"]


@pytest.mark.finding("GA5")
@every_case("tokens", [[{"token": 1, "logprob": 0}], [{"token": "a"}], ["a"], [{"token": "a", "logprob": 0, "top_logprobs": 3}], [{"token": "a", "logprob": True}]])  # fmt: skip
@every_case("target", ["openai_responses", "gemini", "ollama"])
def test_unreadable_log_probabilities_are_a_loss(target, tokens):
    document = msgspec.json.decode(msgspec.json.encode(DOCUMENTS["openai_chat"]))
    document["choices"][0]["logprobs"]["content"] = tokens
    translated = translate(document, source="openai_chat", target=target, kind="response")
    assert "choice logprobs" in [loss.concept for loss in translated.losses]


@pytest.mark.finding("GA5")
@run
async def test_every_choice_keeps_its_own():
    """Chat and Gemini have several answers to one request."""
    first = DOCUMENTS["openai_chat"]["choices"][0]
    second = {**first, "index": 1, "logprobs": {"content": TOKENS[:1], "refusal": None}}
    document = {**DOCUMENTS["openai_chat"], "choices": [first, second]}
    translated = translate(document, source="openai_chat", target="gemini", kind="response").body
    sizes = [len(candidate["logprobsResult"]["chosenCandidates"]) for candidate in translated["candidates"]]
    assert sizes == [2, 1]
