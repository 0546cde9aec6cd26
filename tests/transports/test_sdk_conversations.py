"""Every official SDK in front of every wire: conversations with tools, whole and streamed, sync and async."""

import random
import zlib

import pytest
from sdk_drivers import DRIVERS, MODELS, opened, running

from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.response import Response, Stop, Usage

TOOLS = ("weather", "files.read")
TWO_CALLS = Response(
    parts=(
        Text("Let me look."),
        ToolCall("call_1", "weather", {"city": "Zürich", "days": 2}),
        ToolCall("call_2", "weather", {"city": 'Paris "Nord"'}),
    ),
    stop=Stop("tool_calls"),
    usage=Usage(10, 5),
)
FINAL = Response(parts=(Text("Sun in Zürich, rain in Paris — ☔."),), stop=Stop("stop"), usage=Usage(20, 9))


def pairs():
    return [pytest.param(sdk, wire, id=f"{sdk}-{wire}") for sdk in DRIVERS for wire in MODELS]


def results_of(request):
    return [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]


def calls_of(request):
    return [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize(
    ("mode", "stream"),
    [
        pytest.param("sync", False, id="sync-whole"),
        pytest.param("async", True, id="async-stream"),
        pytest.param("sync", True, id="sync-stream", marks=pytest.mark.full),
        pytest.param("async", False, id="async-whole", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize(("sdk", "wire"), pairs())
def test_parallel_calls_and_their_results_reach_every_wire(sdk, wire, stream, mode):
    pieces = random.Random(zlib.crc32(f"{sdk}{wire}{stream}{mode}".encode()))
    with running(TWO_CALLS, FINAL, piece=pieces.randint(1, 90), delta=pieces.randint(1, 9)) as server:
        with opened(sdk, mode, wire, server) as driver:
            history = driver.user("How is the weather?")
            turn = driver.ask(history, TOOLS, stream=stream)
            assert turn.text == "Let me look."
            assert [(call.name, call.arguments) for call in turn.calls] == [
                ("weather", {"city": "Zürich", "days": 2}),
                ("weather", {"city": 'Paris "Nord"'}),
            ]
            history += [*turn.history, *driver.results(turn.calls, ["sun", "rain"])]
            assert driver.ask(history, TOOLS, stream=stream).text == FINAL.text
        first, second = server.upstream.requests
    assert (first.wire, first.stream) == (wire, stream)
    assert [tool.description for tool in first.request.tools] == ["d", "d"]
    calls, results = calls_of(second.request), results_of(second.request)
    assert [call.arguments for call in calls] == [{"city": "Zürich", "days": 2}, {"city": 'Paris "Nord"'}]
    texts = [
        str(result.structured or "".join(getattr(part, "text", "") for part in result.parts)) for result in results
    ]
    assert ["sun" in text for text in texts] == [True, False]
    assert ["rain" in text for text in texts] == [False, True]
    if wire not in ("gemini", "ollama"):  # which may have no ids
        assert [result.call_id for result in results] == [call.id for call in calls]


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.full), True], ids=["whole", "stream"])
@pytest.mark.parametrize(("sdk", "wire"), pairs())
def test_tool_names_that_the_wire_forbids_are_restored(sdk, wire, stream):
    called = lambda request: Response(
        parts=(ToolCall("c1", request.tools[1].name, {"city": "Rome"}),), stop=Stop("tool_calls")
    )
    with running(called) as server, opened(sdk, "sync", wire, server) as driver:
        turn = driver.ask(driver.user("read it"), TOOLS, stream=stream)
    assert [call.name for call in turn.calls] == ["files.read"]
    sent = server.upstream.requests[0].request.tools[1].name
    if sdk == wire:
        assert sent == "files.read"  # same wire: the request is not changed
    elif wire in ("openai_chat", "openai_responses", "anthropic"):
        assert sent != "files.read"
