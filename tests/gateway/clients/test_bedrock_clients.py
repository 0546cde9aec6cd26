"""boto3's clients of Bedrock in front of every wire, and upstreams of Bedrock after every client."""

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager
from functools import cache

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from hostile import run
from serving import WIRES, serving, upstream_rows
from toolwire.ir import Text
from toolwire.ir.parts import Reasoning, ToolCall
from toolwire.ir.response import Fault, Response, Stop, Usage
from toolwire.testing.upstream import PartialReply, Upstream
from toolwire.wire import get

KEY = "a-bearer-key"
UPSTREAMS = (*WIRES, "bedrock", "invoke")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {"tools": [{"toolSpec": {"name": "get_weather", "description": "d", "inputSchema": {"json": SCHEMA}}}]}
ASK = [{"role": "user", "content": [{"text": "Weather in Paris?"}]}]
ANSWER = Response(
    parts=(Text("I will check é😀."), ToolCall("call_1", "get_weather", {"city": "Paris"})),
    stop=Stop("tool_calls"),
    usage=Usage(10, 5),
)
FINAL = Response(parts=(Text("It is sunny."),), stop=Stop("stop"), usage=Usage(20, 4))
BUSY = Fault("rate_limit", "too many requests", 429)
INVOKE = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 100}


def rows(url):
    invoke = {"provider": "bedrock-anthropic", "base_url": url, "retries": 0, "key_env": "BEDROCK_KEY"}
    converse = {"provider": "bedrock", "base_url": url, "retries": 0, "key_env": "BEDROCK_KEY"}
    return {**upstream_rows(url), "bedrock": converse, "invoke": invoke}


@asynccontextmanager
async def gateway(*script, **document):
    """A gateway in front of an upstream that speaks every wire, and a client of boto3 for it."""
    async with (
        Upstream(*script, piece=7, delta=3) as upstream,
        serving({"upstreams": rows(upstream.url), **document}, environment={"BEDROCK_KEY": KEY}) as served,
    ):
        with client_of(served.url) as client:
            yield client, upstream


@cache
def session():
    """One session for all tests: it parses the description of the service once."""
    return boto3.session.Session()


@contextmanager
def client_of(url):
    """A client with a bearer token. boto3 sends one from the environment over https only, so this one is added here."""
    config = Config(retries={"total_max_attempts": 1}, signature_version=UNSIGNED)
    client = session().client("bedrock-runtime", "us-east-1", endpoint_url=url, config=config)
    client.meta.events.register("before-send.bedrock-runtime.*", _authorise)
    yield client
    client.close()


def _authorise(request, **_):
    request.headers["Authorization"] = f"Bearer {KEY}"


async def call(method, **fields):
    return await asyncio.to_thread(method, **fields)


async def streamed(client, **fields):
    """The events of a stream, and the error that ended it."""

    def read():
        events, error = [], None
        stream = client.converse_stream(**fields)["stream"]
        try:
            for event in stream:
                events.append(event)  # noqa: PERF402  # keeps the events before an error
        except EventStreamError as caught:
            error = caught
        stream.close()
        return events, error

    return await asyncio.to_thread(read)


def content_of(events):
    """The text, the calls and the metadata of a stream, as an agent reads them."""
    text, calls, last = "", {}, {}
    for event in events:
        [(kind, value)] = event.items()
        if kind == "contentBlockStart":
            calls[value["contentBlockIndex"]] = {**value["start"]["toolUse"], "input": ""}
        elif kind == "contentBlockDelta" and "toolUse" in value["delta"]:
            calls[value["contentBlockIndex"]]["input"] += value["delta"]["toolUse"]["input"]
        elif kind == "contentBlockDelta":
            text += value["delta"].get("text", "")
        elif kind in ("messageStop", "metadata"):
            last |= value
    return text, list(calls.values()), last


@pytest.mark.parametrize("upstream", UPSTREAMS)
@run
async def test_boto3_converses_with_every_upstream(upstream):
    async with gateway(ANSWER, FINAL) as (client, provider):
        answer = await call(client.converse, modelId=f"{upstream}/m", messages=ASK, toolConfig=TOOLS)
        message = answer["output"]["message"]
        use = next(block["toolUse"] for block in message["content"] if "toolUse" in block)
        assert message["content"][0] == {"text": "I will check é😀."}
        assert (use["name"], use["input"], answer["stopReason"]) == ("get_weather", {"city": "Paris"}, "tool_use")
        assert answer["usage"]["totalTokens"] == 15
        result = {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"json": {"celsius": 22}}]}}
        history = [*ASK, message, {"role": "user", "content": [result]}]
        final = await call(client.converse, modelId=f"{upstream}/m", messages=history, toolConfig=TOOLS)
        assert final["output"]["message"]["content"] == [{"text": "It is sunny."}]
        assert b"celsius" in provider.requests[1].body and b"get_weather" in provider.requests[1].body


@pytest.mark.parametrize("upstream", UPSTREAMS)
@run
async def test_boto3_streams_from_every_upstream(upstream):
    async with gateway(ANSWER) as (client, _):
        events, error = await streamed(client, modelId=f"{upstream}/m", messages=ASK, toolConfig=TOOLS)
    text, [use], last = content_of(events)
    assert error is None
    assert events[0] == {"messageStart": {"role": "assistant"}}
    assert (text, use["name"], json.loads(use["input"])) == ("I will check é😀.", "get_weather", {"city": "Paris"})
    assert (last["stopReason"], last["usage"]["totalTokens"]) == ("tool_use", 15)


@pytest.mark.parametrize("upstream", UPSTREAMS)
@run
async def test_boto3_gets_errors_in_its_own_form(upstream):
    async with gateway(BUSY, BUSY) as (client, _):
        with pytest.raises(ClientError) as caught:
            await call(client.converse, modelId=f"{upstream}/m", messages=ASK)
        assert caught.value.response["Error"] == {"Message": "too many requests", "Code": "ThrottlingException"}
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
        with pytest.raises(client.exceptions.ThrottlingException):
            await call(client.converse_stream, modelId=f"{upstream}/m", messages=ASK)


@run
async def test_unknown_model_and_invalid_body_are_errors_of_boto3():
    async with gateway() as (client, _):
        with pytest.raises(client.exceptions.ResourceNotFoundException):
            await call(client.converse, modelId="nothing", messages=ASK)
        with pytest.raises(client.exceptions.ValidationException, match="role"):
            await call(client.converse, modelId="anthropic/m", messages=[{"role": "robot", "content": []}])


@pytest.mark.parametrize("upstream", ["bedrock", "anthropic", "invoke"])
@run
async def test_a_stream_that_breaks_ends_in_an_exception(upstream):
    async with gateway(PartialReply(ANSWER, 1200)) as (client, _):
        events, error = await streamed(client, modelId=f"{upstream}/m", messages=ASK)
    assert error is not None and "internalServerException" in str(error)
    assert not any("messageStop" in event for event in events)


@run
async def test_an_arn_and_a_colon_in_the_model_arrive():
    models = {
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc": {
            "upstream": "bedrock",
            "model": "a/b:0",
        },
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0": {"upstream": "openai_chat", "model": "m"},
    }
    async with gateway(FINAL, FINAL, models=models) as (client, provider):
        for model in models:
            answer = await call(client.converse, modelId=model, messages=ASK)
            assert answer["output"]["message"]["content"] == [{"text": "It is sunny."}]
    assert provider.requests[0].path == "/model/a%2Fb%3A0/converse"
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"


def invoke_body(**fields):
    return json.dumps({**INVOKE, "messages": [{"role": "user", "content": "Weather in Paris?"}], **fields})


@pytest.mark.parametrize("upstream", UPSTREAMS)
@run
async def test_boto3_invokes_claude_at_every_upstream(upstream):
    tools = [{"name": "get_weather", "input_schema": SCHEMA}]
    async with gateway(ANSWER) as (client, provider):
        answer = await call(client.invoke_model, modelId=f"{upstream}/m", body=invoke_body(tools=tools))
        document = json.loads(answer["body"].read())
    assert [block["type"] for block in document["content"]] == ["text", "tool_use"]
    assert document["content"][1]["input"] == {"city": "Paris"}
    sent = json.loads(provider.requests[0].body)
    if upstream == "invoke":
        assert sent["anthropic_version"] == "bedrock-2023-05-31"
        assert {"model", "stream"}.isdisjoint(sent)
    else:
        assert "anthropic_version" not in sent


@pytest.mark.parametrize("upstream", UPSTREAMS)
@run
async def test_boto3_invokes_claude_with_a_stream(upstream):
    async with gateway(ANSWER) as (client, _):

        def read():
            reply = client.invoke_model_with_response_stream(modelId=f"{upstream}/m", body=invoke_body())
            return [json.loads(event["chunk"]["bytes"]) for event in reply["body"]]

        events = await asyncio.to_thread(read)
    data = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    decoder = get("anthropic").stream_decoder()
    decoder.feed(data)
    text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
    assert text == "I will check é😀."
    assert [event["type"] for event in events][-2:] == ["message_delta", "message_stop"]


@run
async def test_invoke_needs_a_version_and_reports_errors_as_bedrock_does():
    async with gateway(BUSY) as (client, _):
        with pytest.raises(client.exceptions.ValidationException, match="anthropic_version"):
            await call(client.invoke_model, modelId="anthropic/m", body=json.dumps({"messages": []}))
        with pytest.raises(client.exceptions.ThrottlingException, match="too many"):
            await call(client.invoke_model, modelId="anthropic/m", body=invoke_body())


@run
async def test_streams_between_bedrock_clients_and_upstreams_are_forwarded():
    """The bytes of the upstream arrive unchanged, also in pieces that cut its messages."""
    reasoning = Reasoning("hm", artefacts=())
    answer = Response(parts=(reasoning, *ANSWER.parts), stop=ANSWER.stop, usage=ANSWER.usage)
    async with gateway(answer) as (client, provider):
        events, error = await streamed(client, modelId="bedrock/m", messages=ASK, requestMetadata={"new": "field"})
    assert error is None and content_of(events)[1][0]["name"] == "get_weather"
    assert json.loads(provider.requests[0].body)["requestMetadata"] == {"new": "field"}
