"""Text of files and models in the output of commands, on a screen or in a log: readable, and never obeyed by a terminal."""

import io
import json
import logging
import sys
from random import Random

import pytest

from toolwire.cli.demo_details import show_details
from toolwire.cli.main import main
from toolwire.cli.terminal.output import LogFormatter, columns, neutralise_default_log, table

HOSTILE = "\x9b31m\x7f\u202egnp"
READABLE = "\U0001f469\u200d\U0001f467\u00a0\u05e9\u05dc\u05d5\u05dd\u200f!"
REQUEST = {"model": "m", "messages": [{"role": "user", "content": READABLE + HOSTILE}]}
STREAM = 'data: {"id":"r","model":"m","choices":[{"index":0,"delta":{"content":%s},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def controls_in(written):
    return {
        char for char in written if char not in "\n\t" and (char < " " or "\x7f" <= char < "\xa0" or char == "\u202e")
    }


@pytest.mark.finding("U1")
@pytest.mark.parametrize("options", [["--to", "anthropic"], ["--to", "all"], ["--to", "anthropic", "--json"]])
def test_converted_json_has_the_same_value_and_no_control_characters(options, tmp_path, capsys):
    file = tmp_path / "request.json"
    file.write_text(json.dumps(REQUEST), encoding="utf-8")
    assert main(["convert", str(file), *options]) == 0
    out = capsys.readouterr().out
    assert not controls_in(out)
    assert READABLE in out
    if options == ["--to", "anthropic"]:
        assert json.loads(out)["messages"] == REQUEST["messages"]


@pytest.mark.finding("U1")
def test_converted_stream_has_the_same_value_and_no_control_characters(tmp_path, capsys):
    file = tmp_path / "answer.sse"
    file.write_text(STREAM % json.dumps(READABLE + HOSTILE), encoding="utf-8")
    assert main(["convert", str(file), "--to", "anthropic"]) == 0
    out = capsys.readouterr().out
    assert not controls_in(out)
    data = [json.loads(line.removeprefix("data: ")) for line in out.splitlines() if line.startswith("data: ")]
    text = "".join(one["delta"].get("text", "") for one in data if one["type"] == "content_block_delta")
    assert text == READABLE + HOSTILE


@pytest.mark.finding("U1")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_parsed_text_has_no_control_characters(options, tmp_path, capsys):
    file = tmp_path / "answer.txt"
    text = f'{READABLE}\n{HOSTILE}<tool_call>{{"name": "f{HOSTILE}", "arguments": {{bad {HOSTILE}</tool_call>'
    file.write_text(text, encoding="utf-8")
    main(["parse", str(file), "--format", "hermes", *options])
    captured = capsys.readouterr()
    assert READABLE in captured.out
    assert not controls_in(captured.out + captured.err)


@pytest.mark.finding("U1")
def test_table_cells_and_columns_escape_control_characters(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert table([("a\nb", f"{READABLE}\t\x1b[2J")]) == [rf"a\nb  {READABLE}\t\x1b[2J"]
    assert columns({"t\x1b": f"{READABLE}\nb\x1b[2J"}) == ["── t\\x1b ──", f"{READABLE}\nb\\x1b[2J", ""]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.finding("U1")
def test_details_of_the_demo_have_coloured_marks_on_a_terminal(monkeypatch):
    screen = _Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("toolwire.testing.random_chunks", lambda data, *_: [data])  # the cuts take seconds
    assert show_details(Random(1))
    assert "  \x1b[32m✓\x1b[0m  anthropic" in screen.getvalue()
    assert "\\x1b" not in screen.getvalue()


def record(name, text, error=None):
    info = None if error is None else (type(error), error, None)
    return logging.LogRecord(name, logging.WARNING, "x.py", 1, "server: %s", (text,), info)


@pytest.mark.finding("U1")
def test_log_records_are_one_line_without_control_sequences():
    shown = LogFormatter().format(record("toolwire.mcp", "a\n\x1b[2Jb", ValueError("c\n\x1b[2J")))
    assert shown == "server: a\\n\\x1b[2Jb\nValueError: c\n\\x1b[2J"
    assert LogFormatter().format(record("asyncio", "a\n\x1b[2Jb")) == "server: a\n\\x1b[2Jb"


@pytest.mark.finding("U1")
def test_records_without_a_handler_are_formatted(monkeypatch):
    handler = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(logging, "lastResort", handler)
    neutralise_default_log()
    handler.handle(record("toolwire.mcp", "a\n\x1b[2J"))
    assert handler.stream.getvalue() == "server: a\\n\\x1b[2J\n"
