"""The word index: changes in any order give the scores of an index from scratch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import Tool
from toolwire.retrieve.documents import make_document
from toolwire.retrieve.word_index import WordIndex

WORDS = ("file", "invoice", "weather", "delete", "list", "city", "東京", "userId")
QUERIES = ("delete the file", "weather in the city", "list invoices", "東京 user", "unknown")


def make_text(numbers):
    return " ".join(WORDS[number] for number in numbers)


documents = st.builds(
    lambda name, description, parameters: make_document(
        Tool(make_text(name), make_text(description), {"properties": {WORDS[number]: {} for number in parameters}})
    ),
    *[st.lists(st.integers(0, len(WORDS) - 1), max_size=6)] * 3,
)
changes = st.lists(st.one_of(st.lists(documents, max_size=4), st.integers(0, 20)), max_size=12)


@given(changes)
@settings(max_examples=60)
def test_changes_in_any_order_equal_an_index_from_scratch(operations):
    index, present, end = WordIndex(), {}, 0
    for operation in operations:
        if isinstance(operation, list):
            index.add(end, operation)
            present.update(enumerate(operation, end))
            end += len(operation)
        elif present:
            number = sorted(present)[operation % len(present)]
            index.remove(number, present.pop(number))
    scratch = WordIndex()
    scratch.add(0, list(present.values()))
    assert index.count == scratch.count == len(present)
    np.testing.assert_allclose(index.totals, scratch.totals)
    for query in QUERIES:
        scores = index.score(query)
        np.testing.assert_allclose(scores[list(present)], scratch.score(query), rtol=1e-5)
        assert not scores[[number for number in range(end) if number not in present]].any()


def test_update_costs_as_much_as_its_change():
    """Segments are merged when they have similar sizes, so their number is logarithmic."""
    index = WordIndex()
    for number in range(300):
        index.add(number, [make_document(Tool(f"tool_{number}", "Delete a file"))])
        assert len(index.segments) <= 12


def test_word_in_the_name_counts_more_than_in_the_description():
    index = WordIndex()
    index.add(0, [make_document(Tool("a", "delete b c")), make_document(Tool("delete", "a b c"))])
    scores = index.score("delete")
    assert scores[1] > scores[0] > 0


def test_repetition_helps_little():
    index = WordIndex()
    filler = [make_document(Tool(f"other_{number}", f"Something else {number}")) for number in range(20)]
    once = make_document(Tool("a", "Delete a file of the user"))
    often = make_document(Tool("b", "delete " * 500))
    index.add(0, [once, often, *filler])
    scores = index.score("delete a file")
    assert scores[0] > scores[1]


@pytest.mark.parametrize("query", ["", "the of and", "zebra", "!" * 1000])
def test_query_without_known_words_has_no_results(query):
    index = WordIndex()
    assert len(index.score(query)) == 0
    index.add(0, [make_document(Tool("a", "Delete a file"))])
    assert not index.score(query).any()
