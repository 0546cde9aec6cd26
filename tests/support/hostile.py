"""Requests over a bare socket, as nobody's client would write them, and what an answer to them must look like."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from serving import Serving, serving, upstream_rows
from toolwire import Message, Request, Response, Text, Tool, ToolCall
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.ir.text import to_bytes
from toolwire.testing import Upstream
from toolwire.testing.upstream import ScriptedReply
from toolwire.wire import get
from waiting import SAFETY, until

SECRET = "sk-upstream-secret-0123456789"
PATHS = {
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/{model}:{verb}",
    "gemini_interactions": "/v1beta/interactions",
    "cohere": "/v2/chat",
    "ollama": "/api/chat",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
}
WEATHER = Tool("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
REQUEST = Request(messages=(Message("user", (Text("Weather in Paris?"),)),), tools=(WEATHER,))
TEXT_ANSWER = Response(parts=(Text("It will rain in Paris."),), stop=Stop("stop"), usage=Usage(12, 5))
CALL_ANSWER = Response(
    parts=(ToolCall("c1", "get_weather", {"city": "Paris"}),), stop=Stop("tool_calls"), usage=Usage(12, 9)
)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True
    """The body has its end: it was not cut by the end of the connection."""

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def run(test, seconds=SAFETY):
    """An async test, with a limit that only ends what hangs."""

    @wraps(test)
    def wrapper(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), seconds))

    return wrapper


@asynccontextmanager
async def gateway_to(*script: ScriptedReply, upstream=None, document=None, rows=None, **options):
    """A gateway with an upstream for every wire, at a provider with this script.

    Without a cooldown, because the scripts of many tests only have failures.
    """
    async with Upstream(*script, **(upstream or {})) as provider:
        settings = {"upstreams": upstream_rows(provider.url, key_env="KEY", **(rows or {})), **(document or {})}
        settings["limits"] = {"cooldown": 0.0, **settings.get("limits", {})}
        async with serving(settings, environment={"KEY": SECRET}, **options) as gateway:
            yield gateway, provider


def path_of(front: str, model: str = "openai_chat/m", *, stream: bool = False) -> str:
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return PATHS[front].format(model=model, verb=verb)


def body_of(front: str, request: Request = REQUEST, model: str = "openai_chat/m", *, stream: bool = False) -> bytes:
    whole = Request(model, request.messages, request.tools, request.choice, params=request.params, stream=stream)
    return to_bytes(get(front).encode_request(whole).body)


def head_of(path: str, headers: dict[str, str], *, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def request_bytes(path: str, body: bytes, headers: dict[str, str] | None = None, *, method: str = "POST") -> bytes:
    given = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    return head_of(path, {**given, **(headers or {})}, method=method) + body


async def recorded(gateway: Serving, count: int = 1) -> None:
    """Wait until so many requests are over. A client learns of the end of its answer a moment before the sinks do."""
    await until(lambda: len(gateway.turns) >= count)


async def connect(gateway: Serving) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(gateway.url)
    return await asyncio.open_connection(parts.hostname, parts.port, limit=2**24)


async def exchange(gateway: Serving, data: bytes, *, method: str = "POST") -> Answer:
    """These bytes, and the first answer to them."""
    reader, writer = await connect(gateway)
    try:
        writer.write(data)
        return await read_answer(reader, method)
    finally:
        writer.close()


async def post(gateway: Serving, path: str, body: bytes, headers: dict[str, str] | None = None) -> Answer:
    return await exchange(gateway, request_bytes(path, body, headers))


async def ask(
    gateway: Serving,
    front: str,
    request: Request = REQUEST,
    *,
    wire: str = "openai_chat",
    stream: bool = False,
    headers: dict[str, str] | None = None,
) -> Answer:
    """A sound request through `front` for an upstream that speaks `wire`."""
    model = f"{wire}/m"
    return await post(
        gateway, path_of(front, model, stream=stream), body_of(front, request, model, stream=stream), headers
    )


async def read_answer(reader: asyncio.StreamReader, method: str = "POST") -> Answer:
    head = b"HTTP/1.1 100"
    while head.startswith(b"HTTP/1.1 100"):
        head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split(" ")[1])
    if method == "HEAD":
        return Answer(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, headers, *await _chunks(reader))
    if "content-length" in headers:
        return Answer(status, headers, await reader.readexactly(int(headers["content-length"])))
    return Answer(status, headers, await reader.read())


async def _chunks(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    pieces = []
    try:
        while size := int(await reader.readline() or b"x", 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
    except (ValueError, asyncio.IncompleteReadError, ConnectionError):
        return b"".join(pieces), False
    await reader.readline()
    return b"".join(pieces), True


def expect_error(answer: Answer, front: str, *statuses: int) -> Fault:
    """An error in the words of `front`, with one of these statuses (any 4xx where none is named)."""
    assert answer.status in (statuses or range(400, 500)), (answer.status, answer.body[:500])
    assert answer.headers["content-type"] == "application/json"
    document = answer.document
    error = document["message"] if front == "cohere" else document["error"]
    if front == "cohere":
        assert set(document) == {"message"} and isinstance(error, str)
    elif front == "ollama":
        assert set(document) == {"error"} and isinstance(error, str)
    elif front == "anthropic":
        assert document["type"] == "error" and error["type"] and error["message"]
    elif front == "gemini":
        assert error["code"] == answer.status and error["status"] and error["message"]
    elif front == "gemini_interactions":
        assert isinstance(error["code"], str) and error["message"]
    else:
        assert error["type"] and error["message"] and {"param", "code"} <= set(error)
    assert SECRET.encode() not in answer.body and b"Traceback" not in answer.body
    return get(front).decode_error(answer.status, document, answer.headers)


def decode_answer(answer: Answer, front: str, *, stream: bool = False) -> Response:
    """What a client of `front` understands."""
    from toolwire import fold

    assert answer.status == 200, (answer.status, answer.body[:500])
    if not stream:
        return get(front).decode_response(answer.document)
    decoder = get(front).stream_decoder()
    return fold([*decoder.feed(answer.body), *decoder.close()])
