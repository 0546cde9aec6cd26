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
