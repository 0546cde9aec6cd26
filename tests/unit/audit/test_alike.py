"""Texts that read alike are found without comparing each with each, and none is missed by that."""

import random
from time import process_time

import pytest

from toolwire import Tool
from toolwire.audit.alike import ENOUGH, first_alike
from toolwire.audit.tools import audit_tools


def compared(texts):
    """Each with each."""
    for index, words in enumerate(texts):
        for other, before in enumerate(texts[:index]):
            if len(words) > 4 and words != before and len(words & before) >= ENOUGH * len(words | before):
                yield index, other
                break


def some_texts(seed):
    chance = random.Random(seed)
    words = [f"w{number}" for number in range(chance.choice([8, 20, 40]))]
    texts = [frozenset(chance.sample(words, chance.randint(0, len(words)))) for _ in range(10)]
    for _ in range(30):
        texts.append(chance.choice(texts) ^ frozenset(chance.sample(words, chance.randint(0, 3))))
    return texts


@pytest.mark.parametrize("seed", range(40))
def test_the_same_as_comparing_each_with_each(seed):
    texts = some_texts(seed)
    assert list(first_alike(texts)) == list(compared(texts))


def test_twice_as_many_tools_take_about_twice_as_long():
    def seconds(number):
        tools = [Tool(f"tool_{index}", f"Does the thing number {index} for all of you.") for index in range(number)]
        began = process_time()
        audit_tools(tools, select=["TQ15"])
        return process_time() - began

    seconds(100)
    few = min(seconds(1000) for _ in range(3))
    assert seconds(8000) < 30 * few  # 64 times, if each were compared with each


def test_a_schema_is_read_once_for_all_rules(monkeypatch):
    times = []
    monkeypatch.setattr("toolwire.audit.schema_rules.read", lambda schema: times.append(schema) or read(schema))
    from toolwire.schema.read import read

    audit_tools([Tool("f", "d", {"type": "object", "properties": {"a": {"type": "string"}}})])
    assert len(times) == 1
