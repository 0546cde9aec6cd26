"""Large bodies are sent to an upstream of the same wire while they arrive, and are never held whole."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from hostile import (
    TEXT_ANSWER,
    connect,
    decode_answer,
    expect_error,
    head_of,
    path_of,
    post,
    read_answer,
    recorded,
    run,
)
from serving import WIRES, serving
from toolwire.gateway.keys import hash_key
from toolwire.ir.folding import unfold
from toolwire.ir.text import to_bytes
from toolwire.wire import get
from toolwire.wire.streaming.encoder import framing_of
from virtual_time import in_virtual_time
from waiting import until

FRONTS = ("openai_chat", "anthropic", "gemini", "ollama")
LIMIT = 100_000  # bytes, for `limits.stream_body`
CHAT_PATH = path_of("openai_chat")
CHAT_START = b'{"model":"openai_chat/m","messages":[{"role":"user","content":"'
TEXT = b"abc \\n \\u00e9 " * 20_000

every_front = pytest.mark.parametrize("front", FRONTS)


class SlowReader:
    """An upstream that counts the bytes of a body while they arrive, and keeps them if `keeps`."""

    def __init__(self, *, keeps=True):
        self.requests = 0
        self.received = 0
        self.body = b""
        self.head = b""
        self.is_complete = False
        self.is_cut = False
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.reply = b""
        self.reply_after = None  # bytes of the body; None: after all of them
        self.url = ""
        self._keeps = keeps

    async def serve(self, reader, writer):
        self.requests += 1
        try:
            self.head = await reader.readuntil(b"\r\n\r\n")
            await self._read_body(reader)
            writer.write(self.reply)
            await reader.read()  # the end of the connection
        except (ConnectionError, asyncio.IncompleteReadError):
            self.is_cut = True
        finally:
            writer.close()

    async def _read_body(self, reader):
        length = self.length
        end = length if self.reply_after is None else self.reply_after
        while self.received < end:
            await self.may_read.wait()
            piece = await reader.read(32 * 1024)
            if not piece:
                raise ConnectionError
            self.received += len(piece)
            if self._keeps:
                self.body += piece
        self.is_complete = self.received == length

    @property
    def length(self):
        lines = self.head.lower().split(b"\r\n")
        return next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))


def whole_reply(wire, status="200 OK", document=None):
    body = to_bytes(get(wire).encode_response(TEXT_ANSWER)[0] if document is None else document)
    return f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def stream_reply(wire):
    encoder = get(wire).stream_encoder()
    body = b"".join(encoder.feed(event) for event in unfold(TEXT_ANSWER))
    media_type = framing_of(wire).media_type
    return f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def streaming_gateway(wire="openai_chat", document=None, limits=None, *, keeps=True, house=False, **options):
    upstream = SlowReader(keeps=keeps)
    upstream.reply = whole_reply(wire)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=2**16)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    rows = provider_rows(upstream.url, retries=0)
    rows["second"] = rows["openai_chat"]
    if house:  # of which only the address is known
        rows["house"] = {"wire": "openai_chat", "base_url": upstream.url, "retries": 0}
    rows["refusing"] = {**rows["openai_chat"], "base_url": "http://127.0.0.1:1"}
    settings = {"upstreams": rows, "limits": {"stream_body": LIMIT, **(limits or {})}, **(document or {})}
    async with serving(settings, environment={"KEY": "k"}, **options) as gateway:
        try:
            yield gateway, upstream
        finally:
            server.close()


def provider_rows(url, retries):
    """One upstream for every wire, whose provider renames no field."""
    vendors = {"openai_chat": "openai", "openai_responses": "openai", "gemini_interactions": "gemini"}
    providers = {wire: vendors.get(wire, wire) for wire in WIRES}
    return {
        wire: {"provider": provider, "wire": wire, "base_url": url, "key_env": "KEY", "retries": retries}
        for wire, provider in providers.items()
    }


def large_body(front, model=None, *, stream=None, text=TEXT):
    """A request whose text is large, and the same request for the upstream's model."""
    fields = b"" if stream is None else b',"stream":' + (b"true" if stream else b"false")
    if front == "gemini":
        before, after = b'{"contents":[{"role":"model","parts":[{"text":"x"}]},{"parts":[{"text":"', b'"}]}] }'
        return before + text + after, before + text + after
    before = b'{"max_tokens": 5, "model" : "'
    after = b'","messages":[{"role":"user","content":"' + text + b'"}], "metadata":{"model":"x"}' + fields + b"}\n"
    return before + (model or f"{front}/m").encode() + after, before + b"m" + after


async def send_slowly(writer, data, size=50_000):
    for start in range(0, len(data), size):
        writer.write(data[start : start + size])
        await writer.drain()
        await asyncio.sleep(0)


async def begin(gateway, length, path=CHAT_PATH, headers=None):
    """Open a connection, and send the head of a request."""
    reader, writer = await connect(gateway)
    given = {"host": "localhost", "content-type": "application/json", "content-length": str(length)}
    writer.write(head_of(path, {**given, **(headers or {})}))
    return reader, writer


@every_front
@run
async def test_bytes_arrive_unchanged_except_the_model(front):
    async with streaming_gateway(front) as (gateway, upstream):
        body, expected = large_body(front, stream=False)
        answer = await post(gateway, path_of(front, f"{front}/m"), body)
        assert decode_answer(answer, front).text == TEXT_ANSWER.text
        assert upstream.body == expected and upstream.length == len(expected)
        await recorded(gateway)
        log = gateway.turns[0]
        assert log.passed_through and not log.stream and log.usage.total == TEXT_ANSWER.usage.total
        assert log.stop == "stop" and log.status == 200 and gateway.gateway._memory_bound.used == 0


@every_front
@run
async def test_reply_decides_whether_the_answer_is_a_stream(front):
    async with streaming_gateway(front) as (gateway, upstream):
        upstream.reply = stream_reply(front)
        body, expected = large_body(front, stream=True)
        answer = await post(gateway, path_of(front, f"{front}/m", stream=True), body)
        assert decode_answer(answer, front, stream=True).text == TEXT_ANSWER.text
        assert upstream.body == expected
        await recorded(gateway)
        assert gateway.turns[0].stream and gateway.turns[0].usage.total == TEXT_ANSWER.usage.total


@run
async def test_reply_without_media_type_is_a_whole_answer():
    async with streaming_gateway() as (gateway, upstream):
        upstream.reply = upstream.reply.replace(b"content-type: application/json\r\n", b"")
        answer = await post(gateway, CHAT_PATH, large_body("openai_chat")[0])
        assert decode_answer(answer, "openai_chat").text == TEXT_ANSWER.text


@run
async def test_memory_is_bounded_by_the_piece():
    body = large_body("openai_chat", text=b"x" * 20_000_000)[0]
    async with streaming_gateway(keeps=False) as (gateway, upstream):
        bound, peak = gateway.gateway._memory_bound, 0
        upstream.may_read.clear()
        reader, writer = await begin(gateway, len(body))
        sending = asyncio.ensure_future(send_slowly(writer, body))
        await until(lambda: upstream.requests)
        while not upstream.is_complete:
            upstream.may_read.set()
            await asyncio.sleep(0)
            peak = max(peak, bound.used)
        await sending
        assert (await read_answer(reader)).status == 200
        assert 0 < peak < 1_000_000
        writer.close()


@run
async def test_slow_upstream_stops_the_client():
    body = large_body("openai_chat", text=b"x" * 20_000_000)[0]
    async with streaming_gateway(limits={"slow_client": 3}, keeps=False) as (gateway, upstream):
        upstream.may_read.clear()
        reader, writer = await begin(gateway, len(body))
        sending = asyncio.ensure_future(send_slowly(writer, body))
        await until(lambda: upstream.requests)
        await asyncio.sleep(4)  # longer than a client may be silent: it waits for the upstream, and not the reverse
        assert not sending.done()
        upstream.may_read.set()
        await sending
        assert (await read_answer(reader)).status == 200
        writer.close()


@pytest.mark.parametrize(
    ("field", "name"),
    [
        (b'"model" : "other"', "model"),
        (b'"base_url":"x"', "base_url"),
        (b'"api_key":"x"', "api_key"),
        (b'"mod\\u0065l":"x"', "escaped"),
        (b'"x":\\"model\\"', "JSON"),
    ],
)
@run
async def test_late_field_is_refused_before_the_body_is_complete(field, name):
    """At every boundary between two pieces."""
    start = CHAT_START + TEXT + b'"}],'
    async with streaming_gateway() as (gateway, upstream):
        for cut in range(len(field) + 1):
            upstream.__init__()
            reader, writer = await begin(gateway, len(start) + len(field) + 1)
            writer.write(start)
            await until(lambda: upstream.received == len(start) - len("openai_chat/"))
            writer.write(field[:cut])
            await asyncio.sleep(0.01)  # so that they are two pieces
            writer.write(field[cut:] + b"}")
            fault = expect_error(await read_answer(reader), "openai_chat", 400)
            assert name in fault.message
            await until(lambda: upstream.is_cut)
            assert not upstream.is_complete
            writer.close()


@pytest.mark.finding("LE1")
@run
async def test_too_many_tools_are_refused_before_the_body_is_complete():
    tools = b",".join(b'{"type":"function","function":{"name":"t%d"}}' % number for number in range(129))
    start, end = CHAT_START + TEXT + b'"}],"tools":[', b"]}"
    async with streaming_gateway() as (gateway, upstream):
        fault = expect_error(await post(gateway, CHAT_PATH, start + tools + end), "openai_chat", 400)
        assert "more than 128 tools" in fault.message and "the tools before the messages" in fault.message
        await until(lambda: upstream.is_cut)
        assert not upstream.is_complete
        upstream.__init__()
        upstream.reply = whole_reply("openai_chat")
        answer = await post(gateway, CHAT_PATH, start + tools.rpartition(b',{"type"')[0] + end)
        assert answer.status == 200 and upstream.is_complete


@pytest.mark.finding("LE1")
@run
async def test_tools_after_the_messages_reach_a_server_without_a_stated_limit():
    tools = b",".join(b'{"type":"function","function":{"name":"t%d"}}' % number for number in range(200))
    start = CHAT_START.replace(b"openai_chat/m", b"house/m")
    async with streaming_gateway(house=True) as (gateway, upstream):
        answer = await post(gateway, CHAT_PATH, start + TEXT + b'"}],"tools":[' + tools + b"]}")
        assert answer.status == 200 and upstream.is_complete
        assert len(json.loads(upstream.body)["tools"]) == 200


@pytest.mark.finding("LE1")
@run
async def test_too_many_tools_before_the_messages_are_reduced():
    tools = b",".join(b'{"type":"function","function":{"name":"t%d"}}' % number for number in range(200))
    start = b'{"model":"openai_chat/m","tools":[' + tools + CHAT_START.replace(b'{"model":"openai_chat/m"', b"]")
    async with streaming_gateway() as (gateway, upstream):
        answer = await post(gateway, CHAT_PATH, start + TEXT + b'"}]}')
        assert answer.status == 200 and int(answer.headers["x-toolwire-losses"]) >= 72
        assert len(json.loads(upstream.body)["tools"]) == 128


@pytest.mark.finding("CA1")
@pytest.mark.parametrize("text", ["plain", r"see \u0041", r"see \"TOOLWIRE~x\""])
@run
async def test_block_that_only_the_provider_knows_is_passed_on_beside_any_text(text):
    """No text decides whether a request is decoded, which would refuse the block."""
    start = b'{"model":"%b","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"'
    end = text.encode() + b'"},{"type":"image","source":"a future form"}]}]}'
    async with streaming_gateway("anthropic") as (gateway, upstream):
        answer = await post(gateway, path_of("anthropic"), start % b"anthropic/m" + end)
        assert answer.status == 200
        assert upstream.body == start % b"m" + end


@pytest.mark.finding("CA1")
@run
async def test_pieces_that_may_contain_envelopes_are_kept_until_all_are_sent():
    body = large_body("anthropic", text=b"x" * 20_000_000)[0]
    async with streaming_gateway("anthropic", keeps=False) as (gateway, upstream):
        bound, peak = gateway.gateway._memory_bound, 0
        upstream.may_read.clear()
        _, writer = await begin(gateway, len(body), path_of("anthropic"))
        sending = asyncio.ensure_future(send_slowly(writer, body))
        await until(lambda: upstream.requests)
        upstream.reply = b""  # the answer is awaited
        upstream.may_read.set()
        while not upstream.is_complete:
            await asyncio.sleep(0)
            peak = max(peak, bound.used)
        await sending
        assert len(body) // 2 < peak < len(body) + 1_000_000
        await until(lambda: bound.used < 1_000_000)
        writer.close()


@pytest.mark.parametrize("cut", [0, 5, 22, 23, 24])
@run
async def test_field_is_renamed_while_the_body_is_sent_on(cut):
    """A server of which only the address is known gets `max_tokens`. The name is cut in two pieces."""
    start, end = b'{"model":"m","messages":[{"role":"user","content":"' + TEXT + b'"}],', b'"max_completion_tokens":5}'
    model = {"upstream": "house", "model": "m"}
    async with streaming_gateway(document={"models": {"m": model}}, house=True) as (gateway, upstream):
        reader, writer = await begin(gateway, len(start) + len(end))
        writer.write(start)
        await until(lambda: upstream.received == len(start))
        writer.write(end[:cut])
        await asyncio.sleep(0.01)  # so that they are two pieces
        writer.write(end[cut:])
        assert (await read_answer(reader)).status == 200
        assert upstream.body == start + b'"max_tokens"' + b" " * 11 + b":5}"
        writer.close()


@run
async def test_two_names_of_one_field_are_refused():
    body = (
        b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"' + TEXT + b'"}],"max_completion_tokens":5}'
    )
    model = {"upstream": "house", "model": "m"}
    async with streaming_gateway(document={"models": {"m": model}}, house=True) as (gateway, upstream):
        fault = expect_error(await post(gateway, CHAT_PATH, body), "openai_chat", 400)
        assert "max_completion_tokens is set twice, as max_completion_tokens or max_tokens" in fault.message
        assert not upstream.is_complete


@run
async def test_nested_fields_and_values_are_allowed():
    end = b'"}],"tools":[{"model":1,"parameters":{"api_key":"model","mod\\u0065l":[]}}],"user":"model"}'
    async with streaming_gateway() as (gateway, upstream):
        assert (await post(gateway, CHAT_PATH, CHAT_START + TEXT + end)).status == 200
        assert upstream.body.endswith(end) and upstream.is_complete


@run
async def test_model_that_the_key_does_not_allow_is_refused_early():
    keys = {"a": {"hash": hash_key("sk-a"), "models": ["other/*"]}}
    async with streaming_gateway(document={"keys": keys}) as (gateway, upstream):
        headers = {"authorization": "Bearer sk-a"}
        reader, writer = await begin(gateway, 10_000_000, headers=headers)
        writer.write(CHAT_START)
        assert (await read_answer(reader)).status in (403, 404)
        assert not upstream.requests
        writer.close()


@pytest.mark.finding("SE5")
@pytest.mark.parametrize(
    "field",
    [
        *("models", "route", "provider", "fallbacks", "preset", "plugins", "extra_body", "Model", "MODELS"),
        *("model\u017f", "FALLBAC\u212aS"),
    ],
)
@run
async def test_field_that_chooses_another_model_cuts_the_upstream_request_of_a_key_with_some_models(field):
    keys = {"a": {"hash": hash_key("sk-a"), "models": ["openai_chat/*"]}, "b": {"hash": hash_key("sk-b")}}
    body = CHAT_START + TEXT + f'"}}],"x":{{"{field}":1}},"{field}":["huge"]}}'.encode()
    async with streaming_gateway(document={"keys": keys}) as (gateway, upstream):
        answer = await post(gateway, CHAT_PATH, body, {"authorization": "Bearer sk-a"})
        assert f"{field} could choose another one" in expect_error(answer, "openai_chat", 403).message
        assert not upstream.is_complete
        answer = await post(gateway, CHAT_PATH, body, {"authorization": "Bearer sk-b"})
        assert answer.status == 200


@pytest.mark.parametrize("field", ["model\\u017f", "fallbac\\u212As"])
@run
async def test_escaped_letters_of_another_case_cut_the_upstream_request(field):
    keys = {"a": {"hash": hash_key("sk-a"), "models": ["openai_chat/*"]}}
    async with streaming_gateway(document={"keys": keys}) as (gateway, upstream):
        body = CHAT_START + TEXT + f'"}}],"{field}":["huge"]}}'.encode()
        answer = await post(gateway, CHAT_PATH, body, {"authorization": "Bearer sk-a"})
        assert "escaped letters" in expect_error(answer, "openai_chat", 400).message
        assert not upstream.is_complete


@pytest.mark.parametrize("field", ["API_BASE", "Tools", "Stream"])
@run
async def test_other_fields_in_another_case_are_passed_on_in_bodies_of_any_size(field):
    keys = {"a": {"hash": hash_key("sk-a"), "models": ["openai_chat/*"]}}
    async with streaming_gateway(document={"keys": keys}) as (gateway, _):
        for text in (b"", TEXT):
            body = CHAT_START + text + f'"}}],"{field}":[]}}'.encode()
            assert (await post(gateway, CHAT_PATH, body, {"authorization": "Bearer sk-a"})).status == 200


INVALID_ENDS = {
    "bracket kinds": b'"}],"x":[1}}',
    "not closed": b'"}]',
    "string not closed": b'"}],"x":"y}',
    "control character": b'\x01"}]}',
    "not UTF-8": b'\xff"}]}',
    "too deep": b'"}],"x":' + b"[" * 300 + b"]" * 300 + b"}",
    "second document": b'"}]}{"model":"openai_chat/m","messages":[]}',
    "text after the document": b'"}]} x',
}


@pytest.mark.finding("SE8")
@pytest.mark.parametrize("end", INVALID_ENDS.values(), ids=INVALID_ENDS)
@run
async def test_large_body_is_refused_like_a_small_one_and_no_upstream_gets_its_end(end):
    async with streaming_gateway() as (gateway, upstream):
        for start in (CHAT_START, CHAT_START + TEXT):
            answer = await post(gateway, CHAT_PATH, start + end)
            assert "not valid JSON" in expect_error(answer, "openai_chat", 400).message.replace(
                "not JSON", "not valid JSON"
            )
        assert not upstream.is_complete


@run
async def test_client_that_disconnects_cuts_the_upstream_request():
    async with streaming_gateway() as (gateway, upstream):
        _, writer = await begin(gateway, 10_000_000)
        writer.write(CHAT_START + TEXT)
        await until(lambda: upstream.received > LIMIT)
        writer.close()
        await until(lambda: upstream.is_cut)
        await recorded(gateway)
        assert gateway.turns[0].error == "client_gone" and not upstream.is_complete


@run
async def test_client_that_disconnects_after_its_body_cuts_the_upstream_request():
    async with streaming_gateway() as (gateway, upstream):
        upstream.reply = b""
        body = large_body("openai_chat")[0]
        _, writer = await begin(gateway, len(body))
        writer.write(body)
        await until(lambda: upstream.is_complete)
        writer.close()
        await recorded(gateway)
        assert gateway.turns[0].error == "client_gone" and gateway.turns[0].usage.input > 0


@in_virtual_time
async def test_client_that_stalls_gets_a_timeout():
    async with streaming_gateway(limits={"slow_client": 0.2}) as (gateway, upstream):
        reader, writer = await begin(gateway, 10_000_000)
        writer.write(CHAT_START + TEXT)
        expect_error(await read_answer(reader), "openai_chat", 408)
        await until(lambda: upstream.is_cut)
        writer.close()


@run
async def test_failure_after_the_first_piece_is_final():
    models = {"two": {"targets": [{"upstream": "openai_chat", "model": "m"}, {"upstream": "second", "model": "m"}]}}
    async with streaming_gateway(document={"models": models}) as (gateway, upstream):
        upstream.reply = whole_reply("openai_chat", "503 Busy", {"error": {"message": "busy", "type": "x"}})
        answer = await post(gateway, CHAT_PATH, large_body("openai_chat", "two")[0])
        assert answer.status == 503 and upstream.requests == 1
        await recorded(gateway)
        assert gateway.turns[0].attempts == 1


@run
async def test_early_refusal_of_the_upstream_is_reported():
    async with streaming_gateway() as (gateway, upstream):
        upstream.reply = whole_reply("openai_chat", "413 Large", {"error": {"message": "too large", "type": "x"}})
        upstream.reply_after = LIMIT
        reader, writer = await begin(gateway, 10_000_000)
        writer.write(CHAT_START + TEXT)
        assert (await read_answer(reader)).status == 413
        writer.close()


@run
async def test_target_without_connection_fails_over():
    models = {"two": {"upstream": "refusing", "model": "n", "fallbacks": ["one"]}}
    models["one"] = {"upstream": "openai_chat", "model": "m"}
    async with streaming_gateway(document={"models": models}) as (gateway, upstream):
        body, expected = large_body("openai_chat", "two")
        answer = await post(gateway, CHAT_PATH, body)
        assert answer.status == 200 and upstream.body == expected
        await recorded(gateway)
        assert gateway.turns[0].attempts == 2


@run
async def test_body_above_the_limit_is_refused():
    async with streaming_gateway(limits={"body": 200_000}) as (gateway, upstream):
        reader, writer = await begin(gateway, 200_001)
        expect_error(await read_answer(reader), "openai_chat", 413)
        assert not upstream.requests
        writer.close()


@pytest.mark.parametrize(
    ("front", "document", "body"),
    [
        (
            "openai_chat",
            {},
            json.dumps({"messages": [{"role": "user", "content": "x" * LIMIT}], "model": "openai_chat/m"}),
        ),
        ("openai_responses", {}, json.dumps({"model": "openai_responses/m", "input": "x" * LIMIT})),
        (
            "anthropic",
            {},
            json.dumps(
                {"model": "openai_chat/m", "max_tokens": 9, "messages": [{"role": "user", "content": "x" * LIMIT}]}
            ),
        ),
        (
            "openai_chat",
            {"models": {"a": {"upstream": "openai_chat", "model": "m", "repair": "safe"}}},
            json.dumps({"model": "a", "messages": [{"role": "user", "content": "x" * LIMIT}]}),
        ),
        (
            "openai_chat",
            {"models": {"a": {"upstream": "openai_chat", "model": "m", "cache": 60}}},
            json.dumps({"model": "a", "messages": [{"role": "user", "content": "x" * LIMIT}]}),
        ),
    ],
    ids=["late model", "responses", "other wire", "repair", "cache"],
)
@run
async def test_body_that_cannot_be_sent_on_is_read_whole(front, document, body):
    wire = front if front == "openai_responses" else "openai_chat"
    async with streaming_gateway(wire, document) as (gateway, upstream):
        reader, writer = await begin(gateway, len(body), path_of(front))
        writer.write(body[:-1].encode())
        await until(lambda: gateway.gateway._memory_bound.used >= len(body) - 1)
        assert not upstream.requests
        writer.write(body[-1:].encode())
        answer = await read_answer(reader)
        assert answer.status == 200 and json.loads(upstream.body)["model"] == "m"
        writer.close()
