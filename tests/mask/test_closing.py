"""Forced closing: an output with a token limit is complete whenever the limit allows it."""

import json
import random

import jsonschema_rs
import pytest

from byte_tokenizer import MERGED, accepts, allowed_tokens, make_tokenizer, random_text
from mask_judge import read
from toolwire.mask import JSONSchemaMask, RegexMask, TokenLimitError, UnfinishedOutput, closing, closing_search
from toolwire.mask.closing_search import find_closing

SCHEMAS = {
    "strings": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    "minimum length": {"type": "string", "minLength": 9},
    "long minimum length": {"type": "string", "minLength": 60},
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 3},
    "optional keys before a required one": {
        "type": "object",
        "properties": {"aa": {"type": "string"}, "ab": {"type": "string"}, "z": {"const": "abc"}},
        "required": ["z"],
    },
    "enums": {"type": "array", "items": {"enum": ["a", "a" * 20]}, "minItems": 2},
    "recursive": {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
        "additionalProperties": False,
    },
    "any": {},
    "pattern": {"type": "string", "pattern": "^[a-c]{3}-[0-9]{2}$"},
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("merged", [MERGED, ()], ids=["words", "characters"])
def test_output_is_complete_for_every_limit_from_the_shortest(name, merged):
    tokenizer = make_tokenizer(merged)
    mask = JSONSchemaMask(SCHEMAS[name], tokenizer)
    shortest = len(find_closing(mask.start().matcher, tokenizer))
    validator = jsonschema_rs.validator_for(SCHEMAS[name])
    rng = random.Random(1)
    for limit in [*range(shortest, shortest + 25), 80]:
        state = random_text(mask, rng, limit)
        assert validator.is_valid(read(state.finish())), state.text
        assert len(state.tokens) <= limit


@pytest.mark.parametrize("length", [30, 150, 700])
@pytest.mark.parametrize("merged", [MERGED, ()], ids=["words", "characters"])
def test_long_minimum_length_is_reached(length, merged):
    mask = JSONSchemaMask({"type": "string", "minLength": length}, make_tokenizer(merged))
    state = random_text(mask, random.Random(length), length + 2)
    assert len(json.loads(state.finish())) >= length


def test_long_pattern_is_ended_by_its_whole_example(monkeypatch):
    """Nearly all of the example's rests are valid text in a state, but none of them ends the pattern."""
    calls = []
    compute = closing_search._mask_of
    monkeypatch.setattr(closing_search, "_mask_of", lambda *options: calls.append(1) or compute(*options))
    state = JSONSchemaMask({"type": "string", "pattern": "^[a-z]{390}x$"}, make_tokenizer(())).start(400)
    assert len(calls) < 1_000
    while not state.is_finished:
        state.accept(allowed_tokens(state)[0])
    assert json.loads(state.finish()).endswith("x")


def test_shortest_end_is_found_beside_optional_keys():
    tokenizer = make_tokenizer()
    mask = JSONSchemaMask(SCHEMAS["optional keys before a required one"], tokenizer)
    path = find_closing(mask.start().matcher, tokenizer)
    assert json.loads(tokenizer.decode(path)) == {"z": "abc"}


def test_limit_below_the_shortest_end_is_refused_with_the_limit_that_suffices():
    mask = JSONSchemaMask(SCHEMAS["numbers"], make_tokenizer())
    with pytest.raises(TokenLimitError, match="at least 9 tokens, got max_tokens=8"):
        mask.start(8)
    assert json.loads(random_text(mask, random.Random(0), 9).finish()) == [0, 0, 0]


def test_output_without_a_limit_may_be_unfinished():
    state = JSONSchemaMask(SCHEMAS["numbers"], make_tokenizer()).start()
    state.accept(allowed_tokens(state)[0])
    with pytest.raises(UnfinishedOutput) as caught:
        state.finish()
    assert caught.value.text == state.text == "["
    assert caught.value.status == 502


def test_choices_stay_open_while_the_limit_is_far():
    mask = JSONSchemaMask({"type": "string"}, make_tokenizer())
    near, far = mask.start(max_tokens=2), mask.start(max_tokens=500)
    assert len(allowed_tokens(near)) == 1
    assert allowed_tokens(far) == allowed_tokens(mask.start())


def test_values_of_an_enum_that_fit_the_limit_stay_allowed():
    tokenizer = make_tokenizer()
    mask = JSONSchemaMask({"enum": ["eat", "go", "x" * 40]}, tokenizer)
    state = mask.start(max_tokens=6)
    texts = set()
    for _ in range(2):
        found = allowed_tokens(state)
        texts |= {tokenizer.token_bytes[token] for token in found}
        state.accept(found[0])
    assert b"x" not in texts
    assert accepts(mask, '"eat"')


def test_limited_regular_expression_is_completed():
    mask = RegexMask(r"[0-9]+(\+[0-9]+)*=", make_tokenizer())
    for limit in range(2, 40):
        assert random_text(mask, random.Random(limit), limit).finish().endswith("=")


def test_searches_are_few_even_for_a_long_output(monkeypatch):
    calls = []
    search = closing.find_closing
    monkeypatch.setattr(closing, "find_closing", lambda *options: calls.append(1) or search(*options))
    mask = JSONSchemaMask({"type": "array", "items": {"type": "string"}}, make_tokenizer())
    state = random_text(mask, random.Random(3), 2_000)
    state.finish()
    assert len(calls) < 60


def test_search_counts_no_contents_of_values_as_states():
    """With them, eight strings of three letters have more states than the budget of a search."""
    schema = {
        "type": "object",
        "properties": {f"k{number}": {"type": "string", "minLength": 3} for number in range(8)},
        "required": ["k3", "k7"],
        "additionalProperties": False,
    }
    tokenizer = make_tokenizer()
    search = closing_search.ClosingSearch(tokenizer, (), closing_search.MAX_STATES)
    path = search.shortest(JSONSchemaMask(schema, tokenizer).start().matcher)
    assert jsonschema_rs.is_valid(schema, json.loads(tokenizer.decode(path)))


def test_keys_that_look_like_values_are_compared():
    def holding(key, length):
        value = {"type": "string", "minLength": length}
        return {"type": "object", "properties": {key: value}, "required": [key], "additionalProperties": False}

    tokenizer, ends = make_tokenizer(), {}
    pairs = [("true", "false"), ("null", "true"), ("aaaa", "bbbb"), ("a 1", "a 2"), ("a, 1", "a, 2"), ("8-1", "8-2")]
    pairs += [("is true", "is null"), ("x: 1", "x: 2"), ("[1", "[2"), ("a 1 b", "a 2 b"), ('a" 1', 'a" 2')]
    for short, long in [*pairs, *((second, first) for first, second in pairs)]:
        schema = {"anyOf": [holding(short, 1), holding(long, 40)]}
        for begun in ("", '{"', '{"a', '{"a ', '{"8', '{"is '):
            if all(('{"' + key).startswith(begun) for key in (short, long)):
                state = JSONSchemaMask(schema, tokenizer).start()
                assert state.matcher.consume_tokens(tokenizer.engine.tokenize_str(begun))
                if not begun or not set(short) & set("[,:"):  # otherwise the rest of the key looks like a value
                    end = tokenizer.decode(find_closing(state.matcher, tokenizer))
                    ends[short, long, begun] = len(json.loads(begun + end)[short])
    assert set(ends.values()) == {len("false")}, ends  # the shortest string has one token


def test_search_without_comparison_reads_its_text_once(monkeypatch):
    class CountedPattern:
        read = 0

        def sub(self, replacement, text):
            self.read += len(text)
            return pattern.sub(replacement, text)

    pattern = closing_search._SCALARS
    counted = CountedPattern()
    monkeypatch.setattr(closing_search, "_SCALARS", counted)
    tokenizer = make_tokenizer()
    schema = {"type": "array", "items": {"type": "string", "minLength": 20}, "minItems": 50}
    search = closing_search.ClosingSearch(tokenizer, (), 0)
    text = tokenizer.decode(search.first(JSONSchemaMask(schema, tokenizer).start().matcher))
    assert jsonschema_rs.is_valid(schema, json.loads(text))
    assert counted.read < 20 * len(text)
