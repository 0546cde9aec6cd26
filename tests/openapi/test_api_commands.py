"""OpenAPI documents on the command line, as an MCP server and in the gateway; all against a real API."""

import asyncio
import json
import os
import sys

import pytest
from api_server import api_server

from toolwire import ToolCall
from toolwire.cli.main import main
from toolwire.cli.serve.tools import ToolLoader
from toolwire.gateway import parse_settings
from toolwire.gateway.observe.telemetry import Telemetry
from toolwire.ir import ConfigError
from toolwire.mcp import McpServers, ServerSpec
from toolwire.testing import Upstream, says
from warm_command import WARM

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://api.example.com/v1"}],
    "security": [{"token": []}],
    "paths": {
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "tags": ["pets"],
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            }
        },
        "/broken": {"get": {"operationId": "broken", "parameters": [{"$ref": "other.json#/P"}]}},
    },
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
}


@pytest.fixture
def server():
    with api_server() as running:
        yield running


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "pets.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("PETS_TOKEN", "secret-token")


@pytest.mark.finding("X3")
def test_run_calls_the_api_without_a_file_of_functions(server, document):
    async def run():
        async with Upstream(says(ToolCall("c1", "getPet", {"id": 7})), says("It is Rex.")) as upstream:
            process = await asyncio.create_subprocess_exec(
                *(*WARM, "run", "Which pet is 7?", "-m", "vllm/any"),
                *("--base-url", upstream.url, "--store", "none", "-t", document),
                *("--api-url", server.url, "--api-auth-env", "token=PETS_TOKEN"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            return process.returncode, out.decode(), err.decode()

    code, out, err = asyncio.run(run())
    assert (code, out) == (0, "It is Rex.\n"), err
    assert server.last.segments == ["pets", "7"]
    assert server.last.headers["authorization"] == "Bearer secret-token"
    assert "skipped: GET /broken: the reference 'other.json#/P' is in another document" in err
    assert "secret-token" not in err


@pytest.mark.finding("X3")
def test_mcp_serve_publishes_the_operations(server, document):
    command = ("-m", "toolwire", "mcp", "serve", document, "--store", "memory:")
    options = ("--api-url", server.url, "--api-auth-env", "PETS_TOKEN", "--api-tag", "pets")

    async def run():
        env = {"PETS_TOKEN": "secret-token", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        spec = ServerSpec("pets", command=sys.executable, args=(*command, *options), env=env)
        async with McpServers([spec], strict=True) as servers:
            (entry,) = servers.toolbox()
            return entry.name, await entry.function(id=7)

    name, result = asyncio.run(run())
    assert name.endswith("getPet")
    assert server.last.segments == ["pets", "7"]
    assert server.last.headers["authorization"] == "Bearer secret-token"
    assert "secret-token" not in result.text


def load(settings, *calls):
    async def run():
        loader = ToolLoader([])
        try:
            opened = await loader.prepare(settings)
            loader.activate(opened)
            return await opened.bindings.runners["*"].run(list(calls))
        finally:
            await loader.aclose()

    return asyncio.run(run())


@pytest.mark.finding("X3")
@pytest.mark.parametrize("auth", ["PETS_TOKEN", {"token": "PETS_TOKEN"}])
def test_gateway_runs_the_operations_of_its_settings(server, document, auth, capsys):
    row = {"file": document, "base_url": server.url, "auth_env": auth, "headers": {"X-Team": "${PETS_TOKEN}-1"}}
    settings = parse_settings({"tools": {"*": {"openapi": [row]}}})
    (result,) = load(settings, ToolCall("c1", "getPet", {"id": 7}))
    assert server.last.headers["authorization"] == "Bearer secret-token"
    assert server.last.headers["x-team"] == "secret-token-1"
    assert "secret-token" not in result.text
    assert "toolwire: skipped: GET /broken" in capsys.readouterr().err


def test_gateway_removes_the_credentials_from_its_logs(document):
    row = {"file": document, "base_url": "https://api.example.com", "auth_env": "PETS_TOKEN"}
    settings = parse_settings({"tools": {"*": {"openapi": [row]}}})
    telemetry = Telemetry(settings, {"PETS_TOKEN": "secret-token"}, lines=False)
    try:
        assert "secret-token" not in telemetry.redactor("the token is secret-token")
    finally:
        asyncio.run(telemetry.aclose())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"file": "{document}"}, "base_url"),
        ({"file": "{document}", "base_url": "https://x.example", "auth": "a"}, "auth: unknown setting"),
    ],
)
def test_wrong_settings_are_reported(document, row, message):
    row = {name: value.replace("{document}", document) for name, value in row.items()}
    with pytest.raises(ConfigError, match=message):
        parse_settings({"tools": {"*": {"openapi": [row]}}})


def test_gateway_needs_the_variable_of_the_credential(document):
    row = {"file": document, "base_url": "https://x.example", "auth_env": "NO_SUCH_VARIABLE"}
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE is not set"):
        load(parse_settings({"tools": {"*": {"openapi": [row]}}}))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["mcp", "serve", "{document}"], "add --api-url https://api.example.com/v1, the server in the document"),
        (["mcp", "serve", "{document}", "--api-url", "http://api.example.com"], "unencrypted"),
        (
            ["mcp", "serve", "{document}", "--api-url", "https://x.example", "--api-auth-env", "NO_SUCH"],
            "export NO_SUCH",
        ),
        (["mcp", "serve", "{document}", "--api-url", "https://x.example", "--api-tag", "cats"], "known tags: pets"),
        (["mcp", "serve", "{tools}", "--api-url", "https://x.example"], "--api-url needs an OpenAPI document"),
        (["mcp", "serve", "{other}", "--api-url", "https://x.example"], "--api-url needs an OpenAPI document"),
        (["run", "x", "-m", "openai/x", "--api-url", "https://x.example"], "add -t FILE"),
        (["run", "", "-m", "openai/x", "-t", "{document}"], "the prompt is empty"),
    ],
)
def test_wrong_usage_is_reported_with_its_fix(tmp_path, document, capsys, monkeypatch, command, message):
    monkeypatch.delenv("NO_SUCH", raising=False)
    (tmp_path / "tools.py").write_text("def now() -> str:\n    return 'now'\n")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    names = {"document": document, "tools": str(tmp_path / "tools.py"), "other": str(tmp_path / "mcp.json")}
    assert main([part.format(**names) for part in command]) == 2
    assert message in capsys.readouterr().err
