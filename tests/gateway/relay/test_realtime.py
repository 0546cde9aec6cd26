"""The WebSocket of OpenAI's Realtime API: messages of the official client, keys, refusals and ends of both sides."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect as connect_socket
from websockets.asyncio.server import serve as serve_sockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

from hostile import recorded, run
from serving import serving
from toolwire.gateway.keys import hash_key
from waiting import until

DONE = {"type": "response.done", "response": {"id": "r", "usage": {"input_tokens": 30, "output_tokens": 12}}}
KEYS = {"me": {"hash": hash_key("sk-me")}, "small": {"hash": hash_key("sk-small"), "models": ["voice"]}}


class Upstream:
    def __init__(self):
        self.requests = []
        self.messages = []
        self.sockets = []
        self.status = None
        self.answer = DONE
        self.refusals = 0
        self.keys = []
        self.url = ""

    async def serve(self, socket):
        self.requests.append(socket.request)
        self.sockets.append(socket)
        await socket.send(json.dumps({"type": "session.created", "event_id": "e", "session": {"type": "realtime"}}))
        async for message in socket:
            self.messages.append(message)
            await socket.send(message if isinstance(message, bytes) else json.dumps(self.answer))

    def refuse(self, connection, request):
        key = request.headers["authorization"]
        self.keys.append(key)
        status = 401 if len(self.keys) <= self.refusals else self.status
        if status is None:
            return None
        response = connection.respond(status, json.dumps({"error": {"message": f"no sk-upstream-secret, no {key}"}}))
        response.headers["retry-after"] = "7"
        return response


@asynccontextmanager
async def realtime(more=None, **options):
    upstream = Upstream()
    async with serve_sockets(
        upstream.serve, "127.0.0.1", 0, max_size=None, process_request=upstream.refuse, **options
    ) as server:
        upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        row = {"base_url": upstream.url, "wire": "openai_chat", "key_env": "KEY", "retries": 0}
        settings = {
            "upstreams": {"up": row},
            "models": {"voice": {"upstream": "up", "model": "gpt-realtime"}},
            "keys": KEYS,
            **(more or {}),
        }
        async with serving(settings, environment={"KEY": "sk-upstream-secret"}) as gateway:
            yield gateway, upstream


def numbered_keys(path):
    """A command that prints `key-number-1-…`, then `key-number-2-…`, and so on."""
    code = (
        "import sys, pathlib\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "log.write_text((log.read_text() if log.exists() else '') + 'x')\n"
        "print(f'key-number-{len(log.read_text())}-0123456789')\n"
    )
    return [sys.executable, "-c", code, str(path)]


def socket_to(gateway, key="sk-me", query="model=voice", **options):
    headers = {"authorization": f"Bearer {key}", "openai-beta": "realtime=v1"} if key else {}
    url = gateway.url.replace("http", "ws") + f"/v1/realtime?{query}"
    return connect_socket(url, additional_headers=headers, **options)


@run
async def test_session_of_the_openai_client():
    async with realtime() as (gateway, upstream):
        client = AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-me")
        async with client, client.realtime.connect(model="voice") as session:
            assert (await session.recv()).type == "session.created"
            await session.response.create()
            done = await session.recv()
            assert done.type == "response.done"
        await recorded(gateway)
        [request] = upstream.requests
        assert request.path == "/v1/realtime?model=gpt-realtime"
        assert request.headers["authorization"] == "Bearer sk-upstream-secret"
        assert json.loads(upstream.messages[0])["type"] == "response.create"
        [log] = gateway.turns
        assert (log.action, log.model, log.upstream, log.caller, log.status) == ("relay", "voice", "up", "me", 101)
        assert (log.usage.input, log.usage.output) == (30, 12)


@run
async def test_texts_bytes_and_large_messages_pass_unchanged():
    async with realtime() as (gateway, upstream), socket_to(gateway, max_size=None) as socket:
        await socket.recv()
        for message in (b"\x00\xff" * 10, "ü" * 300_000, b"x" * 3_000_000):
            await socket.send(message)
            answer = await socket.recv()
            assert upstream.messages[-1] == message
            if isinstance(message, bytes):
                assert answer == message


@run
async def test_key_in_a_subprotocol():
    async with realtime() as (gateway, upstream):
        offered = ["realtime", "openai-insecure-api-key.sk-me", "openai-beta.realtime-v1"]
        async with socket_to(gateway, None, subprotocols=offered) as socket:
            assert socket.subprotocol == "realtime"
            await socket.recv()
        assert "sk-me" not in str(upstream.requests[0].headers)
        assert upstream.requests[0].headers["openai-beta"] == "realtime=v1"


@pytest.mark.parametrize(
    ("key", "query", "status"),
    [
        ("wrong", "model=voice", 401),
        ("sk-small", "model=up/other", 403),
        ("sk-small", "intent=transcription", 400),
        ("sk-me", "model=unknown", 404),
    ],
)
@run
async def test_handshake_is_refused_before_the_upstream_is_reached(key, query, status):
    async with realtime() as (gateway, upstream):
        with pytest.raises(InvalidStatus) as caught:
            async with socket_to(gateway, key, query):
                pass
        assert caught.value.response.status_code == status
        assert upstream.requests == []


@pytest.mark.parametrize(("given", "status"), [(429, 429), (401, 502), (500, 502)])
@run
async def test_refusal_of_the_upstream_reaches_the_client(given, status):
    async with realtime() as (gateway, upstream):
        upstream.status = given
        with pytest.raises(InvalidStatus) as caught:
            async with socket_to(gateway):
                pass
        assert caught.value.response.status_code == status
        assert b"sk-upstream-secret" not in caught.value.response.body


@run
async def test_keys_of_the_gateway_are_removed_from_messages_and_close_reasons():
    error = {"type": "error", "error": {"message": "invalid key sk-upstream-secret"}}
    async with realtime() as (gateway, upstream), socket_to(gateway) as socket:
        await socket.recv()
        upstream.answer = error
        await socket.send("{}")
        assert json.loads(await socket.recv()) == {"type": "error", "error": {"message": "invalid key [key]"}}
        await upstream.sockets[0].close(4001, "Bearer sk-upstream-secret is invalid")
        with pytest.raises(ConnectionClosed) as caught:
            await socket.recv()
        assert caught.value.rcvd.reason == "Bearer [key] is invalid"


@pytest.mark.parametrize(("refusals", "is_open"), [(1, True), (2, False)])
@run
async def test_refused_key_of_a_command_is_renewed_once(tmp_path, refusals, is_open):
    async with realtime() as (_, upstream):
        upstream.refusals = refusals
        row = {"base_url": upstream.url, "wire": "openai_chat", "key_command": numbered_keys(tmp_path / "keys")}
        settings = {"upstreams": {"up": row}, "models": {"voice": {"upstream": "up"}}, "keys": KEYS}
        async with serving(settings) as gateway:
            if is_open:
                async with socket_to(gateway) as socket:
                    await socket.recv()
            else:
                with pytest.raises(InvalidStatus) as caught:
                    async with socket_to(gateway):
                        pass
                assert caught.value.response.status_code == 502
                assert b"key-number" not in caught.value.response.body
    assert upstream.keys == ["Bearer key-number-1-0123456789", "Bearer key-number-2-0123456789"]


@run
async def test_failure_of_the_key_command_is_only_in_the_log(caplog):
    failing = [sys.executable, "-c", "import sys; sys.exit('vault.internal denied')"]
    row = {"base_url": "http://127.0.0.1:9", "wire": "openai_chat", "key_command": failing}
    async with realtime({"models": {"voice": {"upstream": "up"}}, "upstreams": {"up": row}}) as (gateway, _):
        with pytest.raises(InvalidStatus) as caught:
            async with socket_to(gateway):
                pass
        response = caught.value.response
    assert response.status_code == 502
    assert b"has no key" in response.body
    assert b"vault" not in response.body + str(response.headers).encode()
    assert "vault.internal denied" in caplog.text


@run
async def test_upstream_that_is_down_is_a_refusal():
    async with realtime({"models": {"voice": {"upstream": "down"}}, "upstreams": {"down": _down()}}) as (gateway, _):
        with pytest.raises(InvalidStatus) as caught:
            async with socket_to(gateway):
                pass
        assert caught.value.response.status_code == 502


def _down():
    return {"base_url": "http://127.0.0.1:9", "wire": "openai_chat"}


@run
async def test_end_of_one_side_ends_the_other():
    async with realtime() as (gateway, upstream):
        async with socket_to(gateway) as socket:
            await socket.recv()
            await upstream.sockets[0].close(4001, "over")
            with pytest.raises(ConnectionClosed) as caught:
                await socket.recv()
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4001, "over")
        async with socket_to(gateway) as socket:
            await socket.recv()
            upstream.sockets[1].transport.abort()
            with pytest.raises(ConnectionClosed) as caught:
                await socket.recv()
            assert caught.value.rcvd.code == 1011
        async with socket_to(gateway) as socket:
            await socket.recv()
            socket.transport.abort()
            await upstream.sockets[2].wait_closed()
            assert upstream.sockets[2].close_code == 1001


@run
async def test_slow_client_pauses_the_upstream():
    """Bytes are counted: those that the upstream could send while the client reads nothing."""
    async with realtime() as (gateway, upstream), socket_to(gateway, max_queue=1, max_size=None) as socket:
        await socket.recv()
        sent, piece = 0, b"x" * 1_000_000

        async def flood():
            nonlocal sent
            for _ in range(200):
                await upstream.sockets[0].send(piece)
                sent += len(piece)

        task = asyncio.create_task(flood())
        before = -1
        while sent != before:  # until nothing moves any more
            before = sent
            for _ in range(300):
                await asyncio.sleep(0.001)
        assert sent < 60_000_000
        for _ in range(200):
            assert await socket.recv() == piece
        await task


@run
async def test_limit_of_the_key_closes_the_session():
    keys = {"me": {"hash": hash_key("sk-me"), "tokens_per_minute": 40}}
    async with realtime({"keys": keys}) as (gateway, _), socket_to(gateway) as socket:
        await socket.recv()
        await socket.send("{}")
        await socket.recv()
        with pytest.raises(ConnectionClosed) as caught:
            await socket.recv()
        assert caught.value.rcvd.code == 1008
        assert "tokens per minute" in caught.value.rcvd.reason


TRANSCRIBED = {
    "event_id": "e",
    "type": "conversation.item.input_audio_transcription.completed",
    "transcript": 'say "usage":{"total_tokens":1} ' * 500,
}


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        ({"type": "tokens", "total_tokens": 42, "input_tokens": 30, "output_tokens": 12}, (30, 12)),
        ({"type": "duration", "seconds": 3}, None),
    ],
)
@run
async def test_transcription_is_charged_and_counts_as_a_request(usage, charged):
    limit = {"requests_per_minute": 2} if charged is None else {"tokens_per_minute": 40}
    async with realtime({"keys": {"me": {"hash": hash_key("sk-me"), **limit}}}) as (gateway, upstream):
        upstream.answer = {**TRANSCRIBED, "usage": usage}
        async with socket_to(gateway) as socket:
            with pytest.raises(ConnectionClosed) as caught:
                while True:
                    await socket.recv()
                    await socket.send("{}")
        assert caught.value.rcvd.code == 1008
        await recorded(gateway)
        found = gateway.turns[0].usage
        assert (found and (found.input, found.output)) == charged


@run
async def test_key_for_some_models_cannot_choose_another_in_the_session():
    update = {"type": "session.update", "session": {"audio": {"input": {"transcription": {"model": "whisper-1"}}}}}
    async with realtime() as (gateway, upstream), socket_to(gateway, "sk-small") as socket:
        await socket.recv()
        await socket.send(json.dumps({"type": "session.update", "session": {"model": "gpt-realtime"}}))
        await socket.recv()
        await socket.send(json.dumps(update))
        with pytest.raises(ConnectionClosed) as caught:
            await socket.recv()
        assert caught.value.rcvd.code == 1008
        assert len(upstream.messages) == 1


@pytest.mark.parametrize(
    "message",
    [
        r'{"type":"session.update","session":{"mod\u0065l":"other"}}',
        '{"session":{"Model":"other"}}',
        '{"session":{"MODEL":"other"}}',
        '{"model":"voice","model":"other"}',
        '{"session":[{"model":"other"}]',
        b'{"model":"other"}',
        '{"model":"other"}'.encode("utf-16"),
    ],
)
@run
async def test_key_for_some_models_cannot_hide_the_name_of_another(message):
    async with realtime() as (gateway, upstream), socket_to(gateway, "sk-small") as socket:
        await socket.recv()
        harmless = r'{"type":"conversation.item.create","item":{"text":"a \"b\""}}'
        await socket.send(harmless)
        await socket.recv()
        await socket.send(message)
        with pytest.raises(ConnectionClosed) as caught:
            await socket.recv()
        assert caught.value.rcvd.code == 1008
        assert upstream.messages == [harmless]


@run
async def test_revoked_key_and_stop_of_the_gateway_close_the_session():
    async with realtime() as (gateway, _):
        async with socket_to(gateway) as socket:
            await socket.recv()
            settings = gateway.gateway._settings
            gateway.gateway._sockets.close_revoked(type(gateway.gateway._keys)({}, is_required=True))
            with pytest.raises(ConnectionClosed) as caught:
                await socket.recv()
            assert caught.value.rcvd.code == 1008
            assert settings is gateway.gateway._settings
        async with socket_to(gateway) as socket:
            await socket.recv()
            gateway.gateway.drain()
            with pytest.raises(ConnectionClosed) as caught:
                await socket.recv()
            assert caught.value.rcvd.code == 1001
        await until(lambda: len(gateway.turns) == 2)
