"""A gateway above its capacity: refusals in the client's protocol, health checks, connections to upstreams."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from contextlib import asynccontextmanager

import pytest
import uvloop

from hostile import (
    ask,
    body_of,
    connect,
    exchange,
    expect_error,
    head_of,
    path_of,
    post,
    read_answer,
    request_bytes,
    run,
)
from places import TESTS
from serving import WIRES, Serving, listening
from toolwire import Message, Request, Text
from toolwire.asgi.accepting import BatchListener
from toolwire.asgi.offload import LARGE
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.gateway.observe.metrics import Metrics
from toolwire.net.http.client import HttpTransport
from toolwire.net.http.transport import PoolExhausted
from waiting import SAFETY, until

ANSWER = (
    b'{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Rain."},"finish_reason":"stop"}]}'
)
STATUS = {"anthropic": 529}  # https://docs.anthropic.com/en/api/errors; 503 in all other protocols
TLS = TESTS / "fixtures" / "tls"
PLAIN = Request(messages=(Message("user", (Text("hi"),)),))
COUNTED_IN_A_THREAD = 300_000  # bytes of a request
HEALTH = head_of("/health", {"host": "localhost"}, method="GET")


class HoldingUpstream:
    """A provider of Chat that answers when `release` is set. `waiting` requests have arrived and are not answered."""

    def __init__(self):
        self.release = asyncio.Event()
        self.waiting = self.served = 0
        self.answer = ANSWER

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.release.set()
        self._server.close()
        await asyncio.sleep(0.01)

    async def _serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                self.waiting += 1
                await self.release.wait()
                self.waiting -= 1
                self.served += 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(self.answer), self.answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def overloaded(upstreams=1, *, settings=None, is_asked_first=True, **limits):
    """Yield a gateway with these limits, and holding upstreams for the model `m`, in the order of its fallbacks.

    Turns of this loop are long because of the test itself, so the bound on its delay is out of reach.
    """
    metrics = Metrics()
    providers = [HoldingUpstream() for _ in range(upstreams)]
    for provider in providers:
        await provider.__aenter__()
    rows = {f"u{number}": {"base_url": one.url, "wire": "openai_chat"} for number, one in enumerate(providers)}
    models = {f"m{number}": {"upstream": name, "model": "m"} for number, name in enumerate(rows)}
    models["m"] = {"upstream": "u0", "model": "m", "fallbacks": [f"m{number}" for number in range(1, upstreams)]}
    document = {"upstreams": rows, "models": models, "limits": {"loop_delay": 1e6, **limits}, **(settings or {})}
    gateway = Gateway(parse_settings(document), environment={}, sinks=[metrics], metrics=metrics.page)
    try:
        async with listening(gateway, lambda: gateway.limits, gate=gateway if is_asked_first else None) as url:
            serving = Serving(gateway, [])
            serving.url, serving.metrics = url, metrics
            yield serving, *providers
    finally:
        for provider in providers:
            await provider.__aexit__()


def chat(model="m"):
    return request_bytes("/v1/chat/completions", body_of("openai_chat", model=model))


def send(gateway, count):
    return [asyncio.ensure_future(exchange(gateway, chat())) for _ in range(count)]


def value_of(metrics, name, **labels):
    for family in metrics.collect():
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


@pytest.mark.finding("OP3")
@pytest.mark.parametrize("is_asked_first", [True, False], ids=["before the body", "by the application"])
@run
async def test_requests_above_the_bound_are_refused_in_the_protocol_of_the_client(is_asked_first):
    """Another server than ours does not ask before, so the application refuses by itself."""
    async with overloaded(requests=3, is_asked_first=is_asked_first) as (gateway, provider):
        admitted = send(gateway, 3)
        await until(lambda: provider.waiting == 3)
        for front in WIRES:
            for stream in (False, True):
                answer = await ask(gateway, front, wire="u0", stream=stream)
                fault = expect_error(answer, front, STATUS.get(front, 503))
                assert answer.headers["retry-after"] == "1" and fault.retry_after == 1.0
                assert fault.kind == "overloaded"
        assert value_of(gateway.metrics, "toolwire_requests_refused_total", reason="requests") == 2 * len(WIRES)
        for path in ("/health", "/ready", "/metrics", "/"):
            assert (await exchange(gateway, head_of(path, {"host": "localhost"}, method="GET"))).status == 200
        provider.release.set()
        assert [answer.status for answer in await asyncio.gather(*admitted)] == [200] * 3
        assert provider.served == 3
        assert (await exchange(gateway, chat())).status == 200
        assert gateway.gateway.admission.in_flight == 0


@pytest.mark.finding("OP3")
@run
async def test_refusal_does_not_wait_for_the_body_and_keeps_the_connection():
    async with overloaded(requests=1) as (gateway, provider):
        admitted = send(gateway, 1)
        await until(lambda: provider.waiting == 1)
        reader, writer = await connect(gateway)
        body = body_of("openai_chat", model="m").ljust(500_000)
        writer.write(request_bytes("/v1/chat/completions", body)[:-400_000])
        assert (await read_answer(reader)).status == 503
        provider.release.set()
        await asyncio.gather(*admitted)
        writer.write(body[-400_000:])
        writer.write(chat())
        assert (await read_answer(reader)).status == 200
        writer.close()


@pytest.mark.finding("OP3")
@pytest.mark.parametrize(
    "headers", [{"expect": "100-continue"}, {"connection": "close"}], ids=["expects 100-continue", "closes"]
)
@run
async def test_connection_that_cannot_stay_open_ends_after_the_refusal(headers, caplog):
    """A request after it, in the same data, was started, and its answer failed on the closed connection."""
    async with overloaded(requests=1) as (gateway, provider):
        admitted = send(gateway, 1)
        await until(lambda: provider.waiting == 1)
        reader, writer = await connect(gateway)
        writer.write(request_bytes("/v1/messages", body_of("anthropic"), headers) + HEALTH)
        expect_error(await read_answer(reader), "anthropic", 529)
        assert await reader.read() == b""
        assert not [record for record in caplog.records if record.exc_info]
        writer.close()
        provider.release.set()
        assert (await admitted[0]).status == 200


@pytest.mark.finding("OP3")
@run
async def test_pipelined_requests_are_refused_in_order():
    async with overloaded(requests=1) as (gateway, provider):
        admitted = send(gateway, 1)
        await until(lambda: provider.waiting == 1)
        reader, writer = await connect(gateway)
        writer.write(HEALTH + chat() + HEALTH)
        assert [(await read_answer(reader)).status for _ in range(3)] == [200, 503, 200]
        writer.close()
        provider.release.set()
        assert (await admitted[0]).status == 200


@pytest.mark.finding("OP3")
@run
async def test_hundreds_of_pipelined_requests_are_refused():
    """Each refusal starts the next request. Nested calls of that many would be too deep."""
    async with overloaded(requests=2) as (gateway, provider):
        admitted = send(gateway, 1)
        reader, writer = await connect(gateway)
        writer.write(chat())
        await until(lambda: provider.waiting == 2)
        writer.write(head_of("/v1/models", {"host": "localhost"}, method="GET") * 300)
        held = send(gateway, 1)
        assert (await held[0]).status == 503
        gateway.gateway.admission.limit = 0
        provider.release.set()
        assert (await read_answer(reader)).status == 200
        assert [(await read_answer(reader)).status for _ in range(300)] == [503] * 300
        writer.close()
        assert (await admitted[0]).status == 200


@pytest.mark.finding("OP3")
@run
async def test_queued_request_takes_the_place_of_the_one_before():
    async with overloaded(requests=1) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(chat() * 3)
        await until(lambda: provider.waiting == 1)
        provider.release.set()
        assert [(await read_answer(reader)).status for _ in range(3)] == [200] * 3
        writer.close()


@pytest.mark.finding("OP3")
@run
async def test_client_whose_large_requests_wait_for_threads_is_refused():
    """It has at most half of the threads. Its queue was not bounded, because a thread was always free."""
    keys = {name: {"hash": hash_key(name)} for name in ("busy", "other")}
    async with overloaded(settings={"keys": keys}, loop_delay=0.01) as (gateway, provider):
        provider.release.set()
        async with waiting_for_threads(gateway, "busy"):
            for front in WIRES:
                body = body_of(front, model="u0/m").ljust(COUNTED_IN_A_THREAD)
                answer = await post(gateway, path_of(front, "u0/m"), body, {"authorization": "Bearer busy"})
                assert expect_error(answer, front, STATUS.get(front, 503)).retry_after == 1.0
            assert value_of(gateway.metrics, "toolwire_requests_refused_total", reason="delay") == len(WIRES)
            assert (await exchange(gateway, chat_of("busy"))).status == 200  # a small request needs no thread
            assert (await exchange(gateway, chat_of("other", COUNTED_IN_A_THREAD))).status == 200
        assert (await exchange(gateway, chat_of("busy", COUNTED_IN_A_THREAD))).status == 200


@asynccontextmanager
async def waiting_for_threads(gateway, client):
    """Keep a client's share of the threads busy. Its calls have waited for too long."""
    offload, ends, skipped = gateway.gateway._offload, threading.Event(), 0.0
    offload._clock = lambda: time.monotonic() + skipped
    calls = [asyncio.ensure_future(offload.run(client, LARGE + 1, ends.wait)) for _ in range(5)]
    try:
        await until(lambda: offload.waiting)
        skipped = 1.0
        yield
    finally:
        ends.set()
    await asyncio.gather(*calls)


@pytest.mark.finding("OP3")
@run
async def test_large_request_that_needs_no_thread_is_not_refused():
    """It was refused because of its declared length, although only many values or much text are work for a thread."""
    async with overloaded(loop_delay=0.01) as (gateway, provider):
        provider.release.set()
        async with waiting_for_threads(gateway, ""):
            for front in ("openai_chat", "anthropic"):
                body = body_of(front, PLAIN, model="u0/m").ljust(LARGE + 1)
                assert (await post(gateway, path_of(front, "u0/m"), body)).status == 200
            streamed = body_of("openai_chat", PLAIN, model="u0/m").ljust(2 * 1024 * 1024)
            assert (await post(gateway, "/v1/chat/completions", streamed)).status == 200


@pytest.mark.finding("OP3")
@run
async def test_request_that_needs_a_thread_is_refused_whatever_its_declared_length():
    """HTTP/2 declares none, and a small body with many values is work for a thread."""
    async with overloaded(loop_delay=0.01) as (gateway, provider):
        provider.release.set()
        async with waiting_for_threads(gateway, ""):
            body = body_of("anthropic", PLAIN, model="u0/m")[:-1] + b',"values":[' + b"0," * 8000 + b"0]}"
            assert len(body) < LARGE
            assert expect_error(await post(gateway, "/v1/messages", body), "anthropic", 529).retry_after == 1.0
            body = body_of("openai_chat", PLAIN, model="u0/m").ljust(COUNTED_IN_A_THREAD)
            chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            head = head_of("/v1/chat/completions", {"host": "localhost", "transfer-encoding": "chunked"})
            assert (await exchange(gateway, head + chunk)).status == 503
        assert provider.served == 0


@pytest.mark.finding("OP3")
@run
async def test_request_that_was_sent_to_an_upstream_is_not_refused():
    """Its answer is paid for, so it waits for a thread."""
    async with overloaded(loop_delay=0.01) as (gateway, provider):
        body = body_of("anthropic", PLAIN, model="u0/m").ljust(LARGE + 1)
        answer = asyncio.ensure_future(post(gateway, "/v1/messages", body))
        await until(lambda: provider.waiting == 1)
        async with waiting_for_threads(gateway, ""):
            provider.answer = ANSWER.replace(b"Rain.", b"Rain. " * 20_000)
            provider.release.set()
            await until(lambda: provider.served == 1)
            await until(lambda: len(gateway.gateway._offload.waiting[""].turns) > 3)
        assert (await answer).status == 200


def chat_of(key, size=0):
    body = body_of("openai_chat", model="m").ljust(size)
    return request_bytes("/v1/chat/completions", body, {"authorization": f"Bearer {key}"})


class _Connection(asyncio.Protocol):
    made = 0

    def connection_made(self, transport):
        _Connection.made += 1


@pytest.mark.finding("OP1")
def test_all_waiting_connections_are_accepted_in_few_turns_of_uvloop():
    """libuv alone accepts one in each turn, so each of them would wait for all turns before."""

    async def accept_all():
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
            clients = [socket.create_connection(listener.getsockname()) for _ in range(100)]
            accepting = BatchListener(listener, _Connection, (), 100, None)
            accepting.start()
            turns = _Connection.made = 0
            while _Connection.made < len(clients):
                await asyncio.sleep(0)
                turns += 1
            accepting.close()
            for client in clients:
                client.close()
            assert turns < 20

    uvloop.run(asyncio.wait_for(accept_all(), SAFETY))


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_clients_without_a_tls_handshake_do_not_take_all_connections(runner):
    """The limit of connections did not count them, so they took the descriptors of everything else."""

    async def accept():
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            accepting = BatchListener(listener, _Connection, (), 5, tls)
            accepting.start()
            silent = [await asyncio.open_connection(*listener.getsockname()) for _ in range(8)]
            assert await silent[2][0].read() == b""
            assert len(accepting._connecting) == 5
            _Connection.made = 0
            _, writer = await asyncio.open_connection(*listener.getsockname(), ssl=ssl._create_unverified_context())
            await until(lambda: _Connection.made == 1)
            accepting.close()
            for one in (writer, *(writer for _, writer in silent)):
                one.close()

    runner(asyncio.wait_for(accept(), SAFETY))


@pytest.mark.finding("SE14")
@run
async def test_connections_to_an_upstream_are_as_many_as_requests_by_default():
    """Once there were 256 of them, and further requests waited without a word."""
    async with overloaded() as (gateway, provider):
        answers = send(gateway, 300)
        await until(lambda: provider.waiting == 300)
        assert value_of(gateway.metrics, "toolwire_upstream_waiting") == 0
        provider.release.set()
        assert {answer.status for answer in await asyncio.gather(*answers)} == {200}


@pytest.mark.finding("SE14")
@run
async def test_waiting_requests_are_counted_and_logged(caplog):
    async with overloaded(connections=2) as (gateway, provider):
        answers = send(gateway, 5)
        await until(lambda: value_of(gateway.metrics, "toolwire_upstream_waiting") == 3)
        await until(lambda: provider.waiting == 2)
        [record] = [record for record in caplog.records if "are in use" in record.getMessage()]
        assert "all 2 connections" in record.getMessage() and "limits.connections" in record.getMessage()
        provider.release.set()
        assert {answer.status for answer in await asyncio.gather(*answers)} == {200}
        assert value_of(gateway.metrics, "toolwire_upstream_waiting") == 0


@pytest.mark.finding("SE14")
@run
async def test_next_target_is_tried_after_the_wait_for_a_connection():
    async with overloaded(2, connections=1, queue=0.05) as (gateway, first, second):
        answers = send(gateway, 2)
        await until(lambda: first.waiting == second.waiting == 1)
        first.release.set()
        second.release.set()
        assert {answer.status for answer in await asyncio.gather(*answers)} == {200}
        assert first.served == second.served == 1


@pytest.mark.finding("SE14")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_wait_for_the_last_target_ends_in_503(front):
    """The wait is not repeated, although a 503 of the upstream would be."""
    async with overloaded(connections=1, queue=0.05) as (gateway, provider):
        admitted = send(gateway, 1)
        await until(lambda: provider.waiting == 1)
        answer = await ask(gateway, front, wire="u0")
        fault = expect_error(answer, front, STATUS.get(front, 503))
        assert fault.kind == "overloaded" and answer.headers["retry-after"] == "1"
        assert value_of(gateway.metrics, "toolwire_upstream_attempts_total", upstream="u0", outcome="overloaded") == 1
        provider.release.set()
        assert (await admitted[0]).status == 200


@pytest.mark.finding("SE14")
@run
async def test_client_waits_as_long_as_the_timeout_of_a_request():
    """Without `max_wait`, as in a client for models. Nothing was sent, which ConnectionRefusedError means."""
    async with HoldingUpstream() as provider:
        transport = HttpTransport(connections=1)
        first = asyncio.ensure_future(_post(transport, provider.url, 300.0))
        await until(lambda: provider.waiting == 1)
        with pytest.raises(PoolExhausted) as caught:
            await _post(transport, provider.url, 0.05)
        assert isinstance(caught.value, ConnectionRefusedError) and isinstance(caught.value, TimeoutError)
        assert transport.waiting == 0
        provider.release.set()
        await first
        await transport.aclose()


async def _post(transport, url, seconds):
    async with transport.post(url, {}, {}, b"{}", seconds) as reply:
        return await reply.read()
