"""A schema in every dialect, and arguments there and back."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combinations import for_every
from places import TESTS
from tables import every_case
from toolwire.ir import ConfigError
from toolwire.schema import DIALECTS, lower, violations
from toolwire.schema.validation.validator import validator
from toolwire.testing.instances import instances
from toolwire.testing.preservation import check_preservation

VECTORS = json.loads((TESTS / "vectors/schema/schemas.json").read_text(encoding="utf-8"))
CORPUS = TESTS.parents[1] / "shared/data/tool_schemas"
STRICT = ["openai_strict", "anthropic_strict", "gemini"]


def reported(lowered):
    return any(loss.severity != "info" for loss in lowered.losses)


def verdict(schema, name, seed="", count=12):
    lowered = lower(schema, name)
    return check_preservation(
        schema,
        lowered.schema,
        DIALECTS[name],
        lift=lowered.lift,
        encode=lowered.encode,
        reported=reported(lowered),
        seed=seed,
        count=count,
    )


@pytest.mark.one_in(7)
@every_case("name", DIALECTS)
@every_case("vector", VECTORS, ids=lambda vector: vector["about"])
def test_lowered_schema_keeps_its_meaning_or_reports_a_loss(vector, name):
    before = copy.deepcopy(vector["schema"])
    found = verdict(vector["schema"], name, vector["about"], count=40)
    assert vector["schema"] == before
    if found is not None:
        assert found.is_honest, found
        assert found.conforms or any(loss.severity == "error" for loss in lower(vector["schema"], name).losses)


@pytest.mark.parametrize("name", STRICT)
def test_published_schemas_are_lowered_without_unreported_loss(name):
    """Every thirteenth of those that real servers publish; all of them in bench/."""
    if not CORPUS.exists():
        pytest.skip("the corpus is not here")
    lines = [line for file in sorted(CORPUS.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    tested = perfect = 0
    for line in lines[::13]:
        tool = json.loads(line)
        found = verdict(tool["input_schema"], name, tool["source"] + tool["name"])
        if found is not None:
            tested += 1
            perfect += found.is_perfect
            assert found.is_honest, (tool["source"], tool["name"], found)
    assert tested > 200
    assert perfect / tested >= {"openai_strict": 0.99, "anthropic_strict": 0.94, "gemini": 0.99}[name]


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "minLength": 1, "maxLength": 4},
            {"type": "integer", "minimum": 0, "maximum": 9},
            {"type": "number"},
            {"type": "boolean"},
            {"type": "null"},
            {"enum": ["a", 1, None]},
            {"const": "x"},
            {"type": ["string", "null"]},
            {},
            True,
            {"type": "object"},
            {"$ref": "#"},
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"type": st.just("array"), "prefixItems": st.lists(inner, min_size=1, max_size=2)}),
        st.builds(
            lambda properties, required, more: {
                "type": "object",
                "properties": properties,
                "required": [name for name in properties if name in required],
                **({} if more is None else {"additionalProperties": more}),
            },
            st.dictionaries(st.sampled_from(["a", "b", "c d", "value"]), inner, max_size=3),
            st.sets(st.sampled_from(["a", "b", "c d"])),
            st.one_of(st.none(), st.just(False), inner),
        ),
    ),
    max_leaves=8,
)


@given(schema=SCHEMAS)
@for_every(name=DIALECTS)
def test_any_schema_is_lowered_without_unreported_loss(name, schema):
    before = copy.deepcopy(schema)
    lowered = lower(schema, name)
    assert schema == before
    assert lowered.conforms == (not violations(lowered.schema, lowered.dialect))
    assert lowered.conforms or reported(lowered)
    if isinstance(schema, dict):
        found = verdict(schema, name)
        assert found is None or found.is_honest, found


def test_optional_becomes_nullable_and_null_becomes_absent():
    schema = VECTORS[2]["schema"]
    lowered = lower(schema, "openai_strict")
    assert lowered.schema == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 120},
            "severity": {"type": "string", "enum": ["low", "medium", "high"]},
            "component": {"type": ["string", "null"]},
        },
        "required": ["title", "severity", "component"],
        "additionalProperties": False,
    }
    said = {"title": "t", "severity": "low"}
    assert lowered.lift({**said, "component": None}) == said
    assert lowered.encode(said) == {**said, "component": None}
    assert not lowered.losses


def test_map_becomes_a_list_of_entries():
    lowered = lower(VECTORS[5]["schema"], "gemini")
    there = {"m": [{"key": "a", "value": 1}]}
    assert lowered.lift(there) == {"m": {"a": 1}}
    assert lowered.encode({"m": {"a": 1}}) == there


def test_schema_is_unchanged_for_permissive_dialects():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "x-own": 1}},
        "$schema": "s",
        "if": {},
        "then": {},
    }
    for name in ("openai", "anthropic", "gemini_json_schema", "mistral", "cohere", "bedrock"):
        assert lower(schema, name).schema == schema
        assert not lower(schema, name).changes_arguments


def test_unenforced_constraint_moves_to_the_description_and_is_reported():
    number = {"type": "number", "minimum": 0.5, "description": "how much"}
    schema = {"type": "object", "properties": {"n": number}, "additionalProperties": False}
    lowered = lower(schema, "anthropic_strict")
    assert lowered.schema["properties"]["n"] == {"type": "number", "description": "how much (minimum: 0.5)"}
    assert [(loss.path, loss.concept) for loss in lowered.losses] == [("/properties/n/minimum", "minimum")]


def test_integer_bounds_become_a_pattern():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    lowered = lower(schema, "anthropic_strict")
    assert lowered.schema["properties"]["n"]["pattern"] == "^(?:[1-9][0-9]*)$"
    assert lowered.lift({"n": "42"}) == {"n": 42}
    assert lowered.encode({"n": 42}) == {"n": "42"}


def test_recursive_schema_is_lowered_in_every_strict_dialect():
    schema = next(vector["schema"] for vector in VECTORS if vector["about"] == "a tree of maps")
    value = {"root": {"tags": {"a": "1"}, "next": {"tags": {}, "next": {"next": {"next": {"tags": {"b": "2"}}}}}}}
    assert "$ref" in json.dumps(lower(schema, "openai_strict").schema)
    assert "$ref" not in json.dumps(lower(schema, "gemini").schema)
    for name in STRICT:
        lowered = lower(schema, name)
        assert lowered.lift(lowered.encode(value)) == value


def test_equal_schemas_are_lowered_once():
    one = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert lower(one, "gemini") is lower(copy.deepcopy(one), "gemini")


def test_unions_too_large_to_combine_are_reported():
    union = {"anyOf": [{"type": "object", "properties": {f"p{n}": {"type": "string"}}} for n in range(11)]}
    schema = {"type": "object", "properties": {"a b": {"allOf": [union, union]}}}
    lowered = lower(schema, "anthropic")
    assert lowered.conforms and reported(lowered)
    assert '"and"' not in json.dumps(lowered.schema) and '"allOf"' not in json.dumps(lowered.schema)


def test_dialect_version_can_be_selected():
    assert lower({"type": "object"}, "openai_strict@2026-08").dialect.id == "openai_strict@2026-08"
    for name in ("nope", "openai_strict@1999-01"):
        with pytest.raises(ConfigError):
            lower({"type": "object"}, name)


@every_case("vector", VECTORS, ids=lambda vector: vector["about"])
def test_generated_instances_are_deterministic(vector):
    first = list(instances(vector["schema"], seed="s")) if vector["about"] not in UNTESTABLE else []
    assert first == (list(instances(vector["schema"], seed="s")) if first else [])
    assert vector["about"] in UNTESTABLE or len(first) >= 6


UNTESTABLE = {"a tuple, draft 7", "bounds, draft 4"}  # not valid in the newest draft


def test_upper_case_types_are_normalised():
    schema = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
    lowered = lower(schema, "ollama")
    assert lowered.schema["type"] == "object"
    assert lowered.schema["properties"] == {"city": {"type": "string"}}
    assert lowered.encode({"city": "Paris"}) == {"city": "Paris"}


# each is an error when llguidance 1.9.1 compiles it
UNIMPLEMENTED = {
    "oneOf": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "not": {"type": "string", "not": {"const": "a"}},
    "if": {"type": "string", "if": {"const": "a"}, "then": {"minLength": 1}},
    "dependentRequired": {"type": "object", "dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}},
    "contains": {"type": "array", "contains": {"type": "string"}, "minContains": 2},
    "uniqueItems": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^a"}},
    "minProperties": {"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 1},
    "maxProperties": {"type": "object", "properties": {"a": {"type": "integer"}}, "maxProperties": 1},
    "unevaluatedProperties": {"type": "object", "unevaluatedProperties": {"type": "string"}},
    "pattern": {"type": "string", "pattern": r"\bfoo\b"},
    "format": {"type": "string", "format": "regex"},
}


@every_case("keyword", UNIMPLEMENTED)
def test_keywords_unsupported_by_llguidance_are_removed_and_reported(keyword):
    schema = {"type": "object", "properties": {"v": UNIMPLEMENTED[keyword]}, "required": ["v"]}
    lowered = lower(schema, "llguidance")
    assert keyword not in lowered.schema["properties"]["v"]
    assert lowered.losses and not lowered.unchanged


def test_renamed_property_inside_a_kept_tuple_is_lifted_back():
    point = {"type": "object", "properties": {"c d": {"type": "string"}}}
    schema = {"type": "object", "properties": {"pair": {"type": "array", "prefixItems": [point], "items": point}}}
    lowered = lower(schema, "anthropic")
    arguments = {"pair": [{"c d": "first"}, {"c d": "second"}]}
    sent = lowered.encode(arguments)
    assert sent == {"pair": [{"c_d": "first"}, {"c_d": "second"}]}
    assert lowered.lift(sent) == arguments


def tagged_union(*, as_references):
    """Return a union of two objects that `kind` distinguishes, with bounds that strict modes do not enforce, and maps."""
    numbers = {"type": "object", "additionalProperties": {"type": "integer"}}
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    branches = {
        "a": {"kind": {"const": "a"}, "n": {"type": "number", "minimum": 0}, "m": numbers},
        "b": {"kind": {"enum": ["b", "c"]}, "t": {"type": "string", "maxLength": 2}, "m": texts},
    }
    objects = {
        name: {"type": "object", "properties": properties, "required": ["kind", "m"], "additionalProperties": False}
        for name, properties in branches.items()
    }
    union = [{"$ref": f"#/$defs/{name}"} for name in objects] if as_references else list(objects.values())
    parameters = {
        "type": "object",
        "properties": {"p": {"anyOf": union}},
        "required": ["p"],
        "additionalProperties": False,
    }
    return {**parameters, "$defs": objects} if as_references else parameters


@pytest.mark.finding("TX3")
@every_case("as_references", [False, True])
@every_case("name", ["anthropic_strict", "openai_strict", "gemini", "portable"])
@every_case(
    "value",
    [
        {"kind": "a", "n": -1, "m": {"x": 1}},
        {"kind": "c", "t": "yyy", "m": {"x": "1"}},
        {"kind": "a", "n": 1, "m": {"x": "1"}},
    ],
)
def test_tag_selects_the_branch_of_arguments_that_break_a_bound(name, as_references, value):
    schema = tagged_union(as_references=as_references)
    lowered = lower(schema, name)
    sent = lowered.encode({"p": value})
    assert sent["p"]["m"] == [{"key": "x", "value": value["m"]["x"]}]
    assert lowered.lift(sent) == {"p": value}
    assert not validator(schema).accepts(lowered.lift(sent))


@pytest.mark.finding("TX3")
@pytest.mark.parametrize("name", ["anthropic_strict", "openai_strict", "gemini"])
@pytest.mark.parametrize("tags", [{"t": "x", "k": 1}, {"t": "x", "k": 2}, {"t": "y"}])
def test_tags_on_two_levels_select_the_branch(name, tags):
    fields = {
        "n": {"type": "number", "minimum": 0},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    branches = [
        {
            "type": "object",
            "properties": {**{tag: {"const": value} for tag, value in constants.items()}, **fields},
            "required": [*constants, "n", "m"],
            "additionalProperties": False,
        }
        for constants in ({"t": "x", "k": 1}, {"t": "x", "k": 2}, {"t": "y"})
    ]
    lowered = lower({"type": "object", "properties": {"p": {"anyOf": branches}}, "required": ["p"]}, name)
    arguments = {"p": {**tags, "n": -1, "m": {"x": 1}}}
    sent = lowered.encode(arguments)
    assert sent["p"]["m"] == [{"key": "x", "value": 1}]
    assert lowered.lift(sent) == arguments


@pytest.mark.finding("TX5")
@pytest.mark.parametrize("values", [[True, "true"], [1, "a", None], [1, 2.5, "x", False], ["a", None], [1, 2.5]])
def test_enum_of_several_types_has_a_branch_for_each(values):
    schema = {"type": "object", "properties": {"p": {"enum": values}, "q": {"type": "string"}}, "required": ["p"]}
    lowered = lower(schema, "openai_strict")
    for node in (lowered.schema["properties"]["p"], *lowered.schema["properties"]["p"].get("anyOf", ())):
        kinds = node.get("type", [])
        assert type(kinds) is str or len({*kinds} - {"null"}) < 2
    assert lowered.conforms
    assert all(validator(lowered.schema).accepts(lowered.encode({"p": value})) for value in values)
    typed = {"type": "object", "properties": {"p": {"type": ["string", "integer"]}}, "required": ["p"]}
    assert lower({**typed, "additionalProperties": False}, "openai_strict").schema["properties"]["p"] == {
        "anyOf": [{"type": "string"}, {"type": "integer"}]
    }


@pytest.mark.finding("TX6")
@every_case("name", ["openai_strict", "anthropic_strict"])
@every_case(
    ("schema", "path", "concept"),
    [
        ({"exclusiveMaximum": 3}, "", "unstated type"),
        ({"format": "email"}, "", "unstated type"),
        ({"minItems": 1}, "", "unstated type"),
        ({"anyOf": [{"minLength": 1}, {"type": "null"}]}, "/anyOf/0", "unstated type"),
        (
            {"anyOf": [{"type": "object", "properties": {"x": {"type": "string"}}}, {"type": "null"}]},
            "/anyOf/0",
            "open object",
        ),
        (
            {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "/items",
            "open object",
        ),
    ],
)
def test_narrowing_is_reported(schema, path, concept, name):
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"], "additionalProperties": False}
    losses = [(loss.path, loss.concept) for loss in lower(parameters, name).losses if loss.severity == "info"]
    assert (f"/properties/p{path}", concept) in losses


@pytest.mark.finding("TX6")
@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"required": ["a"]}],
            "additionalProperties": False,
        },
        {"allOf": [{"type": "number"}, {"minimum": 2}]},
        {"minimum": 2, "anyOf": [{"type": "integer"}, {"type": "number"}]},
    ],
)
def test_type_that_is_stated_elsewhere_is_no_narrowing(schema):
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"], "additionalProperties": False}
    assert not [loss for loss in lower(parameters, "openai_strict").losses if loss.concept == "unstated type"]
