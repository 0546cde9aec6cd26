"""Clients of the SDKs for clouds, with the gateway as their address: they reach models on every wire."""

import asyncio
import json

import anthropic
import openai
import pytest
from anthropic.lib.google_cloud._client import AsyncAnthropicGoogleCloud
from openai.providers.bedrock import bedrock

from serving import WIRES, serving, upstream_rows
from toolwire.gateway.keys import hash_key
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.response import Response, Stop
from toolwire.testing import Upstream

KEY = "client-key-0123456789"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ANSWER = Response(
    parts=(Text("Let me look."), ToolCall("call_000001", "weather", {"city": "Oslo"})), stop=Stop("tool_calls")
)


async def messages(client, model, *, stream):
    """Ask for a tool call with Anthropic's protocol; return the text, and the name and arguments of the call."""
    options = {
        "model": model,
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "weather?"}],
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
    }
    if stream:
        async with client.messages.stream(**options) as events:
            message = await events.get_final_message()
    else:
        message = await client.messages.create(**options)
    text, call = message.content
    return text.text, call.name, call.input


async def chat(client, model, *, stream):
    options = {
        "model": model,
        "messages": [{"role": "user", "content": "weather?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
    }
    if stream:
        async with client.chat.completions.stream(**options) as events:
            message = (await events.get_final_completion()).choices[0].message
    else:
        message = (await client.chat.completions.create(**options)).choices[0].message
    (call,) = message.tool_calls
    return message.content, call.function.name, json.loads(call.function.arguments)


async def responses(client, model, *, stream):
    options = {"model": model, "input": "weather?"}
    options["tools"] = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]
    if stream:
        async with client.responses.stream(**options) as events:
            response = await events.get_final_response()
    else:
        response = await client.responses.create(**options)
    call = response.output[-1]
    return response.output_text, call.name, json.loads(call.arguments)


def token_provider():
    return KEY


CLIENTS = {
    "AnthropicAWS": (
        messages,
        lambda url: anthropic.AsyncAnthropicAWS(
            base_url=url, api_key=KEY, workspace_id="w", aws_region="us-east-1", max_retries=0
        ),
    ),
    "AnthropicBedrockMantle": (
        messages,
        lambda url: anthropic.AsyncAnthropicBedrockMantle(
            base_url=url, api_key=KEY, aws_region="us-east-1", max_retries=0
        ),
    ),
    "AnthropicFoundry": (
        messages,
        lambda url: anthropic.AsyncAnthropicFoundry(base_url=url, api_key=KEY, max_retries=0),
    ),
    "AnthropicFoundry with a token": (
        messages,
        lambda url: anthropic.AsyncAnthropicFoundry(
            base_url=url, azure_ad_token_provider=token_provider, max_retries=0
        ),
    ),
    "AnthropicGoogleCloud": (
        messages,
        lambda url: AsyncAnthropicGoogleCloud(base_url=url, token_provider=token_provider, max_retries=0),
    ),
    "OpenAI at Bedrock": (
        chat,
        lambda url: openai.AsyncOpenAI(provider=bedrock(base_url=f"{url}/v1", api_key=KEY), max_retries=0),
    ),
    "OpenAI Responses at Bedrock": (
        responses,
        lambda url: openai.AsyncOpenAI(provider=bedrock(base_url=f"{url}/v1", api_key=KEY), max_retries=0),
    ),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", CLIENTS)
def test_client_of_a_cloud_calls_tools_behind_every_wire(name, wire, monkeypatch):
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_FOUNDRY_RESOURCE", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    ask, connect = CLIENTS[name]

    async def run():
        async with Upstream(ANSWER, ANSWER) as upstream:
            document = {"upstreams": upstream_rows(upstream.url), "keys": {"client": {"hash": hash_key(KEY)}}}
            async with serving(document) as served, connect(served.url) as client:
                return [await ask(client, f"{wire}/m", stream=stream) for stream in (False, True)]

    assert asyncio.run(run()) == [("Let me look.", "weather", {"city": "Oslo"})] * 2
