"""`toolwire mcp`, as a user types it: what is wrong is said in one line, with the line to type."""

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolwire._extras import install_command
from toolwire.cli.main import main
from toolwire.cli.mcp.http import parse_address

TOOLS = '"""Weather for everybody."""\ndef weather(city: str) -> str:\n    "The weather."\n    return "sun"\n'


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "weather_tools.py"
    path.write_text(TOOLS, encoding="utf-8")
    return str(path)


@pytest.fixture
def started(monkeypatch):
    """The hosts of the servers that were started: without sockets, because some of the addresses are not of this machine."""

    async def serve(server, listeners):
        hosts.extend(listener.getsockname()[0] for listener in listeners)

    hosts = []
    monkeypatch.setattr("toolwire.asgi.server.HttpServer.serve", serve)
    monkeypatch.setattr(
        "toolwire.cli.mcp.http._open_listeners", lambda *address: [SimpleNamespace(getsockname=lambda: address)]
    )
    return hosts


def refused(capsys, *arguments):
    assert main(["mcp", *arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["serve"], ["server-json"]])
def test_help_has_examples(capsys, command):
    with pytest.raises(SystemExit) as caught:
        main(["mcp", *command, "--help"])
    assert caught.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_errors_include_the_command_that_fixes_them(capsys, tools, monkeypatch):
    monkeypatch.delenv("NO_SUCH", raising=False)
    store = ("--store", "memory:")
    assert "cannot read nowhere.py" in refused(capsys, "serve", "nowhere.py")
    assert "--http :8000" in refused(capsys, "serve", tools, *store, "--http", "elsewhere")
    assert "export NO_SUCH=" in refused(capsys, "serve", tools, *store, "--http", ":1", "--token-env", "NO_SUCH")
    assert "export NO_SUCH=" in refused(capsys, "serve", tools, *store, "--secret-env", "NO_SUCH")
    monkeypatch.setitem(sys.modules, "httptools", None)
    assert install_command("mcp") in refused(capsys, "serve", tools, *store, "--http", ":1")


@pytest.mark.finding("Z7")
@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "0:1", "192.168.1.5:1", "example.com:1", "[::ffff:0:0]:1"])
def test_non_loopback_address_needs_a_token(capsys, tools, monkeypatch, tmp_path, address, started):
    loaded = tmp_path / "loaded"
    Path(tools).write_text(f"import pathlib\npathlib.Path({str(loaded)!r}).touch()\n{TOOLS}", encoding="utf-8")
    serve = ("serve", tools, "--store", "memory:", "--http", address)
    for command in (serve, (*serve, "--allow-host", "tools.example.com"), ("bridge", "cat", "--http", address)):
        error = refused(capsys, *command)
        assert "without a token" in error and "would be open to every client that can reach it" in error
        assert "--token-env" in error and "Traceback" not in error
    assert (started, loaded.exists()) == ([], False)
    monkeypatch.setenv("MCP_TOKEN", "secret")
    assert main(["mcp", *serve, "--token-env", "MCP_TOKEN"]) == 0
    assert started == [address.rpartition(":")[0]]


@pytest.mark.finding("Z7")
@pytest.mark.parametrize("address", [":1", "1", "localhost:1", "127.0.0.1:1", "[::1]:1"])
def test_loopback_address_needs_no_token(tools, started, address):
    assert main(["mcp", "serve", tools, "--store", "memory:", "--http", address]) == 0
    assert len(started) == 1


def test_port_in_use_is_wrong_usage(capsys, tools):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = refused(capsys, "serve", tools, "--store", "memory:", "--http", f":{port}")
    assert f"cannot listen on 127.0.0.1:{port}" in error


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (":8000", ("127.0.0.1", 8000)),
        ("8000", ("127.0.0.1", 8000)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:80", ("[::1]", 80)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
    ],
)
def test_http_addresses_are_parsed(text, found):
    assert parse_address(text) == found


def test_server_json_describes_the_package(capsys, tools):
    named = ("--name", "io.github.me/weather", "--version", "1.0.0")
    assert main(["mcp", "server-json", tools, *named, "--pypi", "my-weather"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["description"] == "Weather for everybody."
    assert document["packages"][0]["transport"] == {"type": "stdio"}
    assert "--pypi PACKAGE" in refused(capsys, "server-json", tools, *named)
    assert "io.github.me/weather" in refused(capsys, "server-json", tools, "--name", "weather", "--version", "1.0.0")
