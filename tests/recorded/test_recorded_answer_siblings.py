"""Siblings of recorded answers: an unknown field, an unknown type, a null or an absent field in every place.

A provider sends tomorrow what it did not send when the answers were recorded.
"""

import json
from functools import cache

import pytest
from recorded_answers import wholes
from recorded_shapes import VECTORS, sites_in, variations
from recorded_traffic import require_recordings

import toolwire
from toolwire.testing.assertions import differences
from toolwire.wire import get, names

WIRES = [name for name in names() if "@" not in name]
NEVER_REFUSED = ("unknown fields", "unknown type")
OTHER_VALUES = ("as text", "as float", "twice", "other")  # which mean something else, or the same in another spelling

REWRITTEN = {
    ("openai_chat", "/choices/*/index", "null"): "a choice has an index",
    ("openai_chat", "/choices", "without a list"): "choices are a list",
    ("openai_chat", "/choices/*/message/tool_calls<assistant>", "without a list"): "calls are a list",
    **{
        ("openai_responses", f"/output/*/{field}", name): "required by clients: an empty object, an id of its own"
        for field in ("arguments<function_call>", "call_id<function_call>", "call_id<custom_tool_call>")
        for name in ("null", "removed")
    },
    ("gemini", "/candidates/*", "empty"): "a candidate has an index",
    ("gemini", "/candidates/*/finishReason", "empty"): "a message about the finish without a finish",
    ("gemini", "/candidates/*/finishReason", "null"): "a message about the finish without a finish",
    ("gemini", "/candidates/*/finishReason", "removed"): "a message about the finish without a finish",
    ("ollama", "/done", "null"): "done is a boolean",
}
"""(wire, shape, variation) that is written in another way: reason."""


@cache
def sites(wire):
    require_recordings()
    vectors = json.loads((VECTORS / f"{wire}.json").read_text(encoding="utf-8"))
    known = [(one.name, one.body) for one in wholes() if one.wire == wire]
    return sites_in(
        wire, known + [(f"vector {one['name']}", one["body"]) for one in vectors if one["kind"] == "response"]
    )


def siblings(wire):
    for site in sites(wire):
        yield from ((site, name, site.replaced(value)) for name, value in variations(site) if name not in OTHER_VALUES)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("wire", WIRES)
def test_unknown_fields_and_types_are_never_refused(wire):
    for site, name, body in siblings(wire):
        if name in NEVER_REFUSED and site.path[-1] != "error":
            assert get(wire).decode_response(body) is not None, site


@pytest.mark.one_in(5)
@pytest.mark.parametrize("wire", WIRES)
def test_siblings_are_rejected_or_round_trip_unchanged(wire):
    codec, changes, used = get(wire), [], set()
    for site, name, body in siblings(wire):
        try:
            response = codec.decode_response(body)
        except toolwire.ToolwireError:
            continue
        written = codec.encode_response(response).body
        if response.fault is not None or json.dumps(written, sort_keys=True) == json.dumps(body, sort_keys=True):
            continue
        key = (wire, site.shape, name)
        used.add(key)
        changes += [] if key in REWRITTEN else [f"{name}: {site} changed at {differences(written, body)}"]
    assert not changes, "\n".join(changes)
    assert used == {key for key in REWRITTEN if key[0] == wire}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("wire", WIRES)
def test_siblings_are_translated_to_every_other_wire(wire):
    """An answer that can be read can be written anywhere: at worst as an error of the other wire."""
    for site, name, body in siblings(wire):
        if name not in NEVER_REFUSED:
            continue
        for target in WIRES:
            if target != wire:
                translation = toolwire.translate(body, source=wire, target=target, kind="response")
                assert translation.status == 200 or get(wire).decode_response(body).fault is not None, site
