"""Hostile schemas and values cost steps in proportion to their size.

Every attack is run at three sizes. The sizes are chosen so that budgets, where there are any, are exhausted at the smallest.
"""

import json

import pytest

import tables
from toolwire.schema import lower, validator
from toolwire.schema.bounds import StepBudget
from toolwire.schema.dialects import DIALECTS
from toolwire.schema.lowering.lowered import _lower
from toolwire.schema.parsing.membership import are_disjoint
from toolwire.schema.parsing.parser import parse_schema
from toolwire.schema.repair.arguments import _Repairer
from toolwire.schema.validation.validator import PatternCost, Validator
from work_counter import assert_linear, count_work

TARGETS = ("openai_strict", "anthropic_strict", "gemini")


def record(**properties):
    return {"type": "object", "properties": properties}


def definitions(root, defs):
    return {"type": "object", "properties": root, "$defs": defs}


def refs(count, target="#/$defs/D"):
    return {f"x{n}": {"$ref": target} for n in range(count)}


def union_times_unions(n):
    """The request of finding Z1: `oneOf` of n properties beside `allOf` of n × `oneOf` of 3."""
    inner = [{"oneOf": [record(**{f"q{i}_{j}": {"type": "integer"}}) for j in range(3)]} for i in range(n)]
    return {"oneOf": [record(**{f"p{i}": {"type": "string"}}) for i in range(n)], "allOf": inner}


def unions_of_eight(n):
    return {"allOf": [{"anyOf": [record(**{f"q{i}_{j}": {"type": "integer"}}) for j in range(8)]} for i in range(n)]}


def intersected_definitions(n):
    defs = {f"d{i}": {"oneOf": [record(**{f"q{i}_{j}": {"type": "integer"}}) for j in range(3)]} for i in range(n)}
    return {"allOf": [{"$ref": f"#/$defs/d{i}"} for i in range(n)], "$defs": defs}


def merged_properties(n):
    return {"allOf": [{**record(**{f"p{i}": {"type": "string"}}), "required": [f"p{i}"]} for i in range(n)]}


def chain_of_references(n):
    defs = {f"d{i}": record(y={"$ref": f"#/$defs/d{i + 1}"}) for i in range(n)}
    return definitions({"x": {"$ref": "#/$defs/d0"}}, {**defs, f"d{n}": {"type": "string"}})


def cycles(n):
    """Definitions that refer to their neighbours on both sides; only the first changes arguments by itself."""
    defs = {
        f"d{i}": {
            **record(next={"$ref": f"#/$defs/d{i + 1}"}, back={"$ref": f"#/$defs/d{max(i - 1, 0)}"}),
            "required": ["next", "back"],
            "additionalProperties": False,
        }
        for i in range(n)
    }
    defs["d0"]["properties"]["optional"] = {"type": "string"}
    defs[f"d{n}"] = {"type": "object", "properties": {}, "additionalProperties": False}
    return definitions({"x": {"$ref": "#/$defs/d0"}}, defs)


def similar_branches(n):
    return record(x={"oneOf": [record(**{f"p{i}": {"type": "string"}, "k": {"type": "string"}}) for i in range(n)]})


def branches_of_maps(n):
    maps = [{"type": "object", "additionalProperties": {"type": "string"}, "description": str(i)} for i in range(n)]
    return record(x={"anyOf": maps})


def names_of_one_stem(n):
    return definitions(
        {f"x{i}": {"$ref": f"#/$defs/A{chr(0x4E00 + i)}"} for i in range(n)},
        {f"A{chr(0x4E00 + i)}": record(a={"type": "string"}) for i in range(n)},
    )


def keys_of_one_stem(n):
    return record(**{f"a{chr(0x4E00 + i)}": {"type": "string"} for i in range(n)})


def below_a_long_key(n):
    return record(**{"k" * n * 20: record(**{f"p{i}": {"type": "string", "minLength": 1} for i in range(n)})})


def inlined_description(n):
    return definitions(refs(n), {"D": {"type": "string", "description": "d" * n * 20}})


def inlined_enum(n):
    return definitions(refs(n), {"D": {"enum": [f"v{i}" for i in range(n)]}})


def inlined_object(n):
    return definitions(refs(n), {"D": record(**{f"p{i}": {"type": "string"} for i in range(n)})})


def references_by_anchor(n):
    defs = {f"d{i}": {"$anchor": f"a{i}", "type": "string"} for i in range(n)}
    return definitions({f"x{i}": {"$ref": f"#a{i}"} for i in range(n)}, defs)


def repeated_types(n):
    return record(x={"type": ["string", "null"] * n})


def enum_of_objects(n):
    """The schema of finding Z4."""
    return record(x={"enum": [{"a": i} for i in range(n)]})


def enum_of_numbers_and_their_names(n):
    return record(x={"enum": [*range(n), *map(str, range(n))]})


def intersected_enums(n):
    enum = {"enum": [{"a": i} for i in range(n)]}
    return record(x={"allOf": [enum, enum]})


def enum_beside_const(n):
    return record(x={"const": {"a": n - 1}, "enum": [{"a": i} for i in range(n)]})


def conditions_that_share_a_definition(n):
    """Every object mentions, under a condition, all properties of one definition."""
    one = {**record(k={"type": "string"}), "if": {"required": ["k"]}, "then": {"$ref": "#/$defs/D"}}
    return definitions(
        {f"x{i}": one for i in range(n)}, {"D": record(**{f"p{i}": {"type": "string"} for i in range(n)})}
    )


def conditions_in_conditions(n):
    """Conditions below `allOf` belong to every level above them."""
    schema = {"if": {}, "then": record(**{f"p{i}": {"type": "string"} for i in range(n)})}
    for depth in range(40):
        schema = {**record(**{f"q{depth}": {"type": "string"}}), "allOf": [schema]}
    return schema


def conditional_objects(n):
    """Objects of several conditions are joined, level by level."""

    def nested(depth, name):
        inner = nested(depth - 1, name) if depth else {"type": "string"}
        return record(**{"same": inner, name: {"type": "string"}})

    return {
        **record(k={"type": "string"}),
        "allOf": [{"if": {}, "then": record(value=nested(4, f"p{i}"))} for i in range(n)],
    }


def keywords_beside_unions(n):
    """Implied keywords are distributed over the branches, which are references to further unions."""
    defs = {
        f"d{i}": {"anyOf": [{"type": "string"}, {"$ref": f"#/$defs/d{i + 1}"}], "properties": {f"p{i}": {}}}
        for i in range(n)
    }
    return definitions({"x": {"$ref": "#/$defs/d0"}}, {**defs, f"d{n}": {"type": "integer"}})


def nested_resources(n):
    defs = {
        f"d{i}": {"$id": f"r{i}.json", "properties": {"s": {"$ref": "#"}, "t": {"$ref": "r0.json"}}} for i in range(n)
    }
    return definitions({f"x{i}": {"$ref": f"r{i}.json"} for i in range(n)}, defs)


def unions_of_lists(n):
    lists = [{"type": "array", "items": record(**{f"p{i}": {}}), "description": str(i)} for i in range(n)]
    return record(x={"anyOf": lists})


SCHEMAS = [
    (union_times_unions, (10, 20, 40)),
    (unions_of_eight, (10, 20, 40)),
    (intersected_definitions, (20, 40, 80)),
    *[
        (attack, (100, 200, 400))
        for attack in (
            merged_properties,
            chain_of_references,
            cycles,
            similar_branches,
            branches_of_maps,
            names_of_one_stem,
            keys_of_one_stem,
            below_a_long_key,
            inlined_description,
            inlined_enum,
            inlined_object,
            references_by_anchor,
            repeated_types,
            conditions_that_share_a_definition,
            conditions_in_conditions,
            conditional_objects,
            keywords_beside_unions,
            nested_resources,
            unions_of_lists,
        )
    ],
]
ENUMS = [enum_of_objects, enum_of_numbers_and_their_names, intersected_enums, enum_beside_const]


def check_lowering(attack, sizes, target):
    costs = []
    for n in sizes:
        schema = attack(n)
        steps = count_work(lambda schema=schema: _lower(schema, DIALECTS[target], lambda: parse_schema(schema)))
        costs.append((len(json.dumps(schema)), steps))
    assert_linear(costs)


@pytest.mark.one_in(23)
@pytest.mark.finding("Z1")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("attack", "sizes"), SCHEMAS, ids=lambda one: getattr(one, "__name__", ""))
def test_lowering_costs_steps_in_proportion_to_the_schema(attack, sizes, target):
    check_lowering(attack, sizes, target)


@pytest.mark.one_in(13)
@pytest.mark.finding("Z4")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("attack", ENUMS, ids=lambda one: one.__name__)
def test_enums_cost_steps_in_proportion_to_their_values(attack, target):
    check_lowering(attack, (100, 200, 400), target)


@pytest.mark.finding("Z1")
@pytest.mark.parametrize("target", TARGETS)
def test_schema_beyond_the_budget_is_weakened_with_a_loss_and_still_validated(target):
    """Every valid instance can still be written, and the validator checks the original schema."""
    schema = union_times_unions(12)
    lowered = lower(schema, target)
    if not lowered.unchanged:
        assert any("too many combinations" in loss.detail for loss in lowered.losses)
    assert lowered.conforms
    valid = {"p3": "x", **{f"q{i}_0": 1 for i in range(12)}}
    invalid = {**valid, "p3": 5}
    assert lowered.lift(lowered.encode(valid)) == valid
    assert lowered.lift(lowered.encode(invalid)) == invalid
    everything_but = {f"p{i}": 1 for i in range(12)} | {f"q{i}_{j}": "" for i in range(12) for j in range(3)}
    assert validator(schema).problems(everything_but)


@pytest.mark.finding("Z1")
def test_chain_of_references_longer_than_the_recursion_limit_is_lowered():
    schema = chain_of_references(2_000)
    for target in TARGETS:
        assert lower(schema, target).schema["properties"]["x"]
    repaired = _Repairer(schema).from_value({"x": {"y": {"y": {}}}}, (), "aggressive")
    assert repaired.arguments == {"x": {"y": {"y": {}}}}


@pytest.mark.finding("Z1")
def test_inlined_text_does_not_multiply_the_size_of_the_request():
    schema = inlined_description(1_000)  # 20,000 characters, referred to a thousand times
    for target in TARGETS:
        assert len(json.dumps(lower(schema, target).schema)) < 30 * len(json.dumps(schema))


def doubled_references(n):
    defs = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(n)}
    return definitions({"x": {"$ref": "#/$defs/d0"}}, {**defs, f"d{n}": {"type": "string"}})


def four_unions(branches):
    unions = [{"anyOf": [record(**{f"{j}{k}": {"const": k}}) for k in range(branches)]} for j in range(4)]
    return {"type": "object", "allOf": unions}


@pytest.mark.finding("Z1")
@pytest.mark.parametrize("schema", [doubled_references(10), four_unions(4)], ids=["references", "unions"])
@pytest.mark.parametrize("target", ["gemini", "ollama"])
def test_small_schema_is_not_multiplied(schema, target):
    """Schemas of a kilobyte took 450,000 to 780,000 steps, because the allowances had large constants."""
    assert count_work(lambda: _lower(schema, DIALECTS[target], lambda: parse_schema(schema))) < 120 * len(str(schema))


@pytest.mark.finding("Z1")
def test_branches_with_own_required_keys_are_compared_in_linear_time():
    def steps(n):
        branches = [{**record(**{f"p{i}": {"const": i}}), "required": [f"p{i}"]} for i in range(n)]
        source = parse_schema(record(a={"oneOf": branches}))
        budget = StepBudget(1_000_000)
        assert are_disjoint(list(source.root.properties["a"].branches), source.defs.get, budget)
        return 1_000_000 - budget.remaining

    assert steps(1_000) <= 2 * steps(500)


@pytest.mark.finding("Z1")
def test_counting_the_cost_of_patterns_is_bounded(monkeypatch):
    calls = []
    weight = PatternCost._weight
    monkeypatch.setattr(PatternCost, "_weight", lambda *arguments: calls.append(1) or weight(*arguments))
    cost = PatternCost({"patternProperties": {f"^p{i}.*$": {"type": "string"} for i in range(600)}})
    value = {f"p{i}".ljust(50, "x"): "text" + str(i).zfill(6) for i in range(600)}
    assert cost.exceeds_budget(value)
    assert len(calls) <= PatternCost.max_pairs


# values: what a union of many branches costs for large arguments


def wide_union(n):
    branches = [{**record(**{f"p{i}": {"type": "string"}, "o": {}}), "required": [f"p{i}"]} for i in range(n)]
    return {**record(x={"type": "array", "items": {"anyOf": branches}}), "required": ["x"]}


def wide_range(n):
    branches = [{"type": "number", "minimum": 1000 + i} for i in range(n)]
    return record(x={"type": "array", "items": {"anyOf": branches}})


def wide_enum(n):
    return record(x={"type": "array", "items": {"enum": [{"a": i} for i in range(n)]}})


VALUES = [
    (wide_union, lambda n: {"x": [{"unknown": 1} for _ in range(n)]}),
    (wide_range, lambda n: {"x": [1] * n * 4}),
    (wide_enum, lambda n: {"x": [{"a": -1} for _ in range(n)]}),
]


@pytest.mark.one_in(13)
@pytest.mark.finding("Z1")
@pytest.mark.parametrize("action", ["encode", "lift", "repair", "problems"])
@pytest.mark.parametrize(("schema_of", "value_of"), VALUES, ids=lambda one: getattr(one, "__name__", ""))
def test_values_cost_steps_in_proportion_to_schema_and_value(schema_of, value_of, action):
    costs = []
    for n in (100, 200) if tables.selects else (100, 200, 400):
        schema, value = schema_of(n), value_of(n)
        lowered, ladder, compiled = lower(schema, "openai_strict"), _Repairer(schema), Validator(schema)
        work = {
            "encode": lambda lowered=lowered, value=value: lowered.encode(value),
            "lift": lambda lowered=lowered, value=value: lowered.lift(value),
            "repair": lambda ladder=ladder, value=value: ladder.from_value(value, (), "aggressive"),
            "problems": lambda compiled=compiled, value=value: compiled.problems(value),
        }[action]
        costs.append((len(json.dumps(schema)) + len(json.dumps(value)), count_work(work)))
    assert_linear(costs)


def test_problems_of_large_arguments_are_reported_without_listing_every_branch():
    """The engine collects an error for each branch and item: 4,000 numbers took it 104 seconds."""
    (problem,) = validator(wide_range(1_000)).problems({"x": [1] * 4_000})
    assert problem.keyword == "effort"


def test_union_that_contains_itself_does_not_exceed_the_recursion_limit():
    union = {"anyOf": [{"$ref": "#/$defs/U"}, {"type": "integer"}]}
    schema = {**definitions({"x": {"$ref": "#/$defs/U"}}, {"U": union}), "required": ["y"]}
    for policy in ("safe", "aggressive"):
        (problem,) = _Repairer(schema).from_value({"x": "text"}, (), policy).problems
        assert problem.keyword == "required"
