"""Scores of words and meanings are combined per query, and similar tools are spread."""

import numpy as np
import pytest

from toolwire.retrieve.ranking import add_sentences, choose_candidates, rank_numbers, split_query, spread_similar


def floats(*values):
    return np.array(values, np.float32)


def order(words, meanings, count=10):
    return [number for number, _ in rank_numbers(words, meanings, count)]


def test_meaning_decides_where_words_match_weakly():
    assert order(floats(6, 0, 5), floats(0.3, 0.6, 0.4)) == [1, 2, 0]


def test_words_decide_where_they_match_strongly():
    assert order(floats(60, 0, 5), floats(0.3, 0.6, 0.4)) == [0, 1, 2]


def test_without_meanings_words_decide_and_tools_without_a_match_are_left_out():
    assert order(floats(0, 2, 3), None) == [2, 1]


def test_equal_scores_keep_the_order_of_the_tools():
    assert order(floats(1, 2, 1, 2), None) == [1, 3, 0, 2]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shorter_result_is_the_beginning_of_a_longer_one(count):
    words = floats(3, 9, 4, 9, 1)
    assert order(words, None, count) == order(words, None)[:count]


@pytest.mark.parametrize("count", [1, 7, 60, 499])
def test_equal_scores_at_the_cut_are_taken_by_number(count):
    words = np.full(500, 3, np.float32)
    words[::7] = 5
    words[::11] = 0
    assert (
        order(words, None, count) == sorted(np.flatnonzero(words), key=lambda number: (-words[number], number))[:count]
    )


def test_candidates_with_equal_scores_are_taken_by_number():
    meanings = np.full(3_000, 0.5, np.float32)
    meanings[2_000:] = 0.6
    candidates = choose_candidates(np.zeros(3_000, np.float32), meanings)
    assert candidates.tolist() == [*range(24), *range(2_000, 3_000)]


def test_more_results_than_tools_are_no_error():
    assert order(floats(1), None, 50) == [0]
    assert rank_numbers(floats(), None, 5) == []


def test_best_sentence_contributes_to_the_similarity_of_a_candidate():
    similarities = np.array([[0.9, 0.1], [0.1, 0.8]], np.float32)  # of two candidates with two sentences
    combined = add_sentences(floats(0.5, 0.5, 0.5), np.array([0, 2]), similarities)
    assert combined.tolist() == pytest.approx([0.7 * 0.5 + 0.3 * 0.9, 0.7 * 0.5, 0.7 * 0.5 + 0.3 * 0.8])


def test_candidates_are_the_best_for_the_whole_query():
    meanings = np.linspace(0.1, 0.9, 3_000, dtype=np.float32)
    meanings[2_999] = 0  # removed or excluded
    candidates = choose_candidates(np.zeros(3_000, np.float32), meanings)
    assert candidates.tolist() == list(range(2_999 - len(candidates), 2_999))


def test_single_sentence_is_encoded_once():
    assert split_query("List my open invoices.") == ["List my open invoices."]
    assert split_query("") == [""]


def test_sentences_are_encoded_beside_the_query_without_courtesies():
    query = "Hi! Book a table for two. Then send the address to Ann. Thanks."
    assert split_query(query) == [query, "Book a table for two.", "Then send the address to Ann."]


def test_number_of_sentences_is_bounded():
    assert len(split_query("Find the cheapest flight. " * 500)) == 9


def unit(*angles):
    """Return vectors in a plane with these angles, in degrees."""
    radians = np.deg2rad(angles)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_similar_tools_are_moved_below_a_different_one():
    ranked = [(7, 0.80), (8, 0.79), (9, 0.78)]
    vectors = unit(0, 45, 90)  # 8 is similar to 7 (0.71), 9 is not
    assert [number for number, _ in spread_similar(ranked, vectors)] == [7, 9, 8]


def test_variants_of_one_tool_stay_together():
    ranked = [(7, 0.80), (8, 0.79), (9, 0.78)]
    vectors = unit(0, 20, 90)  # 8 is nearly equal to 7 (0.94)
    assert [number for number, _ in spread_similar(ranked, vectors)] == [7, 8, 9]


def test_clearly_better_tools_keep_their_place_although_they_are_similar():
    ranked = [(7, 0.80), (8, 0.79), (9, 0.60)]
    assert [number for number, _ in spread_similar(ranked, unit(0, 45, 90))] == [7, 8, 9]


def test_spreading_keeps_every_tool_and_its_scores_fall():
    generator = np.random.default_rng(3)
    vectors = generator.normal(size=(40, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ranked = [(number, 1 - number / 100) for number in range(40)]
    spread = spread_similar(ranked, vectors)
    assert sorted(number for number, _ in spread) == list(range(40))
    scores = [score for _, score in spread]
    assert scores == sorted(scores, reverse=True)


def test_nothing_to_spread():
    assert spread_similar([], np.zeros((0, 2), np.float32)) == []


def test_only_the_first_places_are_spread_if_few_are_wanted() -> None:
    ranked, vectors = [(7, 0.9), (8, 0.89), (9, 0.88)], unit(0, 45, 90)
    assert spread_similar(ranked, vectors, 2) == spread_similar(ranked, vectors)[:2]
