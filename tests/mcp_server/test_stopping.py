"""Stop a server whose tool hangs: the first Ctrl-C names the call and the time limit, a second one ends the process."""

import http.client
import os
import signal
import threading
from contextlib import closing, contextmanager, suppress

from mcp_server.server_process import (
    TIMEOUT,
    WORKSHOP,
    StdioClient,
    effects_in,
    http_server,
    post,
    tool_call_request,
    wait_until,
)
from toolwire import open_store
from toolwire.cli.mcp import stopping
from toolwire.ir.parts import ToolCall
from toolwire.run.calls.observe import ModelOperation, OperationOutcome, ToolOperation

HUNG = {"amount": 1, "seconds": 600}
NOTE = b"waiting up to 30 s for 1 call (pay); a second Ctrl-C ends at once"


def interrupt_twice(process):
    process.send_signal(signal.SIGINT)
    while NOTE not in (line := process.stderr.readline()):
        assert line, "the process has ended without the note"
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT) == 130


def test_second_interrupt_ends_a_server_whose_write_hangs(tmp_path):
    effects = tmp_path / "effects"
    with StdioClient(effects=effects) as client:
        client.ask("tools/call", {"name": "pay", "arguments": HUNG})
        wait_until(lambda: effects_in(effects))
        interrupt_twice(client._process)


@contextmanager
def calling(port, request, effects):
    """A call in a thread, which has begun."""

    def call():
        with suppress(OSError, http.client.HTTPException):  # the server closes the connection
            post(port, request)

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: effects_in(effects))
    yield
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_second_interrupt_ends_a_server_over_http_whose_write_hangs(tmp_path):
    effects = tmp_path / "effects"
    with (
        http_server(effects=effects) as (port, process),
        calling(port, tool_call_request("pay", HUNG), effects),
    ):
        interrupt_twice(process)


def test_write_ends_and_is_recorded_after_one_signal_over_http(tmp_path):
    """The write is longer than the server's grace periods together, after which the event loop would be closed."""
    effects, records = tmp_path / "effects", tmp_path / "runs.db"
    request = tool_call_request("pay", {"amount": 1, "seconds": 8}, **{"dev.toolwire/idempotencyKey": "k"})
    with (
        http_server(WORKSHOP, "--store", str(records), effects=effects) as (port, process),
        calling(port, request, effects),
    ):
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    with closing(open_store(str(records))) as store:
        (record,) = store.records()
    assert (record.state, effects_in(effects)) == ("done", ["pay 1"])


def test_write_ends_and_is_recorded_after_sigterm_over_stdio(tmp_path):
    effects, records = tmp_path / "effects", tmp_path / "runs.db"
    meta = {"dev.toolwire/idempotencyKey": "k"}
    with StdioClient(WORKSHOP, "--store", str(records), effects=effects) as client:
        client.ask("tools/call", {"name": "pay", "arguments": {"amount": 1, "seconds": 1}, "_meta": meta})
        wait_until(lambda: effects_in(effects))
        client._process.send_signal(signal.SIGTERM)
        assert client._process.wait(TIMEOUT) == 0
        assert b"Traceback" not in client._process.stderr.read()
    with closing(open_store(str(records))) as store:
        (record,) = store.records()
    assert (record.state, effects_in(effects)) == ("done", ["pay 1"])


def test_calls_in_flight_are_counted_and_named():
    calls = stopping.CallsInFlight()
    ends = [calls.start(ToolOperation(ToolCall("1", name, {}))) for name in ("pay", "mail", "pay")]
    assert calls.describe() == "3 calls (mail, pay)"
    for end in ends:
        end(OperationOutcome())
    assert calls.describe() == ""
    assert calls.start(ModelOperation(None)) is None


def test_process_ends_after_the_time_limit(monkeypatch, caplog):
    codes = []
    monkeypatch.setattr(stopping, "_MAX_WAIT", 0.0)
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(stopping.logging, "shutdown", lambda: codes.append("logs written"))
    calls = stopping.CallsInFlight()
    calls.start(ToolOperation(ToolCall("1", "pay", {})))
    stopping._end_late(calls)
    assert codes == ["logs written", 1]
    assert "without waiting any longer for 1 call (pay)" in caplog.text
