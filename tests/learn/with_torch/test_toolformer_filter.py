"""The losses of the filter equal a slow reference in float64, and every rule decides as it is defined."""

import math

import pytest
import torch
from tiny_model import tiny_model

from toolwire.ir.errors import ConfigError
from toolwire.learn import CallLosses, calculator_tool, loss_reduction_filter, weighted_nll
from toolwire.learn.toolformer.corpus import call_span, format_call
from toolwire.learn.toolformer.filters import (
    WEIGHTS,
    LossRequest,
    ScoredPosition,
    batch_losses,
    is_kept,
    loss_gain,
    measure_losses,
    rank_threshold,
)
from toolwire.learn.toolformer.mining import CallCandidate, MiningSettings, decide, score_candidates

TEXT = "Mary has 8 cups and uses 2. The answer is 6. Then she bakes."
POSITION = TEXT.index(" 6.")


def reference(model, context, suffix, weights=WEIGHTS):
    """One sequence, one token at a time, in float64."""
    network = tiny_double(model)
    tokens, total = list(context), 0.0
    for weight, token in zip(weights, suffix, strict=False):
        with torch.no_grad():
            logits = network(torch.tensor([tokens])).logits[0, -1]
        total -= weight * float(torch.log_softmax(logits, -1)[token])
        tokens.append(token)
    return total


def tiny_double(model):
    if not hasattr(model, "double"):
        import copy

        model.double = copy.deepcopy(model.network).double()
    return model.double


def test_weights_are_those_of_the_paper():
    assert list(WEIGHTS) == pytest.approx([1 / 3, 4 / 15, 1 / 5, 2 / 15, 1 / 15])
    assert sum(WEIGHTS) == pytest.approx(1)


@pytest.mark.parametrize("seed", [0, 1])
def test_losses_equal_the_reference(seed):
    model = tiny_model(seed)
    requests = []
    for size in (1, 2, 7, 30, 61):
        for length in (0, 1, 3, 5, 9):
            tokens = model.encode(TEXT * 3)
            requests.append(LossRequest(tuple(tokens[:size]), tuple(tokens[size : size + length])))
    found = batch_losses(model, requests)
    for request, loss in zip(requests, found, strict=True):
        assert loss == pytest.approx(reference(model, request.context, request.suffix), abs=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 64, 150, 100_000])
def test_losses_do_not_depend_on_the_batches(batch_tokens):
    model = tiny_model(2)
    tokens = model.encode(TEXT * 2)
    requests = [LossRequest(tuple(tokens[: size % 50 + 1]), tuple(tokens[size : size + 5])) for size in range(40)]
    one_by_one = [batch_losses(model, [request])[0] for request in requests]
    assert batch_losses(model, requests, batch_tokens=batch_tokens) == pytest.approx(one_by_one, abs=1e-5)


def test_sequence_that_begins_another_one_is_not_computed(monkeypatch):
    model = tiny_model(2)
    computed = []
    pad_batch = model.pad_batch
    monkeypatch.setattr(model, "pad_batch", lambda rows: computed.extend(rows) or pad_batch(rows))
    tokens = tuple(model.encode(TEXT))
    other = (*tokens[:4], *tokens[9:])
    requests = [LossRequest(tokens[:size], tokens[size : size + 5]) for size in (3, 9, 20, 9)]
    requests += [LossRequest(other[:size], other[size : size + 5]) for size in (4, 12)]
    found = batch_losses(model, requests)
    assert sorted(computed) == sorted([list(tokens[:25]), list(other[:17])])
    for request, loss in zip(requests, found, strict=True):
        assert loss == pytest.approx(reference(model, request.context, request.suffix), abs=1e-5)


def test_text_without_context_begins_after_the_end_token():
    model = tiny_model(0)
    suffix = model.encode(TEXT)
    assert weighted_nll(model, "", TEXT) == pytest.approx(reference(model, [model.end_token], suffix), abs=1e-5)


def test_own_weights_replace_those_of_the_paper():
    model = tiny_model(0)
    context, suffix = model.encode("The city has"), model.encode(" 302,971 residents")
    weights = [1.0] * 12
    found = weighted_nll(model, "The city has", " 302,971 residents", weights)
    assert found == pytest.approx(reference(model, context, suffix, weights), abs=1e-4)


@pytest.mark.parametrize("seed", [0, 3])
def test_paper_rule_puts_the_call_before_the_text_and_takes_the_minimum(seed):
    model = tiny_model(seed)
    calls = (("Calculator(8 - 2)", "6"), ("Calculator(8 + 2)", "10"))
    [found] = measure_losses(model, [ScoredPosition(TEXT, POSITION, calls)])
    before, suffix = model.encode(TEXT[:POSITION]), model.encode(TEXT[POSITION:])
    for (call, result), losses in zip(calls, found, strict=True):
        alone = reference(model, before, suffix)
        bare = reference(model, model.encode(format_call(call) + "\n") + before, suffix)
        full = reference(model, model.encode(format_call(call, result) + "\n") + before, suffix)
        assert losses.without_call == pytest.approx(alone, abs=1e-5)
        assert losses.without_result == pytest.approx(bare, abs=1e-5)
        assert losses.with_result == pytest.approx(full, abs=1e-5)
        assert loss_gain(losses) == pytest.approx(min(alone, bare) - full, abs=2e-5)


def test_seed_rule_puts_the_call_at_its_place_and_compares_with_no_call():
    model = tiny_model(1)
    [[losses]] = measure_losses(model, [ScoredPosition(TEXT, POSITION, (("Calculator(8 - 2)", "6"),))], rule="seed")
    before, suffix = model.encode(TEXT[:POSITION]), model.encode(TEXT[POSITION:])
    span = model.encode(call_span(TEXT[:POSITION], "Calculator(8 - 2)", "6"))
    assert losses.without_result is None
    assert losses.without_call == pytest.approx(reference(model, before, suffix), abs=1e-5)
    assert losses.with_result == pytest.approx(reference(model, before + span, suffix), abs=1e-5)


def test_loss_without_a_call_is_computed_once_for_each_position(monkeypatch):
    model = tiny_model(0)
    asked = []

    def record(model, requests, **options):
        asked.extend(requests)
        return batch_losses(model, requests, **options)

    monkeypatch.setattr("toolwire.learn.toolformer.filters.batch_losses", record)
    calls = tuple((f"Calculator(8 - {number})", str(8 - number)) for number in range(4))
    measure_losses(model, [ScoredPosition(TEXT, POSITION, calls)])
    assert len(asked) == 1 + 2 * 4
    assert all(len(request.suffix) == 5 for request in asked)


def test_pittsburgh_call_is_kept_and_the_call_without_gain_is_discarded():
    assert is_kept(CallLosses(without_call=28.4, with_result=22.1), tau=1.0)
    assert loss_gain(CallLosses(without_call=28.4, with_result=22.1)) == pytest.approx(6.3)
    assert not is_kept(CallLosses(without_call=28.4, with_result=28.3), tau=1.0)
    assert not is_kept(CallLosses(without_call=28.4, with_result=22.1, without_result=22.2), tau=1.0)


PASSAGE = "Pittsburgh has 302,971 residents and the city of Boston has 302,971 residents."
HELPFUL, USELESS = "Calculator(675647 - 372676)", "Calculator(2 + 2)"


def test_pittsburgh_passage_is_filtered_by_a_model():
    """A model that learned to copy the result keeps the helpful call only."""
    i = PASSAGE.rindex(" 302,971")
    before, after = PASSAGE[:i], PASSAGE[i : i + 5]
    good = [format_call(HELPFUL, "302971") + "\n" + before, before + call_span(before, HELPFUL, "302971")]
    poor = [format_call(USELESS, "4") + "\n" + before, before + call_span(before, USELESS, "4")]
    other = [*poor, format_call(HELPFUL) + "\n" + before, before]
    model = train_pairs(tiny_model(0), [*((one, after) for one in good), *((one, " some ") for one in other)])
    for rule in ("paper", "seed"):
        assert loss_reduction_filter(model, PASSAGE, HELPFUL, "302971", i, rule=rule)
        assert not loss_reduction_filter(model, PASSAGE, USELESS, "4", i, rule=rule)
        assert not loss_reduction_filter(model, PASSAGE, HELPFUL, "302971", i, tau=math.inf, rule=rule)
    assert loss_reduction_filter(model, PASSAGE, USELESS, "4", i, rule="none")


def train_pairs(model, pairs):
    """Train a tiny model to continue each context with its text."""
    optimizer = torch.optim.Adam(model.network.parameters(), lr=0.01)
    rows = [(model.encode(context), model.encode(text)) for context, text in pairs]
    tokens, attention = model.pad_batch([context + text for context, text in rows])
    labels = torch.full_like(tokens, -100)
    for row, (context, text) in enumerate(rows):
        labels[row, len(context) : len(context) + len(text)] = torch.tensor(text)
    model.network.train()
    for _ in range(80):
        loss = model.network(input_ids=tokens, attention_mask=attention, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.network.eval()
    return model


def test_best_call_at_a_position_is_kept():
    candidates = [
        CallCandidate(0, 5, "Calculator", "Calculator(1 + 1)", result="2", losses=CallLosses(2.0, 1.3, 1.9)),
        CallCandidate(0, 5, "Calculator", "Calculator(1 + 2)", result="3", losses=CallLosses(2.0, 0.9, 1.9)),
        CallCandidate(0, 9, "Calculator", "Calculator(1 + 3)", result="4", losses=CallLosses(2.0, 1.6, 1.9)),
        CallCandidate(1, 5, "Calculator", "Calculator(1 / 0)", reason="division by zero"),
    ]
    reasons = [one.reason for one in decide(candidates, [calculator_tool()], MiningSettings())]
    assert reasons == [
        "another call at the position is better",
        "",
        "loss not reduced enough",
        "division by zero",
    ]
    loose = decide(candidates, [calculator_tool()], MiningSettings(threshold=0.1))
    assert [one.reason for one in loose][2] == ""
    every = decide(candidates, [calculator_tool()], MiningSettings(filter="none"))
    assert [not one.reason for one in every] == [True, False, True, False]  # the first, whatever its gain


def test_rank_keeps_the_best_share():
    candidates = [
        CallCandidate(number, 5, "Calculator", "Calculator(1 + 1)", result="2", losses=CallLosses(0.0, -number / 10))
        for number in range(10)
    ]
    kept = decide(candidates, [calculator_tool()], MiningSettings(filter="rank", share=0.3))
    assert [one.text for one in kept if not one.reason] == [7, 8, 9]
    assert rank_threshold([], 0.5) == math.inf
    with pytest.raises(ConfigError, match="at most 1, got 2"):
        rank_threshold([1.0], 2)


def test_candidates_without_result_are_not_scored():
    model = tiny_model(0)
    candidates = [
        CallCandidate(0, POSITION, "Calculator", "Calculator(8 - 2)", result="6"),
        CallCandidate(0, POSITION, "Calculator", "Calculator(1 / 0)", reason="division by zero"),
    ]
    [scored, failed] = score_candidates(model, [TEXT], candidates, MiningSettings())
    assert scored.gain is not None and failed.gain is None


def test_wrong_arguments_are_refused():
    model = tiny_model(0)
    with pytest.raises(ConfigError, match="unknown filter 'best'"):
        loss_reduction_filter(model, TEXT, "Calculator(1 + 1)", "2", 3, rule="best")
    with pytest.raises(ConfigError, match="position 999 is outside of the text"):
        loss_reduction_filter(model, TEXT, "Calculator(1 + 1)", "2", 999)
    with pytest.raises(ConfigError, match="batch_tokens must be positive, got 0"):
        batch_losses(model, [], batch_tokens=0)
