"""What the tests of the gateway ask, and what is answered."""

import json

from pyreqwest.client import ClientBuilder

from toolwire import Response, Text, ToolCall
from toolwire.ir.response import Stop, Usage

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
    async with ClientBuilder().build() as client:
        request = client.post(url + path).body_bytes(data)
        for name, value in (headers or {}).items():
            request = request.header(name, value)
        response = await request.build().send()
        return response.status, dict(response.headers), bytes(await response.bytes())
