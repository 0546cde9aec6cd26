"""Whatever comes over the line, a server answers it or passes it over; it never falls over."""

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from toolwire import Media, Text, ToolCall, ToolResult, tool
from toolwire.ir.text import dumps
from toolwire.mcp import Server, prompt, resource
from toolwire.mcp.protocol.calls import encode_result, read_result
from toolwire.mcp.protocol.headers import decode_value, encode_value
from toolwire.mcp.protocol.rpc import RpcError, read, write
from toolwire.mcp.server.conversation import Conversation
from toolwire.testing import same
from toolwire.wire.mcp.versions import KNOWN, LATEST

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
METHODS = st.sampled_from(
    "initialize ping server/discover tools/list tools/call resources/list resources/read resources/templates/list prompts/list "
    "prompts/get completion/complete logging/setLevel resources/subscribe subscriptions/listen notifications/cancelled x".split()
)
META = {
    "io.modelcontextprotocol/protocolVersion": LATEST,
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": 1,
}
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "name": JSON | st.sampled_from(["add", "review"]),
        "arguments": JSON | st.just({"a": 1, "b": 2}),
        "uri": JSON | st.just("notes://x"),
        "cursor": JSON,
        "level": JSON,
        "ref": JSON | st.just({"type": "ref/prompt", "name": "review"}),
        "argument": JSON,
        "notifications": JSON,
        "requestId": JSON,
        "protocolVersion": JSON | st.sampled_from(KNOWN),
        "inputResponses": JSON,
        "requestState": JSON,
        "_meta": JSON | st.just(META) | JSON.map(lambda value: {**META, "dev.toolwire/idempotencyKey": value}),
    },
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | JSON},
    optional={
        "id": st.integers() | JSON,
        "method": METHODS | JSON,
        "params": PARAMS | JSON,
        "result": JSON,
        "error": JSON,
    },
)


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@resource("notes://{day}")
def notes(day: str) -> str:
    """Notes."""
    return day


@prompt
def review(code: str) -> str:
    """Review."""
    return code


SERVER = Server(add, resources=[notes], prompts=[review])


@given(st.binary(max_size=60) | JSON.map(dumps).map(str.encode) | MESSAGES.map(dumps).map(str.encode))
def test_message_is_read_or_rejected_with_a_protocol_error(data):
    try:
        message = read(data)
    except RpcError as error:
        assert error.code in (-32700, -32600, -32602)
    else:
        assert read(write(message)) == message


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.booleans())
def test_every_message_is_answered_or_ignored(messages, greeted):
    async def talk():
        heard = []
        conversation = Conversation(SERVER, heard.append)
        if greeted:
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
            await conversation.handle(dumps(hello).encode())
        for message in messages:
            answer = await conversation.handle(dumps(message).encode())
            if answer is None:
                continue
            found = json.loads(answer)
            assert ("result" in found) != ("error" in found)
            assert found.get("error", {}).get("code") != -32603, found
            if "error" not in found:
                assert same(found["id"], message["id"])
        await conversation.close()

    asyncio.run(talk())


PARTS = st.lists(
    st.builds(Text, TEXT)
    | st.builds(Media, st.sampled_from(["image", "audio"]), st.just("image/png"), st.just("AAAA"))
    | st.builds(lambda name: Media("file", url=f"https://example.com/{name}", name=name or "x"), TEXT),
    max_size=4,
).map(tuple)


@given(PARTS, JSON, st.booleans())
def test_result_survives_the_round_trip(parts, structured, is_error):
    call = ToolCall("c", "t", {})
    result = ToolResult("c", "t", parts, structured, is_error)
    found = read_result(json.loads(dumps(encode_result(result))), call)
    assert same(found.structured, structured)
    assert found.is_error is is_error
    spoken = structured is not None and not any(isinstance(part, Text) for part in parts)
    assert [part for part in found.parts if isinstance(part, Media)] == [
        part for part in parts if isinstance(part, Media)
    ]
    assert len(found.parts) == len(parts) + spoken


@given(PARTS, JSON, st.sampled_from(KNOWN))
def test_each_version_gets_only_block_types_it_defines(parts, structured, version):
    kinds = {"text", "image", "resource"} | ({"audio"} if version >= "2025-03-26" else set())
    kinds |= {"resource_link"} if version >= "2025-06-18" else set()
    out = encode_result(ToolResult("c", "t", parts, structured), version=version)
    assert {block["type"] for block in out["content"]} <= kinds


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_can_be_encoded_as_a_header_value(text):
    said = encode_value(text)
    assert said.isascii()
    assert said.isprintable()
    assert decode_value(said) == text
