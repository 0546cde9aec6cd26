"""Requests at the edges of HTTP/1.1, over bare sockets: upgrades, trailers, transfer codings, too many connections."""

from __future__ import annotations

import logging
import os
import re
import resource
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hostile import (
    PATHS,
    TEXT_ANSWER,
    body_of,
    connect,
    decode_answer,
    exchange,
    expect_error,
    gateway_to,
    head_of,
    path_of,
    post,
    read_answer,
    request_bytes,
    run,
)
from serving import WIRES, Serving, listening, upstream_rows
from toolwire.asgi.admission import ConnectionCounts
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from waiting import wait_until

KEYS = {"keys": {"me": {"hash": hash_key("sk-tw-right")}}}
UPGRADES = {
    "java": {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAEAAEAAAAIAAAABAAMAAABk"},
    "websocket": {"connection": "keep-alive, upgrade", "upgrade": "websocket"},
    "tls": {"connection": "upgrade", "upgrade": "TLS/1.0"},
}


@pytest.mark.finding("Z8")
@pytest.mark.parametrize("client", UPGRADES)
@pytest.mark.parametrize("size", [None, 10])
@run
async def test_request_for_an_upgrade_keeps_its_body(client, size):
    """Whole or in small pieces; and the connection serves the next request."""
    async with gateway_to(TEXT_ANSWER, TEXT_ANSWER, TEXT_ANSWER) as (gateway, provider):
        reader, writer = await connect(gateway)
        data = request_bytes(path_of("openai_chat"), body_of("openai_chat"), UPGRADES[client])
        for start in range(0, len(data), size or len(data)):
            writer.write(data[start : start + (size or len(data))])
            await writer.drain()
        assert decode_answer(await read_answer(reader), "openai_chat").text == TEXT_ANSWER.text
        writer.write(data + data)
        for _ in range(2):
            assert decode_answer(await read_answer(reader), "openai_chat").text == TEXT_ANSWER.text
        writer.close()
        assert len(provider.requests) == 3


@pytest.mark.finding("CA3")
@pytest.mark.parametrize(
    ("path", "front"),
    [
        ("/v1/responses", "openai_responses"),
        ("/v1/realtime", "openai_chat"),
        ("/v1/messages", "anthropic"),
        ("/v1beta/nothing", "gemini"),
        ("/api/chat", "ollama"),
    ],
)
@pytest.mark.parametrize("protocols", ["websocket", "h2c, WebSocket"])
@run
async def test_websocket_handshake_without_a_key_is_answered_with_426(path, front, protocols):
    """Codex uses HTTP after a 426, and retries for seconds after any other status. The connection stays usable."""
    headers = {"host": "localhost", **UPGRADES["websocket"], "upgrade": protocols}
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        reader, writer = await connect(gateway)
        writer.write(head_of(path, headers, method="GET"))
        answer = await read_answer(reader)
        expect_error(answer, front, 426)
        assert (answer.headers["upgrade"], answer.headers["connection"]) == ("HTTP/1.1", "upgrade")
        writer.write(request_bytes(path_of("openai_chat"), body_of("openai_chat"), {}))
        assert decode_answer(await read_answer(reader), "openai_chat").text == TEXT_ANSWER.text
        writer.close()


@pytest.mark.finding("CA3")
@pytest.mark.parametrize(
    ("extensions", "expected"),
    [({"websocket.http.response": {}}, ["websocket.http.response.start", "websocket.http.response.body"]),
     (None, ["websocket.close"])],
)  # fmt: skip
@run
async def test_handshake_for_another_path_is_refused(extensions, expected):
    """A server with its own WebSocket support passes the handshake to the application (ASGI, websocket scope)."""
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"upgrade", b"websocket")]
    scope = {"type": "websocket", "path": "/v1/sockets", "query_string": b"", "headers": headers}
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        await gateway.gateway({**scope, "extensions": extensions}, receive, send)
    assert [message["type"] for message in sent] == expected
    assert sent[0].get("status", 426) == 426


@pytest.mark.finding("CA3")
@pytest.mark.parametrize(
    ("path", "method", "upgrade", "status"),
    [
        ("/v1/models", "GET", "websocket", 200),
        ("/v1/responses", "GET", "h2c", 405),
        ("/v1/responses", "PUT", "websocket", 405),
        ("/v1/nothing", "GET", "h2c", 404),
    ],
)
@run
async def test_other_requests_for_an_upgrade_are_answered_as_without_it(path, method, upgrade, status):
    headers = {"host": "localhost", "connection": "close, upgrade", "upgrade": upgrade}
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        assert (await exchange(gateway, head_of(path, headers, method=method))).status == status


@pytest.mark.finding("Z8")
@run
async def test_chunked_request_for_an_upgrade_keeps_its_body():
    body = body_of("openai_chat")
    headers = {"host": "localhost", "transfer-encoding": "chunked", **UPGRADES["java"], "connection": "close, Upgrade"}
    data = head_of(path_of("openai_chat"), headers) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        answer = await exchange(gateway, data)
        assert decode_answer(answer, "openai_chat").text == TEXT_ANSWER.text
        assert answer.headers["connection"] == "close"


@pytest.mark.finding("Z8")
@run
async def test_connect_is_refused():
    async with gateway_to() as (gateway, _):
        assert (await exchange(gateway, b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\nxyz")).status == 400


def chunked(front, trailers, headers=None):
    body = body_of(front)
    head = head_of(path_of(front), {"host": "localhost", "transfer-encoding": "chunked", **(headers or {})})
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers.items()).encode()
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, lines)


@pytest.mark.finding("Z16")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_key_in_a_trailer_is_not_accepted(front):
    async with gateway_to(TEXT_ANSWER, document=KEYS) as (gateway, provider):
        for trailers in ({"authorization": "Bearer sk-tw-right"}, {"x-api-key": "sk-tw-right"}):
            expect_error(await exchange(gateway, chunked(front, trailers)), front, 401)
        assert not provider.requests
        right = {"authorization": "Bearer sk-tw-right"}
        answer = await exchange(gateway, chunked(front, {"x-api-key": "sk-tw-wrong", "x-request-id": "evil"}, right))
        assert decode_answer(answer, front).text == TEXT_ANSWER.text
        assert answer.headers["x-request-id"] != "evil"


@pytest.mark.finding("Z16")
@run
async def test_endless_trailers_are_refused():
    async with gateway_to(document={"limits": {"head": 8192}}) as (gateway, _):
        answer = await exchange(gateway, chunked("openai_chat", {f"x-{number}": "y" * 100 for number in range(500)}))
        assert answer.status == 431


@pytest.mark.finding("Z24")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_missing_host_is_refused_with_keys(front):
    async with gateway_to(TEXT_ANSWER, document=KEYS) as (gateway, provider):
        data = request_bytes(path_of(front), body_of(front), {"authorization": "Bearer sk-tw-right"})
        for host in (b"", b"host: \r\n", b"host:\r\n"):
            expect_error(await exchange(gateway, data.replace(b"host: localhost\r\n", host)), front, 400)
        assert not provider.requests
        # HTTP/1.0, as some health checks use it, has no Host
        assert (await exchange(gateway, b"GET /health HTTP/1.0\r\n\r\n")).status == 200


@pytest.mark.finding("Z24")
@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "identity, chunked", "x, chunked"])
@run
async def test_transfer_codings_other_than_chunked_are_not_implemented(coding):
    body = body_of("openai_chat")
    head = head_of(path_of("openai_chat"), {"host": "localhost", "transfer-encoding": coding})
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await read_answer(reader)).status == 501
        assert await reader.read() == b""
        writer.close()
        assert not provider.requests


@pytest.mark.finding("Z24")
@run
async def test_chunked_in_te_is_refused():
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        data = request_bytes(path_of("openai_chat"), body_of("openai_chat"), {"te": "gzip, chunked;q=0.5"})
        assert (await exchange(gateway, data)).status == 400
        assert not provider.requests
        data = request_bytes(path_of("openai_chat"), body_of("openai_chat"), {"te": "trailers, gzip"})
        assert (await exchange(gateway, data)).status == 200


@pytest.mark.finding("Z23")
@run
async def test_health_is_answered_beyond_the_limit_of_connections(caplog):
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        counts = ConnectionCounts(limit=3, reserve=2)
        async with listening(gateway.gateway, counts=counts) as url:
            limited = Serving(gateway.gateway, [])
            limited.url = url
            held = [await connect(limited) for _ in range(3)]
            answer = await exchange(limited, head_of("/health?x", {"host": "localhost"}, method="GET"))
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            answer = await exchange(limited, request_bytes(path_of("openai_chat"), body_of("openai_chat")))
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            more = [await connect(limited) for _ in range(2)]
            reader, writer = await connect(limited)
            assert (await read_answer(reader)).status == 503  # without waiting for a request
            for _, one in (*held, *more, (reader, writer)):
                one.close()
            assert not provider.requests
    reports = [record for record in caplog.records if record.name == "toolwire.asgi"]
    assert len(reports) == 1 and reports[0].levelno == logging.ERROR
    assert "the limit is 3" in reports[0].getMessage()


@pytest.mark.finding("Z23")
def test_counts_leave_descriptors_for_other_uses():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    counts = ConnectionCounts.from_descriptors()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 0 < counts.limit + counts.reserve < min(hard, 1_000_000) and counts.reserve > 0


@pytest.mark.finding("Z23")
def test_process_without_free_descriptors_answers_health_checks_and_logs(tmp_path):
    config = tmp_path / "toolwire.toml"
    config.write_text('[upstreams.x]\nwire = "openai_chat"\nbase_url = "http://127.0.0.1:9"\n')
    command = [sys.executable, "-m", "toolwire", "serve", "--quiet", "--port", "0", "--config", str(config)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *command],
            stdout=log,
            stderr=log,
            env={**os.environ, "NO_COLOR": "1"},
        )
    held = []
    try:
        wait_until(lambda: b"http://" in (tmp_path / "log").read_bytes())
        port = int(re.search(rb"http://127\.0\.0\.1:(\d+)", (tmp_path / "log").read_bytes())[1])
        for _ in range(100):
            held.append(socket.create_connection(("127.0.0.1", port)))
        wait_until(lambda: b"client connections" in (tmp_path / "log").read_bytes())
        for one in held:
            one.setblocking(False)
        wait_until(lambda: sum(map(_has_data, held)) == 100 - 20 - 8)  # those beyond the limit and the reserve
        refused = [one for one in held if _has_data(one)]
        for one in refused:
            assert one.recv(100).startswith(b"HTTP/1.1 503 ")
            one.close()
        held[0].setblocking(True)
        held[0].sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert held[0].recv(100).startswith(b"HTTP/1.1 200 ")
        probes_only = next(one for one in reversed(held) if one not in refused)
        probes_only.setblocking(True)
        probes_only.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert probes_only.recv(100).startswith(b"HTTP/1.1 200 ")
    finally:
        for one in held:
            one.close()
        process.terminate()
        process.wait()


def _has_data(connection):
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("front", PATHS)
@run
async def test_error_has_each_header_once(front):
    async with gateway_to() as (gateway, _):
        reader, writer = await connect(gateway)
        writer.write(request_bytes(path_of(front), b"{"))
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    names = [line.partition(b":")[0] for line in head.lower().split(b"\r\n")[1:] if line]
    assert b"x-request-id" in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("given", "expected"), [("r-1", "r-1"), ("an evil id", "[0-9a-f]{24,}"), ("", "[0-9a-f]{24,}")]
)
@run
async def test_refusal_under_overload_has_a_request_id(given, expected):
    gateway = Gateway(parse_settings({"upstreams": upstream_rows("http://127.0.0.1:9")}), environment={})
    gateway.admission.limit = 0
    headers = {"x-request-id": given} if given else {}
    async with listening(gateway, gate=gateway) as url:
        it = SimpleNamespace(url=url)
        for front in WIRES:
            answer = await post(it, path_of(front), b"{}", headers)
            assert answer.status in (503, 529) and answer.headers["retry-after"] == "1"
            assert re.fullmatch(expected, answer.headers["x-request-id"])
