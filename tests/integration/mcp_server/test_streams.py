"""Streams that stay open: subscriptions of the stateless era, and the stream that a session of the handshake era keeps."""

import http.client
import json
import signal

import pytest

from mcp_server.running import LATEST, PATIENCE, Line, called, http_server, post, stateless

WANTED = {"notifications": {"resourceSubscriptions": ["notes://monday"], "promptsListChanged": True}}
PLAIN = {"mcp-protocol-version": None, "mcp-method": None, "mcp-name": None}


class Stream:
    """An open stream of events."""

    def __init__(self, port, method, body, headers):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
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


def listening(port):
    headers = {"content-type": "application/json", "mcp-protocol-version": LATEST, "mcp-method": "subscriptions/listen"}
    return Stream(port, "POST", stateless("subscriptions/listen", WANTED, 42), headers)


def session_of(port):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    _, headers, _ = post(port, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, PLAIN)
    return {**PLAIN, "mcp-session-id": headers["mcp-session-id"]}


@pytest.fixture(scope="module")
def port():
    with http_server() as (port, _):
        yield port


def test_a_subscription_over_http_hears_of_what_it_asked_for(port):
    stream = listening(port)
    first = stream.next()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == WANTED["notifications"]
    for day in ("sunday", "monday"):
        assert post(port, called("note", {"day": day}))[0] == 200
    update = stream.next()
    stream.close()
    assert update["method"] == "notifications/resources/updated"
    assert update["params"]["uri"] == "notes://monday"
    assert update["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 42}


def test_a_subscription_over_stdio_until_it_is_cancelled():
    with Line() as line:
        number = line.ask("subscriptions/listen", WANTED)
        assert line.receive()["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
        line.ask("tools/call", {"name": "note", "arguments": {"day": "monday"}})
        assert {line.receive().get("method") for _ in range(2)} == {"notifications/resources/updated", None}
        line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        answer = line.call("note", {"day": "monday"})
        assert answer["result"]["content"][0]["text"] == "noted"


def test_the_end_of_the_server_ends_a_subscription_with_an_answer():
    with Line() as line:
        number = line.ask("subscriptions/listen", WANTED)
        line.receive()
        code, _ = line.end()
        last = line.receive()
        assert (code, last["id"], last["result"]["resultType"]) == (0, number, "complete")


def test_a_session_hears_of_its_subscriptions_on_its_stream(port):
    session = session_of(port)
    headers = {name: value for name, value in session.items() if value is not None}
    stream = Stream(port, "GET", None, headers)
    for uri in ("notes://monday", "notes://friday"):
        subscribe = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": uri}}
        assert post(port, subscribe, session)[0] == 200
    unsubscribe = {"jsonrpc": "2.0", "id": 3, "method": "resources/unsubscribe", "params": {"uri": "notes://friday"}}
    assert post(port, unsubscribe, session)[0] == 200
    for day in ("friday", "monday"):
        assert post(port, called("note", {"day": day}))[0] == 200
    assert stream.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "notes://monday"},
    }
    stream.close()


def test_a_request_of_a_session_is_cancelled_by_a_message_and_its_stream_just_ends(port):
    session = session_of(port)
    headers = {name: value for name, value in session.items() if value is not None}
    nap = {"name": "nap", "arguments": {"seconds": 30}, "_meta": {"progressToken": 1}}
    ask = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": nap}
    stream = Stream(port, "POST", ask, {**headers, "content-type": "application/json"})
    assert stream.next()["method"] == "notifications/progress"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    assert post(port, cancel, session)[0] == 202
    assert stream.next() is None
    stream.close()


def test_a_server_that_is_told_to_end_ends_although_somebody_listens():
    with http_server() as (port, process):
        stream = listening(port)
        stream.next()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) is not None
        stream.close()
