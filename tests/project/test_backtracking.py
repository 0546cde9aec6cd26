"""The matcher that counts steps agrees with `re`, and tells linear patterns from expensive ones."""

import re
import sys
from random import Random

import pytest

import backtracking
from backtracking import Attack, StepCounter, find_expensive, nests_backtracking, parse


@pytest.fixture
def deep_recursion():
    """The matcher has a few frames for each repetition of a group."""
    previous = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    yield
    sys.setrecursionlimit(previous)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(a+)+", True),
        ("(?:a*b)*", True),
        ("(?:a*+b)*+", False),
        ("(?>(?:a+b)+)", True),
        ("a+b+", False),
        ("(a{2,3})*", False),
    ],
)
def test_nested_repetitions_are_recognised(pattern, expected):
    assert nests_backtracking(parse(pattern, 0)) is expected


EXPENSIVE = [
    (r"(?:\W*\w+\W+){0,2}?(?:get|list)s?\b", "match"),  # SE1: 34 s for "x" + "[]" * 8000
    (r"(search|find).*tool|tool.*(search|find)", "search"),
    ("(a+)+b", "match"),
    ("(?:a|a)*b", "match"),
    ("a+b", "search"),
    ("a*+b", "search"),
    (r"\s+$", "search"),
    ("x.*y", "search"),
    (rb"x.*y", "finditer"),
    (r"(.)\1+x", "search"),
    (r"\d+\w*", "fullmatch"),
    (r"\[([^\]]*)\]", "finditer"),
    (r"(?m)^\s*x", "search"),  # line breaks are both
    (r"\bget\b.*\bfor\b", "search"),  # only with a separator between the words
    (r'"(?:[^"\\]|\\.)*"', "search"),  # escaped quotes
    (r"(?:x(?=.*y))*z", "match"),  # a lookahead that succeeds
    (r"(.+)\1$", "match"),  # the comparison with a group
    (r"^\s+|\s+$", "finditer"),  # after another character
    ("(?:.*foo)?.*bar", "match"),  # the text between two repeats
    ("(?:a{0,30}){0,30}b", "match"),
    ("(?:aa|a){0,40}b", "match"),
    ("(?:abcabc|abc){0,40}d.*", "match"),  # a bounded repeat beside an unbounded one
]


@pytest.mark.finding("SE1")
@pytest.mark.usefixtures("deep_recursion")
@pytest.mark.parametrize(("pattern", "method"), EXPENSIVE, ids=lambda value: str(value))
def test_expensive_patterns_are_found(pattern, method, monkeypatch):
    """Small texts suffice, and cost a quarter: the increase of super-linear cost grows with the text."""
    monkeypatch.setattr(backtracking, "LARGE", backtracking.LARGE // 2)
    assert find_expensive(pattern, 0, method) is not None


LINEAR = [
    ("a+b", "match"),
    ("(?<!a)a+b", "search"),
    (r"\w{1,256}:", "search"),
    ("x[^xy]*+y", "search"),
    ("(?:a|ab)*c", "match"),
    (r"\[([^\[\]]*)\]", "finditer"),
    (r"(?:\d{1,3}\.){3}\d{1,3}", "search"),
    (r".{0,2000}x", "search"),
]


@pytest.mark.usefixtures("deep_recursion")
@pytest.mark.parametrize(("pattern", "method"), LINEAR)
def test_linear_patterns_are_accepted(pattern, method):
    assert find_expensive(pattern, 0, method) is None


def test_guard_restricts_the_attacks():
    assert find_expensive("<[^>]*>", 0, "finditer") == Attack("", "<", "")
    assert find_expensive("<[^>]*>", 0, "finditer", "(?:<a>)*") is None


def random_pattern(random, depth=0):
    kind = random.randrange(12 if depth < 3 else 4)
    inner = [random_pattern(random, depth + 1) for _ in range(2)] if kind > 3 else []
    if kind <= 3:
        return random.choice(["a", "b", "[ab]", "[^a]", ".", "c", r"\w", r"\s", "^", "$", r"\b", "\n"])
    if kind == 5:
        return f"(?:{inner[0]}){random.choice(['*', '+', '?', '{1,2}', '*?', '+?', '??', '*+', '++', '?+'])}"
    forms = {4: "(?:{}|{})", 6: "(?={})", 7: "(?>{})", 8: "({})", 9: "(?!{})"}
    return forms.get(kind, "{}{}").format(*inner)


@pytest.mark.parametrize("seed", range(4))
def test_matcher_finds_the_same_matches_as_re(seed):
    random = Random(seed)
    for _ in range(500):
        pattern = random_pattern(random)
        try:
            compiled = re.compile(pattern)
        except re.error:
            continue
        counter = StepCounter(parse(pattern), 0)
        for _ in range(3):
            text = "".join(random.choices("aab c\n", k=random.randrange(7)))
            try:
                found = compiled.match(text)
            except SystemError:  # a bug of CPython 3.11 with groups in possessive repeats
                continue
            assert counter.find(text) == (-1 if found is None else found.end()), (pattern, text)
