"""Errors that say which limit was broken: the words of real providers, and words that are nobody's."""

import json
import re

import msgspec
import pytest

from places import TESTS
from recordings import WIRES
from tables import every_case
from toolwire.audit import code_rules, quality_rules, request_rules, schema_rules, tool_rules  # noqa: F401 - they register
from toolwire.audit.findings import RULES
from toolwire.ir import UpstreamError
from toolwire.schema.dialects import DIALECTS, Dialect
from toolwire.wire import get
from toolwire.wire.faults import parse_limit_path
from toolwire.wire.protocol import Capabilities, Limits
from waiting import cpu_guard

VECTORS = TESTS / "vectors" / "errors"
ALL = [(wire, vector) for wire in WIRES for vector in json.loads((VECTORS / f"{wire}.json").read_text("utf-8"))]
BROKEN = [(wire, vector) for wire, vector in ALL if vector["breach"] is not None]


def name_of(value):
    return value["name"] if isinstance(value, dict) else value


@every_case(("wire", "vector"), ALL, ids=name_of)
def test_error_gives_the_limit_the_tool_and_the_location(wire, vector):
    assert re.match(r"(issue|derived|page|sdk|spec|facts): \S", vector["source"])
    breach = get(wire).decode_error(vector["status"], vector["body"]).breach
    found = None if breach is None else msgspec.to_builtins(breach)
    if found is not None:
        assert found.pop("hint")
        found.pop("rule", None)
    assert found == vector["breach"]


@every_case(("wire", "vector"), BROKEN, ids=name_of)
def test_raised_error_names_the_limit_and_the_tool(wire, vector):
    error = UpstreamError(get(wire).decode_error(vector["status"], vector["body"]))
    assert f"limit {vector['breach']['limit']}" in str(error)
    if "tool" in vector["breach"]:
        assert f"tool {vector['breach']['tool']!r}" in str(error)
    assert error.pointer == vector["breach"].get("at", "") + vector["breach"].get("pointer", "")


@every_case("status", [401, 403, 404, 429, 500, 503])
@every_case(("wire", "vector"), BROKEN[::5], ids=name_of)
def test_other_error_kinds_name_no_limit_even_if_they_quote_one(wire, vector, status):
    message = json.dumps(vector["body"])
    bodies = {
        "anthropic": {"type": "error", "error": {"type": "rate_limit_error", "message": message}},
        "gemini": {"error": {"code": status, "status": "RESOURCE_EXHAUSTED", "message": message}},
    }
    body = bodies.get(wire, {"error": {"message": message, "type": "rate_limit_error", "code": "rate_limit_exceeded"}})
    assert get(wire).decode_error(status, body).breach is None


# Limits that no public error text is known for. Who finds one adds a vector and takes the word out.
LIMITS_WITHOUT_SIGNATURE = {
    "bedrock": "cache_marks closed declared_required enum formats id id_length keywords min_budget min_output most_min_items optional_parameters patterns property_name ranges recursion ref_siblings strict_tools union_parameters",
    "anthropic": "id id_length max_tokens min_budget ranges user_length declared_required enum formats most_min_items patterns recursion ref_siblings",
    "gemini": "id id_length lone_any_of min_output number_formats property_name ranges recursion stops",
    "ollama": "name name_length id id_length declared_required keywords recursion refs root_description",  # what it does not know it passes over
    "openai_chat": "id characters declared_required enum formats long_enum patterns ranges type_lists",
    "openai_responses": "id characters declared_required enum formats long_enum patterns ranges type_lists",
}
NO_LIMITS = set(
    "version whole enforced signatures maps anything tuples cache_minimum".split()
)  # descriptions, how we get around limits, and a limit below which marks are ignored without an error


def limits_of(wire):
    """The fields that hold something which a provider may refuse."""
    dialects = [name for name in (wire.dialect, f"{wire.dialect}_strict", wire.name) if name in DIALECTS]
    for value, kind in [(wire.limits, Limits), *((DIALECTS[name], Dialect) for name in dialects)]:
        for field in msgspec.structs.fields(kind):
            if field.name not in NO_LIMITS and getattr(value, field.name) != field.default:
                if (kind, field.name) != (Dialect, "name"):
                    yield field.name


@pytest.mark.parametrize("name", WIRES)
def test_every_limit_has_a_signature_or_is_listed_without_one(name):
    signed = {signature.limit for signature in get(name).limits.signatures}
    if "name" in signed:
        signed.add("name_length")  # the pattern that the error quotes bounds the length too
    assert set(limits_of(get(name))) - signed == set(LIMITS_WITHOUT_SIGNATURE[name].split())


@pytest.mark.parametrize("name", WIRES)
def test_every_signature_is_covered_by_a_vector(name):
    proved = {vector["breach"]["limit"] for wire, vector in BROKEN if wire.split("_")[0] == name.split("_")[0]}
    assert {signature.limit for signature in get(name).limits.signatures} == proved


@pytest.mark.parametrize("name", WIRES)
def test_signatures_refer_to_known_rules_and_limits(name):
    fields = {field.name for kind in (Limits, Capabilities, Dialect) for field in msgspec.structs.fields(kind)}
    unnamed = {"description", "root", "root_union", "items", "grammar", "schema", "type", "strict"}
    for signature in get(name).limits.signatures:
        re.compile(signature.pattern)
        assert signature.rule is None or signature.rule in RULES
        assert signature.limit in fields | unnamed


HOSTILE = [
    "tools.1" * 150_000,
    "tools." + "9" * 1_000_000,
    "tools[0].function_declarations[" * 30_000,
    "Invalid schema for function '" * 30_000,
    "Invalid schema for function 'f': In context=(" + "'a', " * 200_000,
    'Unknown name "' + "a\" at 'tools[0].function_declarations[1]." * 25_000,
    "Invalid '" + "tools[0]." * 100_000 + "name': string too long",
    "\n" * 1_000_000,
    "reference to undefined schema at " + "a." * 500_000,
    "(" * 1_000_000,
]


@every_case("message", HOSTILE, ids=lambda message: message[:20])
@every_case("wire", WIRES)
def test_hostile_messages_are_decoded_quickly_without_errors(wire, message):
    body = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message, "param": message, "code": message},
    }
    if wire == "gemini":
        body = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": message}}
    if wire == "ollama":
        body = {"error": message}
    with cpu_guard():
        get(wire).decode_error(400, body)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", ("", None, "")),
        ("tools", ("/tools", None, "")),
        ("tools[99999999].name", ("/tools/99999999/name", None, "")),
        ("tools[2].parameters", ("/tools/2", 2, "/input_schema")),
        (
            "tools[1].function_declarations[2].parameters_json_schema.properties[a.b].items",
            ("/tools/1/functionDeclarations/2", 2, "/input_schema/properties/a.b/items"),
        ),
        (
            "tools[0].function_declarations[2].parameters.properties[3]",
            ("/tools/0/functionDeclarations/2", 2, "/input_schema/properties/3"),
        ),
        (
            "tools.4.custom.input_schema.properties.any_of.anyOf",
            ("/tools/4", 4, "/input_schema/properties/any_of/anyOf"),
        ),
        ("response_format", ("/response_format", None, "")),
    ],
)
def test_location_paths_are_parsed(path, place):
    assert parse_limit_path(path) == place
