"""The gateway's own OpenAPI document: complete, valid, true of real answers, and readable by our own loader."""

import json
import re

import jsonschema_rs
import pytest
from openapi_spec_validator import validate

from gateway_client import send
from hostile import run
from responses_sdk import text_answer, world
from toolwire import ToolCall
from toolwire.gateway.request.openapi_document import openapi_document, path_templates
from toolwire.gateway.request.routes import ROUTE_TABLE, ROUTED, match_route
from toolwire.mcp import Server
from toolwire.net import Runner
from toolwire.openapi import toolbox
from toolwire.run import Toolbox
from toolwire.stream.event_stream import is_event_stream

pytestmark = pytest.mark.finding("NU9")
DOCUMENT = json.loads(openapi_document(requires_key=True, has_mcp=True))
KEY = {"authorization": "Bearer sk-ann"}
OPERATIONS = [
    (method, path, operation) for path, found in DOCUMENT["paths"].items() for method, operation in found.items()
]


def test_every_route_is_described_under_a_path_that_leads_to_it():
    """A new action without a row in the document's table fails here with its name."""
    described = {(method.upper(), path) for method, path, _ in OPERATIONS}
    for method, pattern, action, wire in ROUTE_TABLE:
        for path in path_templates(pattern):
            described.remove((method, path))
            route = match_route(method, re.sub(r"\{\w+\}", "x", path), {})
            assert (route.action, route.ingress) == (action, ROUTED[wire]), path
    assert {path for _, path in described} == {"/mcp"}


@pytest.mark.parametrize("requires_key", [False, True])
@pytest.mark.parametrize("has_mcp", [False, True])
def test_document_is_valid(requires_key, has_mcp):
    document = json.loads(openapi_document(requires_key=requires_key, has_mcp=has_mcp, root_path="/llm"))
    validate(document)
    assert ("security" in document, "/mcp" in document["paths"]) == (requires_key, has_mcp)
    assert document["servers"] == [{"url": "/llm"}]


def check_body(answer, body):
    """Check a real body against the schema of a described answer, and for the fields of the example."""
    media = answer["content"]["application/json"]
    jsonschema_rs.validator_for(media["schema"]).validate(body)
    examples = [found["value"] for found in media.get("examples", {}).values()] or [media.get("example", {})]
    assert isinstance(body, list) or any(set(example) <= set(body) for example in examples), body


@run
async def test_real_answers_and_errors_have_the_described_shape(tmp_path):
    """Request every operation with its own example as the body, then with an unknown key."""
    ids, store = {}, str(tmp_path / "responses.db")
    created_first = sorted(
        OPERATIONS,
        key=lambda found: (found[0] == "delete", found[1].count("{") if found[0] != "delete" else -found[1].count("{")),
    )
    async with world(*[text_answer("Hello.")] * 16, store=store, models={"MODEL": {"upstream": "openai_chat"}}) as at:
        for method, template, operation in created_first:
            if template in ("/mcp", "/metrics"):
                continue
            kind = [*template.split("/"), ""][2]
            url = at.gateway.url + template.replace("{model}", "MODEL").replace("{id}", ids.get(kind, "x"))
            url = url.replace("{item}", ids.get("item", "x"))
            content = operation.get("requestBody", {"content": {"application/json": {"schema": {}}}})["content"]
            media = content["application/json"]
            example = media.get("example", {"model": "MODEL", "items": [{"role": "user", "content": "Hello."}]})
            jsonschema_rs.validator_for(media["schema"]).validate(example)
            stored = {"store": True, "background": True} if template == "/v1/responses" else {}
            body = json.dumps({**example, **stored}).encode() if "requestBody" in operation else b""
            status, headers, data = await send(method.upper(), url, body, KEY)
            if "200" in operation["responses"]:
                assert status == 200, (template, data)
                if template.endswith("-stream"):
                    [media_type] = operation["responses"]["200"]["content"]
                    assert headers["content-type"] == media_type and is_event_stream(data)
                    continue
                check_body(operation["responses"]["200"], json.loads(data))
                if template in ("/v1/conversations", "/v1/responses"):
                    ids[kind] = json.loads(data)["id"]
                elif method == "post" and template.endswith("/items"):
                    ids["item"] = json.loads(data)["data"][0]["id"]
            else:
                assert status >= 400, template
            status, headers, data = await send(method.upper(), url, body, {"authorization": "Bearer no"})
            assert status == (200 if operation.get("security") == [] else 401), template
            if status == 401:
                name = operation["responses"]["default"]["$ref"].rpartition("/")[2]
                check_body(DOCUMENT["components"]["responses"][name], json.loads(data))
                assert "x-request-id" in headers
    assert set(ids) == {"conversations", "responses", "item"}


@run
async def test_own_loader_makes_tools_of_a_running_gateway():
    async with world(text_answer("Hello."), store=None, options={"publish": Server(Toolbox())}) as at:
        status, headers, data = await send("GET", at.gateway.url + "/openapi.json", b"", KEY)
        assert (status, headers["content-type"]) == (200, "application/json")
        document = json.loads(data)
        assert document == DOCUMENT
        async with toolbox(document, base_url=at.gateway.url, auth={"bearer": "sk-ann"}) as tools:
            assert not tools.problems
            assert len(tools) == len(OPERATIONS)
            chat = {"model": "openai_chat/m", "messages": [{"role": "user", "content": "Hello."}]}
            [alive, listed, answer] = await Runner(tools).run(
                [
                    ToolCall("1", "get_health", {}),
                    ToolCall("2", "get_v1beta_models", {"pageSize": "1"}),
                    ToolCall("3", "post_v1_chat_completions", {"body": chat}),
                ]
            )
            assert not any(result.is_error for result in (alive, listed, answer)), (alive, listed, answer)
            assert '"ok"' in alive.text and "Hello." in answer.text
