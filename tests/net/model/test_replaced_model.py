"""The model in the body of a client, replaced without parsing the body."""

import pytest

from toolwire.ir.text import to_bytes
from toolwire.net.model.pass_through import replace_leading_model


@pytest.mark.parametrize("model", ["m", "\u00fc", 'a"'])
def test_model_is_replaced_in_bodies_with_the_same_start_and_with_others(model):
    starts = [b'{"model": ', b'{ "stream":true,\n"model":', b'{"model":', b'{"user":"model","model":']
    ends = [b"}", b',"messages":[{"model":"a"}]}', b', "model": "c"}', b":"]
    for start in starts * 2:
        for name in (b'"a"', b'"b"', b'"a\\""'):
            for end in ends:
                assert replace_leading_model(start + name + end, model) == start + to_bytes(model) + end
    assert replace_leading_model(b'{"messages":[],"model":"a"}', model) is None
