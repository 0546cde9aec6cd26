"""Numbered pains: what users of tool calling have reported, and what holds here instead."""

import json
from typing import Any

import pytest

import toolwire
from places import TESTS
from recordings import WIRES
from tables import every_case
from toolwire.audit.tokens import declaration_tokens
from toolwire.audit.tools import audit_tools
from toolwire.ir import InvalidArguments, LossError, Losses, Message, Params, SchemaError
from toolwire.schema import DIALECTS, Validator, lower, validator, violations
from toolwire.schema.lowering.conformance import walk
from toolwire.schema.parsing.membership import json_equal
from toolwire.testing.instances import instances
from toolwire.testing.preservation import close_schema
from toolwire.wire import get

VECTORS = json.loads((TESTS / "vectors/schema/schemas.json").read_text(encoding="utf-8"))
SCHEMAS = [vector["schema"] for vector in VECTORS]
USER = Message("user", (toolwire.Text("hi"),))
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def request_with(*tools, **fields):
    return toolwire.Request("m", (USER,), tools, params=Params(max_tokens=9), **fields)


def written(request, wire):
    prepared = toolwire.prepare(request, wire)
    body, more = get(wire).encode_request(prepared.request)
    return body, [*prepared.losses, *more]


def declared(body):
    """The declarations of a body, whatever its wire."""
    found = body.get("tools", [])
    found = found or body.get("toolConfig", {}).get("tools", [])
    return found[0]["functionDeclarations"] if found and "functionDeclarations" in found[0] else found


def fields_of(declaration):
    return declaration.get("function") or declaration.get("toolSpec") or declaration


def sent_schema(declaration):
    inner = fields_of(declaration)
    if "inputSchema" in inner:
        return inner["inputSchema"]["json"]
    return next(inner[key] for key in ("input_schema", "parametersJsonSchema", "parameters") if key in inner)


def objects(count):
    return [toolwire.Tool(f"tool_{number}", "Looks up a city.", CITY) for number in range(count)]


ZOD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "url": {"type": "string", "format": "uri", "x-order": 1},
        "depth": {"type": "integer", "exclusiveMinimum": 0},
        "tags": {"type": "array", "items": {"type": "string", "examples": ["a"]}, "uniqueItems": True},
        "kind": {"const": "page", "title": "Kind", "deprecated": True},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "options": {"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.5}}},
    },
    "required": ["url"],
    "additionalProperties": False,
}
ZOD["properties"]["options"]["additionalProperties"] = False
REPLACED_KEYWORDS = {"format": "pattern", "exclusiveMinimum": "minimum", "const": "enum"}


@pytest.mark.pain(1)
def test_only_known_keywords_reach_gemini_and_every_removal_is_reported():
    lowered = lower(ZOD, "gemini")
    for _, node, _ in walk(lowered.schema):
        assert set(node) <= lowered.dialect.keywords
    there = {at: node for at, node, _ in walk(lowered.schema)}
    told = {loss.path for loss in lowered.losses}
    removed = [
        (at, keyword)
        for at, node, _ in walk(ZOD)
        for keyword in node
        if keyword not in there.get(at, ()) and REPLACED_KEYWORDS.get(keyword) not in there.get(at, ("",))
    ]
    assert len(removed) >= 9
    for at, keyword in removed:
        assert f"{at}/{keyword}" in told or (at.startswith("/properties/headers") and "/properties/headers" in told)


POINTS = {
    "type": "object",
    "properties": {
        "from": {"$ref": "#/$defs/point"},
        "to": {"$ref": "#/$defs/point", "description": "where it ends"},
        "by": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "labels": {"$ref": "#/$defs/labels"},
    },
    "required": ["from", "to"],
    "$defs": {
        "point": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"$ref": "#/$defs/whole"}},
            "required": ["x"],
            "additionalProperties": False,
        },
        "whole": {"type": "integer", "minimum": 0, "maximum": 9},
        "labels": {"type": "object", "additionalProperties": {"enum": ["a", 1, None]}},
    },
}


@pytest.mark.pain(2)
@pytest.mark.parametrize("name", [name for name, row in DIALECTS.items() if row.refs == "inline"])
def test_inlined_references_accept_the_same_values(name):
    lowered = lower(POINTS, name)
    assert "$ref" not in json.dumps(lowered.schema)
    there, original = Validator(lowered.schema), validator(POINTS)
    values = list(instances(POINTS, seed="there", count=1000))
    assert len(values) == 1000
    for value in values:
        sent = lowered.encode(value)
        assert there.accepts(sent) and json_equal(lowered.lift(sent), value)
    unenforced = [loss.path for loss in lowered.losses if loss.severity != "info"]
    assert bool(unenforced) is (name == "ollama")
    for value in instances(close_schema(lowered.schema), seed="back", count=1000):
        assert unenforced or original.accepts(lowered.lift(value))


@pytest.mark.pain(3)
@every_case("name", DIALECTS)
def test_a_reference_to_another_property_keeps_its_items(name):
    tags = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    schema = {"type": "object", "properties": {"x": tags, "y": {"$ref": "#/properties/x"}}, "required": ["x", "y"]}
    lowered = lower(schema, name)
    items = [node["items"]["enum"] for _, node, _ in walk(lowered.schema) if node.get("type") == "array"]
    assert items and all(values == ["a", "b"] for values in items)
    if DIALECTS[name].refs == "inline":
        assert len(items) == 2
    value = {"x": ["a"], "y": ["b", "a"]}
    assert Validator(lowered.schema).accepts(lowered.encode(value))
    assert lowered.lift(lowered.encode(value)) == value


@pytest.mark.pain(4)
def test_type_is_never_a_list_on_gemini():
    for schema in SCHEMAS:
        assert not [at for at, node, _ in walk(lower(schema, "gemini").schema) if isinstance(node.get("type"), list)]


@pytest.mark.pain(5)
@every_case("wire", WIRES)
@every_case("tools", [(), (toolwire.Tool("search", kind="builtin", extra={"elsewhere": {}}),)])
def test_empty_tool_list_is_not_sent_on_any_wire(wire, tools):
    body, _ = written(request_with(*tools, choice=toolwire.ToolChoice("auto")), wire)
    assert not {"tools", "functionDeclarations", "tool_choice", "toolConfig"} & set(body)


@pytest.mark.pain(5)
@pytest.mark.parametrize("target", [wire for wire in WIRES if wire != "gemini"])
def test_empty_tool_list_of_a_client_is_not_passed_on(target):
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    body = {"contents": contents, "tools": [{"functionDeclarations": []}]}
    assert "tools" not in toolwire.translate(body, source="gemini", target=target, model="m").body


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name"],
        }
    },
}


@pytest.mark.pain(6)
def test_audit_reports_a_recursive_definition():
    found = audit_tools([toolwire.Tool("grow", "Grows a tree.", TREE)], select=["TW028"])
    assert [(finding.path, finding.level) for finding in found] == [("/input_schema/$defs/node", "error")]


@pytest.mark.pain(6)
@pytest.mark.parametrize("wire", WIRES)
def test_tool_with_a_recursive_schema_is_still_sent(wire):
    body, _ = written(request_with(toolwire.Tool("grow", "Grows a tree.", TREE, strict=True)), wire)
    assert [fields_of(declaration)["name"] for declaration in declared(body)] == ["grow"]


@pytest.mark.pain(7)
@every_case("name", DIALECTS)
def test_definition_used_twice_is_not_reported_as_recursive(name):
    assert not audit_tools([toolwire.Tool("move", "Moves.", POINTS)], select=["TW028"])
    lowered = lower(POINTS, name)
    assert lowered.conforms
    assert not [loss for loss in lowered.losses if "contains itself" in loss.detail]


@pytest.mark.pain(8)
@pytest.mark.parametrize("name", ["anthropic_strict", "gemini", "ollama"])
def test_cut_cycle_leaves_a_typed_schema_and_a_warning(name):
    lowered = lower(TREE, name)
    assert all(node.keys() & {"type", "anyOf", "$ref"} for _, node, _ in walk(lowered.schema))
    cuts = [loss for loss in lowered.losses if "contains itself" in loss.detail]
    assert cuts and all(loss.severity == "warning" for loss in cuts)
    (finding,) = audit_tools([toolwire.Tool("grow", "Grows a tree.", TREE)], select=["TW028"])
    assert finding.level in ("warning", "error")


def store(counts: dict[str, int], anything: Any, either: int | list[str] | dict[str, bool]) -> None:
    """Stores what it is given."""


@pytest.mark.pain(9)
@every_case("name", DIALECTS)
def test_maps_unions_and_untyped_values_survive_the_round_trip(name):
    lowered = lower(toolwire.tool(store).input_schema, name)
    assert lowered.conforms
    for anything in ({"a": [1, None]}, [], "text", None, 1.5, True):
        for either in (7, ["a"], [], {"x": True}):
            value = {"counts": {"a": 1, "b c": 2}, "anything": anything, "either": either}
            sent = lowered.encode(value)
            assert Validator(lowered.schema).accepts(sent)
            assert json_equal(lowered.lift(sent), value)


_ONE = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": False}
_TWO = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_TWO["additionalProperties"] = False
_BOTH = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
ROOTS = {
    "anyOf": ({"anyOf": [_ONE, _TWO]}, {"id": 1}, [{}, {"id": "1"}, {"id": 1, "name": 2}]),
    "oneOf": ({"oneOf": [_ONE, _TWO]}, {"name": "a"}, [{}, {"name": 1}, {"id": 1, "name": "a"}]),
    "allOf": ({"allOf": [_BOTH, {"required": ["id", "name"]}]}, {"id": 1, "name": "a"}, [{}, {"id": 1}]),
    "beside": ({**_BOTH, "anyOf": [{"required": ["id"]}, {"required": ["name"]}]}, {"name": "a"}, [{}, {"id": "x"}]),
}


@pytest.mark.pain(10)
@every_case("name", DIALECTS)
@every_case("root", ROOTS)
def test_root_combinator_is_removed_and_still_validated(root, name):
    schema, good, bad = ROOTS[root]
    lowered = lower(schema, name)
    assert lowered.conforms and not {"anyOf", "oneOf", "allOf"} & set(lowered.schema)
    validator(schema).check(lowered.lift(lowered.encode(good)))
    for value in bad:
        with pytest.raises(InvalidArguments):
            validator(schema).check(lowered.lift(lowered.encode(value)))


@pytest.mark.pain(10)
@pytest.mark.parametrize("root", ROOTS)
def test_root_combinator_of_one_tool_does_not_remove_other_tools(root):
    tools = [*objects(3), toolwire.Tool("odd", "Finds one.", ROOTS[root][0])]
    body, losses = written(request_with(*tools), "anthropic")
    assert [declaration["name"] for declaration in body["tools"]] == [tool.name for tool in tools]
    assert not [loss for loss in losses if loss.severity == "error"]


@toolwire.tool(strict=True)
def search(query: str, limit: int = 10, sort: str | None = "newest", tags: dict[str, int] | None = None) -> str:
    """Searches."""
    return f"{query} {limit} {sort} {tags}"


def restored(tool, arguments, wire):
    """A call as the model wrote it, as the caller gets it."""
    prepared = toolwire.prepare(request_with(tool), wire)
    answer = toolwire.Response("r", "m", (toolwire.ToolCall("c", tool.name, arguments),))
    return prepared.exchange.restore(answer).calls[0].arguments


@pytest.mark.pain(11)
@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
def test_null_for_an_optional_argument_restores_the_python_default(wire):
    (sent,) = declared(written(request_with(search), wire)[0])
    assert sent_schema(sent)["required"] == ["query", "limit", "sort", "tags"]
    arguments = restored(search, {"query": "a", "limit": None, "sort": None, "tags": None}, wire)
    assert arguments == {"query": "a"}
    assert search(**arguments) == "a 10 newest None"
    arguments = restored(search, {"query": "a", "limit": 3, "sort": "x", "tags": [{"key": "k", "value": 1}]}, wire)
    assert search(**arguments) == "a 3 x {'k': 1}"


@pytest.mark.pain(12)
@pytest.mark.parametrize("wire", [wire for wire in WIRES if get(wire).capabilities.strict])
def test_strict_is_set_only_for_schemas_in_the_strict_subset(wire):
    strict = DIALECTS[f"{get(wire).dialect}_strict"]
    for schema in SCHEMAS:
        body, losses = written(request_with(toolwire.Tool("f", "Does it.", schema, strict=True)), wire)
        (declaration,) = declared(body)
        if fields_of(declaration).get("strict"):
            assert not violations(sent_schema(declaration), strict)
        else:
            assert "/tools/0/strict" in {loss.path for loss in losses}


@pytest.mark.pain(13)
@every_case("name", DIALECTS)
def test_the_root_is_always_an_object(name):
    for schema in (*SCHEMAS, {}, {"properties": {"a": {}}}, {"required": ["a"]}, True):
        assert lower(schema, name).schema["type"] == "object"


def tools_list(bad_output):
    tools = [{"name": f"tool_{number}", "description": "d", "inputSchema": CITY} for number in range(19)]
    tools[7] = {**tools[7], "outputSchema": bad_output}
    return {"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}


@pytest.mark.pain(14)
@pytest.mark.parametrize("wire", WIRES)
def test_tool_with_an_invalid_output_schema_is_dropped_alone(wire):
    translation = toolwire.translate(tools_list(["array"]), source="mcp", target=wire, kind="tools")
    names = [fields_of(entry)["name"] for entry in declared({"tools": translation.body})]
    assert names == [f"tool_{number}" for number in range(19) if number != 7]
    serious = [(loss.path, loss.action) for loss in translation.losses if loss.severity == "error"]
    assert serious == [("/result/tools/7", "dropped")]


@pytest.mark.pain(14)
def test_loss_paths_keep_the_original_index_of_each_tool():
    body = [{"name": 5}, {"name": "good"}, {"name": 6}, {"name": "not legal", "inputSchema": CITY}]
    translation = toolwire.translate(body, source="mcp", target="openai_chat", kind="tools")
    paths = {loss.path: loss.action for loss in translation.losses}
    assert paths == {"/0": "dropped", "/2": "dropped", "/3/name": "rewritten"}


@pytest.mark.pain(14)
def test_unreadable_tool_in_a_list_is_skipped_when_losses_are_collected():
    with pytest.raises(toolwire.ProtocolError) as caught:
        toolwire.list_tools(tools_list("x"), "mcp")
    assert caught.value.pointer == "/tools/7/outputSchema"
    losses = Losses()
    tools = toolwire.list_tools(tools_list("x"), "mcp", losses=losses)
    assert len(tools) == 18 and [loss.path for loss in losses] == ["/tools/7"]
    with pytest.raises(toolwire.ProtocolError):
        toolwire.list_tools({"tools": [{"name": 5}]}, "mcp", losses=Losses())


@pytest.mark.pain(14)
def test_unresolvable_reference_in_an_output_schema_drops_no_tool():
    body = tools_list({"type": "object", "$ref": "#/$defs/missing"})
    for wire in WIRES:
        translation = toolwire.translate(body, source="mcp", target=wire, kind="tools")
        assert len(declared({"tools": translation.body})) == 19


@pytest.mark.pain(15)
def test_unenforceable_pattern_is_reported_and_rejected_in_strict_mode():
    """A pattern that no grammar takes: never silently unconstrained."""
    code = {"type": "string", "pattern": r"^(?=.*\d)[a-z]+$"}
    schema = {"type": "object", "properties": {"code": code}, "required": ["code"], "additionalProperties": False}
    function = {"name": "f", "description": "d", "parameters": schema, "strict": True}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    body["tools"] = [{"type": "function", "function": function}]
    translation = toolwire.translate(body, source="openai_chat", target="anthropic")
    told = {loss.path: loss.detail for loss in translation.losses}
    assert "checked nowhere" in told["/tools/0/function/parameters/properties/code/pattern"]
    with pytest.raises(LossError) as caught:
        toolwire.translate(body, source="openai_chat", target="anthropic", strict=True)
    assert caught.value.status == 400


@pytest.mark.pain(15)
def test_invalid_schema_raises_instead_of_accepting_values():
    for broken in ({"type": "nope"}, {"type": "object", "properties": 5}, {"$ref": "#/missing"}):
        with pytest.raises(SchemaError) as caught:
            validator(broken)
        assert caught.value.status == 400


@pytest.mark.one_in(3)
@pytest.mark.pain(57)
@pytest.mark.parametrize("wire", WIRES)
def test_tools_above_the_provider_limit_are_dropped_and_reported(wire):
    cap = get(wire).limits.tools
    call = toolwire.ToolCall("c", "tool_8000", {"city": "Paris"})
    spoken = (USER, Message("assistant", (call,)), Message("user", (call.result("sun"),)))
    request = toolwire.Request("m", spoken, tuple(objects(10_000)), toolwire.ToolChoice("tool", ("tool_9000",)))
    body, losses = written(request, wire)
    names = {fields_of(declaration)["name"] for declaration in declared(body)}
    left_out = {loss.path for loss in losses if loss.concept == "tool" and loss.action == "dropped"}
    assert names == ({f"tool_{number}" for number in range(10_000)} if cap is None else {"tool_8000", "tool_9000"})
    assert left_out == {f"/tools/{number}" for number in range(10_000) if f"tool_{number}" not in names}


@pytest.mark.pain(58)
def test_token_cost_of_a_tool_is_estimated_for_each_provider():
    small = toolwire.Tool("small", "Looks up a city.", CITY)
    large = toolwire.Tool("large", "Moves along a line. " * 50, POINTS)
    for wire in WIRES:
        assert 0 < declaration_tokens(small, wire) < 100 < declaration_tokens(large, wire)
