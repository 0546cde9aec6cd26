"""Model clients over real sockets, against a scripted provider that speaks every wire."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import wraps

import pytest
from msgspec.structs import replace

import toolwire
from places import TESTS
from tables import every_case
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
from toolwire.ir.events import ResponseEnd
from toolwire.ir.losses import Loss, Losses
from toolwire.ir.request import Params
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.net.http.client import HttpTransport
from toolwire.net.model.client import ModelClient
from toolwire.net.model.upstream_exchange import RetryPolicy
from toolwire.run.calls.observe import observed_losses, run_losses
from toolwire.run.session.auxiliary import repairing_model
from toolwire.testing import PartialReply, RawReply, Upstream, same
from virtual_time import in_virtual_time
from waiting import SAFETY

TLS = TESTS / "fixtures" / "tls"
CANARY = "sk-canary-0123456789abcdef"
SLOT = 1 / 128 + 1e-6  # seconds: deadlines are rounded up to the slots of `net.deadlines`
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
REQUEST = Request(messages=(Message("user", (Text("Weather in Paris?"),)),), tools=(WEATHER, ODD))
TEXT_ANSWER = Response(parts=(Text("It will rain in Paris."),), stop=Stop("stop"), usage=Usage(12, 5))
ONE_CALL = Response(
    parts=(ToolCall("c1", "get_weather", {"city": "Paris", "days": 2}),), stop=Stop("tool_calls"), usage=Usage(12, 9)
)
TWO_CALLS = Response(
    parts=(
        Text("I look."),
        ToolCall("c1", "get_weather", {"city": "Paris"}),
        ToolCall("c2", "get_weather", {"city": "Rome"}),
    ),
    stop=Stop("tool_calls"),
)
LONG_ANSWER = Response(parts=(Text("It rains and rains. " * 50),), stop=Stop("stop"))
QUICK = RetryPolicy(2, initial_delay=0.01)

every_provider = every_case("provider", PROVIDERS)
both_ways = every_case("way", ["whole", "stream"])


def run(test):
    """An async test, with a time limit."""

    @wraps(test)
    def wrapper(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), SAFETY))

    return wrapper


@asynccontextmanager
async def connected_client(provider, *script, upstream=None, **options):
    options = {"key": CANARY, "retries": QUICK, **options}
    async with (
        Upstream(*script, **(upstream or {})) as server,
        ModelClient(f"{provider}/some-model", base_url=server.url, **options) as client,
    ):
        yield server, client


async def ask_client(client, way, request=REQUEST, **options):
    if way == "whole":
        return await client.ask(request, **options)
    return fold([event async for event in client.stream(request, **options)])


def summarize(response):
    calls = [(call.name, call.arguments, call.state) for call in response.calls]
    return response.text, calls, response.stop.reason


@every_provider
@both_ways
@every_case("answer", [TEXT_ANSWER, ONE_CALL, TWO_CALLS], ids=["words", "one call", "two calls"])
@run
async def test_answer_round_trips_over_every_wire(provider, way, answer):
    async with connected_client(provider, answer) as (upstream, client):
        response = await ask_client(client, way)
    assert same(summarize(response), summarize(answer))
    assert len({call.id for call in response.calls}) == len(answer.calls)
    if answer.usage is not None:
        assert (response.usage.input, response.usage.output) == (12, answer.usage.output)
    (heard,) = upstream.requests
    assert (heard.wire, heard.stream, heard.request.model) == (PROVIDERS[provider], way == "stream", "some-model")
    assert [tool.description for tool in heard.request.tools] == ["The weather in a city", "A file"]


@every_provider
@both_ways
@run
async def test_mapped_tool_names_are_restored(provider, way):
    def call_the_odd_one(request):
        (name,) = [tool.name for tool in request.tools if tool.description == "A file"]
        assert name != ODD.name
        return Response(parts=(ToolCall("c1", name, {"path": "a"}),), stop=Stop("tool_calls"))

    async with connected_client(provider, call_the_odd_one) as (_, client):
        losses = Losses()
        response = await ask_client(client, way, losses=losses)
    assert [call.name for call in response.calls] == [ODD.name]
    assert "/tools/1/name" in [loss.path for loss in losses]


@every_provider
@both_ways
@run
async def test_provider_error_is_raised_with_its_message(provider, way):
    fault = Fault("invalid_request", "there is something wrong", 400)
    async with connected_client(provider, fault) as (upstream, client):
        with pytest.raises(UpstreamError, match="something wrong") as raised:
            await ask_client(client, way)
    assert (raised.value.fault.kind, raised.value.status) == ("invalid_request", 400)
    assert len(upstream.requests) == 1


@every_provider
@run
async def test_error_in_the_middle_of_a_stream_is_raised(provider):
    broken = Response(parts=(Text("It will"),), fault=Fault("overloaded", "too much to do", 529))
    async with connected_client(provider, broken) as (upstream, client):
        seen = []
        with pytest.raises(UpstreamError, match="too much to do"):
            async for event in client.stream(REQUEST):
                seen.append(event)
    assert "".join(event.text for event in seen if hasattr(event, "text")) == "It will"
    assert len(upstream.requests) == 1


@every_provider
@both_ways
@every_case("form", ["hermes", "function_xml", "qwen3_xml", "llama3_json", "pythonic"])
@run
async def test_text_calls_are_parsed_over_every_wire(provider, way, form):
    text = toolwire.text.get(form)
    call = ToolCall("call00000", "get_weather", {"city": "Paris", "days": 2})
    text_response = Response(parts=(Text(text.render_call(call, REQUEST.tools).text),), stop=Stop("stop"))
    async with connected_client(provider, text_response, TEXT_ANSWER, text=form) as (upstream, client):
        response = await ask_client(client, way)
        assert same(
            summarize(response)[1:], ([("get_weather", {"city": "Paris", "days": 2}, "complete")], "tool_calls")
        )
        result = Message("user", (ToolResult(response.calls[0].id, None, (Text("rain"),)),))
        again = Request(messages=(*REQUEST.messages, Message("assistant", response.parts), result), tools=REQUEST.tools)
        assert (await ask_client(client, way, again)).text == TEXT_ANSWER.text
    assert not any(heard.request.tools for heard in upstream.requests)
    assert b"get_weather" in upstream.requests[0].body
    assert b"rain" in upstream.requests[1].body


@every_provider
@run
async def test_stream_is_closed_when_text_after_the_call_is_ignored(provider):
    text = toolwire.text.get("function_xml")
    call = text.render_call(ToolCall("call00000", "get_weather", {"city": "Paris"}), REQUEST.tools).text
    text_response = Response(parts=(Text(call + "\nEXECUTION RESULT: " + "sun " * 2000),), stop=Stop("stop"))
    async with connected_client(provider, text_response, text="function_xml", upstream={"pace": 0.002}) as (
        upstream,
        client,
    ):
        response = await ask_client(client, "stream")
        assert same(summarize(response), ("", [("get_weather", {"city": "Paris"}, "complete")], "tool_calls"))
        await upstream.disconnected()


MALFORMED = '<tool_call>{"name": 7}</tool_call>'
INVALID = '<tool_call>{"name": "get_weather", "arguments": {"city": Rome}}</tool_call>'
ROME = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'


def text_response(text, **fields):
    return Response(parts=(Text(text),), stop=Stop("stop"), **fields)


@pytest.mark.finding("X5")
@every_provider
@both_ways
@every_case("broken", [MALFORMED, INVALID, '<tool_call>{"name": "get_weather", "argum'])
@run
async def test_malformed_text_call_is_requested_again(provider, way, broken):
    script = text_response(broken, usage=Usage(12, 9)), text_response(ROME, usage=Usage(30, 8))
    async with connected_client(provider, *script, text="hermes") as (upstream, client):
        response = await ask_client(client, way)
    assert same(summarize(response), ("", [("get_weather", {"city": "Rome"}, "complete")], "tool_calls"))
    assert (response.usage.input, response.usage.output) == (42, 17)
    assert len(upstream.requests[1].request.messages) > len(upstream.requests[0].request.messages)


@pytest.mark.finding("X5")
@run
async def test_stream_continues_in_the_same_response_after_a_retry():
    script = text_response("Let me look. " + INVALID + " Wait."), text_response("Again. " + ROME)
    async with connected_client("openai-chat", *script, text="hermes") as (_, client):
        events = [event async for event in client.stream(REQUEST)]
    assert [type(event).__name__ for event in events].count("ResponseStart") == 1
    assert isinstance(events[-1], ResponseEnd)
    response = fold(events)
    assert response.text == "Let me look. Again. ", "text before the call was already sent, text after it was held"
    assert [call.arguments for call in response.calls] == [{"city": "Rome"}]


@pytest.mark.finding("X5")
@both_ways
@run
async def test_second_malformed_answer_is_returned(way):
    async with connected_client("openai-chat", text_response(INVALID), text_response(INVALID), text="hermes") as (
        upstream,
        client,
    ):
        response = await ask_client(client, way)
    assert [(call.state, call.raw) for call in response.calls] == [("invalid", '{"city": Rome}')]
    assert len(upstream.requests) == 2


@both_ways
@run
async def test_answer_with_a_complete_call_is_not_requested_again(way):
    async with connected_client("openai-chat", text_response(INVALID + ROME), text="hermes") as (upstream, client):
        response = await ask_client(client, way)
    assert [call.state for call in response.calls] == ["invalid", "complete"]
    assert len(upstream.requests) == 1


@pytest.mark.finding("X5")
@both_ways
@run
async def test_malformed_text_call_is_repaired_by_another_model(way):
    async with (
        Upstream(replace(ONE_CALL, usage=Usage(100, 3))) as other,
        ModelClient("anthropic/claude-haiku-5-5", base_url=other.url, key=CANARY) as repair,
        connected_client("openai-chat", text_response(INVALID, usage=Usage(12, 9)), text="hermes", repair=repair) as (
            upstream,
            client,
        ),
    ):
        response = await ask_client(client, way)
    assert same(summarize(response), ("", [("get_weather", {"city": "Paris", "days": 2}, "complete")], "tool_calls"))
    assert (response.usage.input, response.usage.output) == (112, 12)
    assert repairing_model(response.calls[0]) == "claude-haiku-5-5"
    assert (len(upstream.requests), len(other.requests)) == (1, 1)
    sent = other.requests[0].request
    assert [tool.name for tool in sent.tools][:1] == ["get_weather"]
    assert "cannot be parsed" in sent.messages[-1].parts[0].text


@pytest.mark.finding("X5")
@run
async def test_server_that_does_not_stream_is_asked_again():
    document = {"id": "r", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": INVALID}}
    whole = RawReply(
        json.dumps({**document, "choices": [choice]}).encode(), headers={"content-type": "application/json"}
    )
    async with connected_client("openai-chat", whole, text_response(ROME), text="hermes") as (_, client):
        response = await ask_client(client, "stream")
    assert [call.arguments for call in response.calls] == [{"city": "Rome"}]


# What passes is tried again


@every_provider
@both_ways
@every_case(
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
async def test_transient_failure_is_retried(provider, way, fault):
    async with connected_client(provider, fault, fault, TEXT_ANSWER) as (upstream, client):
        assert (await ask_client(client, way)).text == TEXT_ANSWER.text
    assert len(upstream.requests) == 3
    assert len({heard.body for heard in upstream.requests}) == 1


@every_case(
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
async def test_permanent_failure_is_not_retried(fault):
    async with connected_client("openai-chat", fault, TEXT_ANSWER) as (upstream, client):
        with pytest.raises(UpstreamError) as raised:
            await client.ask(REQUEST)
    assert raised.value.fault.retry_after == fault.retry_after
    assert len(upstream.requests) == 1


@in_virtual_time
async def test_retry_waits_for_retry_after():
    clock = asyncio.get_running_loop().time
    async with connected_client("anthropic", Fault("rate_limit", "slow", 429, retry_after=3.0), TEXT_ANSWER) as (
        _,
        client,
    ):
        began = clock()
        await client.ask(REQUEST)
        assert clock() - began >= 3.0


@in_virtual_time
async def test_calls_wait_for_a_model_that_has_failed_several_times_as_their_retries_allow():
    """Nobody repeats the turn of an agent. The budget and a trial a second limit the requests that are sent."""
    failure = Fault("server", "failed", 500)
    async with connected_client("openai-chat", *[failure] * 5, *[TEXT_ANSWER] * 40, retries=2) as (upstream, client):
        failed = [asyncio.ensure_future(client.ask(REQUEST)) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert client._health.state == "open"
        answers = await asyncio.gather(*(client.ask(REQUEST) for _ in range(20)))
        assert {answer.text for answer in answers} == {TEXT_ANSWER.text}
        assert client._health.state == "closed"
        await asyncio.gather(*failed, return_exceptions=True)
    assert len(upstream.requests) <= 5 + 20 + 5


@in_virtual_time
async def test_calls_to_a_model_that_has_failed_several_times_are_refused_without_retries():
    failure = Fault("server", "failed", 500)
    async with connected_client("openai-chat", *[failure] * 9, retries=0) as (upstream, client):
        faults = []
        for _ in range(9):
            with pytest.raises(UpstreamError) as raised:
                await client.ask(REQUEST)
            faults.append(raised.value.fault)
    assert [fault.code for fault in faults[5:]] == ["cooldown"] * 4
    assert all(0 < fault.retry_after <= 1.0 for fault in faults[5:])
    assert len(upstream.requests) == 5


@run
async def test_retry_after_date_is_parsed():
    later = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    refused = RawReply(b"{}", 429, {"Retry-After": later})
    async with connected_client("openai-chat", refused, TEXT_ANSWER) as (upstream, client):
        with pytest.raises(UpstreamError) as raised:
            await client.ask(REQUEST)
    assert 7000 < raised.value.fault.retry_after <= 7200
    assert len(upstream.requests) == 1


@run
async def test_retries_are_limited():
    async with connected_client("gemini", *[Fault("server", "oh", 500)] * 5) as (upstream, client):
        with pytest.raises(UpstreamError, match="oh"):
            await client.ask(REQUEST)
    assert len(upstream.requests) == 3


@every_provider
@both_ways
@run
async def test_truncated_answer_is_not_retried(provider, way):
    async with connected_client(provider, PartialReply(TWO_CALLS, 30), TEXT_ANSWER) as (upstream, client):
        with pytest.raises(TruncatedStream):
            await ask_client(client, way)
    assert len(upstream.requests) == 1


@run
async def test_refused_connection_raises_upstream_error():
    async with Upstream() as gone:
        url = gone.url
    async with ModelClient("openai/m", base_url=url, key=CANARY, retries=QUICK) as client:
        with pytest.raises(UpstreamError, match="no connection to http://127") as raised:
            await client.ask(REQUEST)
    assert raised.value.fault.code == "connection"


# Time, and going away


@both_ways
@every_case("size", [None, 0, 40])
@in_virtual_time
async def test_the_deadline_holds_wherever_the_server_stalls(way, size):
    clock = asyncio.get_running_loop().time
    async with connected_client("openai-chat", *[PartialReply(TEXT_ANSWER, size, "stall")] * 3, timeout=0.3) as (
        upstream,
        client,
    ):
        began = clock()
        with pytest.raises(UpstreamError) as raised:
            await ask_client(client, way)
        assert 0.3 <= clock() - began <= 0.3 + SLOT
        assert (raised.value.fault.kind, raised.value.status) == ("timeout", 504)
        await upstream.disconnected()


@in_virtual_time
async def test_retries_share_the_deadline():
    clock = asyncio.get_running_loop().time
    async with connected_client(
        "openai-chat", *[Fault("server", "oh", 500)] * 9, timeout=0.3, retries=RetryPolicy(9, initial_delay=0.2)
    ) as (
        _,
        client,
    ):
        began = clock()
        with pytest.raises(UpstreamError, match="oh"):
            await client.ask(REQUEST)
        assert clock() - began <= 0.3


@every_provider
@run
async def test_a_cancelled_task_closes_its_stream(provider):
    async with connected_client(provider, PartialReply(LONG_ANSWER, 2500, "stall"), TEXT_ANSWER) as (upstream, client):
        begun = asyncio.Event()

        async def listen():
            async for _ in client.stream(REQUEST):
                begun.set()

        task = asyncio.create_task(listen())
        await begun.wait()
        assert upstream.disconnects == 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.disconnected()
        assert (await client.ask(REQUEST)).text == TEXT_ANSWER.text


@run
async def test_cancelling_a_started_answer_closes_the_connection():
    async with connected_client("openai-chat", PartialReply(TEXT_ANSWER, 10, "stall")) as (upstream, client):
        task = asyncio.create_task(client.ask(REQUEST))
        await upstream.wait_for_requests()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.disconnected()


@every_provider
@both_ways
@run
async def test_cancelling_before_the_answer_closes_the_connection_immediately(provider, way):
    async with connected_client(provider, PartialReply(TEXT_ANSWER, None, "stall"), TEXT_ANSWER) as (upstream, client):
        task = asyncio.create_task(ask_client(client, way))
        await upstream.wait_for_requests()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.disconnected()
        assert (await ask_client(client, way)).text == TEXT_ANSWER.text


@run
async def test_https_requests_use_the_environment_proxy():
    seen = []

    async def proxy(reader, writer):
        seen.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with server, ModelClient("m", base_url="https://model.example.com", retries=0) as client:
            with pytest.raises(UpstreamError, match=r"no connection to https://model\.example\.com"):
                await client.ask(REQUEST)
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
        return (await client.ask(REQUEST)).text

    with serving(TEXT_ANSWER, TEXT_ANSWER, TEXT_ANSWER) as url:
        client = ModelClient("openai-chat/m", base_url=url)
        assert [asyncio.run(ask(client)) for _ in range(3)] == [TEXT_ANSWER.text] * 3


@run
async def test_closing_the_event_iterator_closes_the_stream():
    async with connected_client("anthropic", PartialReply(LONG_ANSWER, 2500, "stall")) as (upstream, client):
        async with aclosing(client.stream(REQUEST)) as events:
            async for _ in events:
                break
        await upstream.disconnected()


@in_virtual_time
async def test_first_text_is_delivered_before_the_stream_ends():
    clock = asyncio.get_running_loop().time
    async with connected_client("openai-chat", TEXT_ANSWER, upstream={"pace": 0.02, "delta": 1}) as (_, client):
        began, first = clock(), None
        async for event in client.stream(REQUEST):
            if hasattr(event, "text") and first is None:
                first = clock() - began
        assert first < (clock() - began) / 2


@every_provider
@run
async def test_connections_are_reused(provider):
    async with connected_client(provider, *[TEXT_ANSWER] * 6) as (upstream, client):
        for way in ("whole", "stream") * 3:
            await ask_client(client, way)
    assert upstream.connections <= 3  # one, but for a race between the pool and the next request


@run
async def test_concurrent_clients_share_one_connection_pool():
    transport = HttpTransport(connections=4)
    async with Upstream(*[ONE_CALL] * 40, pace=0.001) as upstream:
        clients = [ModelClient(f"{p}/m", base_url=upstream.url, transport=transport) for p in PROVIDERS]
        answers = await asyncio.gather(*(ask_client(client, "stream") for client in clients for _ in range(10)))
        for client in clients:
            await client.aclose()
        await transport.aclose()
    assert all(same(summarize(answer), summarize(ONE_CALL)) for answer in answers)
    assert upstream.connections <= 4


# Answers that are none


@every_provider
@both_ways
@every_case("garbage", [b"", b"<html>502</html>", b"{", b"[]", b'"x"', b"{}", b"\xff\xfe\x00", b"null"])
@run
async def test_garbage_is_a_protocol_error(provider, way, garbage):
    kind = "text/event-stream" if way == "stream" else "application/json"
    async with connected_client(provider, RawReply(garbage, 200, {"content-type": kind})) as (upstream, client):
        with pytest.raises(ProtocolError):
            await ask_client(client, way)
    assert len(upstream.requests) == 1


@both_ways
@every_case("status", [400, 502])
@run
async def test_html_error_page_raises_upstream_error(way, status):
    page = RawReply(b"<html>Bad gateway</html>", status, {"content-type": "text/html"})
    async with connected_client("openai", *[page] * 3) as (_, client):
        with pytest.raises(UpstreamError) as raised:
            await ask_client(client, way)
    assert (raised.value.status, raised.value.fault.message) == (status, f"HTTP {status}")
    assert raised.value.message.endswith(f"/responses answered with HTTP {status}")


@every_provider
@run
async def test_unstreamed_answer_to_a_streaming_request_is_accepted(provider):
    codec = toolwire.wire.get(PROVIDERS[provider])
    whole = toolwire.ir.text.to_bytes(codec.encode_response(TWO_CALLS).body)
    async with connected_client(provider, RawReply(whole)) as (_, client):
        assert same(summarize(await ask_client(client, "stream")), summarize(TWO_CALLS))


@both_ways
@run
async def test_error_body_with_status_200_is_raised(way):
    body = b'{"error": {"message": "slow down", "code": 429}}'
    async with connected_client("openrouter", RawReply(body), TEXT_ANSWER) as (_, client):
        with pytest.raises(UpstreamError, match="slow down") as raised:
            await ask_client(client, way)
    assert raised.value.fault.kind == "rate_limit"


@every_provider
@both_ways
@run
async def test_answer_over_the_size_limit_is_rejected(provider, way):
    endless = Response(parts=(Text("x" * 50_000),), stop=Stop("stop"))
    async with connected_client(provider, endless, limit=10_000, upstream={"piece": 4096, "delta": 500}) as (_, client):
        with pytest.raises(ProtocolError, match="exceeds 10000 bytes"):
            await ask_client(client, way)


@run
async def test_strict_client_rejects_a_lossy_request():
    request = Request(messages=REQUEST.messages, params=Params(top_k=5), choice=ToolChoice("auto"))
    async with connected_client("openai-chat", TEXT_ANSWER, strict=True) as (upstream, client):
        with pytest.raises(LossError):
            await client.ask(request)
    assert not upstream.requests


@both_ways
@run
async def test_strict_client_accepts_the_losses_of_another_client(way, caplog):
    """The collectors of a caller, an observer and a run are shared by the models of a fallback."""
    request, lossy = Request(messages=REQUEST.messages, params=Params(seed=7)), Loss("/x", "x", "dropped", "error", "x")
    caplog.set_level("DEBUG", logger="toolwire.net")
    for collector in (None, observed_losses, run_losses):
        losses = Losses([lossy])
        token = None if collector is None else collector.set(losses)
        try:
            async with connected_client("openai-chat", TEXT_ANSWER, strict=True) as (_, client):
                await ask_client(client, way, request, **({} if collector else {"losses": losses}))
            async with connected_client("anthropic", TEXT_ANSWER, strict=True) as (_, client):
                with pytest.raises(LossError) as raised:
                    await ask_client(client, way, request, **({} if collector else {"losses": losses}))
        finally:
            if collector is not None:
                collector.reset(token)
        assert [loss.path for loss in raised.value.losses] == ["/params/seed"]
        assert {lossy, *raised.value.losses} <= set(losses)
    assert "x dropped" not in caplog.text


# Keys


@every_provider
@both_ways
@run
async def test_api_key_appears_only_in_the_authentication_header(provider, way):
    records: list[str] = []
    handler = logging.Handler(0)
    handler.emit = lambda record: records.append(handler.format(record) + repr(record.__dict__))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(0)
    echoed = Fault("authentication", f"no such key: {CANARY}", 401, "bad", f"key {CANARY}", extra={"x": {"k": CANARY}})
    lost = [PartialReply(then="reset"), Fault("server", CANARY, 500), echoed]
    try:
        async with connected_client(provider, *lost, RawReply(b"{", 200), TEXT_ANSWER, PartialReply(TWO_CALLS, 40)) as (
            upstream,
            client,
        ):
            shown = [repr(client), str(client), repr(client.endpoint), repr(vars(client))]
            for _ in range(4):
                try:
                    await ask_client(client, way)
                except toolwire.ToolwireError as error:
                    shown += [str(error), repr(error), repr(vars(error)), repr(error.__cause__)]
            assert len(shown) == 4 + 3 * 4
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert records
    assert not [text for text in (*shown, *records) if CANARY in text]
    for heard in upstream.requests:
        assert [name for name, value in heard.headers.items() if CANARY in value] == [
            {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(provider, "authorization")
        ]
        assert CANARY not in heard.path
        assert CANARY.encode() not in heard.body


@every_case("status", [301, 302, 303, 307, 308])
@run
async def test_a_redirect_is_not_followed(status):
    async with Upstream(TEXT_ANSWER) as elsewhere:
        away = RawReply(b"", status, {"location": f"{elsewhere.url}/chat/completions?{CANARY}"})
        async with connected_client("openai-chat", away) as (_, client):
            with pytest.raises(UpstreamError, match="set the base URL") as raised:
                await client.ask(REQUEST)
    assert CANARY not in str(raised.value)
    assert not elsewhere.requests


def server_certificate():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


@run
async def test_untrusted_certificate_is_rejected():
    async with connected_client("openai-chat", TEXT_ANSWER, upstream={"tls": server_certificate()}) as (
        upstream,
        client,
    ):
        with pytest.raises(UpstreamError, match="certificate"):
            await client.ask(REQUEST)
    assert not upstream.requests


@run
async def test_custom_root_certificate_is_accepted():
    transport = HttpTransport(roots=[(TLS / "ca.pem").read_bytes()])
    async with connected_client(
        "openai-chat", TEXT_ANSWER, upstream={"tls": server_certificate()}, transport=transport
    ) as (_, client):
        assert (await client.ask(REQUEST)).text == TEXT_ANSWER.text
    await transport.aclose()


@run
async def test_plain_http_requests_bypass_the_environment_proxy():
    async with Upstream(TEXT_ANSWER) as proxy:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                patch.setenv(name, proxy.url)
            async with connected_client("openai-chat", TEXT_ANSWER) as (upstream, client):
                assert (await client.ask(REQUEST)).text == TEXT_ANSWER.text
    assert (len(upstream.requests), len(proxy.requests)) == (1, 0)


@every_case("tail", ["", "/", "/v1", "/v1/", "/proxy/v1", "/v1/chat/completions", "/v1?api-version=3"])
@run
async def test_base_url_variants_reach_the_same_endpoint(tail):
    async with (
        Upstream(TEXT_ANSWER) as upstream,
        ModelClient("meta-llama/Llama-4", base_url=upstream.url + tail) as client,
    ):
        assert (await client.ask(REQUEST)).text == TEXT_ANSWER.text
    (heard,) = upstream.requests
    assert heard.wire == "openai_chat"
    assert heard.request.model == "meta-llama/Llama-4"
    assert "//" not in heard.path
    assert heard.path.count("chat/completions") == 1
    assert ("api-version=3" in heard.path) == ("api-version" in tail)
    assert "authorization" not in heard.headers


@run
async def test_vendor_specific_field_names_are_used():
    request = Request(messages=REQUEST.messages, params=Params(max_tokens=7, seed=3))
    bodies = {}
    for provider in ("mistral", "vllm", "openai-chat"):
        async with connected_client(provider, TEXT_ANSWER) as (upstream, client):
            await ask_client(client, "stream", request)
        bodies[provider] = toolwire.stream.strict.parse_object(upstream.requests[0].body)
    assert (bodies["mistral"]["max_tokens"], bodies["mistral"]["random_seed"]) == (7, 3)
    assert "stream_options" not in bodies["mistral"]
    assert (bodies["vllm"]["max_tokens"], bodies["vllm"]["seed"]) == (7, 3)
    assert bodies["openai-chat"]["max_completion_tokens"] == 7


@run
async def test_loss_is_logged_once_as_a_warning(caplog):
    caplog.set_level("DEBUG", logger="toolwire.net")
    request = Request(messages=REQUEST.messages, params=Params(seed=7))
    async with connected_client("anthropic", TEXT_ANSWER, TEXT_ANSWER) as (_, client):
        await client.ask(request)
        await client.ask(request)
    levels = [record.levelname for record in caplog.records if "seed dropped" in record.getMessage()]
    assert levels == ["WARNING", "DEBUG"]
