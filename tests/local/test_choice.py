"""The choice of a function by the local model: probabilities of names, and what is known without the model."""

import asyncio
from math import exp, log

import pytest

from toolwire.ir.text import dumps
from toolwire.local.choice import OPENING, choose, found_priors, name_grammar, rank_priors, score_names
from toolwire.run.tools.refusal import NOTHING_FITS


class Writer:
    """An engine whose tokens are single bytes, and which prefers names by their weights."""

    def __init__(self, weights, alternatives=40):
        total = sum(weights.values())
        self.texts = {name: f"{OPENING}{dumps(name)[1:]}".encode() for name in weights}
        self.weights = {name: weight / total for name, weight in weights.items()}
        self.requests = []
        self._alternatives = alternatives

    async def __call__(self, names):
        self.requests.append(tuple(names))
        tokens, text = [], b""
        while not any(self.texts[name] == text for name in names):
            following = {}
            for name, written in self.texts.items():
                if written.startswith(text) and written != text:
                    part = written[len(text) : len(text) + 1]
                    following[part] = following.get(part, 0) + self.weights[name]
            total = sum(following.values())
            listed = sorted(following.items(), key=lambda item: -item[1])[: self._alternatives]
            possible = [
                item for item in following.items() if any(self.texts[n].startswith(text + item[0]) for n in names)
            ]
            best = max(possible, key=lambda item: item[1])
            rows = [{"bytes": list(part), "logprob": log(weight / total)} for part, weight in listed]
            tokens.append({"bytes": list(best[0]), "logprob": log(best[1] / total), "top_logprobs": rows})
            text += best[0]
        return tokens


def score(names, weights=None, **given):
    writer = Writer(weights or {name: number + 1 for number, name in enumerate(names)}, **given)
    return asyncio.run(score_names(names, writer)), writer


@pytest.mark.parametrize(
    "names",
    [
        ("a", "b"),
        ("get", "get_all", "get_alls"),
        ("api.list", "api.get", "web.list", "web.get", "nothing_fits"),
        ('say "hi"', "back\\slash", "new\nline", "tab\t"),
        ("ö", "ü", "💡", "💣", "日本"),
        ("x" * 64, "x" * 63 + "y"),
    ],
)
def test_score_is_the_probability_of_the_name(names):
    scores, _ = score(names)
    total = sum(range(1, len(names) + 1))
    assert {name: round(exp(value), 6) for name, value in scores.items()} == {
        name: round((number + 1) / total, 6) for number, name in enumerate(names)
    }


def test_names_that_differ_in_one_place_need_one_answer():
    _, writer = score(("get", "list", "stop"))
    assert len(writer.requests) == 1
    _, writer = score(("a1", "a2", "b1", "b2"))
    assert len(writer.requests) == 2


def test_equal_names_are_scored_once():
    scores, writer = score(("get", "get", "stop"), {"get": 1, "stop": 1})
    assert set(scores) == {"get", "stop"}
    assert writer.requests == [("get", "stop")]


def test_names_under_another_token_end():
    """The engine wrote `get` and lists `get_` as equally probable, which both names begin with or are the beginning of."""
    requests = []

    async def write(names):
        requests.append(tuple(names))
        assert len(requests) < 10, "endless"
        opened = f"{OPENING}".encode()
        rows = [{"bytes": list(part), "logprob": log(0.5)} for part in (b"get_", b"get")]
        return [
            {"bytes": list(opened), "logprob": 0.0, "top_logprobs": []},
            {"bytes": list(b"get"), "logprob": log(0.5), "top_logprobs": rows},
        ]

    scores = asyncio.run(score_names(("get_a", "get_b"), write))
    assert set(scores) == {"get_a", "get_b"}
    assert len(requests) <= 2


def test_control_character_of_a_name_is_escaped():
    grammar = name_grammar(["a\x7fb", "c\x01d"])
    assert "\x7f" not in grammar and "\x01" not in grammar
    assert r"a\u007fb" in grammar


def test_name_that_is_not_among_the_alternatives_is_least_probable():
    scores, _ = score(("a", "b", "c"), {"a": 8, "b": 4, "c": 1}, alternatives=2)
    assert scores["a"] > scores["b"] > scores["c"]


def test_alternative_that_begins_every_name_ends_nothing():
    """The engine writes a long token, though a shorter one is more probable without the grammar."""
    requests = []

    async def write(names):
        requests.append(tuple(names))
        assert len(requests) < 10
        rows = [
            {"bytes": list(part), "logprob": score} for part, score in ((b'{"na', -0.1), (b"y", -0.2), (b"yo", -3.0))
        ]
        opening = {"bytes": list(OPENING.encode()), "logprob": -0.5, "top_logprobs": rows[:1]}
        stem = {"bytes": list(b"yo"), "logprob": -3.0, "top_logprobs": rows[1:]}
        ends = [{"bytes": list(end.encode()), "logprob": -1.0} for end in ("a", "b")]
        return [opening, stem, {**ends[0], "top_logprobs": ends}]

    scores = asyncio.run(score_names(("yoa", "yob"), write))
    assert len(requests) == 1
    assert scores["yoa"] == scores["yob"]


def test_first_of_equal_functions_is_chosen():
    assert choose({"b": -1.0, "a": -1.0}, {"b": -1.0, "a": -1.0}, {}).name == "b"


def test_usual_preference_of_the_model_counts_less():
    """The model writes `stop` for every request, and `play` more often than usual for this one."""
    scores, usual = {"stop": log(0.55), "play": log(0.45)}, {"stop": log(0.95), "play": log(0.05)}
    assert choose(scores, scores, {}).name == "stop"
    assert choose(scores, usual, {}).name == "play"


def test_order_of_a_search_decides_between_similar_functions():
    names = ["first", "second", "third"]
    scores = dict.fromkeys(names, log(1 / 3))
    assert choose(scores, scores, rank_priors(dict.fromkeys(reversed(names), 1))).name == "third"
    sure = {"first": log(0.98), "second": log(0.01), "third": log(0.01)}
    assert choose(sure, scores, rank_priors(dict.fromkeys(reversed(names), 1))).name == "first"


def test_own_ranking_decides_between_similar_functions():
    priors = found_priors({"near": 0, "far": 1})
    assert choose({"far": -0.6, "near": -0.8}, {"far": -1.0, "near": -1.0}, priors).name == "near"
    assert choose({"far": -0.01, "near": -9.0}, {"far": -1.0, "near": -1.0}, priors).name == "far"


def test_api_with_many_entries_is_preferred():
    scores = {"rare": log(0.5), "popular": log(0.5)}
    assert choose(scores, scores, rank_priors({"rare": 1, "popular": 9})).name == "popular"


def test_margin_is_large_for_a_sure_choice_only():
    usual = {"a": log(0.5), NOTHING_FITS: log(0.5)}
    sure = choose({"a": log(0.999), NOTHING_FITS: log(0.001)}, usual, {})
    unsure = choose({"a": log(0.8), NOTHING_FITS: log(0.2)}, usual, {})
    assert sure.name == unsure.name == "a"
    assert sure.margin > unsure.margin > 0


def test_margin_is_that_of_the_model_alone():
    """A function that only its rank prefers is not a sure one."""
    scores = {"first": log(0.3), "second": log(0.7)}
    chosen = choose(scores, scores, rank_priors({"first": 1, "second": 1}))
    assert chosen.name == "first"
    assert chosen.margin < 0
