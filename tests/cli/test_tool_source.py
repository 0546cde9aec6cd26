"""One loader for the tools of all commands: functions, declarations, MCP servers, OpenAPI documents, recordings."""

import argparse
import asyncio
import json
import os
import sys
from threading import Thread

import pytest

from toolwire.cli.main import main
from toolwire.cli.sources.targets import defines_tools
from toolwire.cli.sources.tool_source import open_source, source_kind
from toolwire.ir.errors import ConfigError

FUNCTIONS = '''
def get_weather(city: str, days: int = 1) -> str:
    """Return the weather.

    Args:
        city: the name of the city
    """
    return f"12 degrees in {city}"
'''
DECLARED = [
    {
        "name": "get_weather",
        "description": "Return the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    }
]
REQUEST = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": DECLARED[0]}],
}
API = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {
        "/weather/{city}": {
            "get": {
                "operationId": "get_weather",
                "description": "Return the weather.",
                "parameters": [{"name": "city", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "ok"}},
            }
        }
    },
}
TRACE = [
    {"toolwire_trace": 2, "id": "a", "kind": "run", "recorded": "2026-11-16T10:00:00.000Z"},
    {"event": "request", "ms": 0.2, "span": 2, "parent": 1, "model": "m", "body": REQUEST},
]
HAR = {"log": {"entries": [{"request": {"postData": {"text": json.dumps(REQUEST)}}}]}}


@pytest.fixture
def sources(tmp_path):
    files = {
        "functions": ("tools.py", FUNCTIONS),
        "declarations": ("tools.json", json.dumps(DECLARED)),
        "request": ("request.json", json.dumps(REQUEST)),
        "openapi": ("api.json", json.dumps(API)),
        "yaml": ("api.yaml", json.dumps(API)),  # JSON is YAML
        "trace": ("trace.jsonl", "\n".join(map(json.dumps, TRACE))),
        "har": ("recording.har", json.dumps(HAR)),
        "servers": (
            "mcp.json",
            json.dumps(
                {
                    "mcpServers": {
                        "weather": {
                            "command": sys.executable,
                            "args": ["-m", "toolwire", "mcp", "serve", str(tmp_path / "tools.py")],
                        }
                    }
                }
            ),
        ),
    }
    for name, content in files.values():
        (tmp_path / name).write_text(content)
    found = {key: str(tmp_path / name) for key, (name, _) in files.items()}
    found["command"] = f"{sys.executable} -m toolwire mcp serve {found['functions']}"
    return found


KINDS = {
    "functions": "functions",
    "declarations": "declarations",
    "request": "declarations",
    "openapi": "openapi",
    "yaml": "openapi",
    "trace": "recording",
    "har": "recording",
    "servers": "mcp",
    "command": "mcp",
}


@pytest.mark.parametrize("name", KINDS)
def test_every_source_is_recognised(sources, name):
    assert source_kind(sources[name]) == KINDS[name]


def test_executable_file_is_the_command_of_a_server(tmp_path):
    program = tmp_path / "mcp-server-sample"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert source_kind(str(program)) == "mcp"


def test_url_is_an_mcp_server():
    assert source_kind("https://example.com/mcp") == "mcp"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.py", "cannot read nothing.py: no such file"),
        ("no-such-command --flag", "neither a file nor a command: no-such-command was not found"),
        (".", ". is a folder"),
    ],
)
def test_anything_else_is_an_error_that_lists_the_sources(source, message):
    with pytest.raises(ConfigError) as caught:
        source_kind(source)
    assert message in caught.value.message
    assert "a Python file of functions" in caught.value.hint


@pytest.mark.finding("U3")
@pytest.mark.parametrize("name", KINDS)
def test_tools_of_every_source_are_listed(sources, name, capsys):
    assert main(["tools", "list", sources[name], "--json"]) == 0
    (tool,) = json.loads(capsys.readouterr().out)["tools"]
    assert tool["name"].endswith("get_weather")
    assert tool["inputSchema"]["properties"]["city"]["type"] == "string"


@pytest.mark.finding("U3")
@pytest.mark.parametrize("name", [name for name in KINDS if name != "request"])
def test_tools_of_every_source_are_converted(sources, name, capsys):
    assert main(["convert", sources[name], "--to", "anthropic"]) == 0
    (tool,) = json.loads(capsys.readouterr().out)
    assert tool["name"].endswith("get_weather")
    assert "city" in tool["input_schema"]["properties"]


@pytest.mark.finding("U3")
@pytest.mark.parametrize("name", [name for name in KINDS if name != "servers"])
def test_tools_of_every_source_are_audited(sources, name, capsys):
    assert main(["audit", sources[name], "--json", "--fail-on", "none"]) == 0
    assert [row["tool"] for row in json.loads(capsys.readouterr().out)["tools"]] == ["get_weather"]


@pytest.mark.finding("U3")
@pytest.mark.parametrize("name", [name for name in KINDS if name != "servers"])
def test_tools_of_every_source_determine_the_types_of_a_parsed_call(sources, name, capsys, tmp_path):
    answer = tmp_path / "answer.txt"
    answer.write_text(
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</parameter>\n</function>\n</tool_call>"
    )
    assert main(["parse", str(answer), "--tools", sources[name], "--json"]) == 0
    (part,) = [part for part in json.loads(capsys.readouterr().out)["parts"] if part["part"] == "call"]
    assert part["arguments"] == {"city": "42"}


def test_audit_of_a_server_list_starts_no_server(sources, capsys):
    assert main(["audit", sources["servers"], "--json", "--fail-on", "none"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tools"] == []
    assert "the servers were not started" in document["notes"][0]


@pytest.mark.parametrize("name", ["declarations", "trace"])
def test_declared_tools_cannot_be_opened(sources, name):
    async def open_it():
        async with open_source(sources[name], argparse.Namespace()):
            pass

    with pytest.raises(ConfigError) as caught:
        asyncio.run(open_it())
    assert "cannot be called" in caught.value.message


def test_show_prints_parameters_of_one_tool(sources, capsys):
    assert main(["tools", "show", sources["functions"], "get_weather"]) == 0
    out = capsys.readouterr().out
    assert "city        string   required  the name of the city" in out
    assert "days        integer  = 1" in out


def test_show_suggests_the_nearest_name(sources, capsys):
    assert main(["tools", "show", sources["functions"], "get_wether"]) == 2
    assert "did you mean 'get_weather'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (FUNCTIONS, True),
        ("import toolwire\nprint('any statement')\n@toolwire.tool\ndef f() -> int: ...", True),
        ("import json\nLIMIT = 3\ndef f() -> int: ...", True),
        ("def f() -> int: ...\nf()", False),  # a program: an import would run it
        ("import requests\ndef f() -> int: ...", False),
        ("STATE = open('x')\ndef f() -> int: ...", False),
        ("import toolwire", False),
        ("def f(:", False),
    ],
)
def test_only_a_file_of_tools_is_imported_for_an_audit(source, expected):
    assert defines_tools(source) is expected


def test_audited_program_is_not_run(tmp_path, capsys):
    program = tmp_path / "program.py"
    marker = tmp_path / "ran"
    program.write_text(f"def f() -> int: ...\nopen({str(marker)!r}, 'w')\n")
    assert main(["audit", str(program), "--fail-on", "none"]) == 0
    assert not marker.exists()


@pytest.mark.finding("U5")
def test_formats_lists_the_formats_of_a_family(capsys):
    assert main(["formats", "qwen"]) == 0
    out = capsys.readouterr().out
    assert "hermes" in out
    assert "qwen3_xml" in out
    assert "capabilities unknown" not in out
    assert main(["formats", "claude"]) == 0
    assert "models with known capabilities" in capsys.readouterr().out


@pytest.mark.finding("U5")
def test_text_without_calls_has_no_format(tmp_path, capsys):
    answer = tmp_path / "answer.txt"
    answer.write_text("It is sunny.")
    assert main(["parse", str(answer), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] is None
    assert main(["parse", str(answer)]) == 0
    captured = capsys.readouterr()
    assert "no tool call of a known format" in captured.err
    assert "hermes" not in captured.out + captured.err


def test_file_that_exits_is_an_error(tmp_path, capsys):
    (tmp_path / "program.py").write_text("import sys\nsys.exit(0)\n")
    assert main(["tools", "list", str(tmp_path / "program.py")]) == 2
    assert "SystemExit" in capsys.readouterr().err


def test_pipe_is_read_as_declarations(tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    Thread(target=pipe.write_text, args=(json.dumps(DECLARED),), daemon=True).start()
    assert main(["tools", "list", str(pipe), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tools"][0]["name"] == "get_weather"


def test_unreadable_lines_of_a_recording_are_reported(tmp_path, capsys):
    (tmp_path / "log.jsonl").write_text(json.dumps(REQUEST) + "\n{broken\n")
    assert main(["tools", "list", str(tmp_path / "log.jsonl")]) == 0
    assert "1 lines are neither tools nor requests: 2" in capsys.readouterr().err


def test_timeout_of_a_server_must_be_positive(sources, capsys):
    for value in ("0", "-1", "nan", "inf"):
        with pytest.raises(SystemExit):
            main(["tools", "list", sources["command"], "--timeout", value])
        assert "must be above 0" in capsys.readouterr().err


def test_long_description_is_one_line_of_the_list(tmp_path, capsys):
    (tmp_path / "tools.json").write_text(json.dumps([{**DECLARED[0], "description": "word " * 1000}]))
    assert main(["tools", "list", str(tmp_path / "tools.json")]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 5


def test_empty_source_is_an_error(capsys):
    assert main(["tools", "list", ""]) == 2
    assert "the name of the source is empty" in capsys.readouterr().err
