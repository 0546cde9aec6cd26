"""A body above `limits.body` is refused, with the name of the setting."""

import asyncio
import json

import pytest

from gateway_client import CHAT_REQUEST, post
from serving import serving, upstream_rows


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"])
def test_refusal_of_a_large_body_names_the_setting(path):
    async def scene():
        document = {"upstreams": upstream_rows("http://127.0.0.1:9"), "limits": {"body": 100, "stream_body": 100}}
        async with serving(document) as gateway:
            return await post(gateway.url, path, {**CHAT_REQUEST, "user": "x" * 200})

    status, _, body = asyncio.run(scene())
    assert status == 413
    message = json.loads(body)["error"]["message"]
    assert "the limit is 100 (send less data; the gateway's operator can raise limits.body)" in message
