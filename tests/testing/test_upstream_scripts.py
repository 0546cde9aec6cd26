"""Scripts of `Upstream` that cannot be sent: the client gets an error, not a lost connection."""

import asyncio
import re

import pytest

from toolwire import ModelClient, Text
from toolwire.ir import ConfigError, Fault, Message, Request, Response, Stop
from toolwire.testing import Upstream, says


def test_error_in_the_script_of_an_upstream_is_reported_to_the_client():
    for kind in ("auth", [], None):
        with pytest.raises(ConfigError, match=f"unknown kind of fault {re.escape(repr(kind))}"):
            Fault(kind, "bad key", 401)
    with pytest.raises(ConfigError, match="line 0 of the script is a str"):
        Upstream("Hello.")

    async def ask(line, request="Hello."):
        async with (
            Upstream(line) as upstream,
            ModelClient("openai-chat/m", base_url=upstream.url, key="k" * 10) as client,
        ):
            await client.ask(request)

    cases = [
        (lambda request: request.missing, "Hello.", "the script failed: AttributeError"),
        (Response(parts=(Text("Hi."),), stop=Stop("absent")), "Hello.", "the script failed: KeyError: 'absent'"),
        (says("Hi."), Request("m", (Message("bot", (Text("Hello."),)),)), "unknown role 'bot'"),
    ]
    for line, request, message in cases:
        with pytest.raises(Exception, match=message) as raised:
            asyncio.run(ask(line, request))
        assert type(raised.value).__name__ == "UpstreamError"


def test_paced_upstream_answers_the_next_requests_of_a_connection():
    """The pace is between two pieces: a whole answer has one, so the client sends its next request at once."""

    async def main():
        async with (
            Upstream(*[says("Hi.")] * 3, pace=0.2) as upstream,
            ModelClient("openai-chat/m", base_url=upstream.url, key="k" * 10, retries=0) as client,
        ):
            texts = [(await client.ask("Hello.")).text for _ in range(3)]
            return texts, upstream.connections

    assert asyncio.run(main()) == (["Hi."] * 3, 1)


def test_upstream_answers_a_request_that_arrives_during_an_answer():
    body = b'{"messages":[{"role":"user","content":"Hi"}],"model":"m","stream":true}'
    request = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    async def main():
        async with Upstream(*[says("Hi there, you.")] * 2, pace=0.02) as upstream:
            reader, writer = await asyncio.open_connection(*upstream.url.removeprefix("http://").split(":"))
            writer.write(request * 2)
            ends = [await reader.readuntil(b"\r\n0\r\n\r\n") for _ in range(2)]
            writer.close()
            return [end.count(b"HTTP/1.1 200") for end in ends]

    assert asyncio.run(main()) == [1, 1]
