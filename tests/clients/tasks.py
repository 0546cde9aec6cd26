"""Run Claude Code and Codex through the gateway on a task with an edit, a shell command, an image and a web search.

python tests/clients/tasks.py [--agent NAME] [--upstream NAME] [--with | --workers N | --nginx]

The model is a script, at an upstream of each kind. It calls the agent's own tools one after the other, and ends with a
sentence of words that it can only know from their results. Checked after each run:

- the file was edited, and the command was run on the edited file
- the model got the image, or at an upstream without images its description by another model
- the page of the search arrived, from the MCP server that the gateway runs in place of the provider's search
- Codex over WebSockets: every handshake succeeded
- `--with`: the same in one line of `toolwire with`, whose receipt is the sum of the gateway's records
"""

import argparse
import asyncio
import json
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from run import AGENTS, Agent, make_folders, run_agent, version_of  # adds the folders of the imports below

# isort: split

from agents import MODEL, codex_settings
from wrapped import TOOLWIRE, VARIABLES, read_receipt, read_recording

from serving import WIRES
from toolwire import Request, Response, Text, Tool, ToolCall
from toolwire.bridge.conversation.media import iterate_media
from toolwire.ir.parts import ToolResult
from toolwire.ir.response import Stop, Usage
from toolwire.testing.upstream import Upstream
from worker_gateway import worker_gateway

DESCRIPTION = "a violet square"
QUERY = "angle of the leaning tower"
SEARCH = '''
import toolwire

@toolwire.tool(effect="read")
def search(query: str) -> dict:
    """Search the web."""
    page = {"url": "https://example.org/tower", "title": "Tower", "snippet": "It leans by 3.97 degrees."}
    return {"results": [page] if query == "%s" else []}
'''
USAGE = Usage(1000, 20)


def make_picture(path: Path) -> None:
    """Write a PNG of one colour."""
    rows = b"".join(b"\0" + b"\x80\0\xff" * 32 for _ in range(32))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def claude_steps(work: Path) -> list[tuple[str, dict[str, Any] | str]]:
    note = str(work / "note.txt")
    return [
        ("Read", {"file_path": note}),
        ("Edit", {"file_path": note, "old_string": "one", "new_string": "one two"}),
        (
            "Bash",
            {"command": f"wc -w < {note} > {work}/count.txt && cat {work}/count.txt", "description": "Count words"},
        ),
        ("Read", {"file_path": str(work / "picture.png")}),
        ("ToolSearch", {"query": "select:WebSearch", "max_results": 1}),
        ("WebSearch", {"query": QUERY}),
    ]


def codex_steps(work: Path) -> list[tuple[str, dict[str, Any] | str]]:
    patch = f"*** Begin Patch\n*** Update File: {work}/note.txt\n@@\n-one\n+one two\n*** End Patch"
    return [
        ("apply_patch", patch),
        ("exec_command", {"cmd": f"wc -w < {work}/note.txt > {work}/count.txt && cat {work}/count.txt"}),
        ("view_image", {"path": str(work / "picture.png")}),
        ("web_search", {"query": QUERY}),
    ]


NGINX_CONFIG = """
daemon off; pid %(folder)s/pid; error_log %(folder)s/error.log;
events {}
http {
  access_log off; client_body_temp_path %(folder)s; proxy_temp_path %(folder)s; fastcgi_temp_path %(folder)s;
  uwsgi_temp_path %(folder)s; scgi_temp_path %(folder)s;
  map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
  server {
    listen 127.0.0.1:%(front)d; client_max_body_size 64m;
    location / {
      proxy_pass http://127.0.0.1:%(port)d; proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 1h;
      proxy_set_header Host localhost; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }
  }
}
"""
WEBSOCKET = "Codex over WebSockets"
STEPS = {"Claude Code": claude_steps, "Codex": codex_steps, WEBSOCKET: codex_steps}


class Script:
    """The model: it takes the next step after each result. Codex's image and the search are in one answer."""

    def __init__(self, steps: list[tuple[str, dict[str, Any] | str]]) -> None:
        self._steps = steps
        self.seen: list[Request] = []

    def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        tools = {tool.name: tool for tool in request.tools}
        if not tools:  # a description of an image, or a title
            return Response(parts=(Text(DESCRIPTION),), stop=Stop("stop"), usage=USAGE)
        if set(tools) == {"web_search"}:  # Claude Code searches in a request of its own
            return self._search(request)
        results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
        if len(results) >= len(self._steps):
            return Response(parts=(Text(self._conclude(request, results)),), stop=Stop("stop"), usage=USAGE)
        steps = self._steps[len(results) :]
        try:
            calls = [self._make_call(len(results), *steps[0], tools)]
            if steps[0][0] == "view_image":  # a call of the agent, and a call that the gateway runs
                calls.append(self._make_call(len(results) + 1, *steps[1], tools))
        except LookupError as error:
            return Response(parts=(Text(str(error)),), stop=Stop("stop"), usage=USAGE)
        return Response(parts=tuple(calls), stop=Stop("tool_calls"), usage=USAGE)

    def _make_call(self, number: int, name: str, arguments: dict[str, Any] | str, tools: dict[str, Tool]) -> ToolCall:
        """Return the call of a step. Raise LookupError if the request has no such tool."""
        # OpenAI Responses has a tool search of its own, so the client's has another name
        tool = tools.get("search_tools", tools.get(name)) if name == "ToolSearch" else tools.get(name)
        if tool is None:
            raise LookupError(f"no tool {name} among {sorted(tools)}")
        call_id = f"call_{number}"
        if isinstance(arguments, str) and tool.kind == "freeform":
            return ToolCall(call_id, name, raw=arguments, kind="freeform")
        if isinstance(arguments, str):
            return ToolCall(call_id, name, {next(iter((tool.input_schema or {})["properties"])): arguments})
        return ToolCall(call_id, tool.name, arguments, kind="search" if tool.kind == "search" else "function")

    def _search(self, request: Request) -> Response:
        texts = "\n".join(
            part.text for message in request.messages for part in message.parts if isinstance(part, ToolResult)
        )
        if not texts:
            call = ToolCall("call_search", "web_search", {"query": QUERY})
            return Response(parts=(call,), stop=Stop("tool_calls"), usage=USAGE)
        found = "3.97 degrees" if "3.97" in texts else f"nothing ({texts[:300]!r})"
        return Response(parts=(Text(f"{found}, by https://example.org/tower"),), stop=Stop("stop"), usage=USAGE)

    def _conclude(self, request: Request, results: list[ToolResult]) -> str:
        texts = "\n".join(
            part.text for message in request.messages for part in message.parts if isinstance(part, (Text, ToolResult))
        )
        has_image = any(media.kind == "image" for _, media in iterate_media(request)) or DESCRIPTION in texts
        facts = [
            "edited"
            if any(re.search(r"(?m)^2$", result.text) for result in results)
            else f"not edited ({texts[-600:]!r})",
            "saw the image" if has_image else f"no image ({texts[-600:]!r})",
            "read the page" if "3.97" in texts else f"no page ({texts[-600:]!r})",
        ]
        return ", ".join(facts)


def settings_text(wire: str, url: str, workers: int) -> str:
    """Return settings with a model at one upstream. On Chat, the model accepts no images, as most open models."""
    vision = 'vision = "eyes"\ncapabilities = { media = [] }\n' if wire == "openai_chat" else ""
    return (
        f'[upstreams.provider]\nbase_url = "{url}"\nwire = "{wire}"\nretries = 0\n'
        f'[upstreams.other]\nbase_url = "{url}"\nwire = "anthropic"\nretries = 0\n'
        f'[models.{MODEL}]\nupstream = "provider"\nmodel = "any"\n{vision}'
        '[models.eyes]\nupstream = "other"\nmodel = "any"\n'
    ) + '[state]\nurl = "state.db"\n' * (workers > 1)


async def attempt(
    agent: Agent, wire: str, folder: Path, *, in_one_line: bool, workers: int = 1, nginx: bool = False
) -> str:
    """Run an agent once, and return its problems, or nothing."""
    home, work = make_folders(folder)
    (work / "note.txt").write_text("one\n")
    make_picture(work / "picture.png")
    script = Script(STEPS[agent.name](work))
    async with Upstream(*[script] * 40) as provider:
        run_task = run_in_one_line if in_one_line else partial(run_through_gateway, workers=workers, nginx=nginx)
        printed, errors, problems = await run_task(
            agent, settings_text(wire, provider.url, workers), folder, home, work
        )
    text = " ".join(printed.split())
    if "edited, saw the image, read the page" not in text:
        problems.append(f"printed {text[-900:]!r}, errors {errors[-900:]!r}")
    if (work / "note.txt").read_text() != "one two\n":
        problems.append("the file was not edited")
    return "\n  ".join(problems)


def search_server(folder: Path) -> str:
    """Write the MCP server of the search, and return its command."""
    file = folder / "search.py"
    file.write_text(SEARCH % QUERY)
    return shlex.join([sys.executable, "-m", "toolwire", "mcp", "serve", str(file)])


async def run_through_gateway(
    agent: Agent, settings: str, folder: Path, home: Path, work: Path, *, workers: int, nginx: bool
) -> tuple[str, str, list[str]]:
    settings += f"[hosted.web_search]\ncommand = {json.dumps(search_server(folder))}\n"
    async with worker_gateway(folder, settings, workers) as gateway:
        with behind_nginx(folder, gateway.port) if nginx else nullcontext(gateway.port) as port:
            url = f"http://127.0.0.1:{port}"
            agent.settle(home, url)
            printed, errors = await run_agent(agent, url, home, work)
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines() if line.startswith("{")]
    handshakes = [line["status"] for line in lines if line.get("action") == "connect"]
    is_expected = handshakes == [101] * len(handshakes) and bool(handshakes) == (agent.name == WEBSOCKET)
    return printed, errors, [] if is_expected else [f"handshakes {handshakes}"]


@contextmanager
def behind_nginx(folder: Path, port: int) -> Iterator[int]:
    """Run nginx in front of the gateway, and yield its port. It needs nginx on the PATH."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        front = free.getsockname()[1]
    file = folder / "nginx.conf"
    file.write_text(NGINX_CONFIG % {"folder": folder, "front": front, "port": port})
    nginx = subprocess.Popen(["nginx", "-c", str(file), "-p", str(folder)])
    time.sleep(1)
    try:
        yield front
    finally:
        nginx.terminate()
        nginx.wait(20)


async def run_in_one_line(
    agent: Agent, settings: str, folder: Path, home: Path, work: Path
) -> tuple[str, str, list[str]]:
    file, recording = folder / "toolwire.toml", folder / "session.jsonl"
    file.write_text(settings)
    hosted = f"web_search={search_server(folder)}"
    options = ("-m", MODEL, "--config", str(file), "--record", str(recording), "--hosted", hosted)
    variables = VARIABLES.get(agent.name, {})
    wrapped = agent._replace(
        command=(*TOOLWIRE, "with", *options, "--", *agent.command), environment=lambda url: variables
    )
    printed, errors = await run_agent(wrapped, "", home, work)
    receipt, recorded = read_receipt(errors), read_recording(recording)
    return printed, errors, [] if receipt == recorded else [f"the receipt is {receipt}, the recording {recorded}"]


TASK = "Do the task."
CODEX = ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK)
COMMANDS = {
    "Claude Code": ("claude", "-p", TASK, "--model", MODEL, "--allowedTools", "Read,Edit,Bash,WebSearch"),
    "Codex": CODEX,
}


def list_agents() -> list[Agent]:
    """List the agents of the task; Codex once over HTTP and once over WebSockets."""
    found = [agent._replace(command=COMMANDS[agent.name]) for agent in AGENTS if agent.name in COMMANDS]
    (codex,) = [agent for agent in found if agent.name == "Codex"]

    def settle(home: Path, url: str) -> None:
        codex_settings(home, url, "supports_websockets = true\n")

    return [*found, codex._replace(name=WEBSOCKET, settle=settle)]


def main() -> int:
    agents = [agent for agent in list_agents() if version_of(agent) is not None]
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", choices=[agent.name for agent in agents])
    parser.add_argument("--upstream", choices=WIRES)
    parser.add_argument("--with", action="store_true", dest="in_one_line")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1)
    parser.add_argument("--nginx", action="store_true")
    wanted = parser.parse_args()
    if wanted.nginx and shutil.which("nginx") is None:
        print("skipped: nginx is not on the PATH")
        return 0
    if wanted.in_one_line:  # which chooses the transport itself
        agents = [agent for agent in agents if agent.name != WEBSOCKET]
    failed = False
    for agent in agents:
        for wire in WIRES:
            if wanted.upstream in (None, wire) and wanted.agent in (None, agent.name):
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                    problems = asyncio.run(
                        attempt(
                            agent,
                            wire,
                            Path(folder),
                            in_one_line=wanted.in_one_line,
                            workers=wanted.workers,
                            nginx=wanted.nginx,
                        )
                    )
                failed = failed or bool(problems)
                print(f"{agent.name} -> {wire}: {'**fails**: ' + problems if problems else 'works'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
