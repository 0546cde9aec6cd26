"""What a server hears that it should not: every line and every request gets its answer, and the next one is served."""

import http.client
import json
import os
import socket
import subprocess
import threading

import pytest

from mcp_server.server_process import (
    LATEST,
    META,
    TIMEOUT,
    WORKSHOP,
    StdioClient,
    command,
    effects_in,
    environment,
    http_server,
    post,
    stateless_request,
    tool_call_request,
    wait_until,
)

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture(scope="module")
def port():
    with http_server() as (port, _):
        yield port


@pytest.fixture(scope="module")
def line():
    with StdioClient() as line:
        line.greet()
        yield line


BROKEN = {
    "not JSON": (b"hello", -32700),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
    "cut off": (b'{"jsonrpc":"2.0","id":1,', -32700),
    "90,000 deep": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":' + b"[" * 90_000, -32700),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "an empty batch": (b"[]", -32600),
    "an id of null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    "an id with a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    "no version of JSON-RPC": (b'{"id":1,"method":"ping"}', -32600),
    "a number": (b"7", -32600),
    "the same key twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
}


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_line_is_answered_and_the_next_one_is_served(line, name):
    data, code = BROKEN[name]
    line.write(data + b"\n")
    assert line.receive()["error"]["code"] == code
    assert line.call("add", {"a": 1, "b": 2})["result"]["structuredContent"] == 3


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_body_is_a_bad_request(port, name):
    data, code = BROKEN[name]
    status, _, body = post(port, data)
    assert (status, json.loads(body)["error"]["code"]) == (400, code)


def test_unknown_methods_and_tools_are_rejected(line):
    assert line.answer("tools/listen")["error"]["code"] == -32601
    assert line.answer("resources/subscribe", {"uri": "notes://x"})["error"]["code"] == -32601  # gone since 2026-07-28
    unknown = line.call("ad", {})["error"]
    assert (unknown["code"], unknown["message"]) == (-32602, "Unknown tool: ad. Did you mean add or pay or nap?")
    assert line.answer("tools/call", {"name": 7})["error"]["code"] == -32602
    assert line.answer("tools/call", {"name": "add", "arguments": [1]})["error"]["code"] == -32602
    assert line.answer("resources/read", {"uri": "nowhere://x"})["error"]["code"] == -32602
    assert line.answer("resources/read", {"uri": "nowhere://x"}, stateless=False)["error"]["code"] == -32002
    assert line.answer("prompts/get", {"name": "review"})["error"]["code"] == -32602
    assert line.answer("tools/list", {"cursor": "x"})["error"]["code"] == -32602


def test_invalid_arguments_are_reported_as_a_tool_error(line):
    for arguments in ({"a": 1}, {"a": "x", "b": 2}, {"a": 1, "b": 2, "c": 3}):
        result = line.call("add", arguments)["result"]
        assert result["isError"] is True
        assert "Call it again" in result["content"][0]["text"]


def test_only_stateless_requests_and_pings_are_served_before_initialize():
    with StdioClient() as line:
        assert line.answer("tools/list", stateless=False)["error"]["code"] == -32600
        assert line.answer("ping", stateless=False)["result"] == {}
        assert line.answer("tools/list")["result"]["resultType"] == "complete"
        assert line.greet("1999-01-01")["protocolVersion"] == "2025-11-25"
        assert line.answer("initialize", {"protocolVersion": "2025-11-25"}, stateless=False)["error"]["code"] == -32600


def test_batch_is_answered_as_a_batch_in_versions_that_support_it():
    with StdioClient() as line:
        line.greet("2025-03-26")
        ask = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 1}}}
        line.send([{**ask, "id": 11}, {"jsonrpc": "2.0", "method": "notifications/x"}, {**ask, "id": 12}, 7])
        answers = line.receive()
        assert [one["id"] for one in answers] == [11, 12, None]
        assert [one.get("error", {}).get("code") for one in answers] == [None, None, -32600]


def test_text_printed_by_a_tool_is_not_sent_as_a_message(line):
    assert line.call("chatty", {})["result"]["content"][0]["text"] == "quiet"


def test_file_without_tools_that_prints_on_import_is_served(tmp_path):
    file = tmp_path / "prompts_only.py"
    words = "from toolwire.mcp import prompt\nprint('hello')\n@prompt\ndef greet(name: str) -> str:\n    return name\n"
    file.write_text(words, encoding="utf-8")
    with StdioClient(file) as line:
        assert line.answer("prompts/list")["result"]["prompts"][0]["name"] == "greet"
        assert line.answer("tools/list")["result"]["tools"] == []


def test_end_of_input_exits_after_answering_started_calls():
    with StdioClient() as line:
        number = line.ask("tools/call", {"name": "nap", "arguments": {"seconds": 0.3}})
        code, said = line.end()
        assert line.receive()["id"] == number
        assert (code, said) == (0, "")


def test_cancelled_request_is_stopped_and_not_answered(tmp_path):
    effects = tmp_path / "effects"
    with StdioClient(effects=effects) as line:
        number = line.ask("tools/call", {"name": "nap", "arguments": {"seconds": 30}, "_meta": {"progressToken": 1}})
        assert line.receive()["method"] == "notifications/progress"
        line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        wait_until(lambda: effects_in(effects) == ["woken"])
        for nonsense in ({}, {"requestId": 999}, {"requestId": None}):
            line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": nonsense})
        assert line.call("add", {"a": 1, "b": 2})["id"] != number


@pytest.mark.full
def test_ten_thousand_calls_over_one_stdio_connection():
    many = 10_000
    with StdioClient() as line:
        line.greet()

        def write_all():
            for number in range(many):
                params = {"name": "add", "arguments": {"a": number, "b": 1}}
                line.send({"jsonrpc": "2.0", "id": f"c{number}", "method": "tools/call", "params": params})

        writing = threading.Thread(target=write_all)
        writing.start()
        answers = {}
        for _ in range(many):
            message = line.receive()
            answers[message["id"]] = message["result"]["content"][0]["text"]
        writing.join(TIMEOUT)
    assert answers == {f"c{number}": str(number + 1) for number in range(many)}


def test_thousands_of_calls_over_one_connection(port):
    headers = {
        "content-type": "application/json",
        "mcp-protocol-version": LATEST,
        "mcp-method": "tools/call",
        "mcp-name": "add",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    for number in range(10_000 if os.environ.get("SOAK") else 2_000):
        connection.request("POST", "/mcp", json.dumps(tool_call_request("add", {"a": number, "b": 1}, number)), headers)
        answer = json.loads(connection.getresponse().read())
        assert (answer["id"], answer["result"]["structuredContent"]) == (number, number + 1)
    connection.close()


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-protocol-version": None}, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, -32020),
        ({"mcp-method": None}, -32020),
        ({"mcp-method": "tools/list"}, -32020),
        ({"mcp-name": None}, -32020),
        ({"mcp-name": "pay"}, -32020),
        ({"mcp-name": "=?base64?YWRk?="}, None),
    ],
)
def test_headers_must_match_the_body(port, headers, code):
    status, _, body = post(port, tool_call_request("add", {"a": 1, "b": 2}), headers)
    answer = json.loads(body)
    assert (status, answer.get("error", {}).get("code")) == (200 if code is None else 400, code)
    assert answer["id"] == 1


def test_unsupported_version_is_rejected(port):
    strange = tool_call_request("add", {"a": 1, "b": 2}, **{"io.modelcontextprotocol/protocolVersion": "2031-01-01"})
    status, _, body = post(port, strange, {"mcp-protocol-version": "2031-01-01"})
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (400, -32022)
    assert error["data"] == {"supported": [LATEST], "requested": "2031-01-01"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example.com"}, 403),
        ({"host": "evil.example.com:80"}, 403),
        ({"host": "localhost.evil.example.com"}, 403),
        ({"origin": "http://evil.example.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example.com"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:1"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"accept": "text/html"}, 406),
        ({"accept": "application/json"}, 200),
        ({"content-length": str(10**12)}, 413),
    ],
)
def test_host_origin_and_content_headers_are_checked(port, headers, status):
    assert post(port, tool_call_request("add", {"a": 1, "b": 2}), headers)[0] == status


def test_other_paths_and_http_methods_are_rejected(port):
    assert post(port, stateless_request("tools/list"), path="/")[0] == 404
    assert post(port, b"", method="GET")[0] == 405
    assert post(port, b"", method="DELETE")[0] == 405
    assert post(port, b"", method="PUT")[0] == 405
    status, headers, _ = post(port, b"", method="OPTIONS")
    assert (status, headers["allow"]) == (405, "POST, GET, DELETE")


def test_duplicate_header_is_rejected(port):
    body = json.dumps(tool_call_request("add", {"a": 1, "b": 2})).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"mcp-protocol-version: {LATEST}\r\nmcp-method: tools/call\r\nmcp-name: add\r\nmcp-name: pay\r\n"
        "connection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as wire:
        wire.sendall(head.encode() + body)
        assert wire.recv(64).startswith(b"HTTP/1.1 400")


def test_stateless_initialize_is_not_found(port):
    status, _, body = post(port, stateless_request("initialize"))
    assert (status, json.loads(body)["error"]["code"]) == (404, -32601)


def test_session_lifecycle_over_http(port):
    plain = {"mcp-protocol-version": None, "mcp-method": None, "mcp-name": None}
    status, headers, body = post(port, INITIALIZE, plain)
    assert (status, json.loads(body)["result"]["protocolVersion"]) == (200, "2025-11-25")
    session = {**plain, "mcp-session-id": headers["mcp-session-id"]}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert post(port, listing, session)[0] == 200
    assert post(port, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)[0] == 202
    assert post(port, listing, plain)[0] == 400
    assert post(port, listing, {**session, "mcp-session-id": "guess"})[0] == 404
    assert post(port, listing, {**session, "mcp-protocol-version": "2031-01-01"})[0] == 400
    assert post(port, b"", session, method="DELETE")[0] == 200
    assert post(port, listing, session)[0] == 404


def test_bearer_token_is_required():
    variables = {"TEST_TOKEN": "s3cret"}
    options = ("--store", "memory:", "--token-env", "TEST_TOKEN")
    with http_server(WORKSHOP, *options, variables=variables) as (port, _):
        status, headers, _ = post(port, stateless_request("tools/list"))
        assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="mcp"')
        assert post(port, stateless_request("tools/list"), {"authorization": "Bearer wrong"})[0] == 401
        assert post(port, stateless_request("tools/list"), {"authorization": "Basic s3cret"})[0] == 401
        assert post(port, stateless_request("tools/list"), {"authorization": "Bearer s3cret"})[0] == 200


@pytest.mark.finding("Z7")
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_server_without_a_token_refuses_to_listen_on_all_interfaces(host):
    serve = command(WORKSHOP, "--http", f"{host}:0", "--store", "memory:")
    done = subprocess.run(serve, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 2
    assert f"without a token, {host} would be open to every client that can reach it" in done.stderr


@pytest.mark.finding("Z7")
def test_server_with_a_token_listens_on_all_interfaces():
    options = ("--store", "memory:", "--token-env", "TEST_TOKEN", "--allow-host", "tools.example.com")
    with http_server(WORKSHOP, *options, variables={"TEST_TOKEN": "s3cret"}, host="0.0.0.0") as (port, _):
        there = {"host": "tools.example.com"}
        assert post(port, stateless_request("tools/list"), there)[0] == 401
        assert post(port, stateless_request("tools/list"), {**there, "authorization": "Bearer s3cret"})[0] == 200


def test_tool_list_is_stable_and_has_a_ttl(port):
    first, again = (json.loads(post(port, stateless_request("tools/list"))[2])["result"] for _ in range(2))
    assert first == again
    assert (first["ttlMs"], first["cacheScope"]) == (60_000, "private")
    assert first["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "workshop"
    assert [tool["name"] for tool in first["tools"]][:2] == ["add", "total"]


def test_incomplete_request_metadata_is_rejected(port):
    for missing in ("io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"):
        meta = {key: value for key, value in META.items() if key != missing}
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": meta}}
        status, _, answer = post(port, body)
        assert (status, json.loads(answer)["error"]["code"], json.loads(answer)["id"]) == (400, -32602, 5)
