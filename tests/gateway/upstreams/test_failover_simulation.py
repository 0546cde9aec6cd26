"""Many clients and three upstreams that hang, fail, flap, are slow and recover: a quarter of an hour of virtual time.

The gateway is the real application. Its clients are ASGI calls, its upstreams are transports in this process, so that
nothing but the clock decides about the order of events.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from math import ceil
from random import Random
from types import SimpleNamespace

import pytest

import tables
import virtual_time
from toolwire.gateway import app
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.ir.folding import unfold
from toolwire.ir.parts import Text
from toolwire.ir.request import Request
from toolwire.ir.response import Response, Stop, Usage
from toolwire.ir.text import to_bytes
from toolwire.wire import get
from virtual_time import run_virtual

CLIENTS = 100 if tables.selects else 500
COOLDOWN = 10.0
DURATION = 840.0
SLOW = 300.0  # seconds for a whole answer
# (from, to, upstream, mode): at any time at least one upstream works
TROUBLE = [
    (60.0, 140.0, "a", "hangs"),
    (200.0, 270.0, "b", "fails"),
    (300.0, 315.0, "c", "fails"),  # it flaps
    (345.0, 360.0, "c", "hangs"),
    (390.0, 405.0, "c", "fails"),
    (450.0, 520.0, "b", "slow"),
    (470.0, 490.0, "c", "fails"),
    (560.0, 660.0, "a", "stuck"),  # its model hangs, and its list of models works
]
CHAT = get("openai_chat")
ANSWER = Response(parts=(Text("an answer"),), stop=Stop("stop"), usage=Usage(12, 5))
WHOLE = to_bytes(CHAT.encode_response(ANSWER).body)
_encoder = CHAT.stream_encoder(Request(stream=True))
EVENTS = [data for data in map(_encoder.feed, unfold(ANSWER)) if data]


class SimulatedUpstream:
    """A transport to an upstream whose mode depends on the time. It records every request and probe."""

    def __init__(self, name, random):
        self.name = name
        self.random = random
        self.requests = []  # (time, number of the client's request, mode)
        self.probes = []  # times
        self.successes = []  # times

    def mode(self):
        now = asyncio.get_running_loop().time() - START
        for begin, end, name, mode in TROUBLE:
            if name == self.name and begin <= now < end:
                return mode
        return "works"

    def now(self):
        return asyncio.get_running_loop().time() - START

    @asynccontextmanager
    async def post(self, url, headers, secrets, body, seconds):
        document, mode = json.loads(body), self.mode()
        self.requests.append((self.now(), document["messages"][0]["content"], mode))
        if mode in ("hangs", "stuck"):
            await asyncio.sleep(seconds)
            raise TimeoutError("no answer")
        if mode == "fails":
            await asyncio.sleep(0.1)
            yield SimpleNamespace(status=500, headers={"content-type": "application/json"}, read=reader(b"{}"))
            return
        if document.get("stream"):
            await asyncio.sleep(8.0 if mode == "slow" else 0.3)
            yield SimpleNamespace(status=200, headers={"content-type": "text/event-stream"}, read=reader(*EVENTS))
        else:
            await asyncio.sleep(SLOW if mode == "slow" else self.random.choice([0.5, 1.0, 2.0, 4.0, 8.0, 20.0]))
            yield SimpleNamespace(status=200, headers={"content-type": "application/json"}, read=reader(WHOLE))
        self.successes.append(self.now())

    def for_probes(self):
        return SimpleNamespace(send=self._probe)

    @asynccontextmanager
    async def _probe(self, method, url, headers, secrets, body, seconds):
        self.probes.append(self.now())
        if self.mode() == "hangs":
            await asyncio.sleep(seconds)
            raise TimeoutError("no answer")
        yield SimpleNamespace(status=200, headers={})

    async def aclose(self):
        pass


START = 0.0


def reader(*pieces):
    remaining = [*pieces]

    async def read():
        await asyncio.sleep(0)
        return remaining.pop(0) if remaining else b""

    return read


async def send_request(gateway, number, *, stream):
    """Send a request; return the status and the body of its answer."""
    document = {"model": "m", "messages": [{"role": "user", "content": number}], "stream": stream}
    messages = [{"type": "http.request", "body": json.dumps(document).encode(), "more_body": False}]
    received = []

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message):
        received.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "http_version": "1.1",
    }
    await gateway({**scope, "headers": [(b"host", b"127.0.0.1")]}, receive, send)
    return received[0]["status"], b"".join(message.get("body", b"") for message in received)


async def run_clients(gateway, started, stream_seconds, failures):
    """Let every client send one request after another, with pauses."""
    loop = asyncio.get_running_loop()

    async def run_client(client):
        random = Random(client)
        await asyncio.sleep(random.randrange(100) / 10)
        for turn in range(10_000):
            if loop.time() - START >= DURATION:
                return
            number, stream = f"{client}-{turn}", client % 2 == 0
            started.append(loop.time() - START)
            sent_at = loop.time()
            status, body = await send_request(gateway, number, stream=stream)
            if stream:
                stream_seconds.append(loop.time() - sent_at)
            if status != 200 or b"an answer" not in body or (stream and b"[DONE]" not in body):
                failures.append((number, status, body[:200]))
            await asyncio.sleep(random.randrange(50, 200) / 10)

    await asyncio.gather(*map(run_client, range(CLIENTS)))


@pytest.fixture(scope="module")
def outcome():
    """Run the simulation. There are no sockets in it, so the clock need not wait for the kernel."""
    upstreams = {name: SimulatedUpstream(name, Random(name)) for name in "abc"}
    started, stream_seconds, failures = [], [], []

    async def run():
        global START
        START = asyncio.get_running_loop().time()
        clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time, time=time.time)
        patch.setattr(app, "time", clock)
        rows = {name: {"base_url": f"http://{name}.invalid", "wire": "openai_chat", "insecure": True} for name in "abc"}
        models = {"m": {"targets": [{"upstream": name} for name in "abc"]}}
        settings = parse_settings({"upstreams": rows, "models": models, "limits": {"cooldown": COOLDOWN}})
        gateway = Gateway(settings, environment={}, transports=upstreams)
        gateway._router._random = Random(1)
        gateway._router._health._random.seed(2)
        async with gateway.lifespan():
            await run_clients(gateway, started, stream_seconds, failures)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(virtual_time, "_SETTLING", 0.0)
        run_virtual(run())
    return SimpleNamespace(upstreams=upstreams, started=started, stream_seconds=stream_seconds, failures=failures)


def count_between(times, begin, end):
    return sum(begin <= moment < end for moment in times)


@pytest.mark.finding("OP2")
def test_no_client_sees_an_error(outcome):
    assert outcome.failures[:3] == []
    assert len(outcome.started) > 10 * CLIENTS
    assert (
        max(outcome.stream_seconds) < 45.0
    )  # of virtual time: the first-event timeout, and the answer of another target


@pytest.mark.finding("OP2")
def test_slow_whole_answers_are_not_repeated(outcome):
    requests = Counter(number for upstream in outcome.upstreams.values() for _, number, _ in upstream.requests)
    slow = [number for _, number, mode in outcome.upstreams["b"].requests if mode == "slow" and is_whole(number)]
    assert len(slow) > CLIENTS // 4
    assert {requests[number] for number in slow} <= {1, 2}
    first = {number: [] for number in slow}
    for name, upstream in outcome.upstreams.items():
        for moment, number, mode in upstream.requests:
            if number in first:
                first[number].append((moment, name, mode))
    for attempts in first.values():
        assert max(attempts)[2] == "slow"  # the slow answer was the last attempt; an upstream may have failed before it


def is_whole(number):
    return int(number.split("-")[0]) % 2 == 1


@pytest.mark.finding("OP5")
def test_upstreams_get_few_more_requests_than_the_gateway(outcome):
    sent = [moment for upstream in outcome.upstreams.values() for moment, _, _ in upstream.requests]
    for begin in range(0, int(DURATION) - 60, 5):
        client_requests = count_between(outcome.started, begin, begin + 60)
        assert count_between(sent, begin, begin + 60) <= 1.25 * client_requests, begin


@pytest.mark.finding("OP10")
@pytest.mark.parametrize(
    ("name", "recovery"), [("a", 140.0), ("b", 270.0), ("c", 315.0), ("c", 405.0), ("c", 490.0), ("a", 660.0)]
)
def test_traffic_returns_after_one_cooldown(outcome, name, recovery):
    sent = [moment for moment, _, mode in outcome.upstreams[name].requests if mode == "works"]
    returned = recovery + COOLDOWN + 5.0
    everywhere = [moment for upstream in outcome.upstreams.values() for moment, _, _ in upstream.requests]
    assert count_between(sent, recovery, returned) > 0
    # half of its even share among three, so that a lone trial does not pass
    assert count_between(sent, returned, returned + 10) > count_between(everywhere, returned, returned + 10) / 6


@pytest.mark.finding("OP10")
def test_few_probes_and_trials_reach_a_dead_upstream(outcome):
    for upstream in outcome.upstreams.values():
        by_second = defaultdict(int)
        for moment in upstream.probes:
            by_second[int(moment)] += 1
        for moment, _, mode in upstream.requests:
            if mode in ("hangs", "fails", "stuck"):
                by_second[int(moment)] += 1
        for begin, end, name, mode in TROUBLE:
            if name == upstream.name and mode != "slow":
                # With few clients, its first request may come a second after the beginning of the trouble.
                first = min((moment for moment, _, _ in upstream.requests if begin <= moment < end), default=end)
                noticed = ceil(first + (1.0 if mode == "fails" else 36.0))
                assert all(by_second[second] <= 2 for second in range(noticed, int(end))), (name, begin)
