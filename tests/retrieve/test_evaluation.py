"""Recall, NDCG and the paired bootstrap against values computed by hand."""

import math

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.retrieve.evaluation import bootstrap_difference, ndcg, recall

RANKED = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("gold", "k", "expected"),
    [
        ({"a"}, 1, 1.0),
        ({"b"}, 1, 0.0),
        ({"b"}, 2, 1.0),
        ({"a", "d"}, 3, 0.5),
        ({"a", "d", "x"}, 5, 2 / 3),
        ({"a", "b", "c", "d"}, 2, 0.5),
        ({"x"}, 10, 0.0),
    ],
)
def test_recall_is_the_share_of_gold_among_the_first_k(gold, k, expected):
    assert recall(RANKED, gold, k) == pytest.approx(expected)


def test_ndcg_of_one_gold_item_is_the_discount_of_its_rank():
    assert ndcg(RANKED, {"a"}, 10) == 1
    assert ndcg(RANKED, {"b"}, 10) == pytest.approx(1 / math.log2(3))
    assert ndcg(RANKED, {"c"}, 10) == pytest.approx(0.5)
    assert ndcg(RANKED, {"c"}, 2) == 0


def test_ndcg_is_divided_by_that_of_the_best_order():
    # ranks 2 and 4 of two gold items: (0.6309 + 0.4307) / (1 + 0.6309)
    assert ndcg(RANKED, {"b", "d"}, 10) == pytest.approx(0.650921, abs=1e-6)
    assert ndcg(RANKED, {"a", "b"}, 10) == 1
    assert ndcg(RANKED, set(RANKED), 2) == 1  # no order of two items can contain more than two of the five


def test_a_repeated_item_counts_once():
    assert recall(["a", "a", "b"], {"a", "b"}, 2) == 0.5
    assert ndcg(["a", "a", "b"], {"a", "b"}, 10) == pytest.approx((1 + 0.5) / (1 + 1 / math.log2(3)))


def test_gold_and_k_must_be_given():
    for measure in (recall, ndcg):
        with pytest.raises(ConfigError, match="no gold"):
            measure(RANKED, [], 5)
        with pytest.raises(ConfigError, match="at least 1, got 0"):
            measure(RANKED, ["a"], 0)


def test_bootstrap_of_a_constant_difference_has_no_width():
    assert bootstrap_difference([0.75, 1.0, 0.5], [0.5, 0.75, 0.25], seed=1, rounds=100) == (0.25, 0.25, 0.25)


def test_bootstrap_interval_agrees_with_the_normal_approximation():
    one = [1.0] * 300 + [0.0] * 700
    other = [0.0] * 200 + [1.0] * 50 + [0.0] * 750
    mean, low, high = bootstrap_difference(one, other, seed=3, rounds=4_000)
    deviation = math.sqrt((250 * (1 - 0.25) ** 2 + 700 * 0.25**2 + 50 * 0.25**2) / 1_000 / 1_000)
    assert mean == pytest.approx(0.25)
    assert low == pytest.approx(0.25 - 1.96 * deviation, abs=0.003)
    assert high == pytest.approx(0.25 + 1.96 * deviation, abs=0.003)


def test_bootstrap_is_paired_and_seeded():
    one, other = [1.0, 0.0] * 50, [0.9, 0.1] * 50  # each side varies much, the difference little
    first = bootstrap_difference(one, other, seed=5, rounds=500)
    assert first == bootstrap_difference(one, other, seed=5, rounds=500)
    assert first != bootstrap_difference(one, other, seed=6, rounds=500)
    assert first[2] - first[1] < 0.05


def test_bootstrap_in_several_batches_draws_all_rounds(monkeypatch):
    monkeypatch.setattr("toolwire.retrieve.evaluation._DRAWS", 300)
    values = [float(number % 7) for number in range(100)]
    _, low, high = bootstrap_difference(values, [0.0] * 100, seed=1, rounds=1_000)
    assert 2.4 < low < 2.95 < high < 3.5


def test_bootstrap_refuses_sides_of_different_lengths():
    with pytest.raises(ConfigError, match="got 2 and 1"):
        bootstrap_difference([1.0, 2.0], [1.0])
    with pytest.raises(ConfigError, match="got 0 and 0"):
        bootstrap_difference([], [])
