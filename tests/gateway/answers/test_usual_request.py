"""The usual request is answered in fewer steps than others, and with the same result."""

from __future__ import annotations

import asyncio
import gc

import pytest
from msgspec.structs import asdict

from hostile import (
    CALL_ANSWER,
    TEXT_ANSWER,
    connect,
    gateway_to,
    path_of,
    post,
    read_answer,
    recorded,
    request_bytes,
    run,
)
from toolwire.gateway import usual_request
from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.request.client_request import ClientRequest
from toolwire.ir.response import Fault
from toolwire.ir.text import to_bytes
from toolwire.testing import PartialReply, RawReply
from toolwire.wire import get

BODY = b'{"model": "openai_chat/m", "messages": [{"role": "user", "content": "hi"}]}'
DOCUMENT, _ = get("openai_chat").encode_response(TEXT_ANSWER)
CALLS, _ = get("openai_chat").encode_response(CALL_ANSWER)
USUAL = RawReply(to_bytes(DOCUMENT), headers={"x-ratelimit-limit-requests": "7", "x-request-id": "up-1"})


def with_usage(**counts):
    return RawReply(to_bytes({**DOCUMENT, "usage": counts}))


CASES = {
    "text": [USUAL],
    "calls": [RawReply(to_bytes(CALLS))],
    "status of another success": [RawReply(to_bytes(DOCUMENT), status=201)],
    "retry after a fault": [Fault("overloaded", "busy", 503, retryable=True, retry_after=0.0), USUAL],
    "retry after a cut answer": [PartialReply(TEXT_ANSWER, 20), USUAL],
    "final fault": [Fault("invalid_request", "no", 400)],
    "rate limit": [Fault("rate_limit", "later", 429, retry_after=60.0)],
    "wrong key": [Fault("authentication", "no", 401)],
    "redirect": [RawReply(b"", 302, {"location": "http://127.0.0.1/"})],
    "no JSON": [RawReply(b"<html>")],
    "repeated member": [RawReply(b'{"id": "a", "id": "b", %b' % to_bytes(DOCUMENT)[1:])],
    "unusual field": [RawReply(to_bytes({**DOCUMENT, "secret": {"a": 1}}))],
    "error in a success": [RawReply(b'{"error": {"message": "no", "type": "server_error"}}')],
    "no usage": [RawReply(to_bytes({name: value for name, value in DOCUMENT.items() if name != "usage"}))],
    "impossible usage": [with_usage(prompt_tokens=10**30, completion_tokens=1, total_tokens=2)],
    "usage of zero": [with_usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)],
    "too large": [RawReply(b" " * 40_000 + to_bytes(DOCUMENT))],
    "large": [RawReply(to_bytes(DOCUMENT) + b" " * 20_000)],
}


async def record(script):
    """Send a request after one that makes the target known; return the answer, the log and all that the gateway counts."""
    metrics = Metrics()
    options = {"document": {"limits": {"answer": 32_768}}, "sinks": [metrics]}
    async with gateway_to(USUAL, *script, **options) as (gateway, upstream):
        reader, writer = await connect(gateway)
        for _ in range(2):
            writer.write(request_bytes(path_of("openai_chat"), BODY))
            answer = await read_answer(reader)
        writer.close()
        log = {name: value for name, value in asdict(gateway.turns[-1]).items() if name not in VARYING}
        counters = {name: dict(values) for name, values in metrics.snapshot().counters.items()}
        memory = gateway.gateway._memory_bound
        headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
        sent = [(request.path, request.body) for request in upstream.requests]
        return answer.status, headers, answer.body, log, counters, sent, memory.used, memory.used_by


VARYING = ("id", "started", "seconds", "overhead")


@pytest.mark.parametrize("case", CASES)
@run
async def test_result_is_the_same_with_all_steps(case, monkeypatch):
    found = []
    monkeypatch.setattr(usual_request, "answer_usual", counted(usual_request.answer_usual, found))
    in_few_steps = await record(CASES[case])
    assert len(found) == 1
    monkeypatch.setattr(usual_request, "find_target", lambda *_: None)
    assert in_few_steps == await record(CASES[case])
    assert len(found) == 1


def counted(function, calls):
    def call(*args):
        calls.append(args)
        return function(*args)

    return call


@pytest.mark.parametrize("then", ["stall", "cut"])
@run
async def test_client_that_leaves_is_logged_with_an_estimate(then, monkeypatch):
    logs = []
    for is_usual in (True, False):
        if not is_usual:
            monkeypatch.setattr(usual_request, "find_target", lambda *_: None)
        script = [USUAL, PartialReply(TEXT_ANSWER, 20, "stall")]
        async with gateway_to(*script) as (gateway, upstream):
            reader, writer = await connect(gateway)
            writer.write(request_bytes(path_of("openai_chat"), BODY))
            await read_answer(reader)
            writer.write(request_bytes(path_of("openai_chat"), BODY))
            await upstream.wait_for_requests(2)
            writer.transport.abort() if then == "cut" else writer.close()
            await recorded(gateway, 2)
            logs.append({name: value for name, value in asdict(gateway.turns[-1]).items() if name not in VARYING})
    assert logs[0] == logs[1]
    assert logs[0]["error"] == "client_gone"
    assert logs[0]["is_estimated"] and logs[0]["usage"].input > 0


@pytest.mark.parametrize(
    "more",
    [b', "stream": true', b', "max_completion_tokens": 7'],
    ids=["stream", "renamed"],
)
@run
async def test_other_requests_take_all_steps(more, monkeypatch):
    found = []
    monkeypatch.setattr(usual_request, "answer_usual", counted(usual_request.answer_usual, found))
    async with gateway_to(USUAL, TEXT_ANSWER) as (gateway, _):
        reader, writer = await connect(gateway)
        for body in (BODY, BODY[:-1] + more + b"}"):
            writer.write(request_bytes(path_of("openai_chat"), body))
            assert (await read_answer(reader)).status == 200
        writer.close()
    assert not found


@run
async def test_failed_request_is_freed_at_its_end():
    """A collection of garbage may be minutes away, and the request is no longer counted as memory in use."""
    fault = PartialReply(TEXT_ANSWER, 20)
    marked = b'{"model": "openai_chat/m", "messages": [{"role": "user", "content": "%b"}]}' % (b"marked" * 1000)
    async with gateway_to(*[fault] * 3) as (gateway, _):
        await post(gateway, path_of("openai_chat"), BODY)
        gc.collect()
        gc.disable()
        try:
            await post(gateway, path_of("openai_chat"), marked)
            await recorded(gateway, 2)
            await asyncio.sleep(0)
            held = [found for found in gc.get_objects() if isinstance(found, ClientRequest) and b"marked" in found.body]
        finally:
            gc.enable()
    assert held == []
