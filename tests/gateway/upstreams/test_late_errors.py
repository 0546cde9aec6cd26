"""What goes wrong once the client has been told that there will be an answer is an error event, whatever it is."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

from hostile import TEXT_ANSWER, body_of, connect, path_of, post, recorded, request_bytes, run
from serving import serving
from toolwire import Response
from toolwire.testing import PartialReply, RawReply, Recorded, Upstream
from virtual_time import in_virtual_time

PINGS = {"limits": {"ping": 0.05}}
# a provider's own novelty, which we cannot read and which need not be read to pass
NEWER = {"model": "m", "stream": True, "messages": [{"role": "oracle", "content": "Weather in Paris?"}]}
CHUNK = b'data: {"id":"1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"content":"Rain"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def unparsing_upstream(line):
    """An upstream that reads nothing of what it is asked."""
    provider = Upstream(line)
    provider._routes = []
    return provider


@run
async def test_stream_is_passed_through_for_an_unparseable_request():
    async with unparsing_upstream(RawReply(CHUNK, streamed=True)) as provider:
        rows = {"a": {"base_url": provider.url, "wire": "openai_chat", "retries": 0}}
        async with serving({"upstreams": rows, "models": {"m": {"upstream": "a"}}}) as gateway:
            answer = await post(gateway, "/v1/chat/completions", json.dumps(NEWER).encode())
    assert (answer.status, answer.body) == (200, CHUNK)
    assert len(provider.requests) == 1


@in_virtual_time
async def test_untranslatable_fallback_ends_in_an_error_event():
    async with unparsing_upstream(PartialReply(Response(), None, "stall")) as first, Upstream(TEXT_ANSWER) as second:
        document = {
            **PINGS,
            "upstreams": {
                "a": {"base_url": first.url, "wire": "openai_chat", "retries": 0, "timeout": 0.3},
                "b": {"base_url": second.url, "wire": "anthropic", "retries": 0, "timeout": 5},
            },
            "models": {"m": {"upstream": "a", "fallbacks": ["n"]}, "n": {"upstream": "b"}},
        }
        async with serving(document) as gateway:
            answer = await post(gateway, "/v1/chat/completions", json.dumps(NEWER).encode())
    assert answer.status == 200 and answer.whole
    assert b": ping" in answer.body and b'"error"' in answer.body
    assert gateway.turns[0].error == "invalid_request"


@in_virtual_time
async def test_failure_after_a_ping_is_reported_for_an_unparseable_request():
    async with unparsing_upstream(PartialReply(Response(), None, "stall")) as provider:
        rows = {"a": {"base_url": provider.url, "wire": "openai_chat", "retries": 0, "timeout": 0.3}}
        async with serving({**PINGS, "upstreams": rows, "models": {"m": {"upstream": "a"}}}) as gateway:
            answer = await post(gateway, "/v1/chat/completions", json.dumps(NEWER).encode())
    assert answer.status == 200 and answer.whole
    assert b": ping" in answer.body and b'"error"' in answer.body
    assert gateway.turns[0].error == "timeout"


class SlowClosingTransport:
    """A way to an upstream that takes its time to close."""

    status = 200

    def __init__(self, *pieces):
        self.headers = {"content-type": "text/event-stream"}
        self.pieces = pieces

    @asynccontextmanager
    async def post(self, url, headers, secrets, body, seconds):
        await asyncio.sleep(0.05)  # long enough for the client to be watched
        yield self
        await asyncio.sleep(0.05)

    async def read(self):
        self.pieces, said = (), b"".join(self.pieces)
        return said

    async def aclose(self):
        pass


@run
async def test_client_that_received_the_error_is_not_logged_as_disconnected():
    said = CHUNK.partition(b'"finish_reason":"stop"')[0] + b'"finish_reason":null}]}\n\n'
    way = SlowClosingTransport(said)
    rows = {"a": {"base_url": "http://localhost", "wire": "openai_chat", "retries": 0}}
    document = {"upstreams": rows, "models": {"m": {"upstream": "a"}}}
    async with serving(document, transports={"a": way}) as gateway:
        answer = await post(gateway, "/v1/chat/completions", json.dumps(NEWER).encode())
        assert answer.whole and b"Rain" in answer.body and b'"error"' in answer.body
        await recorded(gateway)
    assert [(turn.status, turn.error) for turn in gateway.turns] == [(200, "server")]


@run
async def test_disconnect_after_the_last_event_is_not_logged_as_client_gone():
    lingering = Recorded(((0.0, CHUNK), (0.2, b": bye\n\n")), 200, {"content-type": "text/event-stream"})
    async with Upstream(lingering) as provider:
        rows = {"a": {"base_url": provider.url, "wire": "openai_chat", "retries": 0}}
        async with serving({"upstreams": rows, "models": {"m": {"upstream": "a"}}}) as gateway:
            reader, writer = await connect(gateway)
            writer.write(request_bytes(path_of("openai_chat"), body_of("openai_chat", model="m", stream=True)))
            await reader.readuntil(b"data: [DONE]\n\n")
            writer.close()
            await recorded(gateway)
    assert [(turn.status, turn.error, turn.stop) for turn in gateway.turns] == [(200, None, "stop")]
