"""`toolwire mcp`, as a user types it: what is wrong is said in one line, with the line to type."""

import json
import sys

import pytest

from toolwire.cli.main import main
from toolwire.cli.mcp_serve import address_of

TOOLS = '"""Weather for everybody."""\ndef weather(city: str) -> str:\n    "The weather."\n    return "sun"\n'


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "weather_tools.py"
    path.write_text(TOOLS, encoding="utf-8")
    return str(path)


def refused(capsys, *arguments):
    assert main(["mcp", *arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["serve"], ["server-json"]])
def test_help_has_examples(capsys, command):
    with pytest.raises(SystemExit) as caught:
        main(["mcp", *command, "--help"])
    assert caught.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_what_is_wrong_and_what_to_do(capsys, tools, monkeypatch):
    monkeypatch.delenv("NO_SUCH", raising=False)
    store = ("--store", "memory:")
    assert "cannot read nowhere.py" in refused(capsys, "serve", "nowhere.py")
    assert "--http :8000" in refused(capsys, "serve", tools, *store, "--http", "elsewhere")
    assert "export NO_SUCH=" in refused(capsys, "serve", tools, *store, "--http", ":1", "--token-env", "NO_SUCH")
    assert "export NO_SUCH=" in refused(capsys, "serve", tools, *store, "--secret-env", "NO_SUCH")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'toolwire[mcp]'" in refused(capsys, "serve", tools, *store, "--http", ":1")


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
def test_addresses(text, found):
    assert address_of(text) == found


def test_server_json(capsys, tools):
    named = ("--name", "io.github.me/weather", "--version", "1.0.0")
    assert main(["mcp", "server-json", tools, *named, "--pypi", "my-weather"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["description"] == "Weather for everybody."
    assert document["packages"][0]["transport"] == {"type": "stdio"}
    assert "--pypi PACKAGE" in refused(capsys, "server-json", tools, *named)
    assert "io.github.me/weather" in refused(capsys, "server-json", tools, "--name", "weather", "--version", "1.0.0")
