"""Losses point at the exact field of the source, and at the rest of the statement in the target."""

from __future__ import annotations

from copy import deepcopy

import pytest

import toolwire
from loss_pointers import unresolved
from places import TESTS
from tables import every_case
from toolwire.ir.errors import ToolwireError
from toolwire.ir.pointer import find_field, join, resolve
from toolwire.testing import load_vectors

WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")
VECTORS = TESTS / "vectors" / "wire"
DATA = frozenset(
    "args arguments format input input_examples input_schema labels logit_bias metadata options output_schema parameters "
    "parametersJsonSchema parameters_json_schema properties response result responseJsonSchema responseSchema "
    "response_json_schema schema".split()
)
"""Fields whose objects are data: they have no unknown fields."""
DATA_OF = {"cohere": DATA | {"data", "json_schema"}}
"""Further such fields of single wires."""
OPAQUE = frozenset({"search_result", "table", "thinking", "tool_reference"})
"""Parts of a tool result that only one wire has, which are sent as text as a whole."""


def objects(value, data, path=()):
    """Yield the pointer segments of every object that a wire defines."""
    if isinstance(value, dict):
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key not in data or isinstance(inner, list):
            yield from objects(inner, data, (*path, key))


def with_unknown_fields(wire):
    """Yield each kind of object in the request vectors once, with an unknown field: (pointer of the field, document)."""
    seen = set()
    for vector in load_vectors(VECTORS / f"{wire}.json"):
        if vector.kind != "request":
            continue
        for path in objects(vector.body, DATA_OF.get(wire, DATA)):
            found = resolve(vector.body, join(*path))
            kind = (
                tuple("*" if isinstance(one, int) else one for one in path),
                str(found.get("type")),
                found.get("role"),
            )
            if kind in seen or "input_examples" in path or found.get("type") in OPAQUE or "properties" in found:
                continue
            seen.add(kind)
            document = deepcopy(vector.body)
            resolve(document, join(*path))["x_unknown"] = 1
            yield join(*path, "x_unknown"), document


@pytest.mark.finding("S14")
@pytest.mark.parametrize("source", WIRES)
def test_loss_of_an_unknown_field_points_at_the_field(source):
    """It may also be reported with the part that contains it, if all of that is dropped."""
    wrong = []
    for pointer, document in with_unknown_fields(source):
        for target in WIRES:
            try:
                losses = toolwire.translate_request(document, source=source, target=target, model="m").losses
            except ToolwireError:
                continue
            whole = [
                one for one in losses if one.action == "dropped" and one.path and pointer.startswith(f"{one.path}/")
            ]
            if source != target and not whole and pointer not in [loss.path for loss in losses]:
                wrong.append((target, pointer, [loss.path for loss in losses if "x_unknown" in loss.concept]))
    assert wrong == []


@every_case("target", WIRES)
@every_case("source", WIRES)
def test_pointers_of_request_losses_resolve(source, target):
    if source == target:
        return
    found = 0
    for vector in load_vectors(VECTORS / f"{source}.json"):
        if vector.kind == "request":
            try:
                translation = toolwire.translate_request(vector.body, source=source, target=target, model="m")
            except ToolwireError:
                continue
            assert unresolved(vector.body, translation) == []
            found += sum(loss.target is not None for loss in translation.losses)
    assert found


@every_case("target", WIRES)
@every_case("source", WIRES)
def test_pointers_of_answer_losses_resolve(source, target):
    if source == target:
        return
    for vector in load_vectors(VECTORS / f"{source}.json"):
        if vector.kind == "response":
            translation = toolwire.translate_response(vector.body, source=source, target=target)
            assert unresolved(vector.body, translation) == []


@every_case("target", [*WIRES, "mcp"])
@every_case("source", WIRES)
def test_pointers_of_tool_losses_resolve(source, target):
    if source == target:
        return
    for vector in load_vectors(VECTORS / f"{source}.json"):
        if vector.kind == "request" and isinstance(vector.body.get("tools"), list):
            for document in (vector.body["tools"], {"tools": vector.body["tools"]}):
                translation = toolwire.translate_tools(document, source=source, target=target)
                assert unresolved(document, translation) == []


def translated(body, target, source="anthropic"):
    return toolwire.translate_request({"model": "m", "max_tokens": 9, **body}, source=source, target=target)


def target_of(translation, concept):
    (loss,) = [loss for loss in translation.losses if loss.concept == concept]
    return loss.path, loss.target


def test_renamed_tool_points_at_both_names():
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("plain", "with.dots!")]
    messages = [{"role": "user", "content": "hi"}]
    translation = translated({"messages": messages, "tools": tools}, "gemini")
    assert target_of(translation, "tool name") == ("/tools/1/name", "/tools/0/functionDeclarations/1/name")


def test_part_that_moves_to_a_message_of_its_own_is_found_there():
    result = {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True}
    first = {"type": "tool_result", "tool_use_id": "t1", "content": "yes"}
    calls = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("t1", "t2")]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [first, result]},
    ]
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    translation = translated({"messages": messages, "tools": tools}, "openai_chat")
    assert target_of(translation, "is_error") == ("/messages/2/content/1/is_error", "/messages/3")
    assert translation.body["messages"][3]["tool_call_id"] == "t2"


def test_dropped_statement_has_no_target():
    translation = translated({"messages": [{"role": "user", "content": "hi"}], "top_k": 3}, "openai_chat")
    assert target_of(translation, "top_k") == ("/top_k", None)


def test_loss_shows_its_target():
    loss = toolwire.Loss("/a", "thing", "moved", "info", "why", "/b/0")
    assert str(loss) == "info  /a → /b/0  thing moved: why"


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("/tools/0/x", "/tools/0/custom/format/x"),
        ("/tools/0/format/x", "/tools/0/custom/format/x"),
        ("/tools/0/y", None),  # two objects have it
        ("/tools/0/none", None),
    ],
)
def test_field_of_a_nested_object_is_found(pointer, found):
    document = {"tools": [{"custom": {"format": {"x": 1, "y": 1}, "y": 2}}]}
    assert find_field(document, pointer) == found


def test_schema_of_a_bare_value_of_gemini_has_its_own_pointer():
    config = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["Yes", "No"]}}
    body = {"contents": [{"role": "user", "parts": [{"text": "u"}]}], "generationConfig": config}
    losses = toolwire.translate(body, source="gemini", target="openai_chat", model="m").losses
    paths = {loss.path for loss in losses if loss.action == "dropped"}
    assert paths == {"/generationConfig/responseMimeType", "/generationConfig/responseSchema"}
