"""Every complete output of a mask is valid for the schema without the residual keywords."""

import json
import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from byte_tokenizer import accepts, make_tokenizer, random_text
from mask_judge import make_judge, read
from random_schemas import documents, published_schemas
from toolwire.ir.errors import SchemaError
from toolwire.mask import JSONSchemaMask, TokenLimitError

SLOW = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def make_mask(schema):
    try:
        return JSONSchemaMask(schema, make_tokenizer())
    except SchemaError:
        assume(False)


def check_outputs(mask, schema, seed, count=2):
    judge = make_judge(schema, mask)
    rng = random.Random(seed)
    for limit in [25, 120][:count]:
        try:
            text = random_text(mask, rng, limit).finish()
        except TokenLimitError:  # no output is that short
            continue
        assert judge.is_valid(read(text)), (text, mask.decoded)


@SLOW
@given(documents(), st.integers(0, 2**32))
def test_random_outputs_of_random_schemas_are_valid(schema, seed):
    check_outputs(make_mask(schema), schema, seed)


def test_random_outputs_of_published_tools_are_valid():
    schemas = published_schemas(150)
    for number, schema in enumerate(schemas):
        check_outputs(JSONSchemaMask(schema, make_tokenizer()), schema, number, count=1)


@SLOW
@given(st.data())
def test_valid_instances_in_the_order_of_the_schema_are_accepted(data):
    names = ["a", "b", "value"]
    kinds = {
        "string": st.text(alphabet="ab c{}[],:é", max_size=5),
        "integer": st.integers(-(10**6), 10**6),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    chosen = {name: data.draw(st.sampled_from(sorted(kinds))) for name in names}
    required = data.draw(st.lists(st.sampled_from(names), unique=True))
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in chosen.items()},
        "required": required,
        "additionalProperties": data.draw(st.booleans()),
    }
    present = [name for name in names if name in required or data.draw(st.booleans())]
    value = {name: data.draw(kinds[chosen[name]]) for name in present}
    assert accepts(JSONSchemaMask(schema, make_tokenizer()), json.dumps(value, ensure_ascii=False))
