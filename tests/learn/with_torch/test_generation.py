"""Batched generation returns the tokens that one prompt alone would get."""

import torch
from tiny_model import tiny_model

from toolwire.learn.language_model import generate_tokens


def greedy_reference(model, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            best = int(model.network(torch.tensor([tokens])).logits[0, -1].argmax())
        if best == model.end_token:
            break
        tokens.append(best)
    return tokens[len(prompt) :]


def test_greedy_continuations_of_a_batch_equal_single_ones():
    model = tiny_model(3)
    prompts = [model.encode(text) for text in ("a", "Call the tool:", "The answer is 12")]
    found = generate_tokens(model, prompts, max_tokens=12)
    assert [one for [one] in found] == [greedy_reference(model, prompt, 12) for prompt in prompts]


def test_samples_depend_on_the_seed_only():
    model = tiny_model(3)
    prompt = [model.encode("Once")]
    first = generate_tokens(model, prompt, max_tokens=8, temperature=1.0, samples=3, seed=5)
    again = generate_tokens(model, prompt, max_tokens=8, temperature=1.0, samples=3, seed=5)
    other = generate_tokens(model, prompt, max_tokens=8, temperature=1.0, samples=3, seed=6)
    assert first == again != other
    assert len(first[0]) == 3


def test_continuation_ends_before_a_stop_token():
    model = tiny_model(3)
    prompt = model.encode("The answer is 12")
    whole = greedy_reference(model, prompt, 12)
    [[stopped]] = generate_tokens(model, [prompt], max_tokens=12, stop_tokens=[whole[4]])
    assert stopped == whole[: whole.index(whole[4])]


def test_settings_of_the_model_do_not_change_the_output():
    model = tiny_model(1)
    prompts = [model.encode("The answer is")]
    greedy = generate_tokens(model, prompts, max_tokens=12)
    sampled = generate_tokens(model, prompts, max_tokens=12, temperature=2.0, seed=3)
    own = model.network.generation_config
    own.repetition_penalty, own.no_repeat_ngram_size, own.suppress_tokens = 5.0, 1, [greedy[0][0][0]]
    own.temperature, own.top_p, own.min_p, own.typical_p = 0.1, 0.1, 0.5, 0.2
    assert generate_tokens(model, prompts, max_tokens=12) == greedy
    assert generate_tokens(model, prompts, max_tokens=12, temperature=2.0, seed=3) == sampled
    assert model.network.generation_config is own


def test_no_prompts_have_no_answers():
    assert generate_tokens(tiny_model(1), [], max_tokens=3) == []
