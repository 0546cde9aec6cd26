"""Model clients over real sockets, against a scripted provider that speaks every wire."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import wraps
from pathlib import Path

import pytest

import toolwire
from toolwire import (
    LossError,
    Message,
    ProtocolError,
    Request,
    Response,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    TruncatedStream,
    UpstreamError,
    fold,
)
from toolwire.ir.losses import Losses
from toolwire.ir.request import Params
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.net.client import ModelClient
from toolwire.net.h1 import H1Transport
from toolwire.net.http import HttpTransport
from toolwire.net.retry import RetryPolicy
from toolwire.testing import PartialReply, RawReply, Upstream, same
from virtual_time import in_virtual_time
from waiting import SAFETY

TLS = Path(__file__).parent.parent.parent / "fixtures" / "tls"
CANARY = "sk-canary-0123456789abcdef"
PROVIDERS = {
    "anthropic": "anthropic",
    "gemini": "gemini",
    "openai-chat": "openai_chat",
    "openai": "openai_responses",
}
WEATHER = Tool(
    "get_weather",
    "The weather in a city",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
)
ODD = Tool("files.read!", "A file", {"type": "object", "properties": {"path": {"type": "string"}}})
ASKED = Request(messages=(Message("user", (Text("Weather in Paris?"),)),), tools=(WEATHER, ODD))
WORDS = Response(parts=(Text("It will rain in Paris."),), stop=Stop("stop"), usage=Usage(12, 5))
ONE = Response(
    parts=(ToolCall("c1", "get_weather", {"city": "Paris", "days": 2}),), stop=Stop("tool_calls"), usage=Usage(12, 9)
)
TWO = Response(
    parts=(
        Text("I look."),
        ToolCall("c1", "get_weather", {"city": "Paris"}),
        ToolCall("c2", "get_weather", {"city": "Rome"}),
    ),
    stop=Stop("tool_calls"),
)
LONG = Response(parts=(Text("It rains and rains. " * 50),), stop=Stop("stop"))
QUICK = RetryPolicy(2, initial_delay=0.01)

every_provider = pytest.mark.parametrize("provider", PROVIDERS)
both_transports = pytest.mark.parametrize("kind", [H1Transport, HttpTransport])
both_ways = pytest.mark.parametrize("way", ["whole", "stream"])


def run(test):
    """An async test, with a time limit."""

    @wraps(test)
    def wrapper(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), SAFETY))

    return wrapper


@asynccontextmanager
async def talk(provider, *script, upstream=None, **options):
    options = {"key": CANARY, "retries": QUICK, **options}
    async with (
        Upstream(*script, **(upstream or {})) as server,
        ModelClient(f"{provider}/some-model", base_url=server.url, **options) as client,
    ):
        yield server, client


async def answered(client, way, request=ASKED, **options):
    if way == "whole":
        return await client.ask(request, **options)
    return fold([event async for event in client.stream(request, **options)])


def told(response):
    calls = [(call.name, call.arguments, call.state) for call in response.calls]
    return response.text, calls, response.stop.reason


@every_provider
@both_ways
@pytest.mark.parametrize("answer", [WORDS, ONE, TWO], ids=["words", "one call", "two calls"])
@run
async def test_an_answer_comes_back_as_it_was_meant(provider, way, answer):
    async with talk(provider, answer) as (upstream, client):
        response = await answered(client, way)
    assert same(told(response), told(answer))
    assert len({call.id for call in response.calls}) == len(answer.calls)
    if answer.usage is not None:
        assert (response.usage.input, response.usage.output) == (12, answer.usage.output)
    (heard,) = upstream.heard
    assert (heard.wire, heard.stream, heard.request.model) == (PROVIDERS[provider], way == "stream", "some-model")
    assert [tool.description for tool in heard.request.tools] == ["The weather in a city", "A file"]


@every_provider
@both_ways
@run
async def test_names_that_were_mapped_come_back(provider, way):
    def call_the_odd_one(request):
        (name,) = [tool.name for tool in request.tools if tool.description == "A file"]
        assert name != ODD.name
        return Response(parts=(ToolCall("c1", name, {"path": "a"}),), stop=Stop("tool_calls"))

    async with talk(provider, call_the_odd_one) as (_, client):
        losses = Losses()
        response = await answered(client, way, losses=losses)
    assert [call.name for call in response.calls] == [ODD.name]
    assert "/tools/1/name" in [loss.path for loss in losses]


@every_provider
@both_ways
@run
async def test_an_error_is_raised_with_what_the_provider_said(provider, way):
    fault = Fault("invalid_request", "there is something wrong", 400)
    async with talk(provider, fault) as (upstream, client):
        with pytest.raises(UpstreamError, match="something wrong") as raised:
            await answered(client, way)
    assert (raised.value.fault.kind, raised.value.status) == ("invalid_request", 400)
    assert len(upstream.heard) == 1


@every_provider
@run
async def test_a_fault_in_the_middle_of_a_stream_is_raised(provider):
    broken = Response(parts=(Text("It will"),), fault=Fault("overloaded", "too much to do", 529))
    async with talk(provider, broken) as (upstream, client):
        seen = []
        with pytest.raises(UpstreamError, match="too much to do"):
            async for event in client.stream(ASKED):
                seen.append(event)
    assert "".join(event.text for event in seen if hasattr(event, "text")) == "It will"
    assert len(upstream.heard) == 1


@every_provider
@both_ways
@pytest.mark.parametrize("form", ["hermes", "function_xml", "qwen3_xml", "llama3_json", "pythonic"])
@run
async def test_calls_in_text_over_every_wire(provider, way, form):
    text = toolwire.text.get(form)
    call = ToolCall("call00000", "get_weather", {"city": "Paris", "days": 2})
    spoken = Response(parts=(Text(text.render_call(call, ASKED.tools).text),), stop=Stop("stop"))
    async with talk(provider, spoken, WORDS, text=form) as (upstream, client):
        response = await answered(client, way)
        assert same(told(response)[1:], ([("get_weather", {"city": "Paris", "days": 2}, "complete")], "tool_calls"))
        result = Message("user", (ToolResult(response.calls[0].id, None, (Text("rain"),)),))
        again = Request(messages=(*ASKED.messages, Message("assistant", response.parts), result), tools=ASKED.tools)
        assert (await answered(client, way, again)).text == WORDS.text
    assert not any(heard.request.tools for heard in upstream.heard)
    assert b"get_weather" in upstream.heard[0].body
    assert b"rain" in upstream.heard[1].body


@every_provider
@run
async def test_a_stream_is_left_where_nothing_more_counts(provider):
    text = toolwire.text.get("function_xml")
    call = text.render_call(ToolCall("call00000", "get_weather", {"city": "Paris"}), ASKED.tools).text
    spoken = Response(parts=(Text(call + "\nEXECUTION RESULT: " + "sun " * 2000),), stop=Stop("stop"))
    async with talk(provider, spoken, text="function_xml", upstream={"pace": 0.002}) as (upstream, client):
        response = await answered(client, "stream")
        assert same(told(response), ("", [("get_weather", {"city": "Paris"}, "complete")], "tool_calls"))
        await upstream.disconnected()


@run
async def test_a_call_in_text_that_cannot_be_read_is_asked_for_once_more():
    broken = Response(parts=(Text('<tool_call>{"name": 7}</tool_call>'),), stop=Stop("stop"))
    called = Text('<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>')
    good = Response(parts=(called,), stop=Stop("stop"))
    async with talk("openai-chat", broken, good, text="hermes") as (upstream, client):
        response = await client.ask(ASKED)
    assert [call.arguments for call in response.calls] == [{"city": "Rome"}]
    assert len(upstream.heard[1].request.messages) > len(upstream.heard[0].request.messages)


# What passes is tried again


@every_provider
@both_ways
@pytest.mark.parametrize(
    "fault",
    [
        Fault("rate_limit", "slow down", 429, retry_after=0.02),
        Fault("server", "oh", 500),
        Fault("overloaded", "busy", 503),
        PartialReply(then="reset"),
        PartialReply(then="cut"),
    ],
    ids=["429", "500", "503", "reset", "closed"],
)
@run
async def test_what_passes_is_tried_again(provider, way, fault):
    async with talk(provider, fault, fault, WORDS) as (upstream, client):
        assert (await answered(client, way)).text == WORDS.text
    assert len(upstream.heard) == 3
    assert len({heard.body for heard in upstream.heard}) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault("authentication", "who are you", 401),
        Fault("billing", "no money", 429, "insufficient_quota"),
        Fault("rate_limit", "in an hour", 429, retry_after=3600.0),
        Fault("server", "do not", 500, retryable=False),
        Fault("too_large", "too long", 413),
    ],
    ids=lambda fault: fault.message,
)
@run
async def test_what_does_not_pass_is_not_tried_again(fault):
    async with talk("openai-chat", fault, WORDS) as (upstream, client):
        with pytest.raises(UpstreamError) as raised:
            await client.ask(ASKED)
    assert raised.value.fault.retry_after == fault.retry_after
    assert len(upstream.heard) == 1


@in_virtual_time
async def test_a_provider_is_given_the_time_that_it_asks_for():
    clock = asyncio.get_running_loop().time
    async with talk("anthropic", Fault("rate_limit", "slow", 429, retry_after=3.0), WORDS) as (_, client):
        began = clock()
        await client.ask(ASKED)
        assert clock() - began >= 3.0


@run
async def test_a_date_to_come_back_at():
    later = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    refused = RawReply(b"{}", 429, {"Retry-After": later})
    async with talk("openai-chat", refused, WORDS) as (upstream, client):
        with pytest.raises(UpstreamError) as raised:
            await client.ask(ASKED)
    assert 7000 < raised.value.fault.retry_after <= 7200
    assert len(upstream.heard) == 1


@run
async def test_it_does_not_try_for_ever():
    async with talk("gemini", *[Fault("server", "oh", 500)] * 5) as (upstream, client):
        with pytest.raises(UpstreamError, match="oh"):
            await client.ask(ASKED)
    assert len(upstream.heard) == 3


@every_provider
@both_ways
@run
async def test_an_answer_that_has_begun_is_not_asked_for_again(provider, way):
    async with talk(provider, PartialReply(TWO, 30), WORDS) as (upstream, client):
        with pytest.raises(TruncatedStream):
            await answered(client, way)
    assert len(upstream.heard) == 1


@run
async def test_nobody_at_home():
    async with Upstream() as gone:
        url = gone.url
    async with ModelClient("openai/m", base_url=url, key=CANARY, retries=QUICK) as client:
        with pytest.raises(UpstreamError, match="no connection to http://127") as raised:
            await client.ask(ASKED)
    assert raised.value.fault.code == "connection"


# Time, and going away


@both_ways
@pytest.mark.parametrize("size", [None, 0, 40])
@in_virtual_time
async def test_the_deadline_holds_wherever_the_server_stalls(way, size):
    clock = asyncio.get_running_loop().time
    async with talk("openai-chat", *[PartialReply(WORDS, size, "stall")] * 3, timeout=0.3) as (upstream, client):
        began = clock()
        with pytest.raises(UpstreamError) as raised:
            await answered(client, way)
        assert clock() - began == pytest.approx(0.3)
        assert (raised.value.fault.kind, raised.value.status) == ("timeout", 504)
        await upstream.disconnected()


@in_virtual_time
async def test_retries_share_the_deadline():
    clock = asyncio.get_running_loop().time
    async with talk(
        "openai-chat", *[Fault("server", "oh", 500)] * 9, timeout=0.3, retries=RetryPolicy(9, initial_delay=0.2)
    ) as (
        _,
        client,
    ):
        began = clock()
        with pytest.raises(UpstreamError, match="oh"):
            await client.ask(ASKED)
        assert clock() - began <= 0.3


@every_provider
@run
async def test_a_cancelled_task_closes_its_stream(provider):
    async with talk(provider, PartialReply(LONG, 2500, "stall"), WORDS) as (upstream, client):
        begun = asyncio.Event()

        async def listen():
            async for _ in client.stream(ASKED):
                begun.set()

        task = asyncio.create_task(listen())
        await begun.wait()
        assert upstream.disconnects == 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.disconnected()
        assert (await client.ask(ASKED)).text == WORDS.text


@run
async def test_a_cancelled_task_closes_its_answer_once_that_has_begun():
    async with talk("openai-chat", PartialReply(WORDS, 10, "stall")) as (upstream, client):
        task = asyncio.create_task(client.ask(ASKED))
        await upstream.wait_for_requests()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.disconnected()


@every_provider
@both_ways
@run
async def test_a_request_given_up_before_its_answer_begins_is_closed_at_once(provider, way):
    async with talk(provider, PartialReply(WORDS, None, "stall"), WORDS) as (upstream, client):
        task = asyncio.create_task(answered(client, way))
        await upstream.wait_for_requests()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.disconnected()
        assert (await answered(client, way)).text == WORDS.text


@run
async def test_behind_a_proxy_a_request_given_up_before_its_answer_begins_ends_with_the_deadline():
    transport = HttpTransport()
    stalls = PartialReply(WORDS, None, "stall")
    async with talk("openai-chat", stalls, timeout=0.5, transport=transport) as (upstream, client):
        task = asyncio.create_task(client.ask(ASKED))
        await upstream.wait_for_requests()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.disconnected()
    await transport.aclose()


@run
async def test_the_way_to_a_model_leads_through_the_proxy_of_the_environment():
    seen = []

    async def proxy(reader, writer):
        seen.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with server, ModelClient("m", base_url="https://model.example.com", retries=0) as client:
            with pytest.raises(UpstreamError, match=r"no connection to https://model\.example\.com"):
                await client.ask(ASKED)
    assert seen == [b"CONNECT model.example.com:443 HTTP/1.1\r\n"]


@contextmanager
def serving(*script):
    """A provider in a thread of its own."""
    loop, started, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    urls = []

    async def serve():
        async with Upstream(*script) as upstream:
            urls.append(upstream.url)
            started.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait(SAFETY)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(SAFETY)
        loop.close()


def test_one_client_serves_several_event_loops():
    async def ask(client):
        return (await client.ask(ASKED)).text

    with serving(WORDS, WORDS, WORDS) as url:
        client = ModelClient("openai-chat/m", base_url=url)
        assert [asyncio.run(ask(client)) for _ in range(3)] == [WORDS.text] * 3


@run
async def test_leaving_the_loop_closes_the_stream():
    async with talk("anthropic", PartialReply(LONG, 2500, "stall")) as (upstream, client):
        async with aclosing(client.stream(ASKED)) as events:
            async for _ in events:
                break
        await upstream.disconnected()


@in_virtual_time
async def test_the_first_words_do_not_wait_for_the_rest():
    clock = asyncio.get_running_loop().time
    async with talk("openai-chat", WORDS, upstream={"pace": 0.02, "delta": 1}) as (_, client):
        began, first = clock(), None
        async for event in client.stream(ASKED):
            if hasattr(event, "text") and first is None:
                first = clock() - began
        assert first < (clock() - began) / 2


@every_provider
@run
async def test_connections_are_used_again(provider):
    async with talk(provider, *[WORDS] * 6) as (upstream, client):
        for way in ("whole", "stream") * 3:
            await answered(client, way)
    assert upstream.connections <= 3  # one, but for a race between the pool and the next request


@both_transports
@run
async def test_many_at_once_over_one_pool(kind):
    transport = kind(connections=4)
    async with Upstream(*[ONE] * 40, pace=0.001) as upstream:
        clients = [ModelClient(f"{p}/m", base_url=upstream.url, transport=transport) for p in PROVIDERS]
        answers = await asyncio.gather(*(answered(client, "stream") for client in clients for _ in range(10)))
        for client in clients:
            await client.aclose()
        await transport.aclose()
    assert all(same(told(answer), told(ONE)) for answer in answers)
    assert upstream.connections <= 4


# Answers that are none


@every_provider
@both_ways
@pytest.mark.parametrize("garbage", [b"", b"<html>502</html>", b"{", b"[]", b'"x"', b"{}", b"\xff\xfe\x00", b"null"])
@run
async def test_garbage_is_a_protocol_error(provider, way, garbage):
    kind = "text/event-stream" if way == "stream" else "application/json"
    async with talk(provider, RawReply(garbage, 200, {"content-type": kind})) as (upstream, client):
        with pytest.raises(ProtocolError):
            await answered(client, way)
    assert len(upstream.heard) == 1


@both_ways
@pytest.mark.parametrize("status", [400, 502])
@run
async def test_an_error_page_is_an_error(way, status):
    page = RawReply(b"<html>Bad gateway</html>", status, {"content-type": "text/html"})
    async with talk("openai", *[page] * 3) as (_, client):
        with pytest.raises(UpstreamError) as raised:
            await answered(client, way)
    assert (raised.value.status, raised.value.message) == (status, f"HTTP {status}")


@every_provider
@run
async def test_a_server_that_does_not_stream(provider):
    codec = toolwire.wire.get(PROVIDERS[provider])
    whole = toolwire.ir.text.to_bytes(codec.encode_response(TWO).body)
    async with talk(provider, RawReply(whole)) as (_, client):
        assert same(told(await answered(client, "stream")), told(TWO))


@both_ways
@run
async def test_an_error_behind_a_200(way):
    body = b'{"error": {"message": "slow down", "code": 429}}'
    async with talk("openrouter", RawReply(body), WORDS) as (_, client):
        with pytest.raises(UpstreamError, match="slow down") as raised:
            await answered(client, way)
    assert raised.value.fault.kind == "rate_limit"


@every_provider
@both_ways
@run
async def test_an_answer_without_end_is_refused(provider, way):
    endless = Response(parts=(Text("x" * 50_000),), stop=Stop("stop"))
    async with talk(provider, endless, limit=10_000, upstream={"piece": 4096, "delta": 500}) as (_, client):
        with pytest.raises(ProtocolError, match="exceeds 10000 bytes"):
            await answered(client, way)


@run
async def test_a_loss_is_refused_where_that_was_asked_for():
    request = Request(messages=ASKED.messages, params=Params(top_k=5), choice=ToolChoice("auto"))
    async with talk("openai-chat", WORDS, strict=True) as (upstream, client):
        with pytest.raises(LossError):
            await client.ask(request)
    assert not upstream.heard


# Keys


@every_provider
@both_ways
@run
async def test_the_key_goes_to_the_server_and_nowhere_else(provider, way):
    records: list[str] = []
    handler = logging.Handler(0)
    handler.emit = lambda record: records.append(handler.format(record) + repr(record.__dict__))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(0)
    echoed = Fault("authentication", f"no such key: {CANARY}", 401, "bad", f"key {CANARY}", extra={"x": {"k": CANARY}})
    lost = [PartialReply(then="reset"), Fault("server", CANARY, 500), echoed]
    try:
        async with talk(provider, *lost, RawReply(b"{", 200), WORDS, PartialReply(TWO, 40)) as (upstream, client):
            shown = [repr(client), str(client), repr(client.endpoint), repr(vars(client))]
            for _ in range(4):
                try:
                    await answered(client, way)
                except toolwire.ToolwireError as error:
                    shown += [str(error), repr(error), repr(vars(error)), repr(error.__cause__)]
            assert len(shown) == 4 + 3 * 4
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert records
    assert not [text for text in (*shown, *records) if CANARY in text]
    for heard in upstream.heard:
        assert [name for name, value in heard.headers.items() if CANARY in value] == [
            {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(provider, "authorization")
        ]
        assert CANARY not in heard.path
        assert CANARY.encode() not in heard.body


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@run
async def test_a_redirect_is_not_followed(status):
    async with Upstream(WORDS) as elsewhere:
        away = RawReply(b"", status, {"location": f"{elsewhere.url}/chat/completions?{CANARY}"})
        async with talk("openai-chat", away) as (_, client):
            with pytest.raises(UpstreamError, match="set the base URL") as raised:
                await client.ask(ASKED)
    assert CANARY not in str(raised.value)
    assert not elsewhere.heard


def server_certificate():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


@run
async def test_a_certificate_that_nobody_vouches_for_is_refused():
    async with talk("openai-chat", WORDS, upstream={"tls": server_certificate()}) as (upstream, client):
        with pytest.raises(UpstreamError, match="certificate"):
            await client.ask(ASKED)
    assert not upstream.heard


@both_transports
@run
async def test_a_certificate_of_ones_own(kind):
    transport = kind(roots=[(TLS / "ca.pem").read_bytes()])
    async with talk("openai-chat", WORDS, upstream={"tls": server_certificate()}, transport=transport) as (_, client):
        assert (await client.ask(ASKED)).text == WORDS.text
    await transport.aclose()


@run
async def test_a_proxy_of_the_environment_sees_nothing_that_is_in_the_clear():
    async with Upstream(WORDS) as proxy:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                patch.setenv(name, proxy.url)
            async with talk("openai-chat", WORDS) as (upstream, client):
                assert (await client.ask(ASKED)).text == WORDS.text
    assert (len(upstream.heard), len(proxy.heard)) == (1, 0)


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/proxy/v1", "/v1/chat/completions", "/v1?api-version=3"])
@run
async def test_odd_base_urls(tail):
    async with Upstream(WORDS) as upstream, ModelClient("meta-llama/Llama-4", base_url=upstream.url + tail) as client:
        assert (await client.ask(ASKED)).text == WORDS.text
    (heard,) = upstream.heard
    assert heard.wire == "openai_chat"
    assert heard.request.model == "meta-llama/Llama-4"
    assert "//" not in heard.path
    assert heard.path.count("chat/completions") == 1
    assert ("api-version=3" in heard.path) == ("api-version" in tail)
    assert "authorization" not in heard.headers


@run
async def test_a_vendor_spells_a_field_its_own_way():
    request = Request(messages=ASKED.messages, params=Params(max_tokens=7, seed=3))
    bodies = {}
    for provider in ("mistral", "vllm", "openai-chat"):
        async with talk(provider, WORDS) as (upstream, client):
            await answered(client, "stream", request)
        bodies[provider] = toolwire.stream.strict.parse_object(upstream.heard[0].body)
    assert (bodies["mistral"]["max_tokens"], bodies["mistral"]["random_seed"]) == (7, 3)
    assert "stream_options" not in bodies["mistral"]
    assert (bodies["vllm"]["max_tokens"], bodies["vllm"]["seed"]) == (7, 3)
    assert bodies["openai-chat"]["max_completion_tokens"] == 7
