"""One JSON line a request."""

import json
import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.gateway.observe.log import AccessLog, JsonLogHandler, LogFile, to_logger
from toolwire.gateway.observe.request_log import RequestLog
from toolwire.ir.errors import ConfigError
from toolwire.ir.losses import Loss
from toolwire.ir.response import Usage
from toolwire.run.traces.redact import Redactor

FULL = RequestLog(
    "0123456789abcdef01234567",
    1_763_200_000.1239,
    "anthropic",
    "generate",
    caller="ann",
    model="claude",
    upstream="openai",
    upstream_model="gpt",
    stream=True,
    status=200,
    attempts=2,
    failures=(("azure", "timeout"),),
    seconds=1.23456789,
    first_chunk_seconds=0.5,
    overhead=0.001,
    usage=Usage(10, 5),
    stop="tool_calls",
    calls=("look", "look"),
    losses=(Loss("/top_k", "top_k", "dropped", "warning", "…"), Loss("/a", "top_k", "dropped", "warning", "…")),
)


def lines_of(*turns, clean=str):
    lines = []
    sink = AccessLog(lines.append, clean)
    for turn in turns:
        sink(turn)
    return [json.loads(line) for line in lines]


@pytest.mark.finding("U1")
def test_line_has_no_terminal_control_characters():
    lines = []
    AccessLog(lines.append)(replace(FULL, model="m\x9b31m\x7f\u202e\x1b[2J"))
    assert lines[0].isprintable()
    assert json.loads(lines[0])["model"] == "m\x9b31m\x7f\u202e\x1b[2J"


def test_line_has_all_fields_of_the_request():
    assert lines_of(FULL) == [
        {
            "ts": "2025-11-15T09:46:40.124000Z",
            "level": "info",
            "event": "request",
            "request_id": "0123456789abcdef01234567",
            "ingress": "anthropic",
            "action": "generate",
            "upstream": "openai",
            "model": "claude",
            "upstream_model": "gpt",
            "key": "ann",
            "status": 200,
            "stream": True,
            "ms": 1234.568,
            "ttfc_ms": 500.0,
            "overhead_ms": 1.0,
            "tokens": {"input": 10, "output": 5},
            "stop": "tool_calls",
            "calls": 2,
            "losses": 2,
            "lost": ["top_k"],
            "attempts": 2,
            "failures": [{"upstream": "azure", "error": "timeout", "count": 1}],
        }
    ]


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"status": 200}, "info"),
        ({"status": 200, "error": "server"}, "error"),
        ({"status": 404, "error": "not_found"}, "warning"),
        ({"status": 502, "error": "server"}, "error"),
    ],
)
def test_level_follows_the_status(changes, level):
    (line,) = lines_of(RequestLog("r", 0.0, "gemini", "generate", **changes))
    assert (line["level"], line.get("error")) == (level, changes.get("error"))


def test_probes_are_not_logged():
    assert lines_of(RequestLog("r", 0.0, "openai_chat", "alive", status=200)) == []


def test_client_supplied_names_are_redacted_and_truncated():
    turn = RequestLog(
        "sk-0123456789", 0.0, "gemini", "generate", model="sk-0123456789", upstream_model="m" * 999, status=404
    )
    (line,) = lines_of(turn, clean=Redactor())
    assert (line["request_id"], line["model"], len(line["upstream_model"])) == ("[removed]", "[removed]", 200)


@pytest.mark.finding("U7")
def test_line_of_an_unknown_path_has_method_and_path():
    (line,) = lines_of(RequestLog("r", 0.0, "openai_chat", method="GET", path="/v2/chat", status=404))
    assert (line["method"], line["path"]) == ("GET", "/v2/chat")


def test_path_is_redacted_before_it_is_truncated():
    path = f"/{'p' * 190}/sk-0123456789abcdefghij"
    (line,) = lines_of(RequestLog("r", 0.0, "openai_chat", method="GET", path=path, status=404), clean=Redactor())
    assert line["path"] == f"/{'p' * 190}/[removed]"[:200]


@pytest.mark.finding("U7")
def test_failed_attempts_are_counted_by_upstream_and_kind():
    failures = (("a", "timeout"), ("b", "rate_limit"), ("a", "timeout"))
    (line,) = lines_of(replace(FULL, failures=failures))
    assert line["failures"] == [
        {"upstream": "a", "error": "timeout", "count": 2},
        {"upstream": "b", "error": "rate_limit", "count": 1},
    ]


def test_lines_are_written_to_the_logger(caplog):
    caplog.set_level(logging.INFO, "toolwire.gateway.access")
    AccessLog(to_logger())(FULL)
    assert json.loads(caplog.messages[0])["status"] == 200


def test_lines_are_written_to_a_file(tmp_path):
    file = LogFile(tmp_path / "log")
    AccessLog(file.write)(FULL)
    AccessLog(file.write)(FULL)
    assert len((tmp_path / "log").read_text().splitlines()) == 2
    file.close()
    with pytest.raises(ConfigError, match="cannot write the log file"):
        LogFile(tmp_path / "nowhere" / "log")


def test_log_file_is_reopened_after_rotation(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    file = LogFile(Path("logs/log"))
    monkeypatch.chdir("/")  # the place stays the same wherever the process goes
    file.write("one")
    (tmp_path / "logs" / "log").rename(tmp_path / "logs" / "log.1")
    file.reopen()
    file.write("two")
    assert (tmp_path / "logs" / "log.1").read_text() == "one\n"
    assert (tmp_path / "logs" / "log").read_text() == "two\n"
    (tmp_path / "logs").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot write the log file"):
        file.reopen()
    file.write("three")
    assert (tmp_path / "elsewhere" / "log").read_text() == "two\nthree\n"
    file.close()


def test_other_log_records_become_json_lines():
    lines = []
    logger = logging.getLogger("toolwire.test_lines")
    handler = JsonLogHandler(lines.append)
    logger.addHandler(handler)
    try:
        logger.warning("a %s", "word")
    finally:
        logger.removeHandler(handler)
    line = json.loads(lines[0])
    assert (line["event"], line["level"], line["logger"], line["message"]) == (
        "log",
        "warning",
        "toolwire.test_lines",
        "a word",
    )


@pytest.mark.finding("Z22")
def test_log_file_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "access.log"
    log = LogFile(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.rename(tmp_path / "access.log.1")
    log.reopen()
    assert path.stat().st_mode & 0o777 == 0o600
    log.write("line")
    log.close()
    assert path.read_text() == "line\n"


def test_code_of_a_fault_is_redacted_and_shortened():
    key, line = (
        "sk-0123456789abcdef",
        RequestLog("r", 0.0, "openai_chat", error="server", error_code="stream_truncated"),
    )
    assert lines_of(line)[0]["error_code"] == "stream_truncated"
    (written,) = lines_of(replace(line, error_code=f"no {key} {'x' * 1000}"), clean=Redactor())
    assert key not in written["error_code"]
    assert len(written["error_code"]) <= 200
    assert "error_code" not in lines_of(FULL)[0]
