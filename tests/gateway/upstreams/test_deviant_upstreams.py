"""Imperfect upstreams behind a gateway on a real socket: clients of every wire get the answer, or an error of their own."""

from __future__ import annotations

import pytest

from deviations import assert_expected, content, load_deviations
from hostile import ask, decode_answer, expect_error, gateway_to, run
from serving import WIRES
from toolwire import fold
from toolwire.ir.text import to_bytes
from toolwire.testing import RawReply
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get

DEVIATIONS = [deviation for deviation in load_deviations() if not deviation.untranslatable]
EVENTS = {"content-type": "text/event-stream"}
LINES = {"content-type": "application/x-ndjson"}


@pytest.mark.one_in(9)
@pytest.mark.finding("GA1", "GA4", "GA7", "GA8", "GA12")
@pytest.mark.parametrize("deviation", DEVIATIONS, ids=repr)
@run
async def test_deviant_answer_arrives_through_a_gateway(deviation):
    stream = deviation.body is None
    headers = LINES if deviation.wire == "ollama" else EVENTS
    reply = RawReply(deviation.data, headers=headers) if stream else RawReply(to_bytes(deviation.body))
    for front in WIRES:
        async with gateway_to(reply) as (gateway, _):
            answer = await ask(gateway, front, wire=deviation.wire, stream=stream)
        if not deviation.is_answer:
            if answer.status == 200:
                fault = fold(decode_stream(get(front), [answer.body])).fault
                assert fault is not None, (front, answer.body)
            else:
                expect_error(answer, front, answer.status)
            continue
        found = content(decode_answer(answer, front, stream=stream))
        is_unended = deviation.data.startswith(b"data:") and b"[DONE]" not in deviation.data
        if front == deviation.wire == "openai_chat" and stream and is_unended:
            # The answer is passed on with the missing [DONE], so a call beside the reason is complete, as it is for SDKs,
            # which do not look for [DONE].
            passed_on = content(fold(decode_stream(get(front), [deviation.data + b"data: [DONE]\n\n"])))
            assert found == {key: passed_on[key] for key in found}
            continue
        assert_expected(found, {key: deviation.expected[key] for key in found if key in deviation.expected})
