"""Marks of the prompt cache on stable prefixes, in the bodies that are sent."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from toolwire import prepare
from toolwire.audit import check_body
from toolwire.bridge import mark_stable_prefix
from toolwire.ir import Message, Params, Request, Text, Tool, ToolCall
from toolwire.wire import get
from toolwire.wire.models.capabilities import ModelCapabilities

LONG = "x " * 3000
TOOLS = tuple(
    Tool(name, LONG, {"type": "object", "properties": {"city": {"type": "string"}}}) for name in ("look", "find")
)
CALL = ToolCall("call_1", "look", {"city": "Paris"})
FIRST = Request("claude-sonnet-5", (Message("system", (Text("Be brief."),)), Message("user", (Text("Hi."),))), TOOLS)
SECOND = replace(
    FIRST, messages=(*FIRST.messages, Message("assistant", (CALL,)), Message("user", (CALL.result("22 °C"),)))
)


def body(request: Request, wire: str) -> dict:
    codec = get(wire)
    prepared = prepare(mark_stable_prefix(request, codec), codec)
    assert not [loss for loss in prepared.losses if "cache" in loss.path]
    return codec.encode_request(prepared.request).body


def marks(value, path="") -> list[str]:
    """The pointers of all cache_control fields."""
    if isinstance(value, dict):
        found = [path] if "cache_control" in value else []
        return found + [one for name, item in value.items() for one in marks(item, f"{path}/{name}")]
    return (
        [one for index, item in enumerate(value) for one in marks(item, f"{path}/{index}")]
        if isinstance(value, list)
        else []
    )


def test_anthropic_prefix_is_marked_after_tools_system_and_the_last_user_messages():
    sent = body(SECOND, "anthropic")
    assert sorted(marks(sent)) == ["/messages/0/content/0", "/messages/2/content/0", "/system/0", "/tools/1"]
    assert check_body(sent, "anthropic", "claude-sonnet-5", version="2026-10-21") == []


def test_end_of_the_previous_request_stays_marked():
    assert "/messages/0/content/0" in marks(body(FIRST, "anthropic"))
    assert "/messages/0/content/0" in marks(body(SECOND, "anthropic"))


def test_short_prefix_is_not_marked():
    assert marks(body(replace(FIRST, tools=()), "anthropic")) == []


def test_deferred_tool_is_not_marked():
    tools = (TOOLS[0], replace(TOOLS[1], deferred=True))
    assert mark_stable_prefix(replace(FIRST, tools=tools), get("anthropic")).tools[0].cache == "default"
    assert mark_stable_prefix(replace(FIRST, tools=tools), get("anthropic")).tools[1].cache is None


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
def test_openai_gets_a_key_that_stays_the_same_during_a_conversation(wire):
    first, second = body(FIRST, wire), body(SECOND, wire)
    assert first["prompt_cache_key"] == second["prompt_cache_key"]
    assert len(first["prompt_cache_key"]) <= 64
    more_tools = replace(SECOND, tools=(*TOOLS, Tool("new")))
    assert body(more_tools, wire)["prompt_cache_key"] == first["prompt_cache_key"]
    other = replace(FIRST, messages=(Message("system", (Text("Be polite."),)), *FIRST.messages[1:]))
    assert body(other, wire)["prompt_cache_key"] != first["prompt_cache_key"]


@pytest.mark.parametrize("wire", ["gemini", "ollama"])
def test_wire_without_marks_gets_an_unchanged_request(wire):
    assert mark_stable_prefix(SECOND, get(wire)) is SECOND


@pytest.mark.parametrize(
    "request_with_marks",
    [
        replace(FIRST, tools=(replace(TOOLS[0], cache="1h"),)),
        replace(FIRST, messages=(Message("user", (Text("a", cache="5m"),)),)),
        replace(FIRST, extra={"anthropic": {"cache_control": {"type": "ephemeral"}}}),
        replace(FIRST, extra={"openai_chat": {"cache_control": {"type": "ephemeral"}}}),
    ],
)
@pytest.mark.parametrize("wire", ["anthropic", "openai_chat"])
def test_marks_of_the_author_are_kept(request_with_marks, wire):
    assert mark_stable_prefix(request_with_marks, get(wire)) is request_with_marks


def test_key_of_the_author_is_kept_and_is_no_mark():
    keyed = replace(FIRST, params=Params(cache_key="mine"))
    assert mark_stable_prefix(keyed, get("openai_chat")) is keyed
    assert mark_stable_prefix(keyed, get("anthropic")).tools[1].cache == "default"


def test_minimum_of_the_model_decides():
    model = ModelCapabilities(cache_minimum=4096)
    assert mark_stable_prefix(SECOND, get("anthropic"), model) is SECOND
    assert mark_stable_prefix(SECOND, get("anthropic"), ModelCapabilities(cache_minimum=2048)) is not SECOND


def test_adjacent_user_messages_are_one_turn():
    apart = replace(SECOND, messages=(*SECOND.messages, Message("user", (Text("Go on."),))))
    marked = mark_stable_prefix(apart, get("anthropic")).messages
    assert [[part.cache for part in message.parts] for message in marked] == [
        ["default"],
        ["default"],
        [None],
        [None],
        ["default"],
    ]


def test_long_turn_gets_the_marks_that_are_left():
    """Without tools and a system prompt, two marks are left for a turn of more than 20 blocks."""
    calls = [ToolCall(f"call_{number}", "look", {}) for number in range(30)]
    turn = (Message("assistant", tuple(calls)), Message("user", tuple(call.result("22 °C") for call in calls)))
    request = replace(FIRST, messages=(Message("user", (Text(LONG),)), *turn), tools=())
    parts = [part for message in mark_stable_prefix(request, get("anthropic")).messages for part in message.parts]
    assert [number for number, part in enumerate(parts) if part.cache] == [0, 20, 40, 60]
