"""Masks: the tokens that they allow, the seed's corruptions, errors that fail closed, and unusual tokenizers."""

import json
import random

import numpy as np
import pytest

from byte_tokenizer import accepts, allowed_tokens, make_backend, make_tokenizer, random_text
from toolwire.ir.errors import ConfigError, SchemaError
from toolwire.ir.tools import Tool
from toolwire.mask import GrammarMask, JSONSchemaMask, MaskTokenizer, RegexMask, UnfinishedOutput
from toolwire.schema import DecodingLimits, call_union

CONJUGATE = {
    "type": "object",
    "properties": {
        "verb": {"enum": ["eat", "go"]},
        "tense": {"enum": ["past_simple", "present"]},
        "person": {"enum": ["1sg", "3sg"]},
    },
    "required": ["verb", "tense", "person"],
    "additionalProperties": False,
}
VALID = '{"verb": "eat", "tense": "past_simple", "person": "3sg"}'


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def bytes_after(mask, text):
    """Return the texts of the tokens that are allowed after `text`."""
    state = mask.start()
    for token in mask.tokenizer.encode(text):
        state.accept(token)
    return {mask.tokenizer.token_bytes[token] for token in allowed_tokens(state)}


def test_corruptions_of_the_seed_are_impossible_at_token_level(tokenizer):
    mask = JSONSchemaMask(CONJUGATE, tokenizer)
    assert accepts(mask, VALID)
    assert all(text.startswith(b'"') for text in bytes_after(mask, "{"))  # {verb: eat
    assert not any(text.startswith(b"a") for text in bytes_after(mask, '{"verb": "'))  # "ate"
    assert all(text.startswith(b"_") for text in bytes_after(mask, '{"verb": "eat", "tense": "past'))  # "past"
    for corrupted in (
        "{verb: eat}",
        '{"verb": "ate", "tense": "past_simple", "person": "3sg"}',
        '{"verb": "eat", "tense": "past", "person": "3sg"}',
    ):
        assert not accepts(mask, corrupted)


def test_every_random_output_is_one_of_the_allowed_calls(tokenizer):
    mask = JSONSchemaMask(call_union([Tool("conjugate", input_schema=CONJUGATE), Tool("ping")]), tokenizer)
    rng = random.Random(0)
    for _ in range(30):
        call = json.loads(random_text(mask, rng, 200).finish())
        assert call["name"] in ("conjugate", "ping")
        arguments = call["arguments"]
        assert arguments == {} if call["name"] == "ping" else arguments["verb"] in ("eat", "go")


def test_end_token_is_allowed_only_after_a_complete_output(tokenizer):
    mask = JSONSchemaMask(CONJUGATE, tokenizer)
    state = mask.start()
    assert tokenizer.end_token not in allowed_tokens(state)
    with pytest.raises(UnfinishedOutput, match="incomplete after 0 tokens"):
        state.finish()
    for token in tokenizer.encode(VALID):
        state.accept(token)
    assert state.is_finished
    assert allowed_tokens(state) == [tokenizer.end_token]
    state.accept(tokenizer.end_token)
    state.accept(0)  # padding of a finished row
    assert state.finish() == VALID
    assert json.loads(state.text)["verb"] == "eat"


def test_rows_without_a_token_are_never_allowed(tokenizer):
    state = JSONSchemaMask({}, tokenizer).start()
    assert state.allowed().dtype == np.uint32
    assert len(state.allowed()) == (300 + 31) // 32
    assert max(allowed_tokens(state)) <= tokenizer.end_token


def test_token_that_is_not_allowed_makes_the_state_unusable(tokenizer):
    state = JSONSchemaMask(CONJUGATE, tokenizer).start()
    wrong = tokenizer.encode("x")[0]
    with pytest.raises(ConfigError, match=f"token {wrong} is not allowed"):
        state.accept(wrong)
    with pytest.raises(UnfinishedOutput):
        state.allowed()
    assert not state.is_finished


def test_outputs_of_one_mask_are_independent(tokenizer):
    mask = JSONSchemaMask(CONJUGATE, tokenizer)
    first, second = mask.start(), mask.start()
    first.accept(tokenizer.encode("{")[0])
    assert first.text == "{"
    assert second.text == ""
    assert allowed_tokens(first) != allowed_tokens(second)


def test_unsupported_keyword_is_residual_or_an_error(tokenizer):
    schema = {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}
    mask = JSONSchemaMask(schema, tokenizer)
    assert [(left.pointer, left.keyword) for left in mask.residual] == [("", "uniqueItems")]
    assert accepts(mask, "[true, true]")
    with pytest.raises(SchemaError, match="cannot enforce uniqueItems"):
        JSONSchemaMask(schema, tokenizer, unsupported="error")


def test_keyword_that_only_the_engine_refuses_becomes_residual(tokenizer):
    mask = JSONSchemaMask({"type": "string", "pattern": "x(^a)"}, tokenizer)
    assert [(left.pointer, left.keyword) for left in mask.residual] == [("", "pattern")]


def test_contradiction_between_schemas_is_refused(tokenizer):
    with pytest.raises(SchemaError, match="refused"):
        JSONSchemaMask({"allOf": [{"type": "string"}, {"type": "null"}]}, tokenizer)


def test_escaped_spelling_of_a_declared_key_is_not_allowed(tokenizer):
    mask = JSONSchemaMask({"type": "object", "properties": {"a": {"type": "integer"}}}, tokenizer)
    assert accepts(mask, '{"a": 1, "b": "x"}')
    assert not accepts(mask, '{"\\u0061": "x"}')
    assert not accepts(mask, '{"a": 1, "a": "x"}')


def test_limits_end_a_value_that_would_never_end(tokenizer):
    limits = DecodingLimits(max_length=3, max_items=2)
    mask = JSONSchemaMask({"type": "array", "items": {"type": "string"}}, tokenizer, limits=limits)
    assert accepts(mask, '["abc", "abc"]')
    assert not accepts(mask, '["abcd"]')
    assert not accepts(mask, '["a", "a", "a"]')


def test_grammar_and_regular_expression(tokenizer):
    mask = GrammarMask('start: "<call>" %json {"enum": ["a", "b"]} "</call>"', tokenizer)
    assert accepts(mask, '<call>"a"</call>')
    assert not accepts(mask, '<call>"c"</call>')
    mask = RegexMask(r"[0-9]+(\+[0-9]+)*", tokenizer)
    assert accepts(mask, "10+3")
    assert not accepts(mask, "10+")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda tokenizer: GrammarMask("start: (", tokenizer), "refused the grammar"),
        (lambda tokenizer: GrammarMask("", tokenizer), "not empty"),
        (lambda tokenizer: RegexMask("(", tokenizer), "refused the pattern"),
        (lambda tokenizer: RegexMask("a" * 5_000_000, tokenizer), "longer than"),
        (lambda tokenizer: JSONSchemaMask({"enum": ["\ud800"]}, tokenizer, unsupported="error"), "cannot enforce"),
        (lambda tokenizer: JSONSchemaMask({"properties": {"\ud800": {}}}, tokenizer), "not JSON"),
    ],
)
def test_unusable_grammar_raises_a_typed_error(tokenizer, make, message):
    with pytest.raises(SchemaError, match=message):
        make(tokenizer)


def test_wrong_usage_raises_config_errors(tokenizer):
    mask = RegexMask("a", tokenizer)
    with pytest.raises(ConfigError, match="max_tokens must be a positive integer"):
        mask.start(max_tokens=0)
    with pytest.raises(ConfigError, match="unknown engine"):
        JSONSchemaMask({}, tokenizer, engine="other")
    with pytest.raises(ConfigError, match="fast tokenizer"):
        MaskTokenizer.from_tokenizer("name")
    with pytest.raises(ConfigError, match="vocabulary_size"):
        MaskTokenizer.from_tokenizer(make_backend(), 0)


def test_tokenizer_is_read_from_a_folder_and_cached(tmp_path, tokenizer):
    make_backend().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>"}}))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 300}))
    read = MaskTokenizer.from_folder(tmp_path)
    assert read is MaskTokenizer.from_folder(tmp_path / "tokenizer.json")
    assert (read.vocabulary_size, read.end_token) == (300, tokenizer.end_token)
    with pytest.raises(ConfigError, match="no tokenizer"):
        MaskTokenizer.from_folder(tmp_path / "none")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        MaskTokenizer.from_folder(tmp_path)


def test_tokenizer_without_an_end_token_is_refused():
    from tokenizers import Tokenizer, models

    with pytest.raises(ConfigError, match="no end token"):
        MaskTokenizer.from_tokenizer(Tokenizer(models.BPE(vocab={"a": 0}, merges=[])))
