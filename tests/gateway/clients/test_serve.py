"""`toolwire serve` as a process: where it listens, how it is reloaded, how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from places import ROOT, TESTS
from toolwire import Response, Text, ToolCall, ToolResult
from toolwire.cli.main import main
from toolwire.cli.serve import client_models as gateway_models
from toolwire.gateway.config.credentials import check_certificate
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.config.settings import KeyRow, ServerRow, Settings
from toolwire.gateway.processes.server import bind
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Stop, Usage
from toolwire.mcp.client import McpServers
from toolwire.testing import Upstream
from toolwire.testing.upstream import ReceivedRequest
from waiting import SAFETY
from waiting import until as wait_for_condition
from warm_command import WARM

ANSWER = Response(
    parts=(Text("one two three four five six seven eight nine ten"),), stop=Stop("stop"), usage=Usage(3, 9)
)


@contextmanager
def process(folder: Path, *arguments: str, first: str = "://") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where it listens. Lines before the one with `first` are skipped; by default, those without an address."""
    command = [*WARM, "serve", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert running.stdout is not None
    try:
        line = running.stdout.readline()
        while line and first not in line:
            line = running.stdout.readline()
        found = re.search(r"https?://\S+", line)
        assert found is not None, line + running.stdout.read()
        yield running, found[0]
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def config(folder: Path, upstream: str, more: str = "", models: str = "m") -> str:
    text = f'[upstreams.up]\nbase_url = "{upstream}"\nwire = "anthropic"\n'
    text += "".join(f'[models."{model}"]\nupstream = "up"\n' for model in models.split())
    (folder / "toolwire.toml").write_text(text + more, encoding="utf-8")
    return "toolwire.toml"


async def post(url: str, body: dict[str, object], *, key: str = "none") -> bytes:
    """The whole answer, head and all."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {len(data)}\r\n"
    head += f"x-api-key: {key}\r\n\r\n"
    writer.write(head.encode() + data)
    answer = await reader.read()
    writer.close()
    return answer


def ask(model: str = "m", *, stream: bool = False) -> dict[str, object]:
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": "count"}]}


def test_config_file_in_the_working_directory_is_used(tmp_path: Path) -> None:
    async def check() -> None:
        async with Upstream(ANSWER) as upstream:
            config(tmp_path, upstream.url)
            with process(tmp_path, "--port", "0") as (running, url):
                answer = await post(url, ask())
                assert b"200 OK" in answer
                assert b"one two three" in answer
                running.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(running.wait, SAFETY) == 0
                assert running.stdout is not None
                assert re.search(r"- +openai_chat +m +up/m +200 +\d+ +3\+9", running.stdout.read())

    asyncio.run(check())


def test_start_reports_how_tools_are_selected(tmp_path: Path) -> None:
    file = config(tmp_path, "http://127.0.0.1:1", 'retrieve = { k = 4, always = ["now"] }\n')
    with process(tmp_path, "--config", file, "--port", "0", first="listens on") as (running, _):
        assert running.stdout is not None
        assert "tools are selected by keyword" in asyncio.run(read_until(running.stdout, "tools are selected"))


def test_sighup_reloads_settings_and_ignores_invalid_ones(tmp_path: Path) -> None:
    async def check() -> None:
        async with Upstream(ANSWER, ANSWER, ANSWER) as upstream:
            config(tmp_path, upstream.url)
            with process(tmp_path, "--port", "0") as (running, url):
                assert b"404 Not Found" in await post(url, ask("new"))
                config(tmp_path, upstream.url, models="m new")
                running.send_signal(signal.SIGHUP)
                await wait_for_answer(lambda: post(url, ask("new")), b"200 OK")
                config(tmp_path, upstream.url, more="[sevrer]\nport = 1\n")
                running.send_signal(signal.SIGHUP)
                await asyncio.sleep(0.3)
                assert b"200 OK" in await post(url, ask("new"))

    asyncio.run(check())


@pytest.mark.finding("CA1")
def test_secret_file_is_made_when_the_settings_lose_their_secret(tmp_path: Path) -> None:
    async def check() -> None:
        file = tmp_path / "toolwire.toml.secret"
        config(tmp_path, "http://127.0.0.1:1", more='[server]\nsecret = "0123456789abcdef0123456789abcdef"\n')
        with process(tmp_path, "--port", "0") as (running, _):
            assert running.stdout is not None
            assert not file.exists()
            config(tmp_path, "http://127.0.0.1:1")
            running.send_signal(signal.SIGHUP)
            await read_until(running.stdout, "settings reloaded")
            secret = file.read_text()
            assert len(secret.strip()) == 64
            running.send_signal(signal.SIGHUP)
            await read_until(running.stdout, "settings reloaded")
            assert file.read_text() == secret

    asyncio.run(check())


@pytest.mark.finding("U7")
@pytest.mark.parametrize("arguments", [(), ("--quiet",)], ids=["table", "lines"])
def test_reloads_and_unknown_paths_are_logged(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    async def check() -> str:
        async with Upstream(ANSWER) as upstream:
            config(tmp_path, upstream.url)
            with process(tmp_path, "--port", "0", *arguments) as (running, url):
                assert running.stdout is not None
                assert b"404 Not Found" in await get(url, "/v2/nothing?key=sk-secret-0123456789")
                config(tmp_path, upstream.url, models="m new")
                running.send_signal(signal.SIGHUP)
                reloaded = await read_until(running.stdout, "settings reloaded")
                config(tmp_path, upstream.url, more="[sevrer]\nport = 1\n")
                running.send_signal(signal.SIGHUP)
                return reloaded + await read_until(running.stdout, "cannot reload")

    printed = asyncio.run(check())
    assert "GET" in printed
    assert "/v2/nothing" in printed
    assert "sk-secret" not in printed
    assert "settings reloaded: 2 models, 1 upstream; added model 'new'" in printed
    assert "did you mean 'server'" in printed


async def read_until(stream: TextIO, text: str) -> str:
    """Read lines up to the first one with `text`."""
    lines = [""]
    async with asyncio.timeout(SAFETY):
        while text not in lines[-1]:
            lines.append(await asyncio.to_thread(stream.readline))
    return "".join(lines)


async def wait_for_answer(attempt, wanted: bytes) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(SAFETY):
        while wanted not in await attempt():  # noqa: ASYNC110  # another process answers
            await asyncio.sleep(0.05)


def test_sigterm_lets_streams_finish(tmp_path: Path) -> None:
    async def check() -> None:
        async with Upstream(ANSWER, piece=32, pace=0.03) as upstream:
            config(tmp_path, upstream.url)
            with process(tmp_path, "--port", "0") as (running, url):
                streaming = asyncio.ensure_future(post(url, ask(stream=True)))
                await upstream.wait_for_requests()
                running.send_signal(signal.SIGTERM)
                answer = await streaming
                assert b"ten" in answer
                assert b"data: [DONE]" in answer
                assert await asyncio.to_thread(running.wait, SAFETY) == 0

    asyncio.run(check())


def test_streams_over_the_drain_time_end_in_an_error(tmp_path: Path) -> None:
    async def check() -> None:
        async with Upstream(ANSWER, piece=32, pace=2.0) as upstream:
            config(tmp_path, upstream.url, more="[server]\ndrain = 1\n")
            with process(tmp_path, "--port", "0") as (running, url):
                streaming = asyncio.ensure_future(post(url, ask(stream=True)))
                await upstream.wait_for_requests()
                await asyncio.sleep(0.5)
                running.send_signal(signal.SIGTERM)
                answer = await streaming
                assert b"the gateway is shutting down" in answer
                assert b"data: [DONE]" not in answer
                assert await asyncio.to_thread(running.wait, SAFETY) == 0

    asyncio.run(check())


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one", "workers"])
def test_repeated_sigterm_lets_streams_finish(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """A service manager may signal every process, and the first process forwards its signal."""

    async def check() -> None:
        async with Upstream(ANSWER, piece=32, pace=0.03) as upstream:
            config(tmp_path, upstream.url, more='[state]\nurl = "state.db"\ntimeout = 60\n')
            with process(tmp_path, "--port", "0", *workers, first="listens on") as (running, url):
                streaming = asyncio.ensure_future(post(url, ask(stream=True)))
                await upstream.wait_for_requests()
                for _ in range(3):
                    running.send_signal(signal.SIGTERM)
                    await asyncio.sleep(0.02)
                assert b"data: [DONE]" in await streaming
                assert await asyncio.to_thread(running.wait, SAFETY) == 0

    asyncio.run(check())


def accepts_connections(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), SAFETY).close()
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one", "workers"])
def test_second_sigint_ends_streams_in_an_error_that_is_logged(tmp_path: Path, workers: tuple[str, ...]) -> None:
    async def check() -> None:
        async with Upstream(ANSWER, piece=32, pace=2.0) as upstream:
            more = f'[server]\ndrain = {SAFETY}\n[state]\nurl = "state.db"\ntimeout = 60\n'
            config(tmp_path, upstream.url, more=more)
            arguments = ("--port", "0", "--quiet", *workers)
            with process(tmp_path, *arguments, first="listens on") as (running, url):
                streaming = asyncio.ensure_future(post(url, ask(stream=True)))
                await upstream.wait_for_requests()
                running.send_signal(signal.SIGINT)
                await wait_for_condition(lambda: not accepts_connections(url))  # else two signals may be merged
                running.send_signal(signal.SIGINT)
                assert b"the gateway is shutting down" in await streaming
                assert await asyncio.to_thread(running.wait, SAFETY) == 0
                assert running.stdout is not None
                printed = running.stdout.read()
                assert '"error":"overloaded"' in printed
                assert "Traceback" not in printed

    asyncio.run(check())


def test_second_sigint_answers_a_request_whose_body_is_incomplete(tmp_path: Path) -> None:
    async def check() -> None:
        config(tmp_path, "http://127.0.0.1:9", more=f"[server]\ndrain = {SAFETY}\n[limits]\nslow_client = {SAFETY}\n")
        with process(tmp_path, "--port", "0", "--quiet", first="listens on") as (running, url):
            host, port = url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: 99\r\nexpect: 100-continue\r\n\r\n"
            writer.write(head.encode())
            assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")  # the gateway waits for the body
            writer.write(b'{"model":')
            running.send_signal(signal.SIGINT)
            await wait_for_condition(lambda: not accepts_connections(url))
            running.send_signal(signal.SIGINT)
            answer = await asyncio.wait_for(reader.read(), 30)  # the connection ends before its keep-alive time of 75 s
            assert answer.startswith(b"HTTP/1.1 503") and b"the gateway is shutting down" in answer
            writer.close()
            assert await asyncio.to_thread(running.wait, SAFETY) == 0
            assert running.stdout is not None
            assert "Traceback" not in running.stdout.read()

    asyncio.run(check())


def run_failing_serve(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*WARM, "serve", *arguments],
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("more", "arguments", "words"),
    [
        ("", ("--host", "0.0.0.0"), "without keys, 0.0.0.0 would be open to every client"),
        ("[models.x]\nupstraem = 'up'\n", (), "[models.x] upstraem: unknown setting (did you mean 'upstream'?)"),
        (
            "[models.x]\nupstream = 'pu'\n",
            (),
            "[models.x] upstream: unknown upstream 'pu' (did you mean 'up'?)",
        ),
        ("[[[", (), "not valid TOML"),
        ("[models.x]\nupstream = 'up'\nemulate = 'hermse'\n", (), "did you mean 'hermes'?"),
        ("[upstreams.y]\nprovider = 'openai'\n", (), "[upstreams.y]: no key for openai (set OPENAI_API_KEY"),
    ],
)
def test_invalid_settings_fail_before_listening(
    tmp_path: Path, more: str, arguments: tuple[str, ...], words: str
) -> None:
    config(tmp_path, "http://127.0.0.1:9", more=more)
    assert words in run_failing_serve(tmp_path, "--port", "0", *arguments)


def test_missing_model_configuration_is_an_error(tmp_path: Path) -> None:
    assert "no model is configured" in run_failing_serve(tmp_path, "--port", "0")


def test_requested_port_in_use_is_an_error(tmp_path: Path) -> None:
    config(tmp_path, "http://127.0.0.1:9")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in run_failing_serve(tmp_path, "--port", str(port))


@pytest.mark.finding("SE9")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_configured_port_in_use_is_an_error(tmp_path: Path, workers: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        more = f'[server]\nport = {port}\nworkers = {workers}\n[state]\nurl = "state.db"\n'
        config(tmp_path, "http://127.0.0.1:9", more=more)
        assert f"cannot listen on 127.0.0.1:{port}" in run_failing_serve(tmp_path)


@pytest.mark.finding("SE9")
def test_default_port_in_use_moves_with_a_message_and_only_without_keys(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr("toolwire.gateway.processes.server._DEFAULT_PORT", port)
        with bind(Settings()) as listener:
            assert listener.getsockname()[1] > port
        assert f"port {port} is in use" in caplog.text
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            bind(Settings(keys={"a": KeyRow("0" * 64)}))


def test_client_command_prints_or_writes_client_settings(tmp_path: Path) -> None:
    def client(name: str, *more: str) -> str:
        done = subprocess.run(
            [*WARM, "serve", "client", name, "--home", str(tmp_path), *more],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:4141" in client("claude")
    assert not (tmp_path / ".claude").exists()
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('# mine\nmodel = "gpt-5.6"\n[tools]\nweb_search = true\n')
    (tmp_path / ".codex" / "config.toml").chmod(0o600)
    client("codex", "--write", "--url", "http://127.0.0.1:5000")
    import tomllib

    written = (tmp_path / ".codex" / "config.toml").read_text()
    settings = tomllib.loads(written)
    assert "# mine" in written
    assert settings["model_provider"] == "toolwire"
    assert settings["tools"] == {"web_search": True}
    assert settings["model_providers"]["toolwire"]["base_url"] == "http://127.0.0.1:5000/v1"
    saved = tmp_path / ".codex" / "config.toml.bak"
    assert saved.read_text().startswith("# mine")
    assert saved.stat().st_mode & 0o777 == 0o600, "the old file, which may contain a key, is copied for its owner only"
    client("gemini", "--write")
    assert json.loads((tmp_path / ".gemini" / "settings.json").read_text())["security"]["auth"] == {
        "selectedType": "gemini-api-key"
    }


@pytest.mark.finding("U8")
def test_client_command_uses_the_models_of_the_running_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gateway_models, "_TIMEOUT", SAFETY)
    folder = tmp_path / "gateway"
    folder.mkdir()
    config(folder, "http://127.0.0.1:9", models="qwen qwen-mini")
    with process(folder, "--port", "0") as (running, url):
        assert running.stdout is not None
        banner = asyncio.run(read_until(running.stdout, "ollama"))
        assert main(["serve", "client", "claude", "--home", str(tmp_path), "--url", url]) == 0
    models = "ANTHROPIC_MODEL=qwen ANTHROPIC_DEFAULT_HAIKU_MODEL=qwen-mini"
    assert models in banner
    assert models in capsys.readouterr().out


def test_metrics_logs_and_recordings_contain_no_secrets(tmp_path: Path) -> None:
    secret = "sk-canary-of-a-body-0123456789"

    async def check(*arguments: str) -> str:
        async with Upstream(ANSWER, ANSWER) as upstream:
            config(tmp_path, upstream.url, more='[trace]\nrecord = "traces"\n')
            with process(tmp_path, "--port", "0", *arguments) as (running, url):
                assert b"200 OK" in await post(url, {**ask(), "user": secret})
                assert b"404 Not Found" in await post(url, ask(secret))
                page = await get(url, "/metrics")
                running.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(running.wait, SAFETY) == 0
                assert running.stdout is not None
                said = running.stdout.read()
        assert b'toolwire_requests_total{ingress="openai_chat",model="m",status="200",upstream="up"} 1.0' in page
        recorded = [file.read_text(encoding="utf-8") for file in (tmp_path / "traces").iterdir()]
        assert len(recorded) > 1
        assert secret not in page.decode() + said + "".join(recorded)
        return said

    table = asyncio.run(check())
    assert "answered by" in table
    assert "{" not in table
    lines = [json.loads(line) for line in asyncio.run(check("--quiet")).splitlines() if line.startswith("{")]
    assert [(line["status"], line["model"]) for line in lines] == [(200, "m"), (404, "[removed]")]


async def get(url: str, path: str) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def test_gateway_tools_from_files_and_mcp_are_used_and_published(tmp_path: Path) -> None:
    example = ROOT / "examples" / "conjugate.py"
    (tmp_path / "orders.py").write_text(
        "import toolwire\n\n@toolwire.tool(effect='read')\ndef status(number: int) -> str:\n    '''Of an order.'''\n    return 'shipped'\n"
    )
    command = {
        "command": sys.executable,
        "args": ["-m", "toolwire", "mcp", "serve", str(example), "--store", "memory:"],
    }
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"verbs": {**command, "env": path}}}))
    tools = '[tools."*"]\nfiles = ["orders.py"]\nmcp = "mcp.json"\npublish = true\n'
    calls = (
        ToolCall("c1", "status", {"number": 7}),
        ToolCall("c2", "conjugate", {"verb": "go", "tense": "past_simple", "person": "1sg"}),
    )
    both = Response(parts=calls, stop=Stop("tool_calls"))

    async def check() -> None:
        async with Upstream(both, ANSWER) as upstream:
            config(tmp_path, upstream.url, more=tools)
            with process(tmp_path, "--port", "0") as (_, url):
                answer = await post(url, ask())
                async with McpServers.from_config({"mcpServers": {"gateway": {"url": f"{url}/mcp"}}}) as servers:
                    published = sorted(entry.name for entry in servers.toolbox())
            told = [part for one in upstream.requests[1].request.messages for part in one.parts]  # type: ignore[union-attr]
        assert b"one two three" in answer
        assert b"tool_calls" not in answer
        assert [part.text for part in told if isinstance(part, ToolResult)] == ["shipped", "went"]
        assert published == ["conjugate", "status"]

    asyncio.run(check())


LITELLM = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/scripted, api_base: "{url}", api_key: sk-in-the-file-0123, rpm: 5}}
  - model_name: rock
    litellm_params: {{model: sagemaker/x}}
litellm_settings: {{drop_params: true, cache: true}}
router_settings: {{allowed_fails: 3}}
"""


@pytest.mark.finding("U11")
def test_litellm_file_is_served_and_its_other_settings_are_listed(tmp_path: Path) -> None:
    async def check() -> str:
        async with Upstream(ANSWER) as upstream:
            (tmp_path / "config.yaml").write_text(LITELLM.format(url=upstream.url))
            with process(tmp_path, "--config", "config.yaml", "--port", "0", first="listens on") as (running, url):
                assert running.stdout is not None
                assert b"200 OK" in await post(url, ask())
                assert upstream.requests[0].headers["authorization"] == "Bearer sk-in-the-file-0123"
                running.send_signal(signal.SIGHUP)
                return await read_until(running.stdout, "settings reloaded")

    printed = asyncio.run(check())
    assert "1 model or target skipped, 2 settings ignored" in printed
    assert "sk-in-the-file" not in printed
    refused = run_failing_serve(tmp_path, "--config", "config.yaml", "--strict", "--port", "0")
    assert "rock (model_list[1]): Amazon SageMaker is not supported; 2 more" in refused


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_invalid_port_is_rejected(port: str) -> None:
    with pytest.raises(ConfigError, match="invalid port"):
        bind(Settings(), port=int(port))


def write_orders(folder: Path, said: str, name: str = "status") -> None:
    (folder / "orders.py").write_text(f"def {name}(number: int) -> str:\n    '''Of an order.'''\n    return {said!r}\n")


def heard_results(heard: ReceivedRequest) -> list[str]:
    assert heard.request is not None
    return [part.text for one in heard.request.messages for part in one.parts if isinstance(part, ToolResult)]


async def published(url: str) -> list[str]:
    async with McpServers.from_config({"mcpServers": {"gateway": {"url": f"{url}/mcp"}}}) as servers:
        return sorted(entry.name for entry in servers.toolbox())


def test_sighup_reloads_the_tools(tmp_path: Path) -> None:
    tools = '[tools."*"]\nfiles = ["orders.py"]\npublish = true\n'
    call = Response(parts=(ToolCall("c1", "status", {"number": 7}),), stop=Stop("tool_calls"))
    other = Response(parts=(ToolCall("c1", "whereabouts", {"number": 7}),), stop=Stop("tool_calls"))
    write_orders(tmp_path, "shipped")

    async def check() -> None:
        async with Upstream(call, ANSWER, other, ANSWER, ANSWER, piece=16, pace=0.02) as upstream:
            config(tmp_path, upstream.url, more=tools)
            with process(tmp_path, "--port", "0") as (running, url):
                assert await published(url) == ["status"]
                before = asyncio.ensure_future(post(url, ask(stream=True)))  # it began with the tools of then
                await upstream.wait_for_requests()
                write_orders(tmp_path, "lost at sea", "whereabouts")
                running.send_signal(signal.SIGHUP)
                await wait_for_answer(lambda: names(url), b"whereabouts")
                assert b"ten" in await before
                assert b"ten" in await post(url, ask())
                assert [heard_results(upstream.requests[number]) for number in (1, 3)] == [["shipped"], ["lost at sea"]]
                (tmp_path / "orders.py").write_text("1 / 0")
                running.send_signal(signal.SIGHUP)  # a mistake changes nothing
                await asyncio.sleep(0.5)
                assert await published(url) == ["whereabouts"]
                config(tmp_path, upstream.url)
                running.send_signal(signal.SIGHUP)
                await wait_for_answer(lambda: get(url, "/mcp"), b"404 Not Found")
                assert b"ten" in await post(url, ask())
                assert upstream.requests[4].request is not None and upstream.requests[4].request.tools == ()
                running.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(running.wait, SAFETY) == 0

    async def names(url: str) -> bytes:
        return " ".join(await published(url)).encode()

    asyncio.run(check())


def test_sighup_reopens_the_log_even_with_invalid_settings(tmp_path: Path) -> None:
    log = tmp_path / "access.log"

    async def check() -> None:
        async with Upstream(ANSWER, ANSWER) as upstream:
            config(tmp_path, upstream.url, more='[log]\nfile = "access.log"\n')
            with process(tmp_path, "--port", "0") as (running, url):
                await post(url, ask())
                log.rename(tmp_path / "access.log.1")
                (tmp_path / "toolwire.toml").write_text("[sevrer]\n")
                running.send_signal(signal.SIGHUP)
                await wait_for_condition(log.exists)
                await post(url, ask())

    asyncio.run(check())
    requests = [
        [line for line in file.read_text().splitlines() if '"event":"request"' in line]
        for file in (tmp_path / "access.log.1", log)
    ]
    assert list(map(len, requests)) == [1, 1]
    assert "sevrer" in log.read_text()  # and what is wrong stands in the new one


def test_reload_without_keys_does_not_disable_authentication(tmp_path: Path) -> None:
    from toolwire.gateway.keys import hash_key

    keys = f'[server]\nhost = "0.0.0.0"\n[keys.a]\nhash = "{hash_key("sk-a")}"\n'
    config(tmp_path, "http://127.0.0.1:9", more=keys)

    async def check() -> None:
        with process(tmp_path, "--port", "0") as (running, url):
            here = url.replace("0.0.0.0", "127.0.0.1")
            assert b"401 Unauthorized" in await post(here, ask())
            config(tmp_path, "http://127.0.0.1:9", more='[server]\nhost = "0.0.0.0"\n')
            running.send_signal(signal.SIGHUP)
            assert running.stdout is not None
            assert "every request is rejected" in await read_until(running.stdout, "settings reloaded")
            assert b"401 Unauthorized" in await post(here, ask())
            assert b"401 Unauthorized" in await post(here, ask(), key="sk-a")

    asyncio.run(check())


@pytest.mark.parametrize("arguments", [("--quiet",), ("--quiet", "--workers", "2")], ids=["one", "workers"])
def test_reload_without_the_settings_file_keeps_the_keys(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    from toolwire.gateway.keys import hash_key

    keys = f'[state]\nurl = "state.db"\n[keys.a]\nhash = "{hash_key("sk-a")}"\n'
    config(tmp_path, "http://127.0.0.1:9", more=keys)

    async def check() -> None:
        with process(tmp_path, "--port", "0", *arguments, first="listens on") as (running, url):
            assert running.stdout is not None
            (tmp_path / "toolwire.toml").unlink()
            running.send_signal(signal.SIGHUP)
            await read_until(running.stdout, "cannot read toolwire.toml")
            assert b"401 Unauthorized" in await post(url, ask())

    asyncio.run(check())


@pytest.mark.parametrize("stray", [b"\r\n", b"POST /v1/chat"])
def test_stray_bytes_after_a_request_do_not_break_its_answer(tmp_path: Path, stray: bytes) -> None:
    async def check() -> None:
        async with Upstream(ANSWER, piece=64, pace=0.1) as upstream:  # for longer than a client may be slow
            config(tmp_path, upstream.url, more="[limits]\nslow_client = 2\n")
            with process(tmp_path, "--port", "0") as (_, url):
                host, port = url.removeprefix("http://").split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                data = json.dumps(ask(stream=True)).encode()
                head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(data)}\r\n\r\n"
                writer.write(head.encode() + data)
                await upstream.wait_for_requests()
                writer.write(stray)
                answer = await reader.readuntil(b"0\r\n\r\n")
                writer.close()
        assert b"HTTP/1.1 408" not in answer
        assert b"data: [DONE]" in answer

    asyncio.run(check())


TLS = TESTS / "fixtures" / "tls"


@pytest.mark.finding("Z26")
def test_clients_can_use_tls_and_the_certificate_is_read_again(tmp_path: Path) -> None:
    """A body above the size of one TLS record, a stream, and an invalid certificate at a reload."""
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_bytes((TLS / name).read_bytes())
    trusted = ssl.create_default_context(cadata=(TLS / "ca.pem").read_text())

    async def post_encrypted(url: str, body: dict[str, object]) -> bytes:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
        data = json.dumps(body).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n" % len(data) + data)
        answer = await reader.read()
        writer.close()
        return answer

    async def check() -> None:
        async with Upstream(*[ANSWER] * 3) as upstream:
            config(tmp_path, upstream.url, more='[server]\ncertificate = "cert.pem"\nprivate_key = "key.pem"\n')
            with process(tmp_path, "--port", "0") as (running, url):
                assert url.startswith("https://")
                large = {**ask(), "messages": [{"role": "user", "content": "x" * 300_000}]}
                assert b"ten" in await post_encrypted(url, large)
                assert b"ten" in await post_encrypted(url, ask(stream=True))
                (tmp_path / "cert.pem").write_text("not a certificate")
                running.send_signal(signal.SIGHUP)
                assert running.stdout is not None
                await asyncio.to_thread(_read_until, running.stdout, "cannot use the certificate cert.pem")
                assert b"ten" in await post_encrypted(url, ask())

    asyncio.run(check())


def _read_until(lines: TextIO, text: str) -> None:
    for line in lines:
        if text in line:
            return
    pytest.fail(f"the process ended without {text!r}")


@pytest.mark.finding("Z26")
@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({"certificate": "missing.pem"}, "cannot read missing.pem"),
        ({"certificate": str(TLS / "cert.pem"), "private_key": "missing.pem"}, "missing.pem: No such file"),
        ({"certificate": str(TLS / "ca.pem"), "private_key": str(TLS / "key.pem")}, "KEY_VALUES_MISMATCH"),
        ({"certificate": __file__}, "cannot use the certificate"),
    ],
)
def test_unusable_certificate_is_refused_at_start(server, problem):
    with pytest.raises(ConfigError, match=problem):
        check_certificate(ServerRow(**server))


@pytest.mark.finding("Z26")
def test_private_key_without_certificate_is_refused():
    with pytest.raises(ConfigError, match="needs a certificate"):
        parse_settings({"server": {"private_key": "key.pem"}})
