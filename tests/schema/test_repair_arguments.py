"""The ladder: every corruption comes out right or is refused, none silently wrong; every step has a name and a place."""

import json

import pytest

from places import TESTS
from tables import every_case
from toolwire.ir import ConfigError
from toolwire.ir.text import dumps
from toolwire.schema import repair_arguments
from toolwire.schema.bounds import StepBudget
from toolwire.schema.repair.arguments import MAX_VALUES, POLICIES
from toolwire.schema.repair.coercion import RepairStep
from work_counter import count_work

VECTORS = json.loads((TESTS / "vectors/repair/corruptions.json").read_text(encoding="utf-8"))
SCHEMAS, CORRUPTIONS = VECTORS["schemas"], VECTORS["corruptions"]


def test_there_are_forty_four_corruptions():
    assert len(CORRUPTIONS) == len({row["kind"] for row in CORRUPTIONS}) == 44


@every_case("policy", POLICIES)
@every_case("row", CORRUPTIONS, ids=lambda row: row["kind"])
def test_corruption_is_repaired_from_its_policy_on_or_rejected(row, policy):
    found = repair_arguments(row["text"], SCHEMAS[row["schema"]], policy=policy)
    enough = row.get("policy")
    if enough is None or POLICIES.index(policy) < POLICIES.index(enough):
        assert found.arguments is None
        assert found.problems
    else:
        assert dumps(found.arguments) == dumps(row["right"])
        assert [step.name for step in found.steps] == row["steps"]
        assert not found.problems


@every_case("row", [row for row in CORRUPTIONS if "steps" in row], ids=lambda row: row["kind"])
def test_guesses_are_marked_as_not_lossless(row):
    lossless = [RepairStep(name).lossless for name in row["steps"]]
    assert all(lossless) == (row["policy"] != "aggressive")


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["metric", "imperial", 1]},
        "case": {"enum": ["a", "A", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "spots": {"type": "array", "items": {"$ref": "#/$defs/spot"}},
        "at": {"$ref": "#/$defs/spot"},
        "deep": {"type": "boolean"},
        "ratio": {"type": "number"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "both": {"type": ["integer", "string"]},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
    },
    "$defs": {"spot": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
}

GUESSED = [
    ({"days": "3"}, {"days": 3}, "text_to_number at /days"),
    ({"ratio": " -2.50 "}, {"ratio": -2.5}, "text_to_number at /ratio"),
    ({"deep": "True"}, {"deep": True}, "text_to_boolean at /deep"),
    ({"deep": "yes"}, {"deep": True}, "text_to_boolean at /deep"),
    ({"deep": "No"}, {"deep": False}, "text_to_boolean at /deep"),
    ({"days": "null", "city": "x"}, {"city": "x"}, "null_dropped at /days"),
    ({"days": "None", "city": "null"}, {"city": "null"}, "null_dropped at /days"),
    ({"city": 75001}, {"city": "75001"}, "number_to_text at /city"),
    ({"tags": "new"}, {"tags": ["new"]}, "wrapped_in_list at /tags"),
    ({"spots": {"x": 1}}, {"spots": [{"x": 1}]}, "wrapped_in_list at /spots"),
    ({"unit": "Metric "}, {"unit": "metric"}, "enum_case at /unit"),
    ({"unit": "1"}, {"unit": 1}, "text_to_number at /unit"),
    ({"days": None, "city": "x"}, {"city": "x"}, "null_dropped at /days"),
    ({"spots": [{"x": 1}, {"x": "2"}]}, {"spots": [{"x": 1}, {"x": 2}]}, "text_to_number at /spots/1/x"),
    ({"either": "true"}, {"either": True}, "text_to_boolean at /either"),
    ({"pair": [1, "false"]}, {"pair": [1, False]}, "text_to_boolean at /pair/1"),
]


@every_case(("given", "right", "step"), GUESSED)
def test_values_of_the_wrong_type_are_converted_by_the_aggressive_policy(given, right, step):
    found = repair_arguments(given, SCHEMA, policy="aggressive")
    assert dumps(found.arguments) == dumps(right)
    assert [str(one) for one in found.steps] == [step]
    assert not any(one.lossless for one in found.steps)
    assert repair_arguments(given, SCHEMA).arguments is None


LEFT_ALONE = [
    {"days": "three"},
    {"days": "3.5"},
    {"days": "007"},
    {"days": ""},
    {"ratio": "3.141592653589793238462643"},
    {"ratio": "1e999"},
    {"city": 1.5},
    {"city": True},
    {"city": ["x"]},
    {"tags": "a, b"},
    {"tags": ""},
    {"tags": 5.5},
    {"case": "C"},
    {"unit": "kelvin"},
    {"deep": "maybe"},
    {"deep": "y"},
    {"deep": 1},
    {"at": None, "days": "x"},
    {"at": {"x": None}},
]


@every_case("given", LEFT_ALONE, ids=dumps)
def test_values_without_a_certain_conversion_are_rejected(given):
    found = repair_arguments(given, SCHEMA, policy="aggressive")
    assert found.arguments is None
    assert found.problems


def test_enum_with_both_spellings_is_not_guessed():
    assert repair_arguments({"case": "B"}, SCHEMA, policy="aggressive").arguments == {"case": "b"}
    two = {"type": "object", "properties": {"case": {"enum": ["On", "ON"]}}}
    assert repair_arguments({"case": "on"}, two, policy="aggressive").arguments is None


def test_allowed_string_is_not_converted():
    for policy in POLICIES:
        assert repair_arguments({"both": "3"}, SCHEMA, policy=policy).arguments == {"both": "3"}


UNWRAPPED = [
    ('"{\\"city\\": \\"Paris\\"}"', ["unwrapped_text"]),
    ('{"arguments": {"city": "Paris"}}', ["unwrapped_alias at /arguments"]),
    ('{"parameters": "{\\"city\\": \\"Paris\\",}"}', ["unwrapped_alias at /parameters"]),
    ('{"args": {"input": {"city": "Paris"}}}', ["unwrapped_alias at /args", "unwrapped_alias at /input"]),
    ('\'{"city": "Paris"}\'', ["single_quotes", "unwrapped_text"]),
]


@pytest.mark.parametrize(("text", "steps"), UNWRAPPED)
def test_wrapped_arguments_are_unwrapped(text, steps):
    found = repair_arguments(text, SCHEMA)
    assert found.arguments == {"city": "Paris"}
    assert [str(step) for step in found.steps] == steps
    assert repair_arguments(text, SCHEMA, policy="strict").steps == ()


def test_json_encoded_strings_are_decoded_where_the_schema_requires():
    found = repair_arguments({"at": '{"x": 1}', "spots": ['{"x": 2}'], "tags": '["a"]', "city": '{"x": 3}'}, SCHEMA)
    assert found.arguments == {"at": {"x": 1}, "spots": [{"x": 2}], "tags": ["a"], "city": '{"x": 3}'}
    assert [step.path for step in found.steps] == ["/at", "/spots/0", "/tags"]
    assert repair_arguments({"at": '{"x": [1'}, SCHEMA, policy="aggressive").arguments is None


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"type": "object", "properties": {"input": {"type": "object"}}}, {"input": {"city": "x"}}),
        ({"type": "object", "properties": {"city": {}}, "additionalProperties": True}, {"input": {"city": "x"}}),
        ({"type": "object"}, {"input": {}}),
        ({}, {"arguments": {"city": "x"}}),
        (SCHEMA, {"arguments": {"town": "x"}}),
    ],
)
def test_wrapper_property_that_may_be_intended_is_kept(schema, given):
    assert repair_arguments(given, schema, policy="aggressive").arguments == given


def test_schema_selects_the_matching_reading():
    text = '{"path": 007, "lines": 3 "mode": "x"}'
    properties = {"lines": {"type": "integer"}, "mode": {"type": "string"}}
    for kind, right in (("string", "007"), ("integer", 7)):
        schema = {"type": "object", "properties": {"path": {"type": kind}, **properties}}
        found = repair_arguments(text, schema, policy="aggressive")
        assert found.arguments == {"path": right, "lines": 3, "mode": "x"}
        assert [str(step) for step in found.steps] == ["leading_zeros", "missing_comma"]


def test_two_valid_readings_are_reported_as_ambiguous():
    (problem,) = repair_arguments('{"tags": ["ink" "nib"]}', SCHEMA, policy="aggressive").problems
    assert problem.keyword == "ambiguous"
    assert problem.path == "/tags/0"
    assert r'{"tags":["ink","nib"]} or {"tags":["ink\" \"nib"]}' in problem.message


def test_schema_locates_a_missing_bracket():
    text = '{"near": {"city": "Paris", "days": 3}'
    place = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    known = {"type": "object", "properties": {"near": place}}
    assert repair_arguments(text, known).arguments == {"near": {"city": "Paris", "days": 3}}
    both = {"type": "object", "properties": {"near": place, "days": {"type": "integer"}}}
    for policy in POLICIES[1:]:
        assert repair_arguments(text, both, policy=policy).problems[0].keyword == "ambiguous"
    without = {**both, "properties": {**both["properties"], "days": {"type": "string"}}}
    assert repair_arguments(text, without).arguments == {"near": {"city": "Paris", "days": 3}}


def test_surplus_bracket_in_the_middle_is_rejected():
    inner = {"type": "object", "properties": {"small": {"type": "object"}, "large": {"type": "object"}}}
    schema = {"type": "object", "properties": {"sizes": inner}}
    text = '{"sizes": {"small": {}}, "large": {}}}'  # it was { "sizes": { "small": {}, "large": {} } }
    for policy in POLICIES:
        assert repair_arguments(text, schema, policy=policy).arguments is None


def test_prose_around_a_nested_object_is_not_dropped():
    text = 'city: Paris, at: {"x": 1}'
    for policy in POLICIES:
        assert repair_arguments(text, SCHEMA, policy=policy).arguments is None


def test_truncated_arguments_are_reported_as_truncated():
    for policy in POLICIES[1:]:
        (problem,) = repair_arguments('{"city": "Par', SCHEMA, policy=policy).problems
        assert (problem.path, problem.keyword) == ("/city", "truncated")
        assert "write the whole call again" in problem.message
    assert repair_arguments('{"city": "Paris"', SCHEMA).arguments == {"city": "Paris"}
    assert repair_arguments('{"city": "Paris"', SCHEMA, finished=False).problems[0].keyword == "truncated"


@pytest.mark.parametrize("given", [[], "[1]", 3, None, '"text"'])
def test_arguments_must_be_an_object(given):
    (problem,) = repair_arguments(given, {}, policy="aggressive").problems
    assert "expected an object" in problem.message


def test_deep_values_are_rejected_without_traversal():
    value: object = 1
    for _ in range(150):
        value = {"next": value}
    schema = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "string"}]}}}
    assert repair_arguments({"next": value}, schema, policy="aggressive").problems[0].keyword == "depth"


def test_repair_of_nested_unions_terminates():
    branch = {"type": "object", "properties": {"next": {"$ref": "#/$defs/one"}, "n": {"type": "integer"}}}
    union = {"anyOf": [{**branch, "required": ["n"]}, {**branch, "required": ["next"]}]}
    schema = {"type": "object", "properties": {"next": {"$ref": "#/$defs/one"}}, "$defs": {"one": union}}
    value: object = {"n": "x"}
    for _ in range(8):
        value = {"next": value, "n": "1"}
    assert repair_arguments({"next": value}, schema, policy="aggressive").arguments is None


def test_unknown_policy_is_rejected():
    with pytest.raises(ConfigError, match="lenient"):
        repair_arguments("{}", {}, policy="lenient")


@pytest.mark.finding("Z11")
def test_arguments_with_many_values_are_validated_and_not_repaired():
    """Coercing 250,000 values, which fit into 1 MB, took seconds."""
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer"}}}}
    few, many = {"x": ["1"] * 4_000}, {"x": ["1"] * 10 * MAX_VALUES}
    assert repair_arguments(few, schema, policy="aggressive").arguments == {"x": [1] * 4_000}
    found = repair_arguments(many, schema, policy="aggressive")
    assert found.arguments is None and found.problems
    few_steps, many_steps = (
        count_work(lambda: repair_arguments(given, schema, policy="aggressive")) for given in (few, many)
    )
    assert many_steps < few_steps * 10


COUNT = {"type": "integer"}
NAMES = {f"max_results{number}": COUNT for number in range(200)}


@pytest.mark.finding("TX1")
@pytest.mark.parametrize("count", [10, 1_000, 20_000])
@pytest.mark.parametrize("properties", [{"max_results1": COUNT}, NAMES])
def test_names_are_repaired_in_all_items(count, properties):
    items = {"type": "array", "items": {"type": "object", "properties": properties}}
    text = '{"items": [' + ", ".join([r'{"max\_results1": 1}'] * count) + "]}"
    found = repair_arguments(text, {"type": "object", "properties": {"items": items}})
    assert found.arguments == {"items": [{"max_results1": 1}] * count}


@pytest.mark.finding("TX1")
@pytest.mark.parametrize("others", [r'{"max\_results1": 1}', r'{"max\_results2": 1}', '{"a": 1}'])
def test_no_name_is_repaired_if_that_would_cost_too_much(others, monkeypatch):
    monkeypatch.setattr("toolwire.schema.repair.spellings.coercion_budget", lambda _: StepBudget(250))
    items = {"type": "array", "items": {"type": "object", "properties": NAMES}}
    text = '{"items": [' + ", ".join([r'{"max\_results1": 1}', *[others] * 100]) + "]}"
    found = repair_arguments(text, {"type": "object", "properties": {"items": items}})
    assert found.arguments is None
    assert found.problems[0].keyword == "ambiguous"
    assert "key_spelling" not in [step.name for step in found.steps]


@pytest.mark.finding("TX1")
@pytest.mark.parametrize(
    ("pattern", "right"),
    [("^x-", {"max_results": 5}), (r"^max\\_", None), ("results", None), ("(?=x)x", None)],
    ids=["no match", "matches the key as written", "matches both", "not supported"],
)
@pytest.mark.parametrize("closed", [False, True])
def test_names_beside_patterns_are_repaired_or_refused(pattern, right, closed):
    schema = {
        "type": "object",
        "properties": {"max_results": COUNT},
        "patternProperties": {pattern: COUNT},
        "additionalProperties": not closed,
    }
    assert repair_arguments(r'{"max\_results": 5}', schema).arguments == right
    schema["patternProperties"]["^x-"] = COUNT
    assert repair_arguments('{"x-y ": 5,}', schema).arguments == {"x-y ": 5}  # the pattern accepts it


TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}


@pytest.mark.finding("TX8")
@pytest.mark.parametrize(
    ("properties", "required", "text"),
    [
        ({"city": TEXT, "unit": TEXT, "tags": TEXTS}, [], '["Paris", "metric"]'),
        ({"city": TEXT, "tags": TEXTS}, [], "[]"),
        ({"tags": TEXTS}, [], "[]"),
        ({"tags": {"type": ["array", "null"]}}, [], "[]"),
        ({"value": {}}, [], '["a"]'),
        ({"value": {}}, ["value"], '["a", "b"]'),
        ({"value": {}, "unit": TEXT}, [], '["a", "b"]'),
        ({"tags": TEXTS, "ids": {"anyOf": [TEXTS, TEXT]}}, ["tags"], '["a", "b"]'),
    ],
)
def test_bare_list_with_several_readings_is_refused(properties, required, text):
    schema = {"type": "object", "properties": properties, "required": required}
    assert repair_arguments(text, schema).arguments is None


@pytest.mark.finding("TX8")
@pytest.mark.parametrize(
    ("properties", "required"),
    [({"tags": TEXTS}, []), ({"tags": TEXTS}, ["tags"]), ({"city": TEXT, "tags": TEXTS, "value": {}}, ["tags"])],
)
def test_bare_list_for_the_only_list_gets_its_name(properties, required):
    schema = {"type": "object", "properties": properties, "required": required}
    assert repair_arguments('["a", "b"]', schema).arguments == {"tags": ["a", "b"]}
    assert repair_arguments("[]", schema).arguments == ({"tags": []} if required else None)
