"""Streams that stay open: subscriptions of the stateless era, and the stream that a session of the handshake era keeps."""

import http.client
import json
import signal

import pytest

from mcp_server.server_process import (
    LATEST,
    TIMEOUT,
    StdioClient,
    http_server,
    post,
    stateless_request,
    tool_call_request,
)

SUBSCRIPTION = {"notifications": {"resourceSubscriptions": ["notes://monday"], "promptsListChanged": True}}
PLAIN = {"mcp-protocol-version": None, "mcp-method": None, "mcp-name": None}


class Stream:
    """An open stream of events."""

    def __init__(self, port, method, body, headers):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        data = None if body is None else json.dumps(body)
        self._connection.request(method, "/mcp", data, {"accept": "application/json, text/event-stream", **headers})
        self._response = self._connection.getresponse()
        assert self._response.getheader("content-type") == "text/event-stream"

    def next(self):
        """The next message; None at the end."""
        while True:
            line = self._response.readline()
            if not line:
                return None
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def close(self):
        self._response.close()
        self._connection.close()


def open_subscription(port):
    headers = {"content-type": "application/json", "mcp-protocol-version": LATEST, "mcp-method": "subscriptions/listen"}
    return Stream(port, "POST", stateless_request("subscriptions/listen", SUBSCRIPTION, 42), headers)


def open_session(port):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    _, headers, _ = post(port, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, PLAIN)
    return {**PLAIN, "mcp-session-id": headers["mcp-session-id"]}


@pytest.fixture(scope="module")
def port():
    with http_server() as (port, _):
        yield port


def test_http_subscription_receives_only_requested_updates(port):
    stream = open_subscription(port)
    first = stream.next()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == SUBSCRIPTION["notifications"]
    for day in ("sunday", "monday"):
        assert post(port, tool_call_request("note", {"day": day}))[0] == 200
    update = stream.next()
    stream.close()
    assert update["method"] == "notifications/resources/updated"
    assert update["params"]["uri"] == "notes://monday"
    assert update["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 42}


def test_stdio_subscription_receives_updates_until_cancelled():
    with StdioClient() as line:
        number = line.ask("subscriptions/listen", SUBSCRIPTION)
        assert line.receive()["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
        line.ask("tools/call", {"name": "note", "arguments": {"day": "monday"}})
        assert {line.receive().get("method") for _ in range(2)} == {"notifications/resources/updated", None}
        line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        answer = line.call("note", {"day": "monday"})
        assert answer["result"]["content"][0]["text"] == "noted"


def test_end_of_input_completes_the_subscription_with_a_result():
    with StdioClient() as line:
        number = line.ask("subscriptions/listen", SUBSCRIPTION)
        line.receive()
        code, _ = line.end()
        last = line.receive()
        assert (code, last["id"], last["result"]["resultType"]) == (0, number, "complete")


def test_session_receives_its_resource_updates_on_its_stream(port):
    session = open_session(port)
    headers = {name: value for name, value in session.items() if value is not None}
    stream = Stream(port, "GET", None, headers)
    for uri in ("notes://monday", "notes://friday"):
        subscribe = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": uri}}
        assert post(port, subscribe, session)[0] == 200
    unsubscribe = {"jsonrpc": "2.0", "id": 3, "method": "resources/unsubscribe", "params": {"uri": "notes://friday"}}
    assert post(port, unsubscribe, session)[0] == 200
    for day in ("friday", "monday"):
        assert post(port, tool_call_request("note", {"day": day}))[0] == 200
    assert stream.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "notes://monday"},
    }
    stream.close()


def test_cancelled_session_request_ends_its_stream_without_an_answer(port):
    session = open_session(port)
    headers = {name: value for name, value in session.items() if value is not None}
    nap = {"name": "nap", "arguments": {"seconds": 30}, "_meta": {"progressToken": 1}}
    ask = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": nap}
    stream = Stream(port, "POST", ask, {**headers, "content-type": "application/json"})
    assert stream.next()["method"] == "notifications/progress"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    assert post(port, cancel, session)[0] == 202
    assert stream.next() is None
    stream.close()


def test_sigterm_stops_the_server_despite_an_open_subscription():
    with http_server() as (port, process):
        stream = open_subscription(port)
        stream.next()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) is not None
        stream.close()
