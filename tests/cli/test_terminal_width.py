"""The output of every command fits the terminal: no line is wider."""

import json
import sys

import pytest

from places import ROOT
from tables import every_case
from toolwire.cli.main import _COMMANDS, main
from toolwire.cli.terminal.layout import text_width

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
    **{f"{name} help": [name, "--help"] for name in _COMMANDS},
}
UNBREAKABLE = ("https://", "[--", "'/")  # addresses to be copied, argparse's usage, the folder of this test


@pytest.mark.finding("NU1")
@every_case("columns", [60, 80, 120])
@every_case("name", COMMANDS)
def test_output_fits_the_terminal(name, columns, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
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
