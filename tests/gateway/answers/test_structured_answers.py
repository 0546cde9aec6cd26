"""Structured outputs through the gateway, from every client wire to every upstream wire."""

from __future__ import annotations

import json

import openai
import pytest
from google import genai
from pydantic import BaseModel, TypeAdapter

from hostile import decode_answer, gateway_to, path_of, post, run
from toolwire import Message, Request, Response, Text
from toolwire.ir.request import OutputFormat
from toolwire.ir.response import Stop
from toolwire.ir.text import to_bytes
from toolwire.schema.dialects import output_dialect
from toolwire.schema.lowering.conformance import violations
from toolwire.schema.lowering.lowered import lower
from toolwire.wire import get

WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 40},
        "days": {"type": "integer", "minimum": 1},
        "scores": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "required": ["city"],
}
VALUE = {"city": "Paris", "scores": {"rain": 0.5}}
LIST = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}


def body_of(front: str, schema: object, model: str, *, stream: bool) -> bytes:
    output = OutputFormat("json_schema", schema, "place", strict=True)
    request = Request(model, (Message("user", (Text("Weather in Paris?"),)),), output=output, stream=stream)
    return to_bytes(get(front).encode_request(request).body)


@pytest.mark.finding("G4")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", WIRES)
@pytest.mark.parametrize("upstream", WIRES)
@run
async def test_upstreams_get_their_dialect_and_clients_their_schema(upstream, front, stream):
    dialect = output_dialect(get(upstream).dialect, strict=True)
    cases = ((SCHEMA, VALUE), (LIST, [{"n": 1}, {"n": 2}]))
    texts = [
        json.dumps(value if front == upstream else lower(schema, dialect).encode(value)) for schema, value in cases
    ]
    answers = [Response(parts=(Text(text),), stop=Stop("stop")) for text in texts]
    async with gateway_to(*answers) as (gateway, provider):
        for schema, value in cases:
            path = path_of(front, f"{upstream}/m", stream=stream)
            reply = await post(gateway, path, body_of(front, schema, f"{upstream}/m", stream=stream))
            assert json.loads(decode_answer(reply, front, stream=stream).text) == value
            if front != upstream:
                output = provider.requests[-1].request.output
                assert output.schema == lower(schema, dialect).schema
                assert violations(output.schema, dialect) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["I cannot answer that.", '{"city": "Paris", "scores": [{"key": "ra', ""])
@run
async def test_answers_of_another_form_reach_the_client(text, stream):
    answer = Response(parts=(Text(text),) if text else (), stop=Stop("length"))
    async with gateway_to(answer) as (gateway, _):
        path = path_of("openai_chat", stream=stream)
        reply = await post(gateway, path, body_of("openai_chat", SCHEMA, "anthropic/m", stream=stream))
    received = decode_answer(reply, "openai_chat", stream=stream)
    assert received.stop == Stop("length")
    assert received.text.replace(" ", "") == text.replace(" ", "")


GEMINI = {
    "contents": [{"role": "user", "parts": [{"text": "Weather?"}]}],
    "generationConfig": {
        "responseMimeType": "application/json",
        "responseSchema": {
            "type": "OBJECT",
            "properties": {
                "city": {"type": "STRING", "nullable": True},
                "days": {"type": "INTEGER", "enum": ["1", "3"]},
            },
            "required": ["city"],
            "propertyOrdering": ["days", "city"],
        },
    },
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("upstream", WIRES)
@run
async def test_response_schemas_of_gemini_clients_are_converted(upstream, stream):
    answer = Response(parts=(Text('{"city": null, "days": 3}'),), stop=Stop("stop"))
    async with gateway_to(answer) as (gateway, provider):
        reply = await post(gateway, path_of("gemini", f"{upstream}/m", stream=stream), json.dumps(GEMINI).encode())
    assert json.loads(decode_answer(reply, "gemini", stream=stream).text) == {"city": None, "days": 3}
    heard = provider.requests[0]
    if upstream == "gemini":
        assert json.loads(heard.body)["generationConfig"] == GEMINI["generationConfig"]
    else:
        for keyword in (b"OBJECT", b"STRING", b"INTEGER", b"nullable", b"propertyOrdering"):
            assert keyword not in heard.body
        assert list(heard.request.output.schema["properties"]) == ["days", "city"]


class Item(BaseModel):
    name: str
    note: str | None = None
    scores: dict[str, float] = {}


@pytest.mark.parametrize("upstream", ["anthropic", "gemini", "ollama", "openai_responses"])
@run
async def test_openai_sdk_parses_answers_of_other_providers(upstream):
    async with gateway_to(encoded_answer(Item(name="a", scores={"x": 1.5}))) as (gateway, _):
        client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="-")
        completion = await client.chat.completions.parse(
            model=f"{upstream}/m", messages=[{"role": "user", "content": "x"}], response_format=Item
        )
        await client.close()
    assert completion.choices[0].message.parsed == Item(name="a", scores={"x": 1.5})


@pytest.mark.parametrize("upstream", ["anthropic", "ollama", "openai_chat", "openai_responses"])
@run
async def test_gemini_sdk_parses_lists_of_other_providers(upstream):
    items = [Item(name="a"), Item(name="b", note="c")]
    async with gateway_to(encoded_answer(items)) as (gateway, _):
        client = genai.Client(api_key="-", http_options={"base_url": gateway.url})
        config = {"response_mime_type": "application/json", "response_schema": list[Plain]}
        answer = await client.aio.models.generate_content(model=f"{upstream}/m", contents="x", config=config)
    assert answer.parsed == [Plain(name="a"), Plain(name="b", note="c")]


class Plain(BaseModel):
    name: str
    note: str | None = None


def encoded_answer(value):
    """A function that answers in the shape of the schema that the upstream was sent."""

    def answer(request: Request) -> Response:
        sent = request.output.schema
        document = TypeAdapter(list[Item] | Item).dump_python(value, mode="json")
        return Response(parts=(Text(json.dumps(shaped(document, sent))),), stop=Stop("stop"))

    return answer


def shaped(value, schema):
    """Write a value as a model would under a lowered schema: a wrapped root, lists of keys and values for maps."""
    if isinstance(value, list) and schema.get("type") == "object":
        return {"value": value}
    scores = schema.get("properties", {}).get("scores")
    if isinstance(value, dict) and scores is not None and "object" not in str(scores.get("type")):
        entries = [{"key": key, "value": number} for key, number in value["scores"].items()]
        return {**value, "scores": entries}
    return value
