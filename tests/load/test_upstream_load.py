"""Upstreams that hang, are slow, fail or flap, with 500 clients and a fallback."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from loaded import FULL, loaded_gateway, report, size, upstream_row
from provider import Provider
from questions import Load
from test_gateway_load import CALM

from hostile import run

CLIENTS = size(50, 500)
MOST_REQUESTS = 1.25  # at upstreams, for a request of a client; a scenario takes less than a minute
MOST_PROBES = 2  # a second, at an upstream that does not work
FIRST_EVENT = 5 if FULL else 1  # seconds
COOLDOWN = 3 if FULL else 1  # seconds
STREAMS, WHOLE = pytest.param((True,), id="streams"), pytest.param((False,), id="whole answers")
KINDS = pytest.mark.parametrize("kinds", [STREAMS, WHOLE])


@asynccontextmanager
async def two_upstreams(folder, *, retries=2, **options):
    """A gateway, the first upstream of its model `m`, and the fallback."""
    row = {"retries": retries, "first_event": FIRST_EVENT}
    async with Provider(answers_probes=True, **options) as first, Provider(answers_probes=True) as second:
        text = (
            f"{CALM}cooldown = {COOLDOWN}\n"
            + upstream_row("a", first.url, **row)
            + upstream_row("b", second.url, **row)
        )
        text += '[models.m]\nupstream = "a"\nfallbacks = ["spare"]\n[models.spare]\nupstream = "b"\nmodel = "m"\n'
        async with loaded_gateway(folder, text) as gateway:
            yield gateway, first, second


def requests_at(*providers):
    return sum(sum(provider.tokens.values()) for provider in providers)


def check(load, name, first, second, **counts):
    """Check that every question was answered, and that upstreams got few requests more than the gateway."""
    sent = requests_at(first, second)
    ratio = sent / load.asked
    outcomes = dict(load.outcomes)
    report(name, clients=CLIENTS, outcomes=outcomes, upstream_requests=sent, per_request=f"{ratio:.2f}", **counts)
    assert load.wrong == []
    assert ratio <= MOST_REQUESTS


@KINDS
@pytest.mark.finding("OP2")
@run
async def test_hanging_upstream_is_left(tmp_path, kinds):
    """It hangs in the middle of the load, with the requests of all clients."""
    async with two_upstreams(tmp_path) as (gateway, first, second):
        load = Load(gateway.port, patience=120.0)
        await load.ask(CLIENTS, 2, "m", kinds=kinds)
        first.change("hangs")
        await load.ask(CLIENTS, 1, "m", kinds=kinds)
        hung, probes, since = requests_at(first), first.probes, time.monotonic()
        await load.ask(CLIENTS, 3, "m", kinds=kinds)
        trials = requests_at(first) - hung + first.probes - probes
        allowed = MOST_PROBES * (time.monotonic() - since) + 1
        first.change("works")
        await ask_until_used(load, first, kinds)
        check(load, f"hanging, {describe(kinds)}", first, second, trials=trials)
        assert trials <= allowed


def describe(kinds):
    return "streams" if all(kinds) else "whole answers"


async def ask_until_used(load, provider, kinds):
    """Ask until the requests of several clients reach a provider again."""
    wanted = requests_at(provider) + 10
    while requests_at(provider) < wanted:
        await load.ask(10, 2, "m", kinds=kinds)
        await asyncio.sleep(0.1)


@KINDS
@pytest.mark.one_in(2)
@pytest.mark.finding("OP5")
@pytest.mark.finding("OP10")
@run
async def test_failing_upstream_gets_few_requests(tmp_path, kinds):
    async with two_upstreams(tmp_path) as (gateway, first, second):
        load = Load(gateway.port, patience=120.0)
        await load.ask(CLIENTS, 2, "m", kinds=kinds)
        first.change("fails")
        await load.ask(CLIENTS, 1, "m", kinds=kinds)
        failed, probes, since = requests_at(first), first.probes, time.monotonic()
        await load.ask(CLIENTS, 4, "m", kinds=kinds)
        trials = requests_at(first) - failed + first.probes - probes
        allowed = MOST_PROBES * (time.monotonic() - since) + 1
        first.change("works")
        await ask_until_used(load, first, kinds)
        check(load, f"failing, {describe(kinds)}", first, second, trials=trials)
        assert trials <= allowed


@pytest.mark.parametrize("kinds", [WHOLE, STREAMS])
@pytest.mark.one_in(2)
@run
async def test_flapping_upstream_costs_no_answer(tmp_path, kinds):
    """It fails, works and hangs in turn, some seconds each."""
    async with two_upstreams(tmp_path) as (gateway, first, second):
        load = Load(gateway.port, patience=120.0)
        asking = asyncio.ensure_future(load.ask(CLIENTS, size(15, 12), "m", kinds=kinds))
        for mode in ("works", "fails", "works", "hangs") * size(1, 2):
            first.change(mode)
            await asyncio.sleep(COOLDOWN / 2)
        first.change("works")
        await asking
        await ask_until_used(load, first, kinds)
        check(load, f"flapping, {describe(kinds)}", first, second)


@pytest.mark.finding("OP2")
@run
async def test_slow_whole_answer_is_sent_once(tmp_path):
    """Whole answers take several times as long as an upstream may be silent. It answers probes."""
    async with two_upstreams(tmp_path, delay=3.0 * FIRST_EVENT) as (gateway, first, second):
        load = Load(gateway.port, patience=120.0)
        await load.ask(CLIENTS, 1, "m", kinds=(False,))
        check(load, "slow, whole answers", first, second, probes=first.probes)
        assert set(first.tokens.values()) == {1}
        assert requests_at(second) == 0


@run
async def test_slow_streams_stay_at_their_upstream(tmp_path):
    """A piece at a time, and more time for all of them than until the first event."""
    async with two_upstreams(tmp_path, pace=FIRST_EVENT / 5) as (gateway, first, second):
        load = Load(gateway.port, patience=120.0)
        await load.ask(CLIENTS, 1, "m", kinds=(True,))
        check(load, "slow, streams", first, second)
        assert set(first.tokens.values()) == {1}
        assert requests_at(second) == 0


@KINDS
@pytest.mark.one_in(2)
@pytest.mark.finding("OP5")
@run
async def test_outage_of_all_upstreams_is_not_multiplied(tmp_path, kinds):
    async with two_upstreams(tmp_path) as (gateway, first, second):
        load = Load(gateway.port, patience=120.0)
        load.expected["words"] = {"502", "503", "529", "error"}
        first.change("fails")
        second.change("fails")
        await load.ask(CLIENTS, 4, "m", kinds=kinds)
        check(load, f"outage, {describe(kinds)}", first, second, without_retry_after=load.without_retry_after)
        assert load.without_retry_after == 0
