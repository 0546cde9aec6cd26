"""Errors of models and of toolwire are raised as the classes of each SDK."""

import asyncio
import threading
from contextlib import asynccontextmanager, nullcontext
from typing import ClassVar

import anthropic
import httpx2
import openai
import pytest
from google.genai import errors
from sdk_drivers import DRIVERS, MODELS, opened, running

from toolwire import ModelClient
from toolwire.adapters import async_transport, transport
from toolwire.ir.parts import Text
from toolwire.ir.response import Fault, Response, Stop
from toolwire.testing import PartialReply
from waiting import SAFETY

HELLO = Response(parts=(Text("Hello there, this is a long answer. " * 4),), stop=Stop("stop"))
FAULTS = {
    400: Fault("invalid_request", "bad parameter", 400),
    401: Fault("authentication", "wrong key", 401),
    403: Fault("permission", "not allowed", 403),
    404: Fault("not_found", "no such model", 404),
    413: Fault("too_large", "too many bytes", 413),
    429: Fault("rate_limit", "slow down", 429, retry_after=7.0),
    500: Fault("server", "broken", 500),
    503: Fault("overloaded", "busy", 503),
}
CLASSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "InternalServerError",
}
OTHER_WIRE = {
    "openai_chat": "anthropic",
    "openai_responses": "gemini",
    "anthropic": "openai_chat",
    "gemini": "anthropic",
}
WIRES_OF = [
    pytest.param(sdk, wire, id=f"{sdk}-{wire}", marks=() if wire in (sdk, OTHER_WIRE[sdk]) else pytest.mark.full)
    for sdk in DRIVERS
    for wire in MODELS
]


MODES = ["sync", pytest.param("async", marks=pytest.mark.full)]


def error_of(sdk, status):
    if sdk == "gemini":
        return errors.ClientError if status < 500 else errors.ServerError
    package = anthropic if sdk == "anthropic" else openai
    return getattr(package, CLASSES[status]) if status in CLASSES else package.APIStatusError


def status_of(error):
    return error.code if isinstance(error, errors.APIError) else error.status_code


@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.full)], ids=["whole", "stream"])
@pytest.mark.parametrize(("sdk", "wire"), WIRES_OF)
def test_status_of_the_model_selects_the_error_class(sdk, wire, stream):
    with running(*FAULTS.values()) as server, opened(sdk, "sync", wire, server) as driver:
        for status, fault in FAULTS.items():
            with pytest.raises(error_of(sdk, status), match=fault.message) as caught:
                driver.ask(driver.user("hi"), stream=stream)
            kept = status_of(caught.value)
            assert kept // 100 == status // 100, (status, kept)
            if status == 429 and sdk != "gemini":
                assert caught.value.response.headers["retry-after"] == "7"
            if sdk != "gemini":
                assert caught.value.request_id
        assert "the-key" not in repr(caught.value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sdk", DRIVERS)
def test_retries_of_the_sdk_work(sdk, mode):
    with (
        running(
            Fault("rate_limit", "slow down", 429, retry_after=0.0), Fault("overloaded", "busy", 503), HELLO
        ) as server,
        opened(sdk, mode, OTHER_WIRE[sdk], server, retries=2) as driver,
    ):
        assert driver.ask(driver.user("hi")).text == HELLO.text
    assert len(server.upstream.requests) == 3  # toolwire itself makes no retries here


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("sdk", DRIVERS)
def test_server_that_is_not_reachable(sdk, stream, mode):
    raised = httpx2.ConnectError if sdk == "gemini" else driver_package(sdk).APIConnectionError
    with (
        running() as server,
        opened(sdk, mode, OTHER_WIRE[sdk], server, base_url="http://127.0.0.1:9") as driver,
        pytest.raises(raised),
    ):
        driver.ask(driver.user("hi"), stream=stream)


def driver_package(sdk):
    return anthropic if sdk == "anthropic" else openai


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("same_wire", [False, True])
@pytest.mark.parametrize("sdk", DRIVERS)
def test_timeout_of_the_sdk_ends_the_request(sdk, same_wire, mode):
    raised = httpx2.TimeoutException if sdk == "gemini" else driver_package(sdk).APITimeoutError
    wire = sdk if same_wire else OTHER_WIRE[sdk]
    with running(PartialReply(then="stall")) as server:
        for timeout in (1.0, 15.0, SAFETY):  # on a slow machine the first one may pass before the request is sent
            with opened(sdk, mode, wire, server, timeout=timeout) as driver, pytest.raises(raised):
                driver.ask(driver.user("hi"))
            if server.upstream.requests:
                break
        server.run(server.upstream.disconnected())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("sdk", "wire"), WIRES_OF)
def test_truncated_stream_is_an_error_after_the_text_before_it(sdk, wire, mode):
    with running(PartialReply(HELLO, 900)) as server, opened(sdk, mode, wire, server) as driver:
        text, last = "", None
        with pytest.raises(driver.error) if sdk != "openai_responses" else nullcontext():
            for item in driver.iterate(lambda: driver.open_stream(driver.user("hi"))):
                text, last = text + driver.text_of(item), item
    assert HELLO.text.startswith(text)
    if sdk == "openai_responses":  # its SDK reports a failure as the last event
        assert last.type == "response.failed"
        assert "truncated" in last.response.error.message or "stopped" in last.response.error.message


@pytest.mark.parametrize("sdk", DRIVERS)
def test_truncated_answer_is_a_server_error(sdk):
    with (
        running(PartialReply(HELLO, 60)) as server,
        opened(sdk, "sync", OTHER_WIRE[sdk], server) as driver,
        pytest.raises(error_of(sdk, 500)),
    ):
        driver.ask(driver.user("hi"))


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(("sdk", "wire"), WIRES_OF)
def test_first_text_arrives_before_the_end_and_closing_cancels_the_request(sdk, wire, mode):
    with running(PartialReply(HELLO, 1500, "stall"), delta=2) as server, opened(sdk, mode, wire, server) as driver:
        items = driver.iterate(lambda: driver.open_stream(driver.user("hi")))
        assert next(text for item in items if (text := driver.text_of(item)))
        assert server.upstream.disconnects == 0
        items.close()
        server.run(server.upstream.disconnected())


@pytest.mark.parametrize("sdk", DRIVERS)
def test_other_endpoints_are_refused_by_name(sdk):
    with (
        running() as server,
        opened(sdk, "sync", OTHER_WIRE[sdk], server) as driver,
        pytest.raises(error_of(sdk, 404), match="is not available through toolwire's transport"),
    ):
        driver.unsupported()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sdk", DRIVERS)
def test_list_of_models_has_the_model(sdk, mode):
    with running() as server, opened(sdk, mode, "anthropic", server) as driver:
        assert driver.list_models() == ["claude-sonnet-4-5"]


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
def test_stream_is_closed_by_another_thread(wire):
    with (
        running(PartialReply(HELLO, 1500, "stall"), delta=2) as server,
        opened("openai_chat", "sync", wire, server) as driver,
    ):
        stream = driver.open_stream(driver.user("hi"))
        raised, is_reading = [], threading.Event()

        def consume():
            with pytest.raises(openai.APIConnectionError) as caught:  # waiting, or between two pieces
                for _ in stream:
                    is_reading.set()
            raised.append(caught.value)

        thread = threading.Thread(target=consume)
        thread.start()
        assert is_reading.wait(SAFETY)
        stream.close()
        thread.join(SAFETY)
        server.run(server.upstream.disconnected())
    assert len(raised) == 1


class StalledTransport:
    """Sends the first piece of an answer. A request ends only after `may_end` is set."""

    status = 200
    headers: ClassVar = {"content-type": "text/event-stream"}

    def __init__(self):
        self.pieces = [b'data: {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n']
        self.is_ending, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    @asynccontextmanager
    async def post(self, url, headers, secrets, body, seconds):
        try:
            yield self
        finally:
            self.is_ending.set()
            await asyncio.to_thread(self.may_end.wait, SAFETY)

    async def read(self):
        return self.pieces.pop() if self.pieces else await asyncio.get_running_loop().create_future()

    async def aclose(self):
        pass


STREAMED = {"model": "any", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def test_piece_is_read_while_another_thread_closes_the_stream():
    stalled = StalledTransport()
    stalled.may_end.clear()
    with (
        transport(client=ModelClient("openai/gpt-5.1", wire="openai_chat", key="k", transport=stalled)) as http,
        openai.OpenAI(http_client=http, api_key="unused").chat.completions.create(**STREAMED) as stream,
    ):
        assert next(stream).choices[0].delta.content == "Hi"
        thread = threading.Thread(target=stream.close)
        thread.start()
        assert stalled.is_ending.wait(SAFETY)
        with pytest.raises(openai.APIConnectionError) as caught:
            next(stream)
        assert thread.is_alive()  # the error did not wait for the end of the request
        assert "closed" in str(caught.value.__cause__)
        stalled.may_end.set()
        thread.join(SAFETY)


async def _read_one_piece_and_stall(http):
    """Return the stream and a task that waits for its second piece."""
    stream = await openai.AsyncOpenAI(http_client=http, api_key="unused").chat.completions.create(**STREAMED)
    assert (await anext(stream)).choices[0].delta.content == "Hi"
    reader = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)  # one step, up to its first wait
    return stream, reader


def test_stream_is_closed_by_another_task():
    async def work():
        stalled = StalledTransport()
        async with async_transport(
            client=ModelClient("openai/gpt-5.1", wire="openai_chat", key="k", transport=stalled)
        ) as http:
            stream, reader = await _read_one_piece_and_stall(http)
            await stream.close()
            with pytest.raises(openai.APIConnectionError) as caught:
                await reader
            assert "closed" in str(caught.value.__cause__)
            assert stalled.is_ending.is_set()
            assert not reader.cancelled()

    asyncio.run(work())


def test_cancelled_reader_of_a_closed_stream_is_cancelled():
    async def work():
        async with async_transport(
            client=ModelClient("openai/gpt-5.1", wire="openai_chat", key="k", transport=StalledTransport())
        ) as http:
            stream, reader = await _read_one_piece_and_stall(http)
            reader.cancel()
            await stream.close()
            with pytest.raises(asyncio.CancelledError):
                await reader

    asyncio.run(work())


def test_timeout_in_the_middle_of_a_stream():
    with (
        running(PartialReply(HELLO, 1500, "stall"), delta=2) as server,
        opened("openai_chat", "sync", "anthropic", server, timeout=0.3) as driver,
        pytest.raises((httpx2.ReadTimeout, openai.APITimeoutError)),
    ):
        for _ in driver.open_stream(driver.user("hi")):
            pass
