"""Docstrings, comments, messages and pages use plain technical English (tests/support/plain_english.py)."""

import pytest

from package_source import read_package
from places import ROOT
from plain_english import PATTERNS, all_page_texts, hits, page_texts, python_texts, scan
from tables import every_case

EXCLUDED = {
    "clause first": '"""What a generator gives, as a list."""',
    "whether first": '"""Whether the call is open."""',
    "clause heading": "## Who are you?",
    "who/what clause": "# for who is asked for it",
    "the same for who": '"""Like it: the same for who only wants to know."""',
    "indefinite person": "# nobody waits for it",
    "behind": "# the text behind the call",
    "stands": "# the key stands in the header",
    "words": 'raise ValueError("the provider\'s own words follow")',
    "speech": 'log("the server says no")',
    "comes of it": "# the call, and what then came of it",
    "may we in": 'hint = "is it running, and may we in?"',
    "than nothing": 'f"{name} has to be more than nothing, not {value}"',
    "question": 'hint = "is the server running?"',
}


def names_of(source):
    texts = page_texts("page.md", source) if source.startswith("##") else python_texts("module.py", source)
    return {hit.pattern.name for text in texts for hit in hits(text)}


def test_no_text_contains_an_excluded_phrase_and_no_allowance_is_stale():
    in_package = (text for module in read_package().values() for text in module.texts)
    found, unused = scan([*in_package, *all_page_texts(ROOT)])
    assert [str(hit) for hit in found] == []
    assert unused == []


@every_case("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_each_pattern_finds_its_example(pattern):
    assert pattern.name in names_of(EXCLUDED[pattern.name])


@pytest.mark.parametrize(
    "source",
    [
        '"""Collect a generator into a list."""',
        '"""Return `heard`.\n\n>>> says("the word")\nwhat is said\n"""',
        'PATTERN = re.compile("the words that it says")',
        'KIND = "words"',
        'raise ValueError(f"unknown name {name!r}, did you mean {other!r}?")',
        'READ = "SELECT result FROM records WHERE key = ?"',
        "upstream.requests  # the requests of `upstream.requests`, in order",
        "## Authentication\n\n```\nwho stands behind it\n```\n",
    ],
)
def test_code_and_plain_sentences_are_not_reported(source):
    assert names_of(source) == set()


def test_hit_in_a_long_text_has_its_own_line():
    text = next(python_texts("module.py", '\n"""Read a file.\n\nNobody else does.\n"""'))
    assert [hit.line for hit in hits(text)] == [4]
