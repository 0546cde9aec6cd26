"""Upstreams that take a request and say nothing: the next one is asked, and nobody is blamed for another's silence."""

from __future__ import annotations

import pytest
from gateway.hostile import ASKED, WORDS, body_of, path_of, post, responded, run
from gateway.serving import serving

from toolwire import Request, Response
from toolwire.ir.fold import unfold
from toolwire.ir.response import Fault
from toolwire.testing import Partly, Recorded, Upstream
from toolwire.testing.upstream import Raw
from toolwire.wire import get
from virtual_time import in_virtual_time

MUTE = Partly(Response(), None, "stall")


def two(first, second, *, wire="openai_chat", limits=None, **row):
    """`m`, at the first upstream, then at the second."""
    usual = {"wire": wire, "retries": 0, **row}
    return {
        "upstreams": {"a": {"base_url": first.url, **usual}, "b": {"base_url": second.url, **usual}},
        "models": {"m": {"upstream": "a", "fallbacks": ["n"]}, "n": {"upstream": "b", "model": "m"}},
        "limits": limits or {},
    }


async def ask(gateway, front="openai_chat", *, stream=True):
    body = body_of(front, ASKED, "m", stream=stream)
    return await post(gateway, path_of(front, "m", stream=stream), body)


@in_virtual_time
async def test_who_is_silent_gives_way_to_the_next_and_rests():
    async with (
        Upstream(MUTE) as first,
        Upstream(WORDS, WORDS) as second,
        serving(two(first, second, idle=0.2)) as gateway,
    ):
        for _ in range(2):
            answer = await ask(gateway)
            assert responded(answer, "openai_chat", stream=True).text == WORDS.text
    assert len(first.heard) == 1  # it rests
    assert [turn.failures for turn in gateway.turns] == [(("a", "timeout"),), ()]


@in_virtual_time
async def test_who_takes_all_of_its_time_leaves_the_next_its_own():
    async with (
        Upstream(MUTE) as first,
        Upstream(WORDS) as second,
        serving(two(first, second, timeout=0.5)) as gateway,
    ):
        assert responded(await ask(gateway, stream=False), "openai_chat", stream=False).text == WORDS.text
    assert [turn.failures for turn in gateway.turns] == [(("a", "timeout"),)]


@in_virtual_time
async def test_an_answer_that_cannot_be_passed_on_is_not_bought_again():
    page = Raw(b"<html>busy</html>", headers={"content-type": "application/json"})
    async with Upstream(page, page, page) as first, Upstream(page) as second:
        async with serving(two(first, second, retries=2)) as gateway:
            assert (await ask(gateway, stream=False)).status == 502
        assert [len(first.heard), len(second.heard)] == [1, 1]


@in_virtual_time
async def test_who_falls_silent_after_the_first_word_rests_too():
    async with (
        Upstream(Partly(WORDS, 400, "stall")) as first,
        Upstream(WORDS) as second,
        serving(two(first, second, idle=0.2)) as gateway,
    ):
        broken = await ask(gateway)
        assert broken.whole and b"silent for too long" in broken.body
        assert responded(await ask(gateway), "openai_chat", stream=True).text == WORDS.text
    assert len(first.heard) == 1
    assert [turn.error for turn in gateway.turns] == ["timeout", None]


@in_virtual_time
async def test_the_silence_of_the_first_is_not_the_seconds():
    encoder = get("openai_chat").stream_encoder(Request(stream=True))
    words = b"".join(encoder.feed(event) for event in unfold(WORDS))
    refusal = Recorded(((0.25, b"{}"),), 503, {"content-type": "application/json"})
    answer = Recorded(((0.25, words),), 200, {"content-type": "text/event-stream"})
    async with (
        Upstream(refusal) as first,
        Upstream(answer) as second,
        serving(two(first, second, idle=0.4)) as gateway,
    ):
        assert responded(await ask(gateway), "openai_chat", stream=True).text == WORDS.text


@pytest.mark.parametrize("stream", [False, True])
@run
async def test_who_has_had_its_time_is_not_asked_again(stream):
    async with (
        Upstream(MUTE, MUTE) as first,
        Upstream(MUTE, MUTE) as second,
        serving(two(first, second, timeout=1.0, retries=2)) as gateway,
    ):
        answer = await ask(gateway, stream=stream)
        assert answer.status == 504
    assert [len(first.heard), len(second.heard)] == [1, 1]
    assert [turn.failures for turn in gateway.turns] == [(("a", "timeout"), ("b", "timeout"))]


@in_virtual_time
async def test_patience_for_one_who_asks_for_it_is_no_silence():
    wait = Fault("rate_limit", "later", 429, retry_after=0.5)
    async with Upstream(wait, WORDS) as provider:
        row = {"base_url": provider.url, "wire": "openai_chat", "retries": 1, "idle": 0.3}
        async with serving({"upstreams": {"a": row}, "models": {"m": {"upstream": "a"}}}) as gateway:
            assert responded(await ask(gateway), "openai_chat", stream=True).text == WORDS.text
