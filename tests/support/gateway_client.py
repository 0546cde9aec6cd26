"""What the tests of the gateway ask, and what is answered."""

import json
from contextlib import aclosing

from toolwire import Response, Text, ToolCall
from toolwire.ir.response import Stop, Usage
from toolwire.net import HttpTransport
from waiting import SAFETY

HELLO = Response(
    id="r1",
    model="big",
    parts=(Text("Hello"), ToolCall("c1", "look", {"a": 1})),
    stop=Stop("tool_calls"),
    usage=Usage(3, 4),
)
CHAT_REQUEST = {"model": "openai_chat/m", "messages": [{"role": "user", "content": "hi"}]}


async def post(url, path="/v1/chat/completions", body=CHAT_REQUEST, headers=None):
    """Status, headers and body of the answer; a body that is bytes goes as it is."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await send("POST", url + path, data, headers)


async def send(method, url, body=b"", headers=None):
    """Status, headers and body of the answer, by a client of its own."""
    async with (
        aclosing(HttpTransport(environment={})) as client,
        client.send(method, url, headers or {}, {}, body, SAFETY) as reply,
    ):
        data = b""
        while piece := await reply.read():
            data += piece
        return reply.status, dict(reply.headers), data
