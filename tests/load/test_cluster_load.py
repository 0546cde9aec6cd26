"""Four gateways behind nginx: each is replaced under load, or a component fails."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from cluster import Cluster, cluster, needs_nginx
from loaded import report, size
from provider import Provider
from questions import Load, question

from hostile import read_answer, run
from toolwire.gateway.keys import hash_key
from waiting import SAFETY
from worker_gateway import METRICS_KEY, settings_text

GATEWAYS = 4
TOKENS = 30  # of each answer: provider.USAGE
MINUTE = 60


def settings(provider: Provider, state: str, *, limit: int = 0, usage: str = "") -> str:
    """Settings of all gateways. Key `ann` has no limit, `minute` and `day` admit `limit` requests, `wide` all."""
    more = f'[server]\ndrain = {SAFETY}\nmetrics_key = "{METRICS_KEY}"\n[limits]\nloop_delay = 60\n'
    if limit:
        more += f'[keys.minute]\nhash = "{hash_key("minute")}"\nrequests_per_minute = {limit}\n'
        more += f'[keys.wide]\nhash = "{hash_key("wide")}"\nrequests_per_minute = 1_000_000\n'
        more += f'[keys.day]\nhash = "{hash_key("day")}"\ntokens_per_day = {limit * TOKENS}\n'
    text = settings_text(provider.url, state, more=more)
    return text.replace("[state]\n", f'[state]\nusage = "{usage}"\n') if usage else text


class Limited:
    """A client with a key of its own. `outcomes` counts statuses, or the errors of connections."""

    def __init__(self, port: int, key: str, first: int) -> None:
        self._port = port
        self._key = key
        self._numbers = iter(range(first, 10**9))
        self.outcomes: Counter[str] = Counter()

    async def ask(self, count: int, at_once: int) -> None:
        async def ask_in_turn(each: int) -> None:
            for _ in range(each):
                await self._ask()

        await asyncio.gather(*(ask_in_turn(count // at_once) for _ in range(at_once)))

    async def _ask(self) -> None:
        data, _ = question("openai_chat", "anthropic/m", "words", next(self._numbers), stream=False, key=self._key)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
            writer.write(data)
            self.outcomes[str((await read_answer(reader)).status)] += 1
            writer.close()
        except (OSError, asyncio.IncompleteReadError) as error:
            self.outcomes[type(error).__name__] += 1


async def update(running: Cluster, way: str, load: Load, limits: tuple[Limited, Limited], limit: int) -> dict:
    """Replace each gateway under load. The limited clients ask for a quarter of their limit, and more, each time."""
    is_done = False

    async def ask() -> None:
        while not is_done:
            await load.ask(size(10, 60), 4, "anthropic/m")

    asking = asyncio.ensure_future(ask())
    in_flight, codes = 0, []
    minute, day = limits
    for number in range(GATEWAYS):
        in_flight += await running.members[number].in_flight()
        replaced = getattr(running, way)(number)
        more = limit // GATEWAYS + 8
        code, *_ = await asyncio.gather(replaced, minute.ask(more, 4), day.ask(more, 1))
        codes.append(code)
    is_done = True
    await asking
    return {"in_flight": in_flight, "codes": codes}


@needs_nginx
@pytest.mark.parametrize("way", ["replace_in_place", "replace_by_another"])
@run
async def test_rolling_update_loses_no_request_and_keeps_limits(tmp_path, state_server, way):
    limit = size(24, 200)
    state = state_server.url
    usage = state if state_server.name == "postgres" else ""
    async with (
        Provider(pace=0.1) as provider,
        cluster(
            tmp_path,
            settings(provider, state, limit=limit, usage=usage),
            GATEWAYS,
            keeps_alive=way == "replace_in_place",
        ) as running,
    ):
        load = Load(running.port, "ann", patience=SAFETY)
        minute, day = Limited(running.port, "minute", 10**8), Limited(running.port, "day", 2 * 10**8)
        began = time.monotonic()
        found = await update(running, way, load, (minute, day), limit)
        windows = 1 + (time.monotonic() - began) // MINUTE
        report(
            "rolling update",
            way=way,
            state=state_server.name,
            requests=load.asked,
            in_flight_at_the_stops=found["in_flight"],
            outcomes=dict(load.outcomes),
            limit=limit,
            by_minute=dict(minute.outcomes),
            by_day=dict(day.outcomes),
        )
        assert load.wrong == []
        assert found["in_flight"] and found["codes"] == [0] * GATEWAYS
        assert set(provider.tokens.values()) == {1}, "no request is sent twice"
        assert set(minute.outcomes) == set(day.outcomes) == {"200", "429"}
        # Tokens count when the answer is over, which the client may see first: one answer of each gateway.
        assert limit <= day.outcomes["200"] < limit + GATEWAYS
        assert limit <= minute.outcomes["200"] <= limit * windows
        assert await running.stop() == [0] * GATEWAYS
        assert "Traceback" not in running.logs()
        if usage:
            [(rows,)] = rows_of(usage)
            assert rows == load.asked + minute.outcomes.total() + day.outcomes.total()


def rows_of(usage: str) -> list[tuple[int]]:
    import psycopg

    with psycopg.connect(usage) as connection:
        return connection.execute("SELECT count(*) FROM toolwire_usage").fetchall()
