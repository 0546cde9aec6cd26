"""Names and ids that the target takes, and the way back."""

import re

import pytest

from toolwire.bridge.conversation.names import IdAllocator, NameMap
from toolwire.wire import get
from toolwire.wire.protocol import Limits


@pytest.mark.parametrize("wire", ["anthropic", "gemini", "openai_chat", "openai_responses"])
def test_ten_thousand_names_stay_distinct_and_are_restored(wire):
    codec = get(wire)
    names = NameMap(codec.limits, codec.capabilities.namespaces)
    odd = [f"{stem}{n}{mark}" for n in range(1250) for stem in ("a/b.", "long" * 40) for mark in ("", " ", "é", "/x")]
    mapped = {name: names.to_wire(None, name) for name in odd}
    assert len(set(mapped.values())) == len(odd) == 10_000
    for name, legal in mapped.items():
        assert len(legal) <= codec.limits.name_length
        assert re.fullmatch(codec.limits.name, legal)
        assert names.from_wire(None, legal) == (None, name)


def test_legal_names_are_unchanged():
    names = NameMap(get("openai_chat").limits, namespaces=False)
    assert names.to_wire(None, "get_weather") == "get_weather"
    assert names.from_wire(None, "never_seen") == (None, "never_seen")


def test_namespace_becomes_a_name_prefix_on_wires_without_namespaces():
    names = NameMap(get("anthropic").limits, namespaces=False)
    assert names.to_wire("agents", "close") == "agents__close"
    assert names.from_wire(None, "agents__close") == ("agents", "close")
    assert names.to_wire(None, "agents__close") != "agents__close"


def test_the_mapping_does_not_depend_on_other_names():
    limits = get("openai_chat").limits
    alone = NameMap(limits, namespaces=False).to_wire(None, "a.b")
    crowded = NameMap(limits, namespaces=False)
    for n in range(100):
        crowded.to_wire(None, f"x.{n}")
    assert crowded.to_wire(None, "a.b") == alone


def test_legal_unique_ids_are_unchanged():
    ids = IdAllocator(get("openai_chat").limits)
    assert ids.assign("call_1", "f") == "call_1"
    again = ids.assign("call_1", "f")
    assert again != "call_1"
    assert re.fullmatch("[a-z0-9]{9}", again)


def test_generated_ids_are_the_same_in_every_turn():
    def first(count):
        ids = IdAllocator(get("openai_chat").limits)
        return [ids.assign("", "f") for _ in range(count)]

    assert first(10)[:5] == first(5)
    assert len(set(first(1000))) == 1000


@pytest.mark.parametrize("name", ["get-weather", "9 lives", "-", "ünïcode", "a.b/c"])
def test_sanitised_names_are_legal_under_narrow_limits(name):
    limits = Limits(name=r"[a-zA-Z_][a-zA-Z0-9_]*", name_length=20, id=".*", id_length=9)
    wire = NameMap(limits, namespaces=False).to_wire(None, name)
    assert re.fullmatch(limits.name, wire) and len(wire) <= 20
