"""Four gateways behind nginx, and the failure of a component under load: the shared state, or a gateway."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

from cluster import cluster, needs_nginx
from loaded import report, size
from provider import Provider
from questions import Load
from test_cluster_load import GATEWAYS, Limited, settings

from hostile import run
from waiting import SAFETY, until


def quick(text: str) -> str:
    """Settings whose gateways wait for the state as long as by default."""
    return text.replace(f"timeout = {SAFETY}", "timeout = 1")


@needs_nginx
@run
async def test_outage_of_the_state_fails_no_request(tmp_path, state_server):
    """During the outage each gateway counts by itself; before and after it, a limit holds for all of them."""
    limit, clients = size(8, 40), size(10, 60)
    async with (
        Provider() as provider,
        cluster(tmp_path, quick(settings(provider, state_server.url, limit=limit)), GATEWAYS) as running,
    ):
        load, key = Load(running.port, "ann", patience=SAFETY), Limited(running.port, "day", 10**8)
        wide = Limited(running.port, "wide", 2 * 10**8)
        await load.ask(clients, 4, "anthropic/m")
        await key.ask(2 * limit, 1)
        before = Counter(key.outcomes)
        state_server._process.kill()
        state_server._process.wait()
        await load.ask(clients, 4, "anthropic/m")
        await key.ask(8 * limit, 1)
        assert running.logs().count(" is unavailable: ") == GATEWAYS
        state_server.crash()  # it starts again
        while running.logs().count(" is available again") < GATEWAYS:
            await wide.ask(GATEWAYS, 1)  # only requests that a gateway itself would admit use the state
        await load.ask(clients, 1, "anthropic/m")
        during = key.outcomes - before
        await key.ask(GATEWAYS, 1)
        after = key.outcomes - before - during
        report(
            "outage of the state",
            state=state_server.name,
            requests=load.asked,
            outcomes=dict(load.outcomes),
            limit=limit,
            before=dict(before),
            during=dict(during),
            after=dict(after),
        )
        assert load.wrong == []
        assert set(key.outcomes) == {"200", "429"} and set(wide.outcomes) == {"200"}
        assert limit <= before["200"] < limit + GATEWAYS
        assert during["200"] <= (GATEWAYS - 1) * limit, "each gateway admits the limit at most"
        if state_server.name == "postgres":
            assert after == {"429": GATEWAYS}, "its counts have survived"
        assert "Traceback" not in running.logs()


@needs_nginx
@run
async def test_killed_gateway_loses_only_its_requests_in_flight(tmp_path, state_server):
    clients = size(20, 100)
    async with (
        Provider(pace=0.1) as provider,
        cluster(tmp_path, settings(provider, state_server.url), GATEWAYS, keeps_alive=False) as running,
    ):
        load = Load(running.port, "ann", patience=SAFETY)
        load.expected["words"] = {"ok", "502", "cut off"}  # 502: of nginx
        asking = asyncio.ensure_future(load.ask(clients, 6, "anthropic/m"))
        await until(lambda: provider.in_flight >= clients // 2)
        in_flight = await running.members[0].in_flight()
        await running.members[0].stop(signal.SIGKILL)
        await asking
        lost = load.outcomes["words: 502"] + load.outcomes["words: cut off"]
        report(
            "a killed gateway",
            state=state_server.name,
            requests=load.asked,
            outcomes=dict(load.outcomes),
            in_flight_a_moment_before=in_flight,
        )
        assert load.wrong == []
        assert lost <= clients, "a client has one request in flight"
        assert set(provider.tokens.values()) == {1}, "no request is sent twice"
        after = Load(running.port, "ann", patience=SAFETY)
        await after.ask(clients, 2, "anthropic/m")
        assert after.wrong == []
