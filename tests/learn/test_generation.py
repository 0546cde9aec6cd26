"""Batched generation returns the tokens that one prompt alone would get."""

import torch
from tiny_model import tiny_model

from toolwire.learn.generation import generate_tokens


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
