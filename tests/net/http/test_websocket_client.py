"""The client of OpenAI Responses over WebSockets: servers of the library `websockets`, and a gateway in front of a gateway."""

import asyncio
import base64
import hashlib
import json
import ssl
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.server import serve

from connect_proxy import running_proxy
from hostile import CALL_ANSWER, TEXT_ANSWER, gateway_to, post, run
from raw_server import TLS, server
from serving import serving
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.routing.upstreams import ConfiguredUpstream
from toolwire.ir.errors import ConfigError
from toolwire.net.http import websocket, websocket_connection
from toolwire.net.http.client import HttpTransport
from toolwire.net.http.websocket import WebSocketTransport
from waiting import SAFETY, until

BODY = {"model": "m", "input": "hi", "stream": True}
CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
DONE = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}


class Peer:
    """A server that answers each request with messages; `None` closes the connection, `...` stays silent."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.requests = []
        self.heads = []
        self.connections = 0
        self.open = 0

    async def accept(self, socket):
        self.connections += 1
        self.heads.append(socket.request.headers)
        self.open += 1
        try:
            await self._answer(socket)
        finally:
            self.open -= 1

    async def _answer(self, socket):
        async for message in socket:
            self.requests.append(json.loads(message))
            for event in self.scripts[min(len(self.requests), len(self.scripts)) - 1]:
                if event is None:
                    await socket.close(1011, "broken")
                    return
                if event is ...:
                    await socket.wait_closed()
                if isinstance(event, list):  # the fragments of a message
                    await socket.send(event)
                else:
                    await socket.send(event if isinstance(event, str | bytes) else json.dumps(event))


@asynccontextmanager
async def world(*scripts, **options):
    peer = Peer(*scripts)
    async with serve(peer.accept, "127.0.0.1", 0, max_size=None, compression=None, **options) as listening:
        scheme = "https" if options.get("ssl") else "http"
        peer.url = f"{scheme}://localhost:{listening.sockets[0].getsockname()[1]}/v1/responses"
        http = HttpTransport(environment={})
        transport = WebSocketTransport(http)
        try:
            yield peer, transport
        finally:
            await transport.aclose()
            await http.aclose()


async def ask(transport, url, body=BODY, seconds=10.0, key="k", **headers):
    headers = {"content-type": "application/json", **headers}
    async with transport.post(
        url, headers, {"authorization": f"Bearer {key}"}, json.dumps(body).encode(), seconds
    ) as reply:
        pieces = []
        while piece := await reply.read():
            pieces.append(piece)
    return reply.status, dict(reply.headers), b"".join(pieces)


@run
async def test_stream_is_a_stream_of_events_and_connections_are_reused():
    async with world([CREATED, DONE]) as (peer, transport):
        for _ in range(3):
            status, headers, body = await ask(transport, peer.url)
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            first, second = body.decode().strip().split("\n\n")
            assert first == f"event: response.created\ndata: {json.dumps(CREATED)}" and json.dumps(DONE) in second
        assert peer.connections == 1 and peer.requests == [{"type": "response.create", "model": "m", "input": "hi"}] * 3
        assert peer.heads[0]["authorization"] == "Bearer k" and "sec-websocket-extensions" not in peer.heads[0]


@run
async def test_whole_response_and_fragments_and_line_breaks():
    pretty = json.dumps(DONE, indent=2)
    async with world([[pretty[:9], pretty[9:20], pretty[20:]]]) as (peer, transport):
        status, headers, body = await ask(transport, peer.url, {**BODY, "stream": False})
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == DONE["response"]
        _, _, streamed = await ask(transport, peer.url)
        assert json.loads(streamed.decode().split("data: ")[1]) == DONE and streamed.count(b"\n") == 3


@run
async def test_responses_at_the_same_time_have_connections_of_their_own():
    async with world([CREATED, DONE]) as (peer, transport):
        await asyncio.gather(*[ask(transport, peer.url) for _ in range(5)])
        assert peer.connections == 5
        await ask(transport, peer.url)
        assert peer.connections == 5


@run
async def test_headers_of_one_request_are_not_in_the_handshake():
    async with world([CREATED, DONE]) as (peer, transport):
        for number in range(3):
            trace = {"Traceparent": f"00-{number}", "tracestate": f"a={number}", "baggage": f"b={number}"}
            await ask(transport, peer.url, **trace, **{"x-request-id": str(number), "openai-beta": "x"})
        assert peer.connections == 1 and peer.heads[0]["openai-beta"] == "x"
        assert not {"traceparent", "tracestate", "baggage", "x-request-id"} & {name.lower() for name in peer.heads[0]}


@run
async def test_longest_idle_connection_of_all_keys_is_closed_first(monkeypatch):
    monkeypatch.setattr(websocket, "_MAX_IDLE", 2)
    async with world([CREATED, DONE]) as (peer, transport):
        for key in "aba":
            await ask(transport, peer.url, key=key)
        assert peer.connections == 2
        await ask(transport, peer.url, key="c")  # closes the connection of `b`
        await until(lambda: peer.open == 2)
        await ask(transport, peer.url, key="a")
        assert peer.connections == 3
        await ask(transport, peer.url, key="b")
        assert peer.connections == 4 and len(transport._idle) == 2


@run
async def test_connection_that_is_idle_for_long_is_closed(monkeypatch):
    monkeypatch.setattr(websocket, "_IDLE_SECONDS", 0.0)
    async with world([CREATED, DONE]) as (peer, transport):
        await ask(transport, peer.url)
        await until(lambda: peer.open == 0 and not transport._idle)


@run
async def test_time_of_an_idle_connection_ends_with_its_next_request(monkeypatch):
    monkeypatch.setattr(websocket, "_IDLE_SECONDS", 0.05)
    async with world([CREATED, DONE]) as (peer, transport):
        await ask(transport, peer.url)
        (connection,) = transport._idle
        async with transport.post(
            peer.url, {}, {"authorization": "Bearer k"}, json.dumps(BODY).encode(), SAFETY
        ) as reply:
            await until(lambda: connection._slot is None)  # the time was checked
            assert await reply.read() and peer.open == peer.connections == 1


@run
async def test_idle_connection_that_the_server_closes_is_forgotten():
    async with world([CREATED, DONE, None], [CREATED, DONE]) as (peer, transport):
        await ask(transport, peer.url)
        await until(lambda: not transport._idle)
        assert (await ask(transport, peer.url))[0] == 200 and peer.connections == 2


@run
async def test_connection_in_use_is_closed_after_the_transport():
    async with world([CREATED, DONE]) as (peer, transport):
        async with transport.post(peer.url, {}, {}, json.dumps(BODY).encode(), SAFETY) as reply:
            await transport.aclose()
            while await reply.read():
                pass
        assert not transport._idle
        await until(lambda: peer.open == 0)


@run
async def test_error_before_any_event_is_the_status_of_the_reply():
    error = {
        "type": "error",
        "status": 429,
        "error": {"message": "slow down", "code": "x"},
        "headers": {"retry-after": "7"},
    }
    async with world([error], [CREATED, DONE]) as (peer, transport):
        status, headers, body = await ask(transport, peer.url)
        assert (status, headers["retry-after"], json.loads(body)["error"]["message"]) == (429, "7", "slow down")
        assert (await ask(transport, peer.url))[0] == 200 and peer.connections == 1  # errors do not end a connection


@run
async def test_late_error_is_an_event_of_the_stream():
    error = {"type": "error", "status": 500, "error": {"message": "broken", "code": "x"}}
    async with world([CREATED, error]) as (peer, transport):
        _, _, body = await ask(transport, peer.url)
        assert json.loads(body.decode().rpartition("data: ")[2]) == {"type": "error", "message": "broken", "code": "x"}


@pytest.mark.parametrize(
    ("fields", "status", "error", "headers"),
    [
        ({"status": None, "error": {"message": "m", "type": "t"}}, 502, {"message": "m", "type": "t"}, {}),
        ({"status": "429", "error": {"message": "m"}, "headers": None}, 429, {"message": "m"}, {}),
        (
            {"status_code": 429, "error": "m", "headers": {"Retry-After": 7}},
            429,
            {"message": "m"},
            {"retry-after": "7"},
        ),
        ({"status": 200, "error": {}, "headers": {"a": None, "b": [1], "c": "x\r\ny"}}, 502, {}, {}),
        ({"status": 503, "error": None, "message": "m", "code": "c"}, 503, {"message": "m", "code": "c"}, {}),
        ({"status": True, "error": [1], "message": "m", "headers": [1]}, 502, {"message": "m"}, {}),
        ({"status": {}, "error": {"n": 10**40}}, 502, {"n": 10**40}, {}),
        ({}, 502, {}, {}),
    ],
)
@run
async def test_unusual_errors_are_errors_and_not_lost_connections(fields, status, error, headers):
    event = json.dumps({"type": "error", **fields}, indent=1)
    async with world([event], [CREATED, event], [CREATED, DONE]) as (peer, transport):
        reply = await ask(transport, peer.url)
        assert (reply[0], json.loads(reply[2])) == (status, {"error": error})
        assert reply[1] == {**headers, "content-type": "application/json"}
        _, _, stream = await ask(transport, peer.url)
        frame = stream.decode().strip().split("\n\n")[1]
        assert frame.startswith("event: error\ndata: ") and frame.count('"type"') == frame.count("\n") == 1
        assert json.loads(frame.partition("data: ")[2]) == {**error, "type": "error"}
        assert (await ask(transport, peer.url))[0] == 200 and peer.connections == 2


@run
async def test_error_with_invalid_utf_8_and_deep_events():
    error, deep = (
        b'{"type":"error","status":429,"\xff":1}',
        '{"type":"error","a":' + "[" * 100_000 + "]" * 100_000 + "}",
    )
    async with world([error], [deep]) as (peer, transport):
        assert (await ask(transport, peer.url))[::2] == (502, b'{"error":{}}')
        with pytest.raises(ConnectionError):
            await ask(transport, peer.url)


@pytest.mark.parametrize("script", [[None], [CREATED, None], ["no json"], [CREATED, b"\xff"]])
@run
async def test_broken_connection_is_a_connection_error(script):
    async with world(script, [CREATED, DONE]) as (peer, transport):
        with pytest.raises(ConnectionError):
            await ask(transport, peer.url)
        assert (await ask(transport, peer.url))[0] == 200 and peer.connections == 2 and len(peer.requests) == 2


@run
async def test_silent_server_times_out_and_its_connection_is_closed():
    async with world([CREATED, ...], [CREATED, DONE]) as (peer, transport):
        with pytest.raises(TimeoutError):
            await ask(transport, peer.url, seconds=0.2)
        assert (await ask(transport, peer.url))[0] == 200 and peer.connections == 2


@run
async def test_slow_reader_holds_the_server_back():
    event = {"type": "response.output_text.delta", "delta": "x" * 100_000}
    async with (
        world([CREATED, *[event] * 200, DONE]) as (peer, transport),
        transport.post(peer.url, {}, {}, json.dumps(BODY).encode(), 30.0) as reply,
    ):
        await reply.read()
        await asyncio.sleep(0.2)
        assert reply._connection._size < 2_000_000  # of 20 MB
        size = 0
        while piece := await reply.read():
            size += len(piece)
        assert size > 20_000_000


@pytest.mark.parametrize("ending", ["close frame", "unmasked rubbish"])
@run
async def test_response_fails_at_the_close_frame_while_tcp_stays_open(ending):
    async def respond(reader, writer, seen):
        await accept_socket(reader, writer)
        await read_message(reader)
        writer.write(frame(1, json.dumps(CREATED).encode()))
        writer.write(frame(8, b"\x03\xf3broken") if ending == "close frame" else b"\xff\xff")
        await reader.read()  # until the client closes TCP

    async with server(respond) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        async with transport.post(seen["url"], {}, {}, json.dumps(BODY).encode(), SAFETY) as reply:
            assert b"response.created" in await reply.read()
            with pytest.raises(ConnectionResetError, match="broken" if ending == "close frame" else "opcode|reserved"):
                await reply.read()
        await seen["closed"].wait()


@run
async def test_idle_connection_with_a_close_frame_is_closed_without_the_server(monkeypatch):
    monkeypatch.setattr(websocket_connection, "_CLOSING_SECONDS", 0.0)
    is_idle = asyncio.Event()

    async def respond(reader, writer, seen):
        await accept_socket(reader, writer)
        await read_message(reader)
        writer.write(frame(1, json.dumps(DONE).encode()))
        await is_idle.wait()
        writer.write(frame(8, b"\x03\xe8"))
        await reader.read()  # until the client closes TCP

    async with server(respond) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        await ask(transport, seen["url"])
        assert transport._idle
        is_idle.set()
        await seen["closed"].wait()
        assert not transport._idle


async def accept_socket(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    key = head.partition(b"Sec-WebSocket-Key: ")[2].split(b"\r\n")[0]
    digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()  # RFC 6455, 1.3
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    writer.write(b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n")


async def read_message(reader):
    """Read a masked message of less than 126 bytes."""
    await reader.readexactly((await reader.readexactly(2))[1] - 0x80 + 4)


def frame(opcode, payload):
    size = len(payload)
    return bytes([0x80 | opcode, size] if size < 126 else [0x80 | opcode, 126, size >> 8, size & 255]) + payload


def refuse_with(answer, *, closes=False):
    """Return a server that responds to handshakes with `answer`, and to requests with 200."""
    good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"

    async def respond(reader, writer, seen):
        head = await reader.readuntil(b"\r\n\r\n")
        if b"upgrade" in head.lower():
            seen["upgrades"] = seen.get("upgrades", 0) + 1
            writer.write(answer)
            if not closes:
                await reader.read()
            return
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        writer.write(good)

    return respond


REFUSALS = {
    **{
        str(status): (b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % status, False)
        for status in (200, 204, 400, 403, 404, 405, 426, 501)
    },
    "until the end of the connection": (b"HTTP/1.1 404 Not Found\r\n\r\nno such page", True),
    "HTTP/1.0": (b"HTTP/1.0 404 Not Found\r\ncontent-length: 0\r\n\r\n", False),
    "other protocol": (b"SSH-2.0-OpenSSH_9.9\r\n", False),
    "invalid accept": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", False),
    "truncated": (b"HTTP/1.1 503 Service Unav", True),
    "nothing": (b"", True),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@run
async def test_server_without_websockets_gets_requests_over_http(refusal):
    answer, closes = refusal
    async with server(refuse_with(answer, closes=closes)) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        for _ in range(3):
            assert (await ask(transport, seen["url"] + "/v1/responses"))[::2] == (200, b"{}")
        assert seen["upgrades"] == 1


@run
async def test_refusal_is_for_one_url_and_a_limited_time(monkeypatch):
    async with server(refuse_with(REFUSALS["404"][0])) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        for path in ("/a", "/b", "/b", "/a"):
            assert (await ask(transport, seen["url"] + path))[0] == 200
        assert seen["upgrades"] == 2
        monkeypatch.setattr(websocket, "_HTTP_SECONDS", 0.0)
        for _ in range(2):
            assert (await ask(transport, seen["url"] + "/c"))[0] == 200
        assert seen["upgrades"] == 4


@pytest.mark.parametrize("length", [b"content-length: 13\r\n", b""])
@pytest.mark.parametrize("status", [401, 429, 500, 503])
@run
async def test_refused_key_or_failing_server_is_the_status_of_the_reply(status, length):
    refusal = b'HTTP/1.1 %d No\r\n%b\r\n{"error":"x"}' % (status, length)
    async with server(refuse_with(refusal, closes=not length)) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        for _ in range(2):
            assert (await ask(transport, seen["url"] + "/v1/responses"))[::2] == (status, b'{"error":"x"}')
        assert seen["upgrades"] == 2


@run
async def test_tls_and_the_tunnel_of_a_proxy():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "upstream.pem")
    async with world([CREATED, DONE], ssl=context) as (peer, _):
        hosts = {"upstream.test": int(peer.url.split(":")[2].split("/")[0])}
        async with running_proxy(hosts) as (proxy, address):
            http = HttpTransport(
                environment={"HTTPS_PROXY": f"http://{address}"}, roots=[(TLS / "tunnel-ca.pem").read_bytes()]
            )
            transport = WebSocketTransport(http)
            for _ in range(2):
                assert (await ask(transport, "https://upstream.test/v1/responses"))[0] == 200
            assert len(proxy.requests) == 1
            await transport.aclose()
            await until(lambda: proxy.open == 0)


@pytest.mark.parametrize("stream", [False, True])
@run
async def test_gateway_uses_websockets_of_another_gateway(stream):
    """Two gateways: the first one's upstream is the second, whose upstream is a provider of another wire."""
    async with gateway_to(TEXT_ANSWER, CALL_ANSWER) as (inner, provider):
        rows = {"inner": {"base_url": inner.url + "/v1", "wire": "openai_responses", "websocket": True, "retries": 0}}
        async with serving({"upstreams": rows}) as outer:
            for _ in range(2):
                body = {"model": "inner/anthropic/m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
                answer = await post(outer, "/v1/chat/completions", json.dumps(body).encode())
                assert answer.status == 200, answer.body
            assert b"get_weather" in answer.body
        assert len(provider.requests) == 2
        assert [turn.status for turn in inner.turns if turn.action == "connect"] == [101]


def test_other_wires_have_no_websockets():
    settings = parse_settings({"upstreams": {"a": {"provider": "anthropic", "websocket": True, "key_env": "KEY"}}})
    with pytest.raises(ConfigError, match="WebSockets"):
        ConfiguredUpstream("a", settings.upstreams["a"], HttpTransport(environment={}), {"KEY": "k" * 20})


@run
async def test_connection_is_not_used_again_after_an_error_in_the_middle():
    """The end of the failed response may follow, and would be read as an event of the next one."""
    error = {"type": "error", "status": 500, "error": {"message": "broken"}}
    failed = {"type": "response.failed", "response": {"id": "resp_1", "status": "failed"}}
    async with world([CREATED, error, failed], [CREATED, DONE]) as (peer, transport):
        await ask(transport, peer.url)
        _, _, body = await ask(transport, peer.url)
        assert b"response.completed" in body and b"response.failed" not in body and peer.connections == 2


@run
async def test_server_that_pings_and_does_not_read_is_disconnected():
    async def respond(reader, writer, seen):
        await accept_socket(reader, writer)
        with suppress(ConnectionError):
            while True:
                writer.write(frame(9, b"x" * 125) * 500)
                await writer.drain()

    async with server(respond) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        with pytest.raises(ConnectionError):
            await ask(transport, seen["url"], seconds=SAFETY)


@run
async def test_idle_connection_with_an_event_is_closed():
    """The event belongs to no response."""
    is_idle = asyncio.Event()

    async def respond(reader, writer, seen):
        await accept_socket(reader, writer)
        await read_message(reader)
        writer.write(frame(1, json.dumps(DONE).encode()))
        await is_idle.wait()
        writer.write(frame(1, b"{}"))
        await reader.read()  # until the client closes TCP

    async with server(respond) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        await ask(transport, seen["url"])
        is_idle.set()
        await seen["closed"].wait()
        assert not transport._idle


@run
async def test_empty_events_count_as_unread():
    async def respond(reader, writer, seen):
        await accept_socket(reader, writer)
        await read_message(reader)
        writer.write(frame(1, json.dumps(CREATED).encode()) + frame(1, b"") * 10)
        await reader.read()

    async with server(respond) as seen:
        transport = WebSocketTransport(HttpTransport(environment={}))
        async with transport.post(seen["url"], {}, {}, json.dumps(BODY).encode(), SAFETY) as reply:
            await until(lambda: len(reply._connection._events) == 10)
            assert reply._connection._size >= 10 * 64
