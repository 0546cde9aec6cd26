"""Masks in transformers' `generate`: every row is valid, with left padding and rows that finish early."""

import json

import jsonschema_rs
import pytest
import torch
from tiny_model import tiny_model
from transformers import LogitsProcessorList

from toolwire.ir.errors import ConfigError, SchemaError
from toolwire.learn.language_model import generate_tokens
from toolwire.mask import JSONSchemaMask, MaskProcessor, MaskTokenizer, RegexMask

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 6},
        "days": {"type": "integer", "maximum": 99, "minimum": 0},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8]]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def tokenizer(model):
    return MaskTokenizer.from_tokenizer(model.tokenizer, model.network.config.vocab_size)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
def test_every_row_of_a_batch_is_valid(model, tokenizer, temperature, engine):
    if engine == "xgrammar":
        pytest.importorskip("xgrammar")
    mask = JSONSchemaMask(SCHEMA, tokenizer, engine=engine)
    processor = MaskProcessor(mask, max(map(len, PROMPTS)), max_tokens=60)
    rows = generate_tokens(
        model, PROMPTS, max_tokens=60, temperature=temperature, samples=2 if temperature else 1, processors=[processor]
    )
    validator = jsonschema_rs.validator_for(SCHEMA)
    texts = [model.decode(sample) for samples in rows for sample in samples]
    assert len(texts) == len(PROMPTS) * (2 if temperature else 1)
    for text in texts:
        assert validator.is_valid(json.loads(text)), text


def test_rows_finish_at_different_steps_and_only_end_afterwards(model, tokenizer):
    masks = [RegexMask("a", tokenizer), RegexMask("[bc]{20}", tokenizer), JSONSchemaMask({"type": "null"}, tokenizer)]
    processor = MaskProcessor(masks, 5)
    rows = generate_tokens(model, PROMPTS, max_tokens=40, processors=[processor])
    first, second, third = (model.decode(samples[0]) for samples in rows)
    assert first == "a"
    assert len(second) == 20
    assert third == "null"
    assert processor.states[0].finish() == "a"


def test_scores_of_forbidden_tokens_and_unused_rows_are_minus_infinity(model, tokenizer):
    mask = RegexMask("[ab]", tokenizer)
    processor = MaskProcessor(mask, 1)
    scores = processor(torch.tensor([[0]]), torch.zeros(1, 400))
    allowed = torch.isfinite(scores[0]).nonzero().flatten().tolist()
    assert sorted(tokenizer.decode([token]) for token in allowed) == ["a", "b"]


def test_last_token_is_accepted_after_generation(model, tokenizer):
    mask = RegexMask("[ab]{3}", tokenizer)
    processor = MaskProcessor([mask], 1, max_tokens=3)
    prompt = torch.tensor([[5]])
    output = model.network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=3,
        logits_processor=LogitsProcessorList([processor]),
    )
    processor.accept_rest(output)
    assert len(processor.states[0].finish()) == 3


def test_batch_of_another_size_and_exchanged_rows_are_refused(tokenizer):
    mask = RegexMask("[ab]+", tokenizer)
    with pytest.raises(ConfigError, match="2 rows, but there are 1 masks"):
        MaskProcessor([mask], 1)(torch.tensor([[0], [0]]), torch.zeros(2, 264))
    letter, other = tokenizer.encode("a")[0], tokenizer.encode("b")[0]
    processor = MaskProcessor(mask, 1)
    processor(torch.tensor([[0], [0]]), torch.zeros(2, 264))
    processor(torch.tensor([[0, letter], [0, other]]), torch.zeros(2, 264))
    with pytest.raises(ConfigError, match="exchanged"):
        processor(torch.tensor([[0, other, letter], [0, letter, letter]]), torch.zeros(2, 264))


def test_xgrammar_refuses_a_schema_with_a_keyword_that_it_ignores(tokenizer):
    pytest.importorskip("xgrammar")
    for schema in ({"type": "integer", "multipleOf": 3}, {"allOf": [{"type": "string"}, {"minLength": 2}]}):
        with pytest.raises(SchemaError, match="xgrammar does not enforce"):
            JSONSchemaMask(schema, tokenizer, engine="xgrammar")
