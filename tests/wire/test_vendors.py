"""Vendors are rows: each is sound, and what a row changes in a wire stays in that row."""

import json
import re
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from tables import every_case
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Message, Request
from toolwire.schema.dialects import dialect
from toolwire.wire import get
from toolwire.wire.models.vendor_codecs import vendor_codec
from toolwire.wire.models.vendors import find, names


@every_case("name", names())
def test_vendor_row_is_valid(name):
    vendor = find(name)
    parts = urlsplit(vendor.base_url)
    local = parts.hostname == "localhost"
    assert parts.scheme == ("http" if local else "https") or (not vendor.base_url and vendor.base_variable)
    assert not vendor.base_url.endswith("/")
    assert vendor.keyless == local
    assert vendor.keys or vendor.transport
    codec = vendor_codec(vendor)
    assert dialect(codec.dialect)
    assert codec.path("m", stream=True).startswith("/")


@every_case("name", names())
def test_surfaces_of_a_vendor_are_valid(name):
    vendor = find(name)
    for surface in vendor.surfaces:
        assert get(surface.wire).name == surface.wire
        settings = {
            field for path in (surface.path, surface.stream_path or "") for field in re.findall(r"\{(\w+)\}", path)
        }
        assert settings <= {"model", "api_version", *vendor.variables}
        assert surface.path.startswith("/")
        if surface.api_version:
            assert re.fullmatch(surface.api_versions, surface.api_version)
    assert not vendor.surfaces or vendor_codec(vendor).name in {surface.wire for surface in vendor.surfaces}


@pytest.mark.parametrize(
    ("vendor", "dropped", "kept"),
    [
        (
            "gemini",
            {
                "/modelArmorConfig",
                "/safetySettings/0/method",
                "/generationConfig/audioTimestamp",
                "/toolConfig/functionCallingConfig/streamFunctionCallArguments",
                "/tools/1/googleSearch/excludeDomains",
            },
            {"store", "labels"},
        ),
        (
            "vertex",
            {
                "/store",
                "/toolConfig/includeServerSideToolInvocations",
                "/contents/0/parts/0/partMetadata",
                "/contents/1/parts/0",
                "/contents/1/parts/1",
                "/contents/2/parts/0/functionResponse/willContinue",
                "/tools/0/fileSearch",
            },
            {"labels", "modelArmorConfig"},
        ),
    ],
)
def test_fields_that_only_the_other_google_api_has_are_dropped_with_a_loss(vendor, dropped, kept):
    codec = vendor_codec(find(vendor))
    request = codec.decode_request(GOOGLE_REQUEST)
    prepared = prepare(request, codec)
    body = codec.encode_request(prepared.request).body
    locate = codec.locator(request)
    assert {locate(loss.path) for loss in prepared.losses if loss.action == "dropped"} == dropped
    assert kept <= body.keys()
    written = json.dumps(body)
    assert ("toolCall" in written) == (vendor == "gemini")
    assert not any(f'"{pointer.rpartition("/")[2]}"' in written for pointer in dropped)
    assert get("gemini").encode_request(request).body == GOOGLE_REQUEST  # the wire itself keeps everything


GOOGLE_REQUEST = {
    "contents": [
        {"role": "user", "parts": [{"text": "x", "partMetadata": {"a": 1}}]},
        {
            "role": "model",
            "parts": [
                {"toolCall": {"id": "1", "toolType": "FILE_SEARCH", "args": {}}},
                {"toolResponse": {"id": "1", "toolType": "FILE_SEARCH", "response": {}}},
                {"functionCall": {"name": "f", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}, "willContinue": True}}],
        },
    ],
    "store": True,
    "labels": {"team": "search"},
    "modelArmorConfig": {"promptTemplateName": "t"},
    "safetySettings": [{"category": "A", "threshold": "B", "method": "SEVERITY"}],
    "toolConfig": {
        "functionCallingConfig": {"mode": "AUTO", "streamFunctionCallArguments": True},
        "includeServerSideToolInvocations": True,
    },
    "generationConfig": {"audioTimestamp": True},
    "tools": [
        {"fileSearch": {"fileSearchStoreNames": ["s"]}},
        {"googleSearch": {"excludeDomains": ["example.com"]}},
        {"functionDeclarations": [{"name": "f"}]},
    ],
}


@pytest.mark.parametrize(
    ("wire", "status", "body", "kind"),
    [
        ("openai_chat", 401, {"statusCode": 401, "message": "Access token is missing"}, "authentication"),
        ("openai_chat", 401, {"error": {"code": "401", "message": "Access denied"}}, "authentication"),
        ("openai_chat", 404, {"error": {"code": "DeploymentNotFound", "message": "no deployment"}}, "not_found"),
        ("openai_chat", 429, {"error": {"code": "429", "message": "Please retry after 6 seconds."}}, "rate_limit"),
        (
            "openai_chat",
            400,
            {
                "error": {
                    "message": "filtered",
                    "type": None,
                    "param": "prompt",
                    "code": "content_filter",
                    "status": 400,
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            },
            "invalid_request",
        ),
        ("openai_responses", 404, {"error": {"code": "404", "message": "Resource not found"}}, "not_found"),
        ("anthropic", 401, [{"error": {"code": 401, "message": "m", "status": "UNAUTHENTICATED"}}], "authentication"),
        ("anthropic", 429, {"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}, "rate_limit"),
        ("gemini", 403, [{"error": {"code": 403, "message": "m", "status": "PERMISSION_DENIED"}}], "permission"),
    ],
)
def test_errors_of_azure_and_vertex_are_decoded(wire, status, body, kind):
    fault = get(wire).decode_error(status, body, {})
    error = body[0] if isinstance(body, list) else body
    assert (fault.kind, fault.status, fault.message) == (kind, status, error.get("error", error)["message"])


def test_common_vendors_are_listed():
    usual = (
        "openai anthropic gemini google azure vertex mistral deepseek groq together openrouter fireworks xai cerebras"
    )
    local = "ollama vllm tgi llamacpp lmstudio"
    assert set(f"{usual} {local}".split()) <= set(names())


def test_vendor_settings_do_not_change_the_shared_wire():
    mistral = vendor_codec(find("mistral"))
    assert (mistral.dialect, mistral.limits.id_length) == ("mistral", 9)
    assert (get("openai_chat").dialect, get("openai_chat").limits.id_length) == ("openai", 40)
    assert vendor_codec(find("mistral"), "anthropic") is get("anthropic")


def test_ids_of_a_history_are_legal_for_the_vendor():
    messages = (
        Message("user", (Text("x"),)),
        Message("assistant", (ToolCall("call_0123456789", "t", {}),)),
        Message("user", (ToolResult("call_0123456789", "t", (Text("y"),)),)),
    )
    fitted = prepare(Request("m", messages), vendor_codec(find("mistral"))).request
    (call,) = [part for message in fitted.messages for part in message.parts if isinstance(part, ToolCall)]
    assert len(call.id) == 9
    assert call.id.isalnum()


def test_vendor_without_a_tool_limit_keeps_its_rule_for_ids():
    mistral = replace(find("mistral"), limits_tools=False)
    assert (vendor_codec(mistral).limits.tools, vendor_codec(mistral).limits.id_length) == (None, 9)
