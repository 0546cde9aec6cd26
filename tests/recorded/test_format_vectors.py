"""360 recordings of public parsers: what they gave, we give; where not, it is listed with the reason."""

import json
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from recorded_formats import RECORDED, RULES, recordings

from places import TESTS
from toolwire.testing import same
from toolwire.testing.stream_checks import merge_deltas

DEVIATIONS = json.loads((TESTS / "vectors" / "recorded_deviations.json").read_text(encoding="utf-8"))
AGREEING = 317
DEVIATION_REASONS = {
    "unknown tools are passed on": 10,
    "events are never retracted": 6,
    "text is kept": 6,
    "not a result of parsing": 4,
    "the schema decides the type": 4,
    "invalid JSON is not a runnable call": 3,
    "a repeated opener is not reasoning": 3,
    "complete calls are kept": 2,
    "a truncated call is not complete": 1,
    "special tokens are not text": 1,
    "a call has a name": 1,
    "a name is reported as soon as it is known": 1,
    "a call may have no arguments": 1,
}


def test_recordings_of_public_parsers_match_except_listed_deviations():
    found = {one.index: one for one in recordings() if one.disagreements()}
    listed = {row["vector"] for row in DEVIATIONS}
    unlisted = [
        f"{index} {one.form.name} {one.test}: {one.disagreements()} where {one.calls} {one.content!r}"
        for index, one in found.items()
        if index not in listed
    ]
    assert not unlisted, "\n".join(unlisted)
    assert listed <= set(found), f"listed as deviations, and none: {sorted(listed - set(found))}"
    assert (len(found), len(recordings())) == (360 - AGREEING, 360)


def test_every_deviation_is_listed_once_with_its_reason():
    found = recordings()
    assert len({row["vector"] for row in DEVIATIONS}) == len(DEVIATIONS)
    assert Counter(row["rule"] for row in DEVIATIONS) == DEVIATION_REASONS
    assert Counter(row["correct"] for row in DEVIATIONS) == {"toolwire": 22, "either": 17, "not comparable": 4}
    for row in DEVIATIONS:
        one = found[row["vector"]]
        assert (row["format"], row["test"]) == (one.form.name, one.test)
        assert row["reason"].strip(), row


def test_number_of_matches_per_comparison_rule_is_unchanged():
    """To the letter, and with one rule after the other: none of it may change unseen."""
    counts = [sum(not one.disagreements(RULES[:number]) for one in recordings()) for number in range(len(RULES) + 1)]
    assert counts == [272, 289, 298, 309, AGREEING], RULES


def _events(one, pieces):
    events, diagnostics = one.events(pieces)
    return merge_deltas(events), diagnostics


@pytest.mark.one_in(5)
@pytest.mark.parametrize("share", range(8))
def test_every_split_gives_the_same_events(share):
    for one in recordings()[share::8]:
        random = Random(one.index)
        whole = _events(one, [one.text])
        assert _events(one, list(one.text)) == whole, one.text
        places = range(1, len(one.text))
        for place in places if len(places) <= 1000 else random.sample(places, 1000):
            assert _events(one, [one.text[:place], one.text[place:]]) == whole, (place, one.text)
        for _ in range(5):
            edges = sorted(random.randrange(len(one.text) + 1) for _ in range(6))
            pieces = [one.text[start:end] for start, end in pairwise([0, *edges, len(one.text)])]
            assert _events(one, pieces) == whole, (edges, one.text)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("share", range(8))
def test_prefix_yields_only_calls_that_are_complete_in_the_whole_text(share):
    for one in recordings()[share::8]:
        whole = [call for call in one.form.parse(one.text, one.tools).calls if call.state == "complete"]
        places = range(len(one.text))
        for place in places if len(places) <= 80 else sorted(Random(one.index).sample(places, 80)):
            calls = one.form.parse(one.text[:place], one.tools, finished=False).calls
            done = [call for call in calls if call.state == "complete"]
            assert len(done) <= len(whole), (place, one.text)
            for call, there in zip(done, whole, strict=False):
                assert call.name == there.name, (place, one.text)
                assert same(call.arguments, there.arguments), (place, one.text)


def test_missing_recordings_fail_where_ci_is_set(monkeypatch):
    import recorded_formats

    monkeypatch.setattr(recorded_formats, "RECORDED", RECORDED.with_name("nowhere.jsonl"))
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="nowhere"):
        recordings.__wrapped__()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="nowhere"):
        recordings.__wrapped__()
