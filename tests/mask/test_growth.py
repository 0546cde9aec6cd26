"""Examples of patterns match them, and end outputs whose masks do not show what is missing."""

import re

import pytest

from toolwire.mask.growth import pattern_examples


@pytest.mark.parametrize(
    "pattern",
    [
        "^[0-9a-f]{8}-[0-9a-f]{4}$",
        r"\d{4}-\d{2}T\d{2}:\d{2}\.\d{6}",
        "^pbj:([a-z0-9-]+):([a-z0-9-]+)?:([0-9]+-[0-9]+)$",
        "^(0[1-9]|1[0-2])-20\\d{2}$",
        "^[^/#]+/[^/#a]+#[0123456789]{2,}$",
        r"^[\w.-]+@([a-z\d-]+\.)+[a-z]{2,}?$",
        "^(?:x|yy)+(?P<end>z{3,5})[]a]$",
        r"^\x41B\/[\]\\]\n?$",
        "^((a|b){2,3}c*){2}(d{0,4}|e)$",
    ],
)
def test_examples_match_their_pattern(pattern):
    assert re.search(pattern, pattern_examples(pattern)[0])


def test_each_alternative_has_an_example():
    assert pattern_examples("^allow|d(e|i)ny$|[xy]{2}") == ["allow", "deny", "xx", "e", "i"]


@pytest.mark.parametrize(
    "pattern", ["(", "a)", "[", "[^", "{3}", "a{", "\\", "(?", "|", "", "((((", "a{999999999}" * 3]
)
def test_example_of_a_malformed_or_long_pattern_is_short(pattern):
    assert max(map(len, pattern_examples(pattern))) <= 400
