"""Random hostile schemas are lowered, validated and repaired within a number of steps that is linear in their size.

The generator combines what makes schemas expensive: nested unions, references (shared, chained, recursive), long enums, deep
trees, intersections of all of them. Steps are counted, not timed.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.ir.errors import ToolwireError
from toolwire.schema.dialects import DIALECTS
from toolwire.schema.lowering.lowered import _lower
from toolwire.schema.parsing.parser import parse_schema
from toolwire.schema.repair.arguments import _Repairer
from toolwire.schema.validation.validator import Validator
from work_counter import count_work

DEFINITIONS = 6
TARGETS = ("openai_strict", "gemini", "portable")
BASE, PER_CHARACTER = 1_000_000, 150
"""Steps are lines of Python. Without budgets, schemas of this generator cost hundreds of millions."""

names = st.sampled_from([*"abcdef", "value", "x" * 60, "ключ"])
scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "null", "1", "x" * 40])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4))
leaves = st.one_of(
    st.sampled_from(
        [{}, True, False, {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": ["string", "null"]}]
    ),
    st.builds(lambda n: {"$ref": f"#/$defs/d{n}"}, st.integers(0, DEFINITIONS - 1)),
    st.builds(lambda n: {"enum": [{"a": i} for i in range(n)]}, st.integers(1, 60)),
    st.builds(lambda n: {"enum": [*range(n), *map(str, range(n))]}, st.integers(1, 60)),
    st.builds(lambda value: {"const": value}, values),
    st.sampled_from([{"type": "string", "pattern": pattern} for pattern in ("^(a+)+$", "(a|aa)*b", "(?=a)a", "[")]),
)


def containers(inner):
    properties = st.dictionaries(names, inner, max_size=4)
    branches = st.lists(inner, min_size=1, max_size=6)
    return st.one_of(
        st.builds(
            lambda p, r: {"type": "object", "properties": p, "required": r}, properties, st.lists(names, max_size=2)
        ),
        st.builds(lambda p, r: {"properties": p, "additionalProperties": r}, properties, inner),
        st.builds(lambda p: {"type": "object", "properties": p, "patternProperties": p}, properties),
        st.builds(lambda i: {"type": "array", "items": i, "minItems": 1}, inner),
        st.builds(lambda items: {"type": "array", "prefixItems": items}, branches),
        st.builds(lambda keyword, b: {keyword: b}, st.sampled_from(["anyOf", "oneOf", "allOf"]), branches),
        st.builds(lambda a, b, c: {"allOf": [{"anyOf": a}, {"oneOf": b}, c]}, branches, branches, inner),
        st.builds(lambda n, i: _nested(n, i), st.integers(1, 80), inner),
        st.builds(lambda i: {"not": i}, inner),
    )


def _nested(depth, inner):
    for number in range(depth):
        inner = {"type": "array", "items": inner} if number % 2 else {"type": "object", "properties": {"a": inner}}
    return inner


schemas = st.recursive(leaves, containers, max_leaves=25)
documents = st.builds(
    lambda root, defs: {"type": "object", "properties": root, "$defs": {f"d{n}": one for n, one in enumerate(defs)}},
    st.dictionaries(names, schemas, min_size=1, max_size=4),
    st.lists(schemas, min_size=DEFINITIONS, max_size=DEFINITIONS),
)


def attempt(work):
    """Run `work`; bad input may end in a typed error, never in another exception."""
    try:
        work()
    except ToolwireError:
        pass


def use(document, value):
    for target in TARGETS:
        lowered = _lower(document, DIALECTS[target], lambda: parse_schema(document))
        lowered.lift(lowered.encode(value))
        lowered.lift(value)
    attempt(lambda: Validator(document).problems(value))
    attempt(lambda: _Repairer(document).from_value(value, (), "aggressive"))
    attempt(lambda: _Repairer(document).from_text(json.dumps(value)[:-1], "aggressive", True))


@pytest.mark.full
@pytest.mark.finding("Z1")
@settings(max_examples=15)
@given(documents, st.dictionaries(names, values, max_size=4))
def test_steps_are_linear_in_the_size_of_schema_and_value(document, value):
    size = len(json.dumps(document)) + len(json.dumps(value))
    steps = count_work(lambda: use(document, value))
    assert steps <= BASE + PER_CHARACTER * size
