"""Measure a call over MCP: calls per second and CPU per call, stdio and HTTP, with the official SDK's server and FastMCP.

Each server is a separate process with the same tool (which adds two numbers), on the same uvicorn. The client is the same for all:
it writes prepared bytes and searches only for the end of the response, so that it costs little. CPU is the server's, as the system
counts it. The in-process measurement has no transport: a message in, its response out. Both a stateless and a handshake version of
the protocol are measured.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jiter
import jsonschema_rs
import msgspec

import mcp_peers

HERE = Path(__file__).parent
NAMES = {"toolwire": "toolwire", "sdk": "mcp SDK", "fastmcp": "FastMCP"}
ROUNDS, CALLS, IN_PROCESS = 3, 400, 300
LATEST, OLD = "2026-07-28", "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": LATEST,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
TICK = os.sysconf("SC_CLK_TCK")


def message(method, params=None, number=1):
    return {"jsonrpc": "2.0", **({} if number is None else {"id": number}), "method": method, "params": params or {}}


def call(era):
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    return message("tools/call", {**params, "_meta": META} if era == LATEST else params, 7)


def cpu(pid):
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Stdio:
    def __init__(self, name, era):
        command = [sys.executable, HERE / "mcp_peers.py", name, "stdio"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.line = json.dumps(call(era)).encode() + b"\n"
        if era == OLD:
            self._say(message("initialize", HELLO))
            assert b"protocolVersion" in self.process.stdout.readline()
            self._say(message("notifications/initialized", number=None))
        self._write(self.line)
        assert b'"3"' in self.process.stdout.readline()

    def _say(self, what):
        self._write(json.dumps(what).encode() + b"\n")

    def _write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def run(self, calls):
        for _ in range(calls):
            self._write(self.line)
            self.process.stdout.readline()

    def close(self):
        self.process.kill()
        self.process.wait()


class Http:
    def __init__(self, name, era):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, HERE / "mcp_peers.py", name, str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.host = f"127.0.0.1:{port}"
        self.port = port
        self._connect()
        headers = {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "add"}
        if era == OLD:
            head, _ = self._exchange(self._request(message("initialize", HELLO), {}))
            session = next(line[16:] for line in head.split(b"\r\n") if line[:15].lower() == b"mcp-session-id:")
            headers = {"mcp-session-id": session.strip().decode(), "mcp-protocol-version": era}
            self._exchange(self._request(message("notifications/initialized", number=None), headers))
        self.request = self._request(call(era), headers)
        assert b'"3"' in self._exchange(self.request)[1]

    def _connect(self):
        """Connect again for every round, because servers close idle connections."""
        self.rest, until = b"", time.monotonic() + 60
        while True:
            try:
                self.wire = socket.create_connection(("127.0.0.1", self.port), timeout=60)
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
            else:
                self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return

    def _request(self, what, headers):
        body = json.dumps(what).encode()
        usual = {
            "host": self.host,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in {**usual, **headers}.items())
        return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body

    def _exchange(self, request):
        self.wire.sendall(request)
        head = self._until(b"\r\n\r\n")
        lower = head.lower()
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")), head
        if b"transfer-encoding: chunked" in lower:
            return head, self._until(b"0\r\n\r\n")
        length = lower.partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
        return head, self._exactly(int(length or 0))

    def _more(self):
        data = self.wire.recv(65536)
        assert data, "the server hung up"
        return data

    def _until(self, mark):
        while mark not in self.rest:
            self.rest += self._more()
        found, _, self.rest = self.rest.partition(mark)
        return found

    def _exactly(self, count):
        while len(self.rest) < count:
            self.rest += self._more()
        found, self.rest = self.rest[:count], self.rest[count:]
        return found

    def run(self, calls):
        self.wire.close()
        self._connect()
        for _ in range(calls):
            self._exchange(self.request)

    def close(self):
        self.wire.close()
        self.process.kill()
        self.process.wait()


def over(transport, era):
    """Return calls per second and µs of CPU per call of each server; the servers are interleaved in every round."""
    lines = {name: transport(name, era) for name in NAMES}
    try:
        speeds = {name: [] for name in NAMES}
        costs = {name: [] for name in NAMES}
        for line in lines.values():
            line.run(CALLS // 4)
        for _ in range(ROUNDS):
            for name, line in lines.items():
                before, began = cpu(line.process.pid), time.perf_counter()
                line.run(CALLS)
                speeds[name].append(CALLS / (time.perf_counter() - began))
                costs[name].append((cpu(line.process.pid) - before) / CALLS * 1e6)
        return [[NAMES[name], max(speeds[name]), statistics.median(costs[name])] for name in NAMES]
    finally:
        for line in lines.values():
            line.close()


def in_process():
    """Return µs of CPU from the bytes of a message to the bytes of its response; the peers' calls decode no message."""
    from toolwire import tool
    from toolwire.mcp.server.conversation import Conversation

    data = json.dumps(call(LATEST)).encode()
    validator = jsonschema_rs.validator_for(tool(mcp_peers.plus).input_schema)
    encode = msgspec.json.Encoder().encode

    async def bare():
        asked = jiter.from_json(data)
        arguments = asked["params"]["arguments"]
        assert validator.is_valid(arguments)
        value = await mcp_peers.plus(**arguments)
        result = {"content": [{"type": "text", "text": str(value)}], "structuredContent": value}
        return encode({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def measure():
        talk = Conversation(mcp_peers.ours(), lambda _: None)
        sdk, fast = mcp_peers.sdk(), mcp_peers.fast()
        arguments = {"a": 1, "b": 2}
        candidates = {
            "bare parse, validate, call, write": bare,
            "toolwire Conversation.handle": lambda: talk.handle(data),
            "toolwire Runner alone": _runner(arguments),
            "mcp SDK MCPServer.call_tool": lambda: sdk.call_tool("add", arguments),
            "FastMCP.call_tool": lambda: fast.call_tool("add", arguments),
        }
        best = dict.fromkeys(candidates, float("inf"))
        for one in candidates.values():
            await one()
        for _ in range(7):
            for name, one in candidates.items():
                began = time.process_time()
                for _ in range(IN_PROCESS):
                    await one()
                best[name] = min(best[name], (time.process_time() - began) / IN_PROCESS * 1e6)
        return list(map(list, best.items()))

    return asyncio.run(measure())


def _runner(arguments):
    from toolwire import ToolCall

    runner = mcp_peers.ours().runner
    return lambda: runner.run([ToolCall("c", "add", arguments)])


def main():
    results = {
        "over": {
            f"{kind}, {era}": over(transport, era)
            for kind, transport in (("HTTP", Http), ("stdio", Stdio))
            for era in (LATEST, OLD)
        },
        "in process": in_process(),
        "calls": CALLS,
        "rounds": ROUNDS,
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
