"""The output of every command fits the terminal: no line is wider."""

import json
import logging
import shlex
import sys
from typing import Any

import pytest

from places import ROOT
from tables import every_case
from toolwire.cli.main import _COMMANDS, main
from toolwire.cli.serve.client_models import client_commands, list_models
from toolwire.cli.serve.request_table import RequestTable, TableLogHandler
from toolwire.cli.terminal.layout import text_width
from toolwire.cli.terminal.output import address_lines
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.observe.request_log import RequestLog

REQUEST = {
    "model": "m",
    "messages": [{"role": "user", "content": "Weather in Paris?"}],
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
    "logit_bias": {"5": 1},
    "seed": 7,
}
ANSWER = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
EXAMPLES = ROOT / "examples"
COMMANDS = {
    "models": ["models"],
    "facts": ["models", "show", "kimi-k2.5"],
    "formats": ["formats"],
    "audit": ["audit", str(EXAMPLES / "faulty_tools.py")],
    "tools": ["tools", "list", str(EXAMPLES / "trip_planner.py")],
    "cost": ["tools", "cost", str(EXAMPLES / "trip_planner.py")],
    "tool": ["tools", "show", str(EXAMPLES / "trip_planner.py"), "search_flights"],
    "losses": ["convert", "request.json", "--to", "anthropic"],
    "spans": ["parse", "answer.txt", "--spans"],
    "checks": ["test", "--list"],
    "format": ["formats", "hermes"],
    "family": ["formats", "qwen"],
    "doctor": ["doctor"],
    "runs list help": ["runs", "list", "--help"],
    "cost help": ["tools", "cost", "--help"],
    **{f"{name} help": [name, "--help"] for name in _COMMANDS},
}
UNBREAKABLE = ("https://", "'/")  # addresses to be copied, the folder of this test
SETTINGS = {
    "upstreams": {"house": {"base_url": "http://127.0.0.1:9"}},
    "models": {"fast": {"upstream": "house"}, "thorough": {"upstream": "house"}},
}


def use_terminal(monkeypatch, columns):
    """Make the captured streams a terminal of this width, without colours."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)


@pytest.mark.finding("NU1")
@every_case("columns", [60, 80, 120])
@every_case("name", COMMANDS)
def test_output_fits_the_terminal(name, columns, tmp_path, monkeypatch, capsys):
    use_terminal(monkeypatch, columns)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    (tmp_path / "answer.txt").write_text(ANSWER)
    try:
        main(COMMANDS[name])
    except SystemExit as end:
        assert end.code == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert len(lines) > 2
    lines += printed.err.splitlines()
    assert [line for line in lines if text_width(line) > columns and not any(map(line.__contains__, UNBREAKABLE))] == []


@pytest.mark.finding("NU1")
@every_case("columns", [60, 80, 120])
def test_commands_of_the_start_message_wrap_and_can_be_copied(columns, monkeypatch):
    use_terminal(monkeypatch, columns)
    lines = client_commands("http://127.0.0.1:41410", list_models(parse_settings(SETTINGS)), "$YOUR_KEY")
    lines += address_lines("toolwire listens on", "http://127.0.0.1:41410")
    assert max(map(text_width, lines)) <= columns
    command = "\n".join(lines[lines.index("  claude") + 1 : lines.index("  codex")])
    words = shlex.split(command.replace("\\\n", ""))
    assert words[0] == "ANTHROPIC_BASE_URL=http://127.0.0.1:41410"
    assert words[-3:] == ["claude", "-p", "Read a.txt"]


@pytest.mark.finding("NU1")
@every_case("columns", [60, 80, 120])
def test_log_of_the_gateway_wraps_between_words_below_its_times(columns, monkeypatch, capsys):
    use_terminal(monkeypatch, columns)
    table, handler = RequestTable(str, lambda *_: None), TableLogHandler()
    names: dict[str, Any] = {
        "caller": "alice",
        "model": "thorough",
        "upstream": "house",
        "upstream_model": "claude-sonnet-4-5",
    }
    table(
        RequestLog("id", 0.0, "openai_responses", "generate", method="POST", path="/v1/responses", status=200, **names)
    )
    message = "upstream house: http://127.0.0.1:9911: the connection was closed before the end of the response"
    handler.handle(logging.LogRecord("toolwire.gateway", logging.WARNING, "", 0, "%s", (message,), None))
    header, *lines = capsys.readouterr().out.splitlines()
    assert max(map(text_width, [header, *lines])) <= columns
    start = next(number for number, line in enumerate(lines) if "upstream house:" in line)
    assert " ".join(line[10:] for line in lines[start:]) == message
    assert all(line.startswith(" " * 10) for line in lines[start + 1 :])
    at = header.index("answered")
    assert "".join(line[at:][: len("answered by")].strip() for line in lines[:start])[:6] == "house/"
