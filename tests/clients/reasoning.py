"""Run Claude Code and Codex for 20 turns with servers that refuse a tool turn without its reasoning.

python tests/clients/reasoning.py [--agent NAME] [--server NAME] [--mode restarts|workers]

DeepSeek and Kimi answer 400 if the `reasoning_content` of an earlier tool turn is missing or changed. The gateway has no
store: in the mode `restarts` it is stopped and started twice during a session; in the mode `workers` it has two
processes, and the turns that they share expire at once.
"""

import argparse
import asyncio
import json
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from run import make_folders, run_agent, settings_text, version_of  # adds the folders of the imports below

# isort: split

from agents import AGENTS, Agent
from msgspec.structs import replace
from scripted import Notes, model_for

from toolwire.bridge.conversation.reasoning_envelope import PREFIX
from toolwire.ir.parts import Reasoning, ToolCall
from toolwire.ir.request import Request
from toolwire.ir.response import Fault
from toolwire.testing.upstream import ScriptedReply, Upstream
from worker_gateway import start_gateway, worker_gateway

THOUGHT = "The next note is needed. “Read” it — then go on.\nStep"
NOTES = 20
RESTARTS = (7, 14)  # turns
REFUSALS = {
    "deepseek": "The reasoning_content in the thinking mode must be passed back to the API.",
    "kimi": "thinking is enabled but reasoning_content is missing in assistant tool call message",
}
EXPIRED = '[state]\nurl = "state.db"\nturn_seconds = 0.001\n'


class StrictServer:
    """A model that refuses a history in which the reasoning of a tool turn is not the text that it sent."""

    def __init__(self, agent: Agent, notes: Notes, refusal: str) -> None:
        self._answer = model_for(agent, "deepseek", notes, together=False, thought=THOUGHT)
        self._refusal = refusal
        self.refused = 0
        self.turns = 0
        self.reached = {turn: asyncio.Event() for turn in RESTARTS}

    def __call__(self, request: Request) -> ScriptedReply:
        turns = [
            "".join([part.text for part in message.parts if isinstance(part, Reasoning)])
            for message in request.messages
            if any(isinstance(part, ToolCall) for part in message.parts)
        ]
        if turns != [f"{THOUGHT} {number}" for number in range(1, len(turns) + 1)]:
            self.refused += 1
            return Fault("invalid_request", self._refusal, 400, "invalid_request_error", retryable=False)
        self.turns = max(self.turns, len(turns))
        if self.turns in self.reached:
            self.reached[self.turns].set()
        reply = self._answer(request)
        # Claude Code joins answers with the same id into one message.
        return replace(reply, body=reply.body.replace(b'"chatcmpl-1"', b'"chatcmpl-%d"' % (len(turns) + 1)))


@asynccontextmanager
async def restarting_gateway(folder: Path, text: str, server: StrictServer) -> AsyncIterator[str]:
    """Run the gateway on one port, and restart it after the turns in RESTARTS. In-flight requests end before."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    process = start_gateway(folder, text, "--port", port)
    await asyncio.to_thread(process.stdout.readline)

    async def restart() -> None:
        nonlocal process
        for reached in server.reached.values():
            await reached.wait()
            process.terminate()
            await asyncio.to_thread(process.wait)
            process = start_gateway(folder, text, "--port", port)
            await asyncio.to_thread(process.stdout.readline)

    task = asyncio.ensure_future(restart())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        process.terminate()
        process.wait()


@asynccontextmanager
async def two_workers(folder: Path, text: str, server: StrictServer) -> AsyncIterator[str]:
    """Run two workers. A proxy closes the connection after each request, so that the next one may get to the other."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n")
            from_gateway, to_gateway = await asyncio.open_connection("127.0.0.1", gateway.port)
            to_gateway.write(head + b"connection: close\r\n")
            sending = asyncio.ensure_future(_copy(reader, to_gateway))
            await _copy(from_gateway, writer)
            sending.cancel()
            to_gateway.close()
        writer.close()

    async with (
        worker_gateway(folder, text + EXPIRED, 2) as gateway,
        await asyncio.start_server(relay, "127.0.0.1", 0) as proxy,
    ):
        yield f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()


MODES = {"restarts": restarting_gateway, "workers": two_workers}


async def attempt(agent: Agent, name: str, mode: str, folder: Path) -> str:
    """Run one session; return its problem, or an empty text."""
    home, work = make_folders(folder)
    notes = Notes.write(work, NOTES)
    server = StrictServer(agent, notes, REFUSALS[name])
    async with Upstream(*[server] * (6 * NOTES)) as provider:
        async with MODES[mode](folder, settings_text("openai_chat", provider.url), server) as url:
            agent.settle(home, url)
            printed, errors = await run_agent(agent, url, home, work)
        carried = any(PREFIX.encode() in request.body for request in provider.requests)
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines() if line.startswith("{")]
    processes = {line["request_id"][:16] for line in lines if "request_id" in line}
    if notes.sentence not in " ".join(printed.split()) or server.turns != NOTES:
        return f"{server.turns} turns, {server.refused} refused\n  {printed[-600:]!r}\n  {errors[-1500:]!r}"
    if server.refused or carried:
        return f"{server.refused} requests were refused; envelopes reached the server: {carried}"
    return "" if len(processes) > 1 else "all requests were served by one process"


def main() -> int:
    parser = argparse.ArgumentParser()
    agents = [agent for agent in AGENTS if agent.name in ("Claude Code", "Codex")]
    parser.add_argument("--agent", choices=[agent.name for agent in agents])
    parser.add_argument("--server", choices=REFUSALS)
    parser.add_argument("--mode", choices=MODES)
    wanted = parser.parse_args()
    has_failed = False
    for agent in [agent for agent in agents if wanted.agent in (None, agent.name) and version_of(agent)]:
        for server in [server for server in REFUSALS if wanted.server in (None, server)]:
            for mode in [mode for mode in MODES if wanted.mode in (None, mode)]:
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                    problem = asyncio.run(attempt(agent, server, mode, Path(folder)))
                state = f"fails: {problem}" if problem else f"{NOTES} turns"
                print(f"{agent.name} {version_of(agent)} -> {server}, {mode}: {state}", flush=True)
                has_failed = has_failed or bool(problem)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
