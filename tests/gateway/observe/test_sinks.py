"""Sinks: told of the beginning and the end of a request, and never in its way. And what no error repeats."""

import asyncio
import json

import pytest

from gateway_client import CHAT_REQUEST, HELLO, post
from serving import serving, upstream_rows
from toolwire.ir.response import Fault
from toolwire.testing import RawReply, Upstream

KEY = "sk-canary-of-the-upstream-0123456789"


class RecordingSink:
    def __init__(self, *, fail_at=()):
        self.begun, self.ended, self._fail_at = [], [], fail_at

    def begin(self, turn, asked, headers):
        self.begun.append((turn.id, asked.model, headers.get("x-mark")))
        if "begin" in self._fail_at:
            raise RuntimeError("begin")

    def __call__(self, turn):
        self.ended.append(turn)
        if "end" in self._fail_at:
            raise RuntimeError("end")


def test_sink_is_called_at_the_beginning_and_end():
    async def scene():
        guest = RecordingSink()
        async with (
            Upstream(HELLO) as upstream,
            serving({"upstreams": upstream_rows(upstream.url)}, sinks=[guest]) as it,
        ):
            await post(it.url, headers={"x-mark": "7", "x-request-id": "r-1"})
            await post(it.url, body={"model": "nowhere", "messages": CHAT_REQUEST["messages"]})
        return guest

    guest = asyncio.run(scene())
    assert guest.begun == [("r-1", "openai_chat/m", "7"), (guest.ended[1].id, "nowhere", None)]
    done, missing = guest.ended
    assert (done.action, done.status, done.has_begun, done.provider) == ("generate", 200, True, "openai")
    assert (done.answer_id, done.answer_model, done.calls) == ("r1", "big", ("look",))
    assert (missing.status, missing.error) == (404, "not_found")


@pytest.mark.parametrize("stream", [False, True])
def test_sink_exception_does_not_affect_the_answer(stream, caplog):
    async def scene():
        guest = RecordingSink(fail_at=("begin", "end"))
        after = RecordingSink()
        rows = {"upstreams": upstream_rows("http://127.0.0.1:1")}
        async with Upstream(HELLO) as upstream:
            rows = {"upstreams": upstream_rows(upstream.url)}
            async with serving(rows, sinks=[guest, after]) as it:
                answer = await post(it.url, body={**CHAT_REQUEST, "stream": stream})
        return answer, after

    (status, _, body), after = asyncio.run(scene())
    assert (status, len(after.begun), len(after.ended)) == (200, 1, 1)
    assert b"Hello" in body or b"Hel" in body
    assert [record.message.split(" of ")[0] for record in caplog.records] == [
        "a sink failed at the beginning",
        "a sink failed at the end",
    ]


def test_failures_before_the_answer_are_recorded():
    async def scene():
        async with Upstream(Fault("overloaded", "busy", 529), HELLO) as upstream:
            rows = upstream_rows(upstream.url)
            models = {
                "m": {"targets": [{"upstream": "anthropic"}], "fallbacks": ["n"]},
                "n": {"upstream": "openai_chat"},
            }
            async with serving({"upstreams": rows, "models": models}) as it:
                await post(it.url, body={**CHAT_REQUEST, "model": "m"})
        return it.turns[0]

    turn = asyncio.run(scene())
    assert (turn.attempts, turn.failures, turn.upstream) == (2, (("anthropic", "overloaded"),), "openai_chat")


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"], ids=["the same wire", "another wire"])
@pytest.mark.parametrize("stream", [False, True])
def test_upstream_key_echoed_in_an_error_is_not_returned(wire, stream, tmp_path):
    (tmp_path / "key").write_text(KEY)
    error = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error", "code": KEY}}
    late = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\ndata: %b\n\n' % json.dumps(error).encode()
    script = [
        RawReply(json.dumps(error).encode(), 401, {"content-type": "application/json"}),
        RawReply(f"who is {KEY}?".encode(), 400, {"content-type": "text/plain"}),
        RawReply(late if wire == "openai_chat" else b"", 200, {"content-type": "text/event-stream"}),
    ]

    async def scene():
        async with Upstream(*script) as upstream:
            rows = upstream_rows(upstream.url, key_file=str(tmp_path / "key"))
            async with serving({"upstreams": rows}) as it:
                return [
                    await post(it.url, body={**CHAT_REQUEST, "model": f"{wire}/m", "stream": stream}) for _ in script
                ]

    answers = asyncio.run(scene())
    assert all(answer[0] >= 400 for answer in answers[:2])
    assert KEY not in repr(answers)
