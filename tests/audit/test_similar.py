"""Texts that read alike are found without comparing each with each, and none is missed by that."""

import random

from tables import every_case
from toolwire import Tool
from toolwire.audit.quality_rules import SIMILARITY_THRESHOLD, first_similar
from toolwire.audit.tools import audit_tools


def compared(texts):
    """Each with each."""
    for index, words in enumerate(texts):
        for other, before in enumerate(texts[:index]):
            if len(words) > 4 and words != before and len(words & before) >= SIMILARITY_THRESHOLD * len(words | before):
                yield index, other
                break


def some_texts(seed):
    chance = random.Random(seed)
    words = [f"w{number}" for number in range(chance.choice([8, 20, 40]))]
    texts = [frozenset(chance.sample(words, chance.randint(0, len(words)))) for _ in range(10)]
    for _ in range(30):
        texts.append(chance.choice(texts) ^ frozenset(chance.sample(words, chance.randint(0, 3))))
    return texts


@every_case("seed", range(40))
def test_result_equals_that_of_pairwise_comparison(seed):
    texts = some_texts(seed)
    assert list(first_similar(texts)) == list(compared(texts))


class Counting(frozenset):
    compared = 0

    def __and__(self, other):
        Counting.compared += 1
        return frozenset(self) & other


def test_tools_that_share_common_words_are_not_all_compared_pairwise():
    common = "does the thing for all of you".split()
    Counting.compared = 0
    assert list(first_similar([Counting([*common, f"number{index}"]) for index in range(500)])) == []
    assert Counting.compared < 500  # 124,750 pairs
    assert list(first_similar([Counting(common), Counting([*common, "now"])])) == [(1, 0)]
    assert Counting.compared > 0


def test_a_schema_is_read_once_for_all_rules(monkeypatch):
    times = []
    monkeypatch.setattr(
        "toolwire.audit.schema_rules.parse_schema", lambda schema: times.append(schema) or parse_schema(schema)
    )
    from toolwire.schema.parsing.parser import parse_schema

    audit_tools([Tool("f", "d", {"type": "object", "properties": {"a": {"type": "string"}}})])
    assert len(times) == 1
