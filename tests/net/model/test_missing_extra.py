"""Without an HTTP client everything but the sending works, and the error says what to type."""

import asyncio
import re
import sys

import pytest

from toolwire import Message, Request, Text
from toolwire._extras import install_command
from toolwire.cli.main import main
from toolwire.ir.errors import MissingExtra
from toolwire.net.model.client import ModelClient


def test_missing_http_client_error_has_the_install_command(monkeypatch):
    importers = ("toolwire.net.http.connection", "toolwire.net.http.requests", "toolwire.net.http.requests")
    for name in [name for name in sys.modules if name.partition(".")[0] == "httptools" or name in importers]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httptools", None)
    client = ModelClient("m", base_url="http://localhost:1")
    with pytest.raises(MissingExtra, match=re.escape(install_command("net"))):
        asyncio.run(client.ask(Request(messages=(Message("user", (Text("x"),)),))))


def test_mcp_server_without_httptools_announces_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "httptools", None)
    file = tmp_path / "tools.py"
    file.write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    assert main(["mcp", "serve", str(file), "--http", ":0", "--store", "memory:"]) == 2
    err = capsys.readouterr().err
    assert "HTTP needs httptools" in err
    assert "serving" not in err


@pytest.mark.parametrize(
    "words", [["with"], ["with", "-m", "nope/x", "--", "no-such"], ["serve", "--config", "no.toml"]]
)
def test_gateway_names_a_missing_package_before_other_problems(monkeypatch, capsys, words):
    monkeypatch.setitem(sys.modules, "httptools", None)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "the gateway needs httptools" in err
    assert install_command("gateway") in err
