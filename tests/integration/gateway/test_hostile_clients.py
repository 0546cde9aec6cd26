"""Clients that mean no good, or none at all: over a bare socket, at a gateway on a real one."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
from gateway.hostile import (
    ASKED,
    SECRET,
    WORDS,
    ask,
    body_of,
    connect,
    exchange,
    gateway_to,
    head_of,
    path_of,
    post,
    read_answer,
    recorded,
    refused,
    request_bytes,
    responded,
    run,
)
from gateway.serving import WIRES, upstream_rows

from toolwire import Message, Request, Text
from toolwire.gateway.keys import digest
from toolwire.gateway.settings import from_document
from toolwire.ir.parts import Media
from toolwire.testing import Partly
from toolwire.wire import get
from virtual_time import in_virtual_time

every_front = pytest.mark.parametrize("front", WIRES)
LIMITS = {"limits": {"body": 4096, "head": 8192, "slow_client": 0.3}}


def sound(front, **more):
    """The headers of a sound request."""
    return {"host": "localhost", "content-type": "application/json", "content-length": str(len(body_of(front))), **more}


async def closed(reader):
    """Read until the gateway hangs up."""
    return await reader.read()


@pytest.mark.gateway_bad_input(74)
@run
async def test_a_head_that_never_ends_is_not_waited_for():
    async with gateway_to(WORDS, document=LIMITS) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n")
        said = asyncio.ensure_future(closed(reader))
        while not said.done():
            writer.write(b"x-a: b\r\n")
            await asyncio.sleep(0.05)
        assert b"408" in (await said).split(b"\r\n")[0]
        writer.close()
        assert not provider.heard


@pytest.mark.gateway_bad_input(74)
@run
async def test_a_connection_without_a_word_is_not_kept():
    async with gateway_to(WORDS, document=LIMITS) as (gateway, _):
        reader, writer = await connect(gateway)
        await closed(reader)
        writer.close()


@pytest.mark.gateway_bad_input(74)
@every_front
@run
async def test_a_body_that_never_ends_is_not_waited_for(front):
    async with gateway_to(WORDS, document=LIMITS) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(head_of(path_of(front), sound(front)) + body_of(front)[:10])
        refused(await read_answer(reader), front, 400, 408)
        await closed(reader)
        writer.close()
        assert not provider.heard


@in_virtual_time
async def test_a_slow_but_honest_client_is_heard():
    async with gateway_to(WORDS, WORDS, document={"limits": {"slow_client": 1.0}}) as (gateway, _):
        reader, writer = await connect(gateway)
        data = request_bytes(path_of("openai_chat"), body_of("openai_chat"))
        for start in range(0, len(data), 40):
            writer.write(data[start : start + 40])
            await asyncio.sleep(0.02)
        assert responded(await read_answer(reader), "openai_chat").text == WORDS.text
        # the next request on the same connection has its own time
        await asyncio.sleep(0.6)
        writer.write(data)
        assert responded(await read_answer(reader), "openai_chat").text == WORDS.text
        writer.close()


@every_front
@run
async def test_a_body_beyond_the_limit(front):
    body = body_of(front, Request(messages=(Message("user", (Text("x" * 5000),)),)))
    async with gateway_to(WORDS, document=LIMITS) as (gateway, provider):
        refused(await post(gateway, path_of(front), body), front, 413)
        # said with a length, or piece by piece without one
        head = head_of(path_of(front), {"host": "localhost", "transfer-encoding": "chunked"})
        refused(await exchange(gateway, head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)), front, 413)
        # a length that is only claimed
        head = head_of(path_of(front), {"host": "localhost", "content-length": str(10**15)})
        refused(await exchange(gateway, head), front, 413)
        assert not provider.heard


@pytest.mark.parametrize("many", [False, True])
@run
async def test_a_head_beyond_the_limit(many):
    headers = {f"x-{n}": "y" for n in range(5000)} if many else {"x-long": "y" * 20_000}
    async with gateway_to(WORDS, document=LIMITS) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(request_bytes(path_of("openai_chat"), body_of("openai_chat"), headers))
        answer = await read_answer(reader)
        assert answer.status == 431
        assert answer.document["error"]["message"]
        await closed(reader)
        writer.close()
        assert not provider.heard
        long = "/v1/models?" + "x" * 20_000
        assert (await exchange(gateway, head_of(long, {"host": "localhost"}, method="GET"))).status == 431


@every_front
@run
async def test_expect_100_continue(front):
    async with gateway_to(WORDS, document=LIMITS) as (gateway, _):
        reader, writer = await connect(gateway)
        writer.write(head_of(path_of(front), sound(front, expect="100-continue")))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body_of(front))
        assert responded(await read_answer(reader), front).text == WORDS.text
        writer.close()
        # who is too large is told before the body
        head = head_of(path_of(front), sound(front, expect="100-continue") | {"content-length": "100000"})
        refused(await exchange(gateway, head), front, 413)


@pytest.mark.gateway_bad_input(76)
@pytest.mark.parametrize(
    "head",
    [
        "content-length: {size}\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: {size}",
        "content-length: {size}\r\ncontent-length: 3",
        "content-length: {size}, 3",
        "content-length: +{size}",
        "content-length: -1",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: xchunked",
        " content-length: {size}",
        "content-length : {size}",
        "content-length: {size}\nx: y",
    ],
)
@run
async def test_two_ways_to_read_a_body(head):
    body = body_of("openai_chat")
    lines = head.format(size=len(body))
    data = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n\r\n".encode() + body
    async with gateway_to(WORDS) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(data)
        assert (await read_answer(reader)).status == 400
        await closed(reader)
        writer.close()
        assert not provider.heard


@pytest.mark.gateway_bad_input(76)
@every_front
@run
async def test_the_name_of_another(front):
    async with gateway_to(WORDS) as (gateway, provider):
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "[::1", "evil@localhost", ""):
            refused(await post(gateway, path_of(front), body_of(front), {"host": host}), front, 400, 403)
        twice = request_bytes(path_of(front), body_of(front)).replace(b"\r\n", b"\r\nhost: evil.example\r\n", 1)
        refused(await exchange(gateway, twice), front, 400)
        none = request_bytes(path_of(front), body_of(front)).replace(b"host: localhost\r\n", b"", 1)
        refused(await exchange(gateway, none), front, 400, 403)
        assert len(provider.heard) == 0


ORIGINS = (
    "http://evil",
    "null",
    "http://localhost.evil",
    "http://[",
    "file://",
    "http://127.0.0.1.evil",
    "http://a@localhost",
)


@pytest.mark.gateway_bad_input(77)
@every_front
@run
async def test_a_page_of_another_origin(front):
    async with gateway_to(WORDS) as (gateway, provider):
        for origin in ORIGINS:
            refused(await ask(gateway, front, headers={"origin": origin}), front, 403)
            preflight = {"host": "localhost", "origin": origin, "access-control-request-method": "POST"}
            answer = await exchange(gateway, head_of(path_of(front), preflight, method="OPTIONS"))
            assert answer.status in (403, 405)
            assert "access-control-allow-origin" not in answer.headers
        assert not provider.heard


@pytest.mark.gateway_bad_input(78)
@every_front
@run
async def test_headers_of_the_client_stay_with_us(front):
    headers = {
        "x-forwarded-for": "6.6.6.6",
        "x-forwarded-host": "evil.example",
        "forwarded": "host=evil.example",
        "connection": "authorization, x-api-key, keep-alive",
        "proxy-authorization": "Basic c2VjcmV0",
        "te": "trailers",
        "authorization": "Bearer client-secret",
        "x-api-key": "client-secret",
        "cookie": "session=client-secret",
        "user-agent": "evil/1.0",
        "x-evil": "1",
    }
    async with gateway_to(*[WORDS] * 5) as (gateway, provider):
        for wire in WIRES:
            responded(await ask(gateway, front, wire=wire, headers=headers), front)
    assert len(provider.heard) == 5
    for heard in provider.heard:
        sent = json.dumps(heard.headers)
        assert "client-secret" not in sent and "evil" not in sent and "6.6.6.6" not in sent
        assert "c2VjcmV0" not in sent and "te" not in heard.headers
        assert SECRET in sent


@asynccontextmanager
async def trap():
    """An address at which nobody may call."""
    reached = []
    server = await asyncio.start_server(lambda _, writer: reached.append(writer), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    assert not reached


@pytest.mark.gateway_bad_input(79)
@every_front
@run
async def test_a_client_cannot_choose_where_it_goes(front):
    async with trap() as address, gateway_to(WORDS) as (gateway, provider):
        for field in ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider"):
            body = body_of(front)[:-1] + f',"{field}":"{address}"}}'.encode()
            refused(await post(gateway, path_of(front), body), front, 400)
        assert not provider.connections


ODD_MODELS = (
    "../../admin",
    "..%2f..%2fadmin",
    "%2e%2e/%2e%2e/admin",
    "file:///etc/passwd",
    "http://evil/x",
    "m?x=1",
    "m#x",
    "m:x",
    "a\r\nx: y",
    "a\x00b",
    "é",
)


@pytest.mark.one_in(5)
@pytest.mark.gateway_bad_input(80)
@every_front
@run
async def test_a_model_is_a_name_and_no_address(front):
    asked = [f"{wire}/{name}" for wire in WIRES for name in ODD_MODELS]
    async with gateway_to(*[WORDS] * len(asked)) as (gateway, provider):
        for model in asked:
            path = path_of(front, quote(model, safe="/%") if front == "gemini" else model)
            answer = await post(gateway, path, body_of(front, model=model))
            assert answer.status == 200 or refused(answer, front, 400, 404)
    assert provider.heard
    for heard in provider.heard:
        # the path is still that of the wire, with one name in it
        assert heard.path.count("/") == get(heard.wire).path("m", stream=False).count("/")
        assert ".." not in heard.path.split("/")


@every_front
@run
async def test_a_name_without_end_is_not_remembered(front):
    async with gateway_to(WORDS) as (gateway, provider):
        for size in (1000, 30_000):
            model = "openai_chat/" + "x" * size
            refused(await post(gateway, path_of(front, model), body_of(front, model=model)), front, 400)
        assert not provider.heard


NOWHERE = (
    "/v1/../admin",
    "/v1/%2e%2e/admin",
    "//v1/chat/completions",
    "/v1beta/models/%2e%2e%2fx:nothing",
    "/\xff",
    "*",
    "/v1/models/../../x",
    "http://evil/v1/chat/completions",
)


@pytest.mark.gateway_bad_input(80)
@run
async def test_paths_that_are_nowhere():
    async with gateway_to(WORDS) as (gateway, provider):
        for path in NOWHERE:
            answer = await exchange(gateway, head_of(path, {"host": "localhost", "content-length": "0"}))
            assert 400 <= answer.status < 500
        assert not provider.heard


@pytest.mark.gateway_bad_input(81)
@run
async def test_an_image_is_not_fetched():
    async with trap() as address, gateway_to(*[WORDS] * 20) as (gateway, provider):
        asked = Request(messages=(Message("user", (Media("image", url=f"{address}/x.png"),)),))
        for front in ("anthropic", "openai_chat"):
            for wire in WIRES:
                answer = await ask(gateway, front, asked, wire=wire)
                assert answer.status == 200 or refused(answer, front, 400)
        assert provider.heard


@pytest.mark.gateway_bad_input(95)
@every_front
@run
async def test_a_wrong_key(front, caplog):
    caplog.set_level(logging.DEBUG)
    keys = {"keys": {"me": {"hash": digest("sk-tw-right")}}}
    async with gateway_to(WORDS, document=keys) as (gateway, provider):
        refused(await ask(gateway, front), front, 401)
        for name in ("authorization", "x-api-key", "x-goog-api-key"):
            value = "sk-tw-canary" if name != "authorization" else "Bearer sk-tw-canary"
            refused(await ask(gateway, front, headers={name: value}), front, 401)
        path = path_of(front) + "?key=sk-tw-canary"
        answer = await post(gateway, path, body_of(front))
        refused(answer, front, 401)
        assert b"canary" not in answer.body and "canary" not in str(answer.headers)
        assert not provider.heard
        assert "canary" not in repr(gateway.turns)
        answer = await ask(gateway, front, headers={"authorization": "Bearer sk-tw-right"})
        assert responded(answer, front).text == WORDS.text
    # uvicorn's own line of a request, with its query, is not written by `toolwire serve`
    assert "canary" not in str([one.getMessage() for one in caplog.records if one.name != "uvicorn.access"])


@run
async def test_two_requests_in_one_breath_are_answered_in_order():
    async with gateway_to(WORDS, WORDS) as (gateway, _):
        reader, writer = await connect(gateway)
        one = request_bytes(path_of("openai_chat"), body_of("openai_chat"))
        other = request_bytes(path_of("anthropic"), body_of("anthropic"))
        writer.write(one + other)
        assert responded(await read_answer(reader), "openai_chat").text == WORDS.text
        assert responded(await read_answer(reader), "anthropic").text == WORDS.text
        writer.close()


@run
async def test_a_client_that_hangs_up_in_the_middle_of_its_body_leaves_nothing_behind():
    before = len(asyncio.all_tasks())
    async with gateway_to(WORDS) as (gateway, provider):
        for _ in range(20):
            _, writer = await connect(gateway)
            writer.write(request_bytes(path_of("openai_chat"), body_of("openai_chat"))[:-20])
            await asyncio.sleep(0.005)
            writer.transport.abort()
        await recorded(gateway, 20)
        assert len(gateway.turns) == 20
        assert {turn.status for turn in gateway.turns} == {499}
        assert not provider.heard
    assert len(asyncio.all_tasks()) == before


@pytest.mark.one_in(7)
@pytest.mark.gateway_bad_input(75)
@every_front
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size", [None, 200])
@pytest.mark.parametrize("wire", ["anthropic", "openai_chat"])
@run
async def test_a_client_that_goes_away_takes_the_upstream_with_it(front, stream, size, wire):
    long = WORDS.__class__(parts=(Text("It rains and rains. " * 50),), stop=WORDS.stop)
    async with gateway_to(Partly(long, size, "stall"), WORDS) as (gateway, provider):
        _, writer = await connect(gateway)
        model = f"{wire}/m"
        body = body_of(front, ASKED, model, stream=stream)
        writer.write(request_bytes(path_of(front, model, stream=stream), body))
        await provider.asked()
        await asyncio.sleep(0.1)
        writer.close()
        await provider.disconnected()
        await recorded(gateway)
        assert gateway.turns[0].status == 499
        assert responded(await ask(gateway, front, wire=wire), front).text == WORDS.text


@run
async def test_limits_for_connections_are_those_of_the_new_settings():
    async with gateway_to(document=LIMITS) as (gateway, provider):
        rows = upstream_rows(provider.url, key_env="KEY")
        gateway.gateway.apply(from_document({"upstreams": rows, "limits": {"head": 16_384}}))
        answer = await exchange(
            gateway, head_of("/v1/models", {"host": "localhost", "x-much": "x" * 10_000}, method="GET")
        )
        assert answer.status == 200
