"""What users' type checkers see: checked by mypy, never run."""

from collections.abc import Coroutine
from typing import Any, assert_type

import toolwire
from toolwire import Tool, ToolCall
from toolwire.bridge.detection import Detected
from toolwire.bridge.document_translation import Translation
from toolwire.bridge.preparation import Prepared
from toolwire.bridge.stream_translation import StreamTranslation
from toolwire.ir.losses import Loss
from toolwire.wire.protocol import Wire


@toolwire.tool
def weather(city: str, days: int = 1) -> str:
    """The forecast for a city."""
    return city * days


@toolwire.tool(name="renamed")
async def later(city: str) -> list[str]:
    return [city]


def declared() -> None:
    assert_type(weather("Paris", days=2), str)
    waiting = assert_type(later("Paris"), Coroutine[Any, Any, list[str]])
    waiting.close()
    as_tool: Tool = weather
    assert_type(as_tool.name, str)
    weather(1)  # type: ignore[arg-type]
    weather.input_schema = {}  # type: ignore[misc]


def translated() -> None:
    assert_type(toolwire.wire.names(), list[str])
    assert_type(toolwire.wire.get("anthropic"), Wire)
    there = toolwire.translate({}, source="anthropic", target="openai_chat", kind="request")
    assert_type(there, Translation)
    assert_type(there.losses, tuple[Loss, ...])
    toolwire.translate({}, source="anthropic", target="openai_chat", kind="stream")  # type: ignore[arg-type]
    stream = toolwire.translate_stream(source="anthropic", target="openai_chat", request=b"{}")
    assert_type(stream, StreamTranslation)
    assert_type(stream.feed(b""), bytes)
    assert_type(stream.close(), bytes)


def taken_apart(body: bytes) -> None:
    found = toolwire.calls(body)
    assert_type(found, tuple[ToolCall, ...])
    assert_type(toolwire.detect(body), Detected)
    assert_type(toolwire.list_tools(body, "mcp"), tuple[Tool, ...])
    toolwire.results([call.result("done") for call in found], "gemini")
    request = toolwire.wire.get("openai_chat").decode_request({})
    assert_type(toolwire.prepare(request, toolwire.wire.get("gemini")), Prepared)


def raised(error: toolwire.ProtocolError) -> toolwire.ToolwireError:
    assert_type(error.pointer, str)
    assert_type(error.status, int)
    return error
