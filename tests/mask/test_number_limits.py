"""Numbers under a mask: every generated number is in the range of a double, and strings of digits stay free."""

import json
import math

import pytest

from byte_tokenizer import allowed_tokens, make_tokenizer
from toolwire.mask import BatchMask, JSONSchemaMask


def follow(state, text):
    for token in text.encode():
        (token,) = make_tokenizer().encode(chr(token))
        assert token in allowed_tokens(state), state.text
        state.accept(token)


def next_bytes(state):
    pieces = state._tokenizer.token_bytes
    return {pieces[token] for token in allowed_tokens(state)}


def test_an_exponent_has_at_most_two_digits():
    mask = JSONSchemaMask({"type": "array", "items": {"type": "number"}}, make_tokenizer())
    for exponent in ("e30", "E+30", "E-30"):
        state = mask.start()
        follow(state, f"[6.01{exponent}")
        assert next_bytes(state) == {b",", b"]"}
        assert BatchMask([state]).allowed().tolist() == [state.allowed().tolist()]
    state = mask.start()
    follow(state, "[1e3")
    assert b"0" in next_bytes(state)
    assert b"10" not in next_bytes(state)


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_the_longest_number_is_finite(kind):
    state = JSONSchemaMask({"type": "array", "items": {"type": kind}}, make_tokenizer()).start()
    follow(state, "[" + "9" * 150)
    assert not any(text.isdigit() for text in next_bytes(state))
    follow(state, "]" if kind == "integer" else "e99]")
    (number,) = json.loads(state.finish())
    assert math.isfinite(float(number))


@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"type": "string", "minLength": 300}, {"type": "string", "pattern": "^[0-9e]{300}$"}]
)
def test_digits_in_a_string_are_not_limited(schema):
    state = JSONSchemaMask(schema, make_tokenizer()).start()
    follow(state, '"1e' + "7" * 298 + '"')
    assert len(json.loads(state.finish())) == 300
