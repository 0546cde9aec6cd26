"""Vendors are rows: each is sound, and what a row changes in a wire stays in that row."""

from urllib.parse import urlsplit

import pytest

from toolwire.bridge.preparation import prepare
from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Message, Request
from toolwire.schema.dialects import dialect
from toolwire.wire import get
from toolwire.wire.vendors import find, names, vendor_codec


@pytest.mark.parametrize("name", names())
def test_vendor_row_is_valid(name):
    vendor = find(name)
    parts = urlsplit(vendor.base_url)
    local = parts.hostname == "localhost"
    assert parts.scheme == ("http" if local else "https")
    assert not vendor.base_url.endswith("/")
    assert vendor.keyless == local
    assert vendor.keys or vendor.transport
    codec = vendor_codec(vendor)
    assert dialect(codec.dialect)
    assert codec.path("m", stream=True).startswith("/")


def test_common_vendors_are_listed():
    usual = "openai anthropic gemini google mistral deepseek groq together openrouter fireworks xai cerebras"
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
