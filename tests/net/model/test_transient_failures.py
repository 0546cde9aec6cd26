"""Temporary failures of common HTTP clients are retried for tools that may run twice (X2)."""

import asyncio
import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
import requests
import urllib3

import toolwire
from tables import every_case
from toolwire import Runner, ToolCall, ToolError, open_store
from toolwire.run import CallContext, Options, Transient
from toolwire.run.calls.outcomes import RetryAdvice, find_transient, retry_advice
from waiting import SAFETY

NOW = 1_700_000_000.0


@contextmanager
def flaky_server(*statuses, headers=()):
    """Answer with the given statuses, then with 200. 0 closes the connection without an answer."""
    left, seen = list(statuses), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            status = left.pop(0) if left else 200
            if status == 0:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def with_urllib(url):
    with urllib.request.urlopen(url, timeout=300) as response:
        return response.read().decode()


def with_requests(url):
    response = requests.get(url, timeout=300)
    response.raise_for_status()
    return response.text


def with_httpx2(url):
    response = httpx2.get(url, timeout=300)
    response.raise_for_status()
    return response.text


def with_urllib3(url):
    return urllib3.PoolManager(retries=False).request("GET", url, timeout=300).data.decode()


CLIENTS = [with_urllib, with_requests, with_httpx2]


def run_tool(fetch, url, **options):
    tool = toolwire.tool(name="fetch", **{"effect": "read", **options})(lambda: fetch(url))
    runner = Runner(tool)
    try:
        (result,) = runner.run_sync([ToolCall("1", "fetch", {})])
    finally:
        runner.close()
    return result


@pytest.mark.finding("X2")
@pytest.mark.parametrize("fetch", CLIENTS)
@pytest.mark.parametrize("effect", ["pure", "read", "idempotent"])
def test_a_busy_server_is_asked_again(fetch, effect):
    with flaky_server(503, 429, headers=[("Retry-After", "0")]) as (url, seen):
        result = run_tool(fetch, url, effect=effect)
    assert (result.text, len(seen)) == ("ok", 3)


@pytest.mark.finding("X2")
@pytest.mark.parametrize("fetch", [*CLIENTS, with_urllib3])
def test_a_lost_connection_is_retried(fetch):
    with flaky_server(0) as (url, seen):
        result = run_tool(fetch, url)
    assert (result.text, len(seen)) == ("ok", 2)


@pytest.mark.finding("X2")
@every_case("fetch", CLIENTS)
@every_case("status", [400, 401, 404, 500])
def test_another_status_is_final(fetch, status):
    with flaky_server(status, headers=[("Retry-After", "0")]) as (url, seen):
        result = run_tool(fetch, url)
    assert result.is_error
    assert len(seen) == 1


@pytest.mark.finding("X2")
@pytest.mark.parametrize("fetch", CLIENTS)
def test_a_write_is_not_retried(fetch):
    with flaky_server(503, headers=[("Retry-After", "0")]) as (url, seen):
        result = run_tool(fetch, url, effect="write")
    assert "may have taken effect" in result.text
    assert len(seen) == 1


@pytest.mark.finding("X2")
@pytest.mark.parametrize("fetch", CLIENTS)
def test_a_retry_after_that_is_too_long_is_not_waited_for(fetch):
    with flaky_server(503, headers=[("Retry-After", "86400")]) as (url, seen):
        result = run_tool(fetch, url)
    assert result.is_error
    assert len(seen) == 1


@pytest.mark.finding("X2")
@pytest.mark.parametrize("fetch", [with_requests, with_httpx2, with_urllib3, with_urllib])
def test_a_refused_connection_is_transient(fetch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(Exception) as caught:  # each client has its own class
        fetch(f"http://127.0.0.1:{port}/")
    assert find_transient(caught.value, lambda: NOW) == RetryAdvice()


def foreign(package, *names, base=Exception):
    """Return an instance of a class with the module and base classes of a client that is not installed."""
    for name in reversed(names):
        base = type(name, (base,), {"__module__": package})
    return base("failed")


def with_attributes(error, **attributes):
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


class Response:
    def __init__(self, status_code, **headers):
        self.status_code = status_code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


AIOHTTP = "aiohttp.client_exceptions"


@pytest.mark.finding("X2")
@every_case(
    ("error", "advice"),
    [
        (ConnectionResetError(), RetryAdvice()),
        (TimeoutError(), RetryAdvice()),
        (http.client.RemoteDisconnected(), RetryAdvice()),
        (http.client.IncompleteRead(b""), RetryAdvice()),
        (urllib.error.URLError(ConnectionRefusedError()), RetryAdvice()),
        (urllib.error.URLError(ssl.SSLCertVerificationError()), None),
        (urllib.error.URLError("unknown url type"), None),
        (foreign("httpx", "ConnectTimeout", "TimeoutException", "TransportError"), RetryAdvice()),
        (foreign("httpx", "ReadError", "NetworkError", "TransportError"), RetryAdvice()),
        (foreign("httpx", "UnsupportedProtocol", "TransportError"), None),
        (foreign(AIOHTTP, "ServerDisconnectedError", "ServerConnectionError", "ClientConnectionError"), RetryAdvice()),
        (foreign(AIOHTTP, "ClientConnectorSSLError", "ClientSSLError", "ClientConnectionError"), None),
        (
            with_attributes(foreign(AIOHTTP, "ClientResponseError"), status=503, headers={"Retry-After": "3"}),
            RetryAdvice(3.0),
        ),
        (with_attributes(foreign(AIOHTTP, "ClientResponseError"), status=404, headers=None), None),
        (
            with_attributes(foreign("httpx", "HTTPStatusError"), response=Response(429, retry_after="2.5")),
            RetryAdvice(2.5),
        ),
        (with_attributes(foreign("httpx", "HTTPStatusError"), response=Response(504)), RetryAdvice()),
        (with_attributes(foreign("openai", "RateLimitError", "APIStatusError"), status_code=429), RetryAdvice()),
        (requests.exceptions.SSLError(), None),
        (requests.exceptions.InvalidURL(), None),
        (ValueError("no"), None),
        (FileNotFoundError(), None),
        (SystemExit(503), None),
    ],
    ids=repr,
)
def test_failures_of_clients_are_recognised_by_class_and_status(error, advice):
    assert find_transient(error, lambda: NOW) == advice


@pytest.mark.finding("X2")
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("-5", 0.0),
        (formatdate(NOW + 9, usegmt=True), 9.0),
        (formatdate(NOW - 9, usegmt=True), 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("9" * 100, None),
        (7, None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header, seconds):
    error = with_attributes(foreign("httpx", "HTTPStatusError"), response=Response(503, retry_after=header))
    assert find_transient(error, lambda: NOW) == RetryAdvice(seconds)


@pytest.mark.finding("X2")
def test_a_failed_certificate_check_inside_a_network_error_is_final():
    try:
        try:
            raise ssl.SSLCertVerificationError("expired")
        except ssl.SSLError as inner:
            raise foreign("httpx", "ConnectError", "NetworkError") from inner
    except Exception as error:
        assert find_transient(error, lambda: NOW) is None


@pytest.mark.finding("X2")
def test_an_exception_whose_attributes_raise_is_final():
    class Hostile(Exception):
        @property
        def response(self):
            raise RuntimeError("no")

    assert find_transient(Hostile(), lambda: NOW) is None


class LedgerBusy(Exception):
    pass


def advice_for(error, transient, effect="read"):
    return retry_advice(error, effect, Options(transient=transient).transient, lambda: NOW)


@pytest.mark.finding("X2")
def test_a_tool_declares_its_own_transient_exceptions():
    assert advice_for(LedgerBusy(), None) is None
    assert advice_for(LedgerBusy(), LedgerBusy) == RetryAdvice()
    assert advice_for(LedgerBusy(), (LedgerBusy,)) == RetryAdvice()
    assert advice_for(LedgerBusy("busy"), lambda error: "busy" in str(error)) == RetryAdvice()
    assert advice_for(LedgerBusy("gone"), lambda error: "busy" in str(error)) is None
    assert advice_for(LedgerBusy(), lambda error: error.missing) is None
    assert advice_for(LedgerBusy(), LedgerBusy, effect="write") is None
    assert advice_for(ToolError("no"), (Exception,)) is None


@pytest.mark.finding("X2")
def test_a_declared_exception_is_retried(virtual_time):
    attempts = []

    @toolwire.tool(effect="idempotent", transient=(LedgerBusy,), retries=3)
    async def book() -> str:
        attempts.append(1)
        if len(attempts) < 4:
            raise LedgerBusy
        return "booked"

    assert Runner(book).run_sync([ToolCall("1", "book", {})])[0].text == "booked"


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize("effect", ["write", "idempotent"])
def test_a_cancelled_call_is_not_attempted_again(effect, is_waiting, stored, virtual_time):
    attempts = []
    store = open_store("memory:") if stored else None

    async def cancel_after(seconds):
        @toolwire.tool(effect=effect, retries=3, key=lambda arguments: "one")
        async def book() -> str:
            attempts.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)
            raise Transient("busy", before_effect=True, retry_after=10)

        runner = Runner(book, store=store)
        start = asyncio.get_running_loop().time()
        running = asyncio.create_task(runner.run([ToolCall("1", "book", {})]))
        await asyncio.sleep(seconds)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return asyncio.get_running_loop().time() - start

    ended = asyncio.run(cancel_after(5 if is_waiting else 0.5))
    assert len(attempts) == 1
    assert ended < 10  # virtual seconds: it does not wait for the next attempt
    assert store is None or store.get("one") is None  # nothing was done, so the key is free


def test_the_next_attempt_of_a_call_that_got_no_thread_is_not_marked_as_cancelled():
    seen = []
    occupied, free = threading.Event(), threading.Event()

    @toolwire.tool(effect="read")
    def occupy() -> str:
        occupied.set()
        free.wait(SAFETY)
        return "done"

    @toolwire.tool(effect="idempotent", timeout=1.0, retries=20)
    def book(context: CallContext) -> str:
        seen.append(context.cancelled)
        return "booked"

    async def run():
        runner = Runner(occupy, book, threads=1)
        first = asyncio.create_task(runner.run([ToolCall("1", "occupy", {})]))
        await asyncio.to_thread(occupied.wait, SAFETY)
        second = asyncio.create_task(runner.run([ToolCall("2", "book", {})]))
        await asyncio.sleep(1.1)  # longer than an attempt
        free.set()
        return [*await first, *await second]

    assert [result.text for result in asyncio.run(run())] == ["done", "booked"]
    assert seen == [False]


@toolwire.tool(effect="read", isolation="process", retries=1)
def reset_in_process(path: str) -> str:
    attempts = Path(path)
    if not attempts.exists():
        attempts.touch()
        raise ConnectionResetError("reset")
    return "ok"


@toolwire.tool(effect="read", isolation="process")
def refuse_in_process() -> str:
    raise ToolError("no such customer")


@pytest.mark.finding("X2")
def test_failures_in_a_process_are_recognised(tmp_path):
    runner = Runner(reset_in_process, refuse_in_process)
    calls = [ToolCall("1", "reset_in_process", {"path": str(tmp_path / "log")}), ToolCall("2", "refuse_in_process", {})]
    retried, refused = runner.run_sync(calls)
    runner.close()
    assert retried.text == "ok"
    assert refused.text == "no such customer"
