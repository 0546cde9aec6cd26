"""A full disk or a closed pipe loses log lines and recordings, which are counted, and disturbs no request."""

import asyncio
import errno
import io
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toolwire.cli.serve.request_table import RequestTable
from toolwire.gateway import load_settings
from toolwire.gateway.observe import log, record
from toolwire.gateway.observe import workers as line_lock
from toolwire.gateway.observe.log import AccessLog, LogFile, LossReport, RepeatFilter, guard_writes, to_stream
from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.observe.record import Recorder
from toolwire.gateway.observe.request_log import RequestLog
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.gateway.observe.workers import LineLock, WorkerMetrics
from toolwire.net.trace.file import trace_folder
from toolwire.run.traces.format import VERSION, TraceHeader
from toolwire.run.traces.redact import Redactor
from toolwire.run.traces.sanitise import Sanitiser

FULL = Path("/dev/full")
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


def request_log():
    return RequestLog("id", 0.0, "openai_chat", "generate", status=200, model="m")


def lost(page, kind):
    [value] = [
        line.split()[-1] for line in page.decode().splitlines() if f'log_lines_lost_total{{kind="{kind}"}}' in line
    ]
    return float(value)


@needs_full_device
@pytest.mark.finding("OP8")
def test_full_log_disk_costs_one_line_and_counts_what_is_lost(tmp_path, capsys):
    (tmp_path / "toolwire.toml").write_text(f'[log]\nfile = "{FULL}"\n[upstreams.openai]\nprovider = "openai"\n')

    async def run():
        telemetry = open_telemetry(load_settings(tmp_path / "toolwire.toml"), {})
        for _ in range(50):
            for sink in telemetry.sinks:
                sink(request_log())
            logging.getLogger("toolwire.gateway").error("an upstream failed")
        page = telemetry.metrics()
        await telemetry.aclose()
        return page

    page = asyncio.run(run())
    [line] = capsys.readouterr().err.splitlines()
    assert "No space left on device; lost 1 log line" in line
    assert lost(page, "log line") == 100


@pytest.mark.finding("OP8")
def test_losses_are_reported_every_ten_seconds(capsys):
    now, metrics = 0.0, Metrics()
    report = LossReport(metrics.count_lost, lambda: now)
    for now in (1.0, 2.0, 10.0, 11.0, 12.0, 30.0):  # read by the clock
        report("recording", NO_SPACE)
    texts = [line.partition("lost ")[2].partition(" since")[0] for line in capsys.readouterr().err.splitlines()]
    assert texts == ["1 recording", "3 recordings", "2 recordings"]
    assert lost(metrics.page(), "recording") == 6


@pytest.mark.finding("OP8")
def test_failing_standard_error_raises_nothing(monkeypatch):
    closed = Path("/dev/null").open("w")  # noqa: SIM115
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    counted = []
    LossReport(counted.append)("log line", NO_SPACE)
    assert counted == ["log line"]


@pytest.mark.finding("OP8")
def test_line_after_a_cut_line_begins_anew(tmp_path, monkeypatch):
    import os

    file, write, room = LogFile(tmp_path / "log"), os.write, 10

    def write_to_small_disk(descriptor, data):
        nonlocal room
        if room == 0:
            raise NO_SPACE
        written = write(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write_to_small_disk)
    file.write("first")  # 6 bytes
    with pytest.raises(OSError, match="No space"):
        file.write("second")  # 4 bytes of it
    with pytest.raises(OSError, match="No space"):
        file.write("third")
    room = 100
    file.write("fourth")
    file.write("fifth")
    file.close()
    assert (tmp_path / "log").read_text() == "first\nseco\nfourth\nfifth\n"


@pytest.mark.finding("OP8")
def test_recording_that_cannot_be_written_is_counted(caplog):
    counted = []

    def save(trace):
        raise NO_SPACE

    async def app(scope, receive, send):
        recorder(request_log())

    recorder = Recorder(save, Sanitiser(Redactor()), lambda kind, error: counted.append((kind, error.errno)))
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}
    for _ in range(3):
        asyncio.run(recorder.wrap(app)(scope, None, None))
    assert counted == [("recording", errno.ENOSPC)] * 3
    assert caplog.records == []


def test_recordings_that_wait_for_a_slow_disk_are_bounded(monkeypatch):
    lost, disk, saved = [], threading.Event(), []
    monkeypatch.setattr(record, "_MAX_WAITING_BYTES", 2**22)
    body = b"x" * 2**16

    def save(trace):
        disk.wait()
        saved.append(trace)

    async def app(scope, receive, send):
        await receive()
        recorder(request_log())

    async def receive():
        return {"type": "http.request", "body": body}

    async def run():
        app_tasks = [asyncio.ensure_future(recorder.wrap(app)(scope, receive, None)) for _ in range(100)]
        await asyncio.sleep(0)  # all of them are answered, and wait for the disk
        disk.set()
        await asyncio.gather(*app_tasks)
        await recorder.wrap(app)(scope, receive, None)

    recorder = Recorder(save, Sanitiser(Redactor()), lambda kind, error: lost.append((kind, error.errno)))
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}
    asyncio.run(run())
    assert lost == [("recording", errno.ENOBUFS)] * 36 and len(saved) == 64 + 1


@pytest.mark.finding("OP8")
def test_trace_that_cannot_be_written_leaves_no_part(tmp_path):
    def events():
        raise NO_SPACE
        yield

    with pytest.raises(OSError, match="No space"):
        trace_folder(tmp_path)("stem", TraceHeader(VERSION, "id", "run", "2026-11-15T10:00:00.000Z"), events())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.finding("OP8")
def test_tracebacks_of_a_failing_sink_are_not_repeated(caplog):
    now = 0.0
    repeats, logger = RepeatFilter(lambda: now), logging.getLogger("toolwire.test_full_disk")
    logger.addFilter(repeats)
    for now in (1.0, 2.0, 12.0):  # read by the clock
        for error in (NO_SPACE, ValueError("a bug")):
            try:
                raise error
            except (OSError, ValueError):
                logger.exception("a sink failed at the end of request %s", now)
    logger.removeFilter(repeats)
    kinds = [record.exc_info[0] for record in caplog.records]
    assert (kinds.count(OSError), kinds.count(ValueError)) == (2, 3)


@pytest.mark.finding("OP8")
def test_page_of_metrics_needs_no_disk(tmp_path, caplog):
    folder = tmp_path / "removed"
    folder.mkdir()
    requests = Metrics()
    metrics = WorkerMetrics(requests, folder, 0)
    folder.rmdir()
    requests(request_log())
    pages = [metrics.page() for _ in range(2)]
    assert all(b"toolwire_requests_total{" in page for page in pages)
    assert len(caplog.records) == 1


@pytest.mark.finding("OP8")
def test_row_that_cannot_be_printed_is_reported(monkeypatch):
    read_end, write_end = os.pipe()
    reported = []
    table = RequestTable(str, lambda kind, error: reported.append(f"{kind}: {error.strerror}"))
    with os.fdopen(read_end), os.fdopen(write_end, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        for _ in range(2_000):  # a pipe has room for 64 kB
            table(request_log())
        assert 0 < len(reported) < 2_000 and set(reported) == {"row: its reader does not read"}
    if FULL.exists():
        with FULL.open("wb", buffering=0) as full:
            monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
            table(request_log())
        assert reported[-1] == "row: No space left on device"


HOLD = """
import sys
from pathlib import Path
from toolwire.gateway.observe.workers import LineLock

LineLock(Path(sys.argv[1])).acquire(timeout=5)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.finding("OP8")
def test_lock_of_another_process_is_ignored_after_half_a_second(tmp_path, monkeypatch):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    now, acquired = 1.0, []
    monkeypatch.setattr(line_lock, "monotonic", lambda: now)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], **pipes) as process:
        assert process.stdout.readline() == "held\n"
        lock = LineLock(tmp_path / "lock")
        for now in (1.0, 1.4, 1.6, 31.0, 32.0):  # read by the clock
            acquired.append(lock.acquire(timeout=0))
            if acquired[-1]:
                lock.release()
        process.communicate("\n")
    now = 70.0
    assert lock.acquire(timeout=0) and not lock.acquire(timeout=0)
    assert acquired == [False, False, True, True, True]


def test_access_log_line_is_unchanged(tmp_path):
    file = LogFile(tmp_path / "log")
    AccessLog(file.write)(request_log())
    file.close()
    assert (tmp_path / "log").read_text(encoding="utf-8").endswith('"model":"m"}\n')


@pytest.mark.finding("OP8")
def test_reader_that_stops_costs_lines_and_blocks_nothing():
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as out, os.fdopen(read_end, "rb", buffering=0) as reader:
        losses = []
        write = guard_writes(
            to_stream("stdout", stream=out), lambda kind, error: losses.append(f"{kind}: {error.strerror}")
        )
        for number in range(200):  # a pipe has room for 64 kB
            write(f"{number} " + "x" * 3000)
        assert 150 < len(losses) < 200 and set(losses) == {"log line: its reader does not read"}
        lines = reader.read(2**20)
        write("after")
        lines += reader.read(2**20)
    whole = [line for line in lines.decode().splitlines() if line.count("x") == 3000]
    assert [int(line.split()[0]) for line in whole] == list(range(len(whole)))
    assert len(whole) + len(losses) == 200
    assert lines.endswith(b"\nafter\n")


def test_slow_reader_costs_lines_and_at_most_50_ms_in_a_second(monkeypatch):
    now = waited = room_at = 0.0

    def select(_read, writers, _errors, seconds):
        """A reader that takes a piece every 40 ms."""
        nonlocal now, waited
        pause = min(max(room_at - now, 0.0), seconds)
        now, waited = now + pause, waited + pause
        return (), writers if now >= room_at else (), ()

    class Pipe(io.StringIO):
        def flush(self):
            nonlocal room_at
            room_at = now + 0.04

    monkeypatch.setattr(log, "monotonic", lambda: now)
    monkeypatch.setattr(log, "select", select)
    out, lost = Pipe(), []
    write = guard_writes(to_stream("stdout", stream=out), lambda kind, error: lost.append(kind))
    for number in range(1000):
        write(f"{number} " + "x" * 1500 * (number % 2))
        now += 0.005
    assert 0.05 < waited <= 0.05 * (now + 1)
    whole = [line for line in out.getvalue().splitlines() if line.endswith((" ", "x" * 1500))]
    assert len(whole) + len(lost) == 1000 and len(whole) > 50


def test_lock_that_another_thread_holds_costs_lines(monkeypatch):
    is_written, is_read = threading.Event(), threading.Event()

    class Pipe(io.StringIO):
        def flush(self):
            if self.getvalue() == "long":
                is_written.set()
                is_read.wait()

    out = Pipe()
    monkeypatch.setattr(log, "_PIECE", 4)
    write = to_stream("stdout", stream=out)
    thread = threading.Thread(target=write, args=("long line",))
    thread.start()
    is_written.wait()
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            write("lost")
    is_read.set()
    thread.join()
    write("after")
    assert out.getvalue() == "long line\nafter\n"
