"""Servers as real processes, and clients that say exactly what they are told to."""

import http.client
import itertools
import json
import os
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from places import ROOT
from warm_command import WARM

WORKSHOP = Path(__file__).with_name("workshop.py")
CONJUGATE = ROOT / "examples" / "conjugate.py"
LATEST = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": LATEST,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
TIMEOUT = 300.0


def command(tools, *options):
    return [*WARM, "mcp", "serve", str(tools), *options]


def environment(effects=None):
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "EFFECTS": str(effects or os.devnull)}


def effects_in(path):
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def wait_until(true, patience=TIMEOUT):
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


class StdioClient:
    """A client on stdio that writes what it is given and reads what comes."""

    def __init__(self, tools=WORKSHOP, *options, effects=None):
        self._process = subprocess.Popen(
            command(tools, *(options or ("--store", "memory:"))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(effects),
        )
        self._ids = itertools.count(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            pipe.close()

    def kill(self):
        self._process.kill()
        self._process.wait(TIMEOUT)

    def write(self, data: bytes):
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def send(self, message):
        self.write(json.dumps(message).encode() + b"\n")

    def receive(self):
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read().decode()
        return json.loads(line)

    def ask(self, method, params=None, *, stateless=True):
        """Sends a request; gives its id."""
        number = next(self._ids)
        params = {**(params or {}), **({"_meta": {**META, **(params or {}).get("_meta", {})}} if stateless else {})}
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def answer(self, method, params=None, *, stateless=True):
        number = self.ask(method, params, stateless=stateless)
        while True:
            message = self.receive()
            if message.get("id") == number and "method" not in message:
                return message

    def call(self, name, arguments, *, meta=None, stateless=True):
        params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
        return self.answer("tools/call", params, stateless=stateless)

    def greet(self, version="2025-11-25", capabilities=None):
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
        result = self.answer("initialize", params, stateless=False)["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def end(self):
        """Closes the input; gives the exit code and what was said to nobody."""
        self._process.stdin.close()
        code = self._process.wait(TIMEOUT)
        return code, self._process.stderr.read().decode()


@contextmanager
def reserved_port():
    """A free port, which the kernel gives to nobody else until the end of the block. A server can listen on it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def http_server(tools=WORKSHOP, *options, effects=None, variables=None, host=""):
    """A server over HTTP; gives its port and its process."""
    with reserved_port() as port:
        process = subprocess.Popen(
            command(tools, "--http", f"{host}:{port}", *(options or ("--store", "memory:"))),
            env={**environment(effects), **(variables or {})},
            stderr=subprocess.PIPE,
        )
        try:
            wait_until(lambda: is_listening(port) or process.poll() is not None)
            assert process.poll() is None, process.stderr.read().decode()
            yield port, process
        finally:
            process.kill()
            process.wait(TIMEOUT)
            process.stderr.close()


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def post(port, body, headers=None, *, method="POST", path="/mcp"):
    """(status, headers, body) of one request, said as it stands; a header of None is left out."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    usual = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": LATEST,
    }
    if isinstance(body, dict) and "method" in body:
        usual["mcp-method"] = body["method"]
        if body["method"] == "tools/call":
            usual["mcp-name"] = body["params"]["name"]
    said = {name: value for name, value in {**usual, **(headers or {})}.items() if value is not None}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request(method, path, data, said)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def stateless_request(method, params=None, number=1, **meta):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**(params or {}), "_meta": {**META, **meta}}}


def tool_call_request(name, arguments, number=1, **meta):
    return stateless_request("tools/call", {"name": name, "arguments": arguments}, number, **meta)
