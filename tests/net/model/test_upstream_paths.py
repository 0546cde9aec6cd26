"""The scripted upstream finds the wire of a request by its path."""

import asyncio
import json

import pytest

from toolwire.testing import Upstream, says


async def post(url, path, body):
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    payload = json.dumps(body).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(payload)}\r\n\r\n".encode() + payload)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    answer = json.loads(await reader.readexactly(length))
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("version", ["v1", "v1alpha", "v1beta"])  # version 3 of Google's SDK uses v1
def test_every_version_of_the_gemini_api_is_answered(version):
    async def ask():
        async with Upstream(says("Hello")) as upstream:
            body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
            answer = await post(upstream.url, f"/{version}/models/gemini-3-flash:generateContent", body)
        return answer, upstream.requests[0]

    answer, received = asyncio.run(ask())
    assert answer["candidates"][0]["content"]["parts"][0]["text"] == "Hello"
    assert (received.wire, received.request.model) == ("gemini", "gemini-3-flash")
