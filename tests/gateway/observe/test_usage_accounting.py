"""What a key is charged for answers that nobody got, or that nobody counted."""

from __future__ import annotations

import json

import pytest

from hostile import REQUEST, body_of, connect, gateway_to, path_of, post, recorded, request_bytes, run
from toolwire import Request, Response, Text
from toolwire.gateway.keys import hash_key
from toolwire.gateway.observe.answer_stats import AnswerStats
from toolwire.ir.events import TextDelta
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.ir.tools import ToolChoice
from toolwire.testing import PartialReply
from waiting import cpu_guard

KEY = "sk-tw-0123456789"
AUTHORISED = {"authorization": f"Bearer {KEY}"}
SMALL = {"keys": {"ann": {"hash": hash_key(KEY), "tokens_per_day": 50}}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@run
async def test_client_disconnect_before_the_answer_is_charged_for_the_prompt(stream):
    body = body_of("openai_chat", stream=stream)
    async with gateway_to(PartialReply(Response(), None, "stall"), document=SMALL) as (gateway, provider):
        _, writer = await connect(gateway)
        writer.write(request_bytes(path_of("openai_chat"), body, AUTHORISED))
        await provider.wait_for_requests()
        writer.close()
        await provider.disconnected()
        await recorded(gateway)
        assert (await post(gateway, path_of("openai_chat"), body, AUTHORISED)).status == 429
    turn = gateway.turns[0]
    assert turn.error == "client_gone" and turn.is_estimated
    assert 50 < turn.usage.total < 200


@run
async def test_upstream_error_is_not_charged():
    async with gateway_to(Fault("overloaded", "no", 529), document=SMALL) as (gateway, _):
        await post(gateway, path_of("openai_chat"), body_of("openai_chat"), AUTHORISED)
    assert gateway.turns[0].usage is None


@run
async def test_image_tokens_are_not_estimated_from_its_size_in_bytes():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 100_000}}
    words = {"type": "text", "text": "What is this? " * 100}
    asked = {"model": "openai_chat/m", "stream": True, "messages": [{"role": "user", "content": [words, picture]}]}
    uncounted = Response(parts=(Text("A cat."),), stop=Stop("stop"))
    async with gateway_to(uncounted) as (gateway, _):
        assert (await post(gateway, path_of("openai_chat"), json.dumps(asked).encode())).status == 200
    [turn] = gateway.turns
    assert turn.is_estimated and 1300 < turn.usage.input < 1500


def test_adversarial_body_is_estimated_quickly():
    seen = AnswerStats()
    seen.add_event(TextDelta(0, b"a"))
    with cpu_guard():
        for word in (b"a" * 2000 + b" ", b'"' + b"a" * 2000, b","):
            seen.estimate(word * (8_000_000 // len(word)))


@run
async def test_discarded_answer_is_charged_even_if_the_retry_fails():
    chat = Response(parts=(Text("I would rather talk."),), stop=Stop("stop"), usage=Usage(40, 10))
    document = {"models": {"plain": {"upstream": "openai_chat", "model": "m", "emulate": "hermes"}}}
    must = Request("plain", REQUEST.messages, REQUEST.tools, ToolChoice("required"))
    async with gateway_to(chat, Fault("overloaded", "no", 503), document=document) as (gateway, provider):
        answer = await post(gateway, path_of("openai_chat"), body_of("openai_chat", must, "plain"))
        assert answer.status >= 500 and len(provider.requests) == 2
    assert gateway.turns[0].usage.total == 50
