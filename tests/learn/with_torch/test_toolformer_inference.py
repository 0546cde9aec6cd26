"""A call begins by the top-k rule, runs once, and its result is in the text before generation continues."""

import pytest
import torch
from tiny_model import tiny_model

from toolwire.ir.errors import ConfigError
from toolwire.learn import MiningTool, calculator_tool, generate_with_calls
from toolwire.learn.toolformer.candidates import call_start_tokens
from toolwire.run.tools.function_tool import tool


@pytest.fixture(scope="module")
def model():
    """A tiny model that learned three texts by heart."""
    model = tiny_model(0)
    texts = [
        "The sum is [Add(12 + 30)] → 42 42.",
        "Broken is [Add(nonsense] → 1.",
        "No call here, none.",
    ]
    rows = [[*model.encode(text), model.end_token] for text in texts]
    tokens, attention = model.pad_batch(rows)
    labels = tokens.masked_fill(attention == 0, -100)
    optimizer = torch.optim.Adam(model.network.parameters(), lr=0.01)
    model.network.train()
    for _ in range(70):
        loss = model.network(input_ids=tokens, attention_mask=attention, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.network.eval()
    return model


def adding_tool(ran):
    @tool(name="Add", effect="pure")
    def add(expression: str) -> str:
        """Add numbers."""
        ran.append(expression)
        left, _, right = expression.partition(" + ")
        return str(int(left) + int(right))

    return MiningTool(add, "", (), "[0-9 +]+")


def test_call_is_executed_once_and_its_result_is_inserted(model):
    ran = []
    [one] = generate_with_calls(model, ["The sum is"], [adding_tool(ran)], top_k=1, max_tokens=12)
    assert ran == ["12 + 30"]
    assert (one.before.strip(), one.call, one.result) == ("", "Add(12 + 30)", "42")
    assert one.text.startswith(" [Add(12 + 30)] → 42")
    assert one.after.strip() == "42."


def test_batch_has_the_texts_of_single_prompts(model):
    prompts = ["The sum is", "No call", "Broken is", "No call here"]
    together = generate_with_calls(model, prompts, [adding_tool([])], top_k=1, max_tokens=12)
    alone = [generate_with_calls(model, [one], [adding_tool([])], top_k=1, max_tokens=12)[0] for one in prompts]
    assert together == alone
    assert together[1].call is None
    assert together[1].text.startswith(" here, none")


def test_broken_call_is_dropped_with_its_reason(model):
    ran = []
    [one] = generate_with_calls(model, ["Broken is"], [adding_tool(ran)], top_k=1, max_tokens=12)
    assert (one.call, one.result, one.reason) == (None, None, "not a call")
    assert not ran
    assert "[" not in one.text


def test_larger_top_k_begins_calls_earlier(model):
    vocabulary = model.vocabulary_size
    [early] = generate_with_calls(model, ["No call"], [adding_tool([])], top_k=vocabulary, max_tokens=12)
    [late] = generate_with_calls(model, ["No call"], [adding_tool([])], top_k=1, max_tokens=12)
    assert early.before == "" and early.reason  # the model began a call at once, but wrote none
    assert not late.reason


def test_disabled_calls_are_never_written(model):
    [one] = generate_with_calls(model, ["The sum is"], [calculator_tool()], top_k=0, max_tokens=12)
    assert one.call is None
    starts = call_start_tokens(model)
    assert not set(model.encode(one.text)) & set(starts)


def test_negative_top_k_is_refused(model):
    with pytest.raises(ConfigError, match="top_k must not be negative"):
        generate_with_calls(model, ["a"], [], top_k=-1)
