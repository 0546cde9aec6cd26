"""Random schemas for property tests: every keyword, at every place, also where it does not belong."""

import json
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from places import ROOT, TESTS

NAMES = ["a", "b", "c d", "value", "key"]
SCALARS = st.sampled_from(["", "a", "abc", 0, 1, -3, 2.5, 12345678901234567890, True, None])
VALUES = st.one_of(SCALARS, st.sampled_from([[], [1], {}, {"a": 1}, {"a": {"b": "x"}}]))
ANNOTATIONS = {
    "title": st.just("T"),
    "description": st.sampled_from(["", "text"]),
    "default": VALUES,
    "examples": st.lists(VALUES, max_size=2),
    "deprecated": st.booleans(),
}
BOUNDS = {
    "minimum": st.sampled_from([-5, 0, 1, 2.5]),
    "maximum": st.sampled_from([0, 7, 300, 9007199254740991]),
    "exclusiveMinimum": st.sampled_from([0, 1.5]),
    "exclusiveMaximum": st.sampled_from([10, 1000]),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "minLength": st.integers(0, 2),
    "maxLength": st.integers(2, 5),
    "pattern": st.sampled_from(["^a", "^[a-z]+$", "b$"]),
    "format": st.sampled_from(["date", "uuid", "uri", "int32", "other"]),
    "minItems": st.integers(0, 3),
    "maxItems": st.integers(3, 4),
    "uniqueItems": st.booleans(),
    "minProperties": st.integers(0, 2),
    "maxProperties": st.integers(2, 4),
    "propertyNames": st.just({"pattern": "^[a-z]"}),
    "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    "nullable": st.booleans(),
    "const": VALUES,
    "enum": st.lists(VALUES, min_size=1, max_size=3),
    "not": st.sampled_from([{"const": 1}, {"required": ["a"]}]),
    "dependentRequired": st.just({"a": ["b"]}),
    "if": st.just({"required": ["a"]}),
    "then": st.just({"properties": {"t": {"type": "integer"}}}),
    "x-own": st.just(1),
}
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])
TYPES = st.one_of(KINDS, st.lists(KINDS, min_size=1, max_size=3, unique=True))


def keywords(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Return schemas with a few keywords each, and subschemas from `inner`."""
    schemas = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    branches = st.lists(inner, min_size=1, max_size=3)
    nested = {
        "properties": schemas,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "^x-", "d$"]), inner, min_size=1, max_size=2),
        "additionalProperties": st.one_of(st.booleans(), inner),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "anyOf": branches,
        "oneOf": branches,
        "allOf": branches,
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two", "#", "#/$defs/none"]),
    }
    return st.fixed_dictionaries({}, optional={"type": TYPES, **nested}).flatmap(
        lambda schema: st.fixed_dictionaries({}, optional={**ANNOTATIONS, **BOUNDS}).map(
            lambda more: {**schema, **dict(list(more.items())[: 1 + len(more) // 6])}
        )
    )


TYPED = st.one_of(
    st.fixed_dictionaries({"type": KINDS}, optional={"description": st.just("text"), "default": VALUES}),
    st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"])}, optional=BOUNDS).map(
        lambda schema: dict(list(schema.items())[:4])
    ),
    st.sampled_from([True, False, {}]),
)
SUBSCHEMAS = st.recursive(TYPED, keywords, max_leaves=6)


@st.composite
def new_documents(draw: st.DrawFn) -> dict:
    """Draw a schema that is usually an object, with two definitions."""
    schema = draw(keywords(SUBSCHEMAS))
    if draw(st.integers(0, 3)):
        schema = {
            "type": "object",
            "properties": draw(st.dictionaries(st.sampled_from(NAMES), SUBSCHEMAS, max_size=3)),
            **draw(st.fixed_dictionaries({}, optional={"required": BOUNDS["required"], "title": st.just("T")})),
            **draw(st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": True}])),
        }
    if '"#' in repr(schema).replace("'", '"'):
        schema["$defs"] = {"one": draw(SUBSCHEMAS), "two": draw(SUBSCHEMAS)}
    return schema


STORED = TESTS / "vectors/schema/random_documents.jsonl"


def documents() -> st.SearchStrategy:
    """Choose between `new_documents()` that were drawn once: hypothesis takes 70 ms for each. EXPLORE=1 draws others."""
    if os.environ.get("EXPLORE"):
        return new_documents()
    return st.sampled_from(STORED.read_text(encoding="utf-8").splitlines()).map(json.loads)


def stored_documents(step: int) -> list[dict]:
    """Return every `step`-th schema of those that were drawn by `store_documents`."""
    return list(map(json.loads, STORED.read_text(encoding="utf-8").splitlines()[::step]))


def store_documents() -> None:
    """Draw the stored schemas: `python -c "import random_schemas; random_schemas.store_documents()"`."""
    found: dict[str, None] = {}

    @settings(max_examples=600, derandomize=True)
    @given(new_documents())
    def draw(schema: dict) -> None:
        found[json.dumps(schema)] = None

    draw()
    STORED.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")


CORPUS = ROOT.parent / "shared/data/tool_schemas"


def published_schemas(step: int) -> list[dict]:
    """Return every `step`-th schema of the tools that public servers publish."""
    lines = [line for file in sorted(CORPUS.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line)["input_schema"] for line in lines[::step]]
