"""The live table of `toolwire serve`."""

import logging

import pytest

from toolwire.cli.serve.request_table import RequestTable, TableLogHandler
from toolwire.gateway.observe.request_log import RequestLog
from toolwire.ir.losses import Loss
from toolwire.run.traces.redact import Redactor


def lose(kind, error):
    raise AssertionError(f"lost a {kind}: {error}")


def row_of(**fields):
    usual = {"method": "POST", "path": "/v1/messages", "status": 200}
    return RequestTable(Redactor(), lose).format_row(
        RequestLog("id", 0.0, "anthropic", "generate", **{**usual, **fields})
    )


@pytest.mark.finding("U7")
def test_row_of_an_unknown_path_has_the_path(capsys):
    refused = RequestLog("id", 0.0, "openai_chat", method="POST", path="/v2/chat", status=404, error="not_found")
    RequestTable(str, lose)(refused)
    assert "404" in (row := capsys.readouterr().out.splitlines()[-1])
    assert row.endswith("not_found: POST /v2/chat")


@pytest.mark.finding("U7")
def test_row_has_the_key_the_failed_attempts_and_the_losses():
    losses = tuple(
        Loss("/x", concept, "dropped", severity, "…")
        for concept, severity in (("top_k", "warning"), ("created", "info"), ("top_k", "warning"), ("audio", "error"))
    )
    row = row_of(
        caller="alice",
        model="fast",
        upstream="house",
        upstream_model="qwen",
        calls=("get_weather",),
        hosted_runs={"web_search": 2},
        failures=(("openai", "rate_limit"), ("azure", "timeout"), ("openai", "rate_limit")),
        losses=losses,
    )
    assert " alice " in row
    assert row.endswith(
        "get_weather · ran web_search (2 times) · failed: openai rate_limit (2 times), azure timeout · lost: top_k, audio"
    )


def test_row_is_one_line_without_secrets_and_of_bounded_size():
    secret = "sk-0123456789abcdef"
    losses = tuple(Loss("/x", f"{number}\x1b[2J\n", "dropped", "warning", "…") for number in range(5000))
    row = row_of(model=secret, path=f"/v1/{secret}\r\n", error="not_found", losses=losses)
    assert row.isprintable()
    assert secret not in row
    assert len(row) < 400
    assert "and 992 more" in row


@pytest.mark.finding("NU1")
@pytest.mark.parametrize(("columns", "hidden"), [(60, ("alice", "anthropic")), (80, ()), (120, ())])
def test_row_fits_the_terminal_and_keeps_its_details(columns, hidden, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    names = {"caller": "alice", "model": "fast", "upstream": "house", "upstream_model": "qwen2.5-coder-32b-instruct"}
    failures = (("openai", "rate_limit"), ("azure", "timeout"))
    lines = row_of(**names, calls=("get_weather", "search_flights"), failures=failures).splitlines()
    assert max(map(len, lines)) <= columns
    shown = " ".join(" ".join(lines).split())
    assert "get_weather, search_flights · failed: openai rate_limit, azure timeout" in shown
    assert all((name in shown) is (name not in hidden) for name in ("alice", "anthropic", "fast", "house/"))


def test_health_checks_have_no_row(capsys):
    RequestTable(str, lose)(RequestLog("id", 0.0, "openai_chat", "alive", status=200))
    assert capsys.readouterr().out == ""


def test_log_records_are_single_lines_between_the_rows(capsys):
    record = logging.LogRecord("toolwire.gateway", logging.INFO, "", 0, "reloaded\n%s", ("x\x1b[2J",), None)
    TableLogHandler().handle(record)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "reloaded" in printed
    assert "\x1b" not in printed


def test_row_of_a_broken_stream_has_the_code_of_its_fault():
    row = row_of(model="fast", error="server", error_code="stream_truncated")
    assert row.endswith("server (stream_truncated): POST /v1/messages")
