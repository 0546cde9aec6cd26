"""Calls are sampled with shared states: the same calls as by whole rows, with less computation."""

import msgspec
import pytest
from tiny_model import byte_tokenizer, tiny_model

from toolwire.learn import LanguageModel, calculator_tool
from toolwire.learn.toolformer import sampling
from toolwire.learn.toolformer.sampling import sample_batch

COLD = 1e-6  # a temperature at which every sample is the most probable call
PLACES = [
    ("Mary has 8 cups and uses 2. The answer is 6.", 41),
    ("Mary has 8 cups and uses 2. The answer is 6.", 12),
    ("Ten.", 3),
    ("12 boxes hold 7 pens each: 84 pens.", 27),
]
TOOL = msgspec.structs.replace(
    calculator_tool(),
    pattern="[0-9]{1,6}( [-+*/] [0-9]{1,6}){1,2}",
    examples=("1 + 2 = [Calculator(1 + 2)] 3.",),
    max_tokens=24,
)


def sample(model, *, temperature=COLD, batch_tokens=16_384, places=PLACES, samples=2):
    return sample_batch(model, places, TOOL, samples=samples, temperature=temperature, batch_tokens=batch_tokens)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_calls_are_those_of_whole_rows(seed):
    model, other = tiny_model(seed), tiny_model(seed)
    assert model.caches_all_tokens
    other._caches_all_tokens = False
    found = sample(model)
    assert any(found)
    assert found == sample(other)


def test_calls_do_not_depend_on_the_batches():
    model = tiny_model(1)
    assert sample(model) == sample(model, batch_tokens=1) == [sample(model, places=[place])[0] for place in PLACES]


def test_samples_of_a_position_differ():
    [calls] = sample(tiny_model(1), temperature=1.0, places=PLACES[:1], samples=6)
    assert len(set(calls)) > 1


def test_examples_are_computed_once_and_complete_calls_end(monkeypatch):
    model, shapes = tiny_model(1), []
    sample(model)  # its first use makes further forward passes
    decoder = model.network.get_decoder()
    forward = decoder.forward
    monkeypatch.setattr(
        decoder, "forward", lambda **options: shapes.append(tuple(options["input_ids"].shape)) or forward(**options)
    )
    sample(model, temperature=1.0, samples=8)
    assert {rows for rows, _ in shapes} == {1}
    examples, texts, *steps = (tokens for _, tokens in shapes)
    assert examples > len(TOOL.examples[0])
    assert texts == sum(len(prompt.text) for prompt in sampling._prompts(model, PLACES, TOOL))
    assert steps[0] == 8 * len(PLACES)
    assert steps[-1] < steps[0]
    assert steps == sorted(steps, reverse=True)


def test_model_with_a_sliding_window_does_not_cache_all_tokens():
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=264,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
    )
    model = LanguageModel(MistralForCausalLM(config).eval(), byte_tokenizer())
    assert not model.caches_all_tokens
