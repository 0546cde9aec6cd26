"""`toolwire mcp inspect`, `call`, `read` and `prompt` with servers that are real processes, ours and those of the SDKs."""

import json
import shlex
import sys

import pytest

from mcp_server.server_process import ROOT, WORKSHOP, command, http_server
from toolwire.cli.main import main

SERVED = shlex.join(command(WORKSHOP, "--store", "memory:"))
ENVIRONMENT = ("--env", f"PYTHONPATH={ROOT / 'src'}")
SDK_SERVER = """
import warnings
warnings.simplefilter("ignore")
from pydantic import BaseModel
from mcp.server.mcpserver import MCPServer

class Filter(BaseModel):
    name: str
    limit: int = 3

server = MCPServer("sdk", instructions="Ask kindly.")

@server.tool()
def search(query: str, filter: Filter, tags: list[str] = []) -> dict:
    "Search for documents."
    return {"query": query, "filter": filter.name, "tags": tags}

@server.resource("notes://{day}")
def notes(day: str) -> str:
    return f"notes of {day}"

@server.prompt()
def review(code: str) -> str:
    return f"Review {code}"

server.run()
"""


@pytest.fixture
def toolwire_mcp(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments):
        code = main(["mcp", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def sdk_server(tmp_path):
    pytest.importorskip("mcp.server.mcpserver")
    file = tmp_path / "sdk_server.py"
    file.write_text(SDK_SERVER, encoding="utf-8")
    return shlex.join([sys.executable, str(file)])


@pytest.mark.finding("U13")
def test_call_with_assignments(toolwire_mcp):
    assert toolwire_mcp("call", SERVED, "add", "a=1", "b=2", *ENVIRONMENT) == (0, "3\n", "")
    code, out, err = toolwire_mcp("call", SERVED, "add", "a=1", *ENVIRONMENT)
    assert (code, out, err) == (2, "", "toolwire: missing arguments of add: b (integer) (add b=…)\n")


def test_call_shows_progress_and_traffic(toolwire_mcp):
    code, _, err = toolwire_mcp("call", SERVED, "nap", "seconds=0", "--traffic", *ENVIRONMENT)
    assert (code, "1/2 half asleep" in err.splitlines()) == (0, True)
    lines = [line.split(" s ", 1)[1] for line in err.splitlines() if " s → " in line or " s ← " in line]
    shown = [" ".join(line.split()[:3]).split(",")[0] for line in lines]
    assert "→ #listen-1 subscriptions/listen" in shown
    assert [one for one in shown if "subscriptions/" not in one] == [  # these are answered at any time
        "→ #1 server/discover",
        "← #1 server/discover",
        "→ #2 tools/list",
        "← #2 tools/list",
        "→ #3 tools/call",
        '← notifications/progress {"progressToken":3',
        "← #3 tools/call",
    ]


def test_traffic_over_http_shows_no_token(toolwire_mcp, monkeypatch):
    monkeypatch.setenv("SECRET_FOR_TEST", "the-bearer-token")
    options = ("--store", "memory:", "--token-env", "SECRET_FOR_TEST")
    with http_server(WORKSHOP, *options) as (port, _):
        header = ("--header", "Authorization=Bearer ${SECRET_FOR_TEST}")
        url = f"http://127.0.0.1:{port}/mcp"
        code, out, err = toolwire_mcp("call", url, "add", "a=1", "b=2", "--traffic", *header)
        assert (code, out) == (0, "3\n")
        assert "authorization: [removed]" in err and "mcp-method: tools/call" in err
        assert "the-bearer-token" not in err
        code, _, err = toolwire_mcp("call", url, "add", "a=1", "b=2", "--protocol", "2025-11-25", "--traffic", *header)
        assert (code, "mcp-session-id: [removed]" in err) == (0, True)


def test_read_and_prompt(toolwire_mcp):
    assert toolwire_mcp("read", SERVED, "notes://monday", *ENVIRONMENT) == (0, "notes of monday\n", "")
    code, _, err = toolwire_mcp("read", SERVED, "note://monday", *ENVIRONMENT)
    assert (code, "did you mean 'notes://{day}'?" in err) == (2, True)
    code, out, _ = toolwire_mcp("prompt", SERVED, "review", "code=x = 1", *ENVIRONMENT)
    assert (code, out.splitlines()[0], "x = 1" in out) == (0, "── user ──", True)
    code, _, err = toolwire_mcp("prompt", SERVED, "review", *ENVIRONMENT)
    assert (code, err) == (2, "toolwire: missing arguments of the prompt review: code (add code=…)\n")
    code, _, err = toolwire_mcp("prompt", SERVED, "reviw", *ENVIRONMENT)
    assert (code, err) == (2, "toolwire: the prompt reviw does not exist (did you mean 'review'?)\n")


def test_server_of_the_official_sdk(toolwire_mcp, sdk_server):
    code, out, _ = toolwire_mcp("inspect", sdk_server)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 1 and "TW023" in out  # Gemini does not accept $defs
    assert toolwire_mcp("inspect", sdk_server, "--target", "openai")[0] == 0
    assert "Ask kindly." in lines
    assert {"query string, required", "filter object, required", "filter.name string, required"} <= set(lines)
    assert {"filter.limit integer = 3", "tags array of string = []", "notes://{day} notes text/plain"} <= set(lines)
    assert "latency: connect " in out and "tools/list " in out
    code, out, _ = toolwire_mcp("call", sdk_server, "search", "query=5", "filter.name=tea", "tags=a", "tags=b")
    assert (code, json.loads(out)) == (0, {"query": "5", "filter": "tea", "tags": ["a", "b"]})


def test_inspect_json_is_complete(toolwire_mcp):
    code, out, _ = toolwire_mcp("inspect", SERVED, "--json", "--target", "gemini", *ENVIRONMENT)
    found = json.loads(out)
    server = found["servers"]["server"]
    assert code == 0
    assert [one["uriTemplate"] for one in server["resources"]] == ["notes://{day}"]
    assert server["prompts"][0]["arguments"][0]["name"] == "code"
    assert server["latency"]["connect_ms"] > 0
    methods = [one["method"] for one in server["latency"]["requests"]]
    assert methods[:2] == ["server/discover", "tools/list"]
    assert found["declared"]["add"]["annotations"] == {"readOnlyHint": True, "idempotentHint": True}
    assert found["declared"]["add"]["input_schema"]["required"] == ["a", "b"]


@pytest.mark.parametrize("name", ["call", "inspect", "read", "prompt", "bridge", "serve", "server-json"])
def test_every_command_has_help_with_examples(capsys, name):
    with pytest.raises(SystemExit) as caught:
        main(["mcp", name, "--help"])
    assert (caught.value.code, "examples:\n" in capsys.readouterr().out) == (0, True)
