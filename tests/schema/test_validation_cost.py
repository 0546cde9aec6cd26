"""Alternatives in alternatives: no question about a value takes a time that doubles with every level."""

import pytest

from toolwire import Tool
from toolwire.audit.tools import audit_tools
from toolwire.schema.lowering.lowered import lower
from toolwire.schema.parsing.membership import fits
from toolwire.schema.parsing.parser import parse_schema
from toolwire.schema.repair.arguments import repair_arguments
from toolwire.schema.validation.cost import ValidationCost
from toolwire.schema.validation.validator import DEPTH, validator
from waiting import cpu_guard


def alternatives(name):
    """Two that differ in nothing that a value shows, both going on at `name`; and an end."""
    there = {"$ref": f"#/$defs/{name}"}
    one = {"type": "object", "properties": {"a": there, "o": {"type": "object", "additionalProperties": {}}}}
    other = {"type": "object", "properties": {"a": there, "p": {"type": "array", "prefixItems": [{}]}}}
    return {"anyOf": [{**one, "required": ["a"]}, {**other, "required": ["a"]}, {"type": "string"}]}


def schema_of(defs):
    return {"type": "object", "properties": {"t": {"$ref": "#/$defs/T0"}}, "required": ["t"], "$defs": defs}


SCHEMAS = {
    "itself": schema_of({"T0": alternatives("T0")}),
    "circle": schema_of({f"T{n}": alternatives(f"T{(n + 1) % 40}") for n in range(40)}),
    "ladder": schema_of({**{f"T{n}": alternatives(f"T{n + 1}") for n in range(60)}, "T60": {"type": "string"}}),
}
hostile = pytest.mark.parametrize("name", SCHEMAS)


def nested(depth, leaf):
    value = leaf
    for _ in range(depth):
        value = {"a": value}
    return {"t": value}


WRONG = nested(DEPTH - 10, 5)


def quickly(work):
    with cpu_guard():
        return work()


@hostile
def test_matching_nested_alternatives_is_fast(name):
    source = parse_schema(SCHEMAS[name])
    assert quickly(lambda: fits(source.root, WRONG, source.defs.get)) is False
    assert fits(source.root, nested(20, "end"), source.defs.get) is True


@pytest.mark.one_in(5)
@hostile
@pytest.mark.parametrize("dialect", ["openai_strict", "anthropic_strict", "gemini", "ollama"])
def test_encoding_and_restoring_nested_alternatives_is_fast(name, dialect):
    lowered = lower(SCHEMAS[name], dialect)
    quickly(lambda: lowered.lift(WRONG))
    right = nested(1, "end")
    assert lowered.lift(quickly(lambda: lowered.encode(right))) == right


@hostile
@pytest.mark.parametrize("policy", ["strict", "safe", "aggressive"])
def test_validation_and_repair_of_nested_alternatives_are_bounded(name, policy):
    check = validator(SCHEMAS[name])
    assert quickly(lambda: check.accepts(WRONG)) is False
    (problem,) = quickly(lambda: check.problems(WRONG))
    assert problem.keyword == "effort" and "too many alternatives" in problem.message
    quickly(lambda: repair_arguments(WRONG, SCHEMAS[name], policy=policy))


@hostile
def test_auditing_nested_alternatives_is_fast(name):
    quickly(lambda: audit_tools([Tool("f", "Does it.", SCHEMAS[name])]))


def test_few_alternatives_are_validated_exactly():
    check = validator(SCHEMAS["itself"])
    assert check.accepts(nested(3, "end")) and check.problems(nested(3, "end")) == ()
    assert [problem.keyword for problem in check.problems(nested(3, 5))] == ["anyOf"]


def test_deep_valid_tree_is_accepted_within_the_cost_limit():
    """A tree of many kinds of nodes, as deep as arguments may be: alternatives multiply, and it is sound."""
    kinds = [
        {"type": "object", "properties": {"op": {"const": op}, "a": {"$ref": "#/$defs/T0"}}, "required": ["op", "a"]}
        for op in ("add", "sub", "mul", "div", "pow")
    ]
    check = validator(schema_of({"T0": {"anyOf": [*kinds, {"type": "number"}]}}))
    tree = 1
    for _ in range(DEPTH - 10):
        tree = {"op": "mul", "a": tree}
    assert quickly(lambda: check.problems({"t": tree})) == ()
    assert check.accepts({"t": tree})


def test_large_schema_without_alternatives_is_validated_exactly():
    defs = {
        f"T{n}": {"type": "object", "properties": {key: {"$ref": f"#/$defs/T{n + 1}"} for key in "abc"}}
        for n in range(30)
    }
    check = validator(schema_of({**defs, "T30": {"type": "string"}}))
    assert check.problems(nested(30, "end")) == ()
    assert [problem.keyword for problem in check.problems(nested(30, 5))] == ["type"]


@pytest.mark.parametrize("word", ["#T", "#/$defs/T%30", "#/$defs/nobody", "other.json"])
def test_cost_follows_resolvable_references(word):
    schema = {"anyOf": [{"$ref": word}] * 3, "$defs": {"T0": {"$anchor": "T", "items": {"type": "string"}}}}
    each = 4 if word in ("#T", "#/$defs/T%30") else 2  # with the two items, or with nothing
    assert ValidationCost(schema).cost_of(["a", "b"], 1000) == 1 + 3 * each
