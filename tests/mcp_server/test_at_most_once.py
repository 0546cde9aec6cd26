"""A write runs at most once for its key, whatever happens to the connection, the client or the server."""

import http.client
import json
import socket
import threading
import time

import pytest

from mcp_server.server_process import (
    META,
    TIMEOUT,
    WORKSHOP,
    StdioClient,
    effects_in,
    http_server,
    post,
    tool_call_request,
    wait_until,
)

KEY = "dev.toolwire/idempotencyKey"


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


def keyed(amount=5, seconds=0.0, key="k1", number=1):
    return tool_call_request("pay", {"amount": amount, "seconds": seconds}, number, **{KEY: key})


def result(body):
    return json.loads(body)["result"]


def send_without_reading(port, message):
    """Sends a request and goes away without waiting for the answer."""
    body = json.dumps(message).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: pay\r\n\r\n"
    )
    wire = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    wire.sendall(head.encode() + body)
    return wire


def test_repeated_key_returns_the_first_result(effects):
    with http_server(effects=effects) as (port, _):
        first, again = (result(post(port, keyed(number=number))[2]) for number in (1, 2))
        other = result(post(port, keyed(amount=6, number=3))[2])
    assert first["content"] == again["content"] == [{"type": "text", "text": "paid 5"}]
    assert other["isError"] is True
    assert "different arguments" in other["content"][0]["text"]
    assert effects_in(effects) == ["pay 5"]


def test_calls_without_a_key_are_all_executed(effects):
    with StdioClient(effects=effects) as line:
        for _ in range(2):
            assert line.call("pay", {"amount": 5})["result"]["content"][0]["text"] == "paid 5"
    assert effects_in(effects) == ["pay 5", "pay 5"]


def test_retry_with_the_key_after_a_disconnect_returns_the_result(effects):
    with http_server(effects=effects) as (port, _):
        wire = send_without_reading(port, keyed(seconds=1.0))
        wait_until(lambda: effects_in(effects))
        wire.close()
        again = result(post(port, keyed(seconds=1.0, number=2))[2])
    assert again["content"][0]["text"] == "paid 5"
    assert effects_in(effects) == ["pay 5"]


def test_concurrent_calls_with_one_key_run_once(effects):
    answers = []
    with http_server(effects=effects) as (port, _):

        def ask(number):
            answers.append(result(post(port, keyed(seconds=0.3, number=number))[2])["content"][0]["text"])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
    assert answers == ["paid 5"] * 8
    assert effects_in(effects) == ["pay 5"]


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_killed_server_does_not_repeat_the_write(way, effects, tmp_path):
    store = ("--store", str(tmp_path / "runs.db"), "--lease", "0.5")
    message = keyed(seconds=30.0)
    if way == "stdio":
        with StdioClient(WORKSHOP, *store, effects=effects) as line:
            line.send(message)
            wait_until(lambda: effects_in(effects))
            line.kill()
        time.sleep(0.6)
        with StdioClient(WORKSHOP, *store, effects=effects) as line:
            line.send(message)
            answer = line.receive()["result"]
    else:
        with http_server(WORKSHOP, *store, effects=effects) as (port, process):
            wire = send_without_reading(port, message)
            wait_until(lambda: effects_in(effects))
            process.kill()
            wire.close()
        time.sleep(0.6)
        with http_server(WORKSHOP, *store, effects=effects) as (port, _):
            answer = result(post(port, message)[2])
    assert answer["isError"] is True
    assert "may or may not have taken effect" in answer["content"][0]["text"]
    assert effects_in(effects) == ["pay 5"]


def test_result_recorded_before_a_kill_is_returned_after_it(effects, tmp_path):
    store = ("--store", str(tmp_path / "runs.db"))
    for _ in range(2):
        with StdioClient(WORKSHOP, *store, effects=effects) as line:
            answer = line.call("pay", {"amount": 7}, meta={**META, KEY: "k7"})
            assert answer["result"]["content"][0]["text"] == "paid 7"
            line.kill()
    assert effects_in(effects) == ["pay 7"]


def test_a_cancelled_write_is_finished_and_recorded(effects):
    with StdioClient(effects=effects) as line:
        params = {"name": "pay", "arguments": {"amount": 8, "seconds": 0.5}, "_meta": {KEY: "k8"}}
        number = line.ask("tools/call", params)
        wait_until(lambda: effects_in(effects))
        line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        again = line.answer("tools/call", params)
        assert again["id"] != number
        assert again["result"]["content"][0]["text"] == "paid 8"
    assert effects_in(effects) == ["pay 8"]


def test_client_disconnect_cancels_a_stateless_read(effects):
    with http_server(effects=effects) as (port, _):
        message = tool_call_request("nap", {"seconds": 30.0}, progressToken=1)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "nap",
        }
        connection.request("POST", "/mcp", json.dumps(message), headers)
        response = connection.getresponse()
        assert response.getheader("content-type") == "text/event-stream"
        assert b"half asleep" in response.readline() + response.readline()
        connection.close()
        response.close()
        wait_until(lambda: effects_in(effects) == ["woken"])


def test_empty_and_overlong_keys_are_rejected(effects):
    with StdioClient(effects=effects) as line:
        for key in ("", "x" * 300):
            assert line.call("pay", {"amount": 1}, meta={**META, KEY: key})["error"]["code"] == -32602
    assert effects_in(effects) == []
