"""Upstreams that take a request and say nothing: the next one is asked, and nobody is blamed for another's silence."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from hostile import REQUEST, TEXT_ANSWER, body_of, decode_answer, path_of, post
from serving import serving
from toolwire import Request, Response
from toolwire.gateway import app
from toolwire.ir.folding import unfold
from toolwire.ir.response import Fault
from toolwire.testing import PartialReply, Recorded, Upstream
from toolwire.testing.upstream import RawReply
from toolwire.wire import get
from virtual_time import in_virtual_time

SILENT = PartialReply(Response(), None, "stall")


def two_upstream_settings(first, second, *, wire="openai_chat", limits=None, **row):
    """`m`, at the first upstream, then at the second."""
    usual = {"wire": wire, "retries": 0, **row}
    return {
        "upstreams": {"a": {"base_url": first.url, **usual}, "b": {"base_url": second.url, **usual}},
        "models": {"m": {"upstream": "a", "fallbacks": ["n"]}, "n": {"upstream": "b", "model": "m"}},
        "limits": limits or {},
    }


async def ask(gateway, front="openai_chat", *, stream=True):
    body = body_of(front, REQUEST, "m", stream=stream)
    return await post(gateway, path_of(front, "m", stream=stream), body)


@in_virtual_time
async def test_silent_upstream_is_replaced_and_put_on_cooldown():
    async with (
        Upstream(SILENT) as first,
        Upstream(TEXT_ANSWER, TEXT_ANSWER) as second,
        serving(two_upstream_settings(first, second, idle=0.2)) as gateway,
    ):
        for _ in range(2):
            answer = await ask(gateway)
            assert decode_answer(answer, "openai_chat", stream=True).text == TEXT_ANSWER.text
    assert len(first.requests) == 1  # it rests
    assert [turn.failures for turn in gateway.turns] == [(("a", "timeout"),), ()]


@in_virtual_time
async def test_fallback_has_its_own_timeout():
    async with (
        Upstream(SILENT) as first,
        Upstream(TEXT_ANSWER) as second,
        serving(two_upstream_settings(first, second, timeout=0.5)) as gateway,
    ):
        assert decode_answer(await ask(gateway, stream=False), "openai_chat", stream=False).text == TEXT_ANSWER.text
    assert [turn.failures for turn in gateway.turns] == [(("a", "timeout"),)]


@in_virtual_time
async def test_unusable_answer_is_not_retried_on_the_same_upstream():
    page = RawReply(b"<html>busy</html>", headers={"content-type": "application/json"})
    async with Upstream(page, page, page) as first, Upstream(page) as second:
        async with serving(two_upstream_settings(first, second, retries=2)) as gateway:
            assert (await ask(gateway, stream=False)).status == 502
        assert [len(first.requests), len(second.requests)] == [1, 1]


@in_virtual_time
async def test_upstream_silent_after_the_first_bytes_is_put_on_cooldown():
    async with (
        Upstream(PartialReply(TEXT_ANSWER, 400, "stall")) as first,
        Upstream(TEXT_ANSWER) as second,
        serving(two_upstream_settings(first, second, idle=0.2)) as gateway,
    ):
        broken = await ask(gateway)
        assert broken.whole and b"silent for too long" in broken.body
        assert decode_answer(await ask(gateway), "openai_chat", stream=True).text == TEXT_ANSWER.text
    assert len(first.requests) == 1
    assert [turn.error for turn in gateway.turns] == ["timeout", None]


@in_virtual_time
async def test_idle_time_of_the_first_upstream_is_not_charged_to_the_second():
    encoder = get("openai_chat").stream_encoder(Request(stream=True))
    words = b"".join(encoder.feed(event) for event in unfold(TEXT_ANSWER))
    refusal = Recorded(((0.25, b"{}"),), 503, {"content-type": "application/json"})
    answer = Recorded(((0.25, words),), 200, {"content-type": "text/event-stream"})
    async with (
        Upstream(refusal) as first,
        Upstream(answer) as second,
        serving(two_upstream_settings(first, second, idle=0.4)) as gateway,
    ):
        assert decode_answer(await ask(gateway), "openai_chat", stream=True).text == TEXT_ANSWER.text


@pytest.mark.parametrize("stream", [False, True])
@in_virtual_time
async def test_timed_out_upstream_is_not_retried(stream, monkeypatch):
    clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time, time=time.time)
    monkeypatch.setattr(app, "time", clock)  # the gateway decides by it whether there is time for a retry
    async with (
        Upstream(SILENT, SILENT) as first,
        Upstream(SILENT, SILENT) as second,
        serving(two_upstream_settings(first, second, timeout=1.0, retries=2)) as gateway,
    ):
        answer = await ask(gateway, stream=stream)
        assert answer.status == 504
    assert [len(first.requests), len(second.requests)] == [1, 1]
    assert [turn.failures for turn in gateway.turns] == [(("a", "timeout"), ("b", "timeout"))]


@in_virtual_time
async def test_retry_after_wait_does_not_count_as_silence():
    wait = Fault("rate_limit", "later", 429, retry_after=0.5)
    async with Upstream(wait, TEXT_ANSWER) as provider:
        row = {"base_url": provider.url, "wire": "openai_chat", "retries": 1, "idle": 0.3}
        async with serving({"upstreams": {"a": row}, "models": {"m": {"upstream": "a"}}}) as gateway:
            assert decode_answer(await ask(gateway), "openai_chat", stream=True).text == TEXT_ANSWER.text
