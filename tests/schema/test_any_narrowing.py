"""Lowering: a valid value that the lowered schema cannot express always comes with a loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_schemas import BOUNDS, KINDS, NAMES, TYPES, VALUES
from toolwire.schema import DIALECTS, lower
from toolwire.schema.validation.validator import validator

LEAVES = st.one_of(
    st.fixed_dictionaries({"type": TYPES}),
    st.sampled_from(sorted(BOUNDS)).flatmap(lambda keyword: st.fixed_dictionaries({keyword: BOUNDS[keyword]})),
    st.tuples(KINDS, st.sampled_from(sorted(BOUNDS))).flatmap(
        lambda pair: st.fixed_dictionaries({"type": st.just(pair[0]), pair[1]: BOUNDS[pair[1]]})
    ),
)


def containers(inner):
    objects = st.fixed_dictionaries(
        {"properties": st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=2)},
        optional={"type": st.just("object"), "additionalProperties": st.booleans(), "required": st.just(["a"])},
    )
    lists = st.fixed_dictionaries({"items": inner}, optional={"type": st.just("array")})
    unions = st.sampled_from(["anyOf", "allOf"]).flatmap(
        lambda keyword: st.fixed_dictionaries({keyword: st.lists(inner, min_size=1, max_size=2)})
    )
    return st.one_of(objects, lists, unions)


SCHEMAS = st.recursive(LEAVES, containers, max_leaves=4)
VALUES_DEEP = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=4,
)


@pytest.mark.finding("TX6")
@given(schema=SCHEMAS, values=st.lists(VALUES_DEEP, min_size=4, max_size=10), name=st.sampled_from(sorted(DIALECTS)))
def test_valid_value_is_expressible_or_a_loss_is_reported(schema, values, name):
    schema = {"type": "object", "properties": {"p": schema}, "required": ["p"], "additionalProperties": False}
    lowered = lower(schema, name)
    if [loss for loss in lowered.losses if loss.path.startswith("/properties")]:
        return
    original, sent = validator(schema), validator(lowered.schema)
    for value in values:
        if original.accepts({"p": value}):
            assert sent.accepts(lowered.encode({"p": value})), lowered.schema
