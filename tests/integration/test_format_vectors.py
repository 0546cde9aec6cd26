"""360 recordings of public parsers: what they gave, we give; where not, the reason is here."""

from itertools import pairwise
from random import Random

import pytest
from recorded_formats import RECORDED, recordings

from toolwire.testing import same
from toolwire.testing.stream_checks import merged

_MOCKED = "the test makes its parser fail on purpose; the text itself is a fine call"
_MERGED = "two calls were merged into one by the recording's index, with arguments that are no JSON"
_BETWEEN = "text between two calls is text; there it is dropped"
_NO_TEXT = "what is no call stays text, with a diagnostic; there it is dropped without a word"
_BATCH = "a broken call does not take the whole one beside it with it"

DEVIATIONS = {
    3: ("test_parse_error_neither_swallows_nor_duplicates", _MOCKED),
    22: ("test_one_malformed_call_fails_the_whole_batch", _BATCH),
    27: ("test_recovery_uses_only_the_last_marker", _NO_TEXT),
    29: ("test_streaming_malformed_call_switches_to_raw_passthrough", _BATCH),
    37: ("test_parse_streaming_multiple_tool_calls", _MERGED),
    46: ("test_parse_streaming_with_python_start_and_end_token", _MERGED),
    51: (
        "test_invalid_then_valid_json",
        "two braces are not JSON: the call is invalid and says so; what stands inside of it is no second call",
    ),
    96: (
        "test_quoted_string_invalid_python_escape_no_warning",
        "the value of a string is the text between the tags; its quotes are the model's",
    ),
    107: ("test_quoted_string_invalid_python_escape_no_warning", "as 96"),
    119: ("test_detect_and_parse_multiple_blocks", _BETWEEN),
    138: ("test_detect_and_parse_missing_arguments", "a name without arguments is a call without arguments"),
    139: ("test_detect_and_parse_missing_name", _NO_TEXT),
    158: ("test_detect_and_parse_multiple_calls", _BETWEEN),
    218: ("test_e2e_exception_mid_drain_preserves_accumulated_calls", _MOCKED),
    255: (
        "test_case_sensitive_param_name_invalid_v3",
        "a key that the tool does not have is for the validator to judge: it can tell the model, a text cannot",
    ),
    284: ("test_json_array_with_invalid_json", _NO_TEXT),
    325: ("test_streaming_malformed_no_name_does_not_hang", _NO_TEXT),
    355: (
        "tcp.ToolArgCoercionTest.test_coercion_never_reworks_already_typed_values",
        "the schema says string, so it is the string that was written; there it is a number by its look",
    ),
}


def test_what_public_parsers_gave():
    unlisted, agreeing = [], []
    for one in recordings():
        differing = one.disagreements()
        if differing and one.index not in DEVIATIONS:
            unlisted.append(f"{one.index} {one.form.name} {one.test}: {differing} where {one.calls} {one.content!r}")
        if not differing and one.index in DEVIATIONS:
            agreeing.append(one.index)
    assert not unlisted, "\n".join(unlisted)
    assert not agreeing, f"listed as deviations, and none: {agreeing}"


def test_deviations_are_few_and_name_their_test():
    found = recordings()
    assert len(DEVIATIONS) <= 0.05 * len(found)
    assert {index: found[index].test for index in DEVIATIONS} == {
        index: name for index, (name, _) in DEVIATIONS.items()
    }


def test_how_much_the_rules_carry():
    """The share that agrees is a share by rules. Without any, it is this; neither may shrink unseen."""
    alike = [one.alike_without_rules() for one in recordings()]
    calls, edges, letters = (sum(column) for column in zip(*alike, strict=True))
    assert (calls, edges, letters) == (314, 291, 276), "of 360; with the rules of recorded_formats.py it is 342"


def _events(one, pieces):
    events, diagnostics = one.events(pieces)
    return merged(events), diagnostics


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


@pytest.mark.parametrize("share", range(8))
def test_of_a_prefix_only_what_is_whole_is_complete(share):
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


def test_the_file_must_be_there_where_ci_is_set(monkeypatch):
    import recorded_formats

    monkeypatch.setattr(recorded_formats, "RECORDED", RECORDED.with_name("nowhere.jsonl"))
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="nowhere"):
        recordings.__wrapped__()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="nowhere"):
        recordings.__wrapped__()
