"""Bodies that are sent on while they arrive: forms with files, raw bytes, slow sides and kills in the middle."""

import asyncio
import io
import json

import pytest
from openai import AsyncOpenAI

from gateway_client import send
from hostile import connect, expect_error, head_of, read_answer, recorded, run
from relay_upstream import Reply, document, relaying
from serving import serving
from toolwire.gateway.keys import hash_key
from waiting import until

KEY = "sk-client"
LIMITS = {"limits": {"stream_body": 10_000, "body": 400_000}}
PIECE = b"\x00binary\r\n--" * 6000
START = b'--bnd\r\ncontent-disposition: form-data; name="file"; filename="a.bin"\r\ncontent-type: audio/wav\r\n\r\n'
MODEL = b'--bnd\r\ncontent-disposition: form-data; name="model"\r\n\r\n%b\r\n'
FORM = {"content-type": "multipart/form-data; boundary=bnd"}


def form(model=b"openai_chat/w", *, model_first=True, size=1):
    file = START + PIECE * size + b"\r\n"
    field = MODEL % model
    return (field + file if model_first else file + field) + b"--bnd--\r\n"


def transcription(received):
    return document({"text": "hello", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 2}})


@run
async def test_transcription_of_the_openai_client():
    models = {"models": {"whisper": {"upstream": "openai_chat", "model": "large-v3"}}}
    async with relaying(transcription, more={**models, **LIMITS}) as (gateway, upstream):
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=0) as client:
            for size in (100, 50_000):
                audio = ("a.wav", io.BytesIO(b"RIFF" * size), "audio/wav")
                answer = await client.audio.transcriptions.create(model="whisper", file=audio)
                assert answer.text == "hello"
        for received in upstream.requests:
            assert b"large-v3" in received.body and b"whisper" not in received.body
            assert b"RIFF" * 100 in received.body
            assert received.headers["content-type"].startswith("multipart/form-data; boundary=")
        assert gateway.turns[1].usage.input == 14


@pytest.mark.parametrize("model_first", [True, False])
@pytest.mark.parametrize("size", [0, 1, 5])
@run
async def test_form_is_sent_with_the_upstreams_model(model_first, size):
    async with relaying(transcription, more=LIMITS) as (gateway, upstream):
        sent = form(model_first=model_first, size=size)
        status, _, data = await send("POST", f"{gateway.url}/v1/audio/transcriptions", sent, FORM)
        assert (status, json.loads(data)["text"]) == (200, "hello")
        assert upstream.requests[0].body == form(b"w", model_first=model_first, size=size)


@run
async def test_form_that_names_its_model_too_late_is_refused():
    async with relaying(transcription, more=LIMITS) as (gateway, upstream):
        sent = form(model_first=False, size=10)
        status, _, data = await send("POST", f"{gateway.url}/v1/audio/transcriptions", sent, FORM)
        assert status == 413 and b"before the files" in data
        assert upstream.requests == []


@run
async def test_second_model_after_the_files_never_reaches_the_upstream():
    """The key allows one model; the upstream would use the last one."""
    key = {"keys": {"client": {"hash": hash_key(KEY), "models": ["openai_chat/w"]}}}
    async with relaying(transcription, more={**LIMITS, **key}) as (gateway, upstream):
        sent = form(size=5).removesuffix(b"--bnd--\r\n") + MODEL % b"other" + b"--bnd--\r\n"
        headers = {**FORM, "authorization": f"Bearer {KEY}"}
        status, _, data = await send("POST", f"{gateway.url}/v1/audio/transcriptions", sent, headers)
        assert status == 400 and b"twice" in data
        assert upstream.requests == []


@run
async def test_body_above_the_limit_is_refused():
    more = {**LIMITS, "relay": {"max_bytes": 50_000}}
    async with relaying(transcription, more=more) as (gateway, upstream):
        path = f"{gateway.url}/v1/audio/transcriptions"
        status, _, data = await send("POST", path, form(size=5), FORM)
        assert status == 413 and b"max_bytes" in data
        reader, writer = await connect(gateway)
        writer.write(head_of("/v1/audio/transcriptions", {"host": "localhost", **FORM, "transfer-encoding": "chunked"}))
        body = form(size=5)
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        expect_error(await read_answer(reader), "openai_chat", 413)
        writer.close()
        assert upstream.requests == []


@pytest.mark.parametrize(
    "content_type",
    ["application/octet-stream", "application/x-www-form-urlencoded", "text/json", "application/json; charset=utf-7"],
)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/images/generations", "/v1/rerank"])
@run
async def test_body_whose_fields_cannot_be_checked_is_refused(content_type, path):
    """An upstream that ignores the content-type would read the forbidden field."""
    body = json.dumps({"model": "openai_chat/w", "api_base": "http://attacker.example"}).encode()
    async with relaying(transcription, more=LIMITS) as (gateway, upstream):
        status, _, data = await send("POST", f"{gateway.url}{path}", body, {"content-type": content_type})
        assert status == 415 and b"application/json" in data
        assert upstream.requests == []


@pytest.mark.parametrize(
    "content_type", ["application/vnd.api+json", "Application/X+JSON; charset=utf-8", "text/plain"]
)
@run
async def test_json_of_another_media_type_is_checked(content_type):
    body = json.dumps({"model": "openai_chat/w", "api_base": "http://attacker.example"}).encode()
    headers = {"content-type": content_type}
    async with relaying(transcription, more=LIMITS) as (gateway, upstream):
        status, _, data = await send("POST", f"{gateway.url}/v1/embeddings", body, headers)
        assert status == 400 and b"api_base" in data
        status, _, _ = await send("POST", f"{gateway.url}/v1/embeddings", b'{"model": "openai_chat/w"}', headers)
        assert (status, upstream.requests[0].document) == (200, {"model": "w"})


@run
async def test_body_of_any_media_type_is_sent_to_a_path_of_the_settings():
    headers = {"content-type": "application/octet-stream"}
    async with relaying(transcription, more={"relay": {"paths": ["POST /v1/ocr"]}}) as (gateway, upstream):
        status, _, _ = await send("POST", f"{gateway.url}/v1/ocr", PIECE, headers)
        assert (status, upstream.requests[0].body) == (200, PIECE)
        status, _, data = await send("POST", f"{gateway.url}/v1/moderations", b"", headers)
        assert (status, upstream.requests[1].body) == (200, b""), data


class RawUpstream:
    """A server whose reading and writing the test controls, on a socket with small buffers."""

    def __init__(self):
        self.received = 0
        self.has_ended = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.head = b""
        self.writer = None

    async def serve(self, reader, writer):
        self.writer = writer
        try:
            self.head = await reader.readuntil(b"\r\n\r\n")
            while True:
                await self.may_read.wait()
                data = await reader.read(64 * 1024)
                if not data:
                    break
                self.received += len(data)
        except ConnectionError:
            pass
        finally:
            self.has_ended.set()
            writer.close()


async def raw_gateway(server, upstream, **limits):
    port = server.sockets[0].getsockname()[1]
    row = {"base_url": f"http://127.0.0.1:{port}", "wire": "openai_chat", "retries": 0}
    return serving({"upstreams": {"up": row}, "limits": {"stream_body": 10_000, **limits}})


TOTAL = 96 * 1024 * 1024
IN_TRANSIT = 40 * 1024 * 1024
"""Bytes that the kernel may hold in the buffers of four sockets, by `net.ipv4.tcp_rmem` and `tcp_wmem`, and 10 MB."""


@run
async def test_slow_upstream_pauses_the_client():
    """Bytes are counted: those that the client has sent, and the upstream has not read."""
    sent, most = 0, 0

    class Slow(RawUpstream):
        async def serve(self, reader, writer):
            nonlocal most
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            while self.received < length:
                self.received += len(await reader.read(256 * 1024))
                most = max(most, sent - self.received)
                for _ in range(20):
                    await asyncio.sleep(0)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
            writer.close()

    upstream = Slow()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=64 * 1024)
    async with server, await raw_gateway(server, upstream) as gateway:
        reader, writer = await connect(gateway)
        writer.transport.set_write_buffer_limits(0)
        start, end = MODEL % b"up/w" + START, b"\r\n--bnd--\r\n"
        length = len(start) + TOTAL + len(end)
        writer.write(
            head_of("/v1/audio/transcriptions", {"host": "localhost", **FORM, "content-length": str(length)}) + start
        )
        while sent < TOTAL:
            writer.write(b"x" * 256 * 1024)
            await writer.drain()
            sent += 256 * 1024
        writer.write(end)
        assert (await read_answer(reader)).status == 200
        assert upstream.received == length - len(b"up/")
        assert most < IN_TRANSIT
        writer.close()


@run
async def test_slow_client_pauses_the_upstream():
    received, most = 0, 0

    class Fast(RawUpstream):
        async def serve(self, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.set_write_buffer_limits(0)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: video/mp4\r\ncontent-length: %d\r\n\r\n" % TOTAL)
            while self.received < TOTAL:  # bytes that were sent
                writer.write(b"x" * 256 * 1024)
                await writer.drain()
                self.received += 256 * 1024
            writer.close()

    upstream = Fast()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    async with server, await raw_gateway(server, upstream) as gateway:
        reader, writer = await connect(gateway)
        reader._limit = 64 * 1024  # which pauses reading
        writer.write(speech_request())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: %d" % TOTAL in head
        while received < TOTAL:
            received += len(await reader.read(256 * 1024))
            most = max(most, upstream.received - received)
            for _ in range(20):
                await asyncio.sleep(0)
        assert most < IN_TRANSIT
        writer.close()


def speech_request():
    body = json.dumps({"model": "up/tts", "input": "a"}).encode()
    head = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    return head_of("/v1/audio/speech", head) + body


@run
async def test_client_that_disconnects_in_an_upload_ends_it_at_the_upstream():
    upstream = RawUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    async with server, await raw_gateway(server, upstream) as gateway:
        _, writer = await connect(gateway)
        body = form(b"up/w", size=100)
        writer.write(
            head_of("/v1/audio/transcriptions", {"host": "localhost", **FORM, "content-length": str(len(body))})
        )
        writer.write(body[: len(body) // 2])
        await until(lambda: upstream.received > 100_000)
        writer.transport.abort()
        await upstream.has_ended.wait()
        await recorded(gateway)
        assert gateway.turns[0].error == "client_gone"


@run
async def test_upstream_that_disconnects_in_an_upload_ends_it_for_the_client():
    upstream = RawUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    async with server, await raw_gateway(server, upstream) as gateway:
        reader, writer = await connect(gateway)
        body = form(b"up/w", size=100)
        writer.write(
            head_of("/v1/audio/transcriptions", {"host": "localhost", **FORM, "content-length": str(len(body))})
        )
        writer.write(body[: len(body) // 2])
        await until(lambda: upstream.received > 100_000)
        upstream.writer.transport.abort()
        expect_error(await read_answer(reader), "openai_chat", 502)
        writer.close()


@run
async def test_upstream_that_disconnects_in_an_answer_cuts_it():
    reply = Reply(b"x" * 100, {"content-type": "audio/mpeg"})

    class Cut(RawUpstream):
        async def serve(self, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n64\r\n")
            writer.write(reply.body + b"\r\n")
            await writer.drain()
            writer.close()

    upstream = Cut()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    async with server, await raw_gateway(server, upstream) as gateway:
        reader, writer = await connect(gateway)
        writer.write(speech_request())
        answer = await read_answer(reader)
        assert answer.status == 200 and not answer.whole
        await recorded(gateway)
        assert gateway.turns[0].error == "server"
        writer.close()


@run
async def test_client_that_disconnects_in_an_answer_ends_it_at_the_upstream():
    class Endless(RawUpstream):
        async def serve(self, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n")
            try:
                while True:
                    writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                    self.received += 65536
                    await writer.drain()
            except ConnectionError:
                self.has_ended.set()
            writer.close()

    upstream = Endless()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    async with server, await raw_gateway(server, upstream) as gateway:
        reader, writer = await connect(gateway)
        writer.write(speech_request())
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        await upstream.has_ended.wait()
        await recorded(gateway)
        assert gateway.turns[0].error == "client_gone"
