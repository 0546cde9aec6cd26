"""Repair of anything: what is sound is left alone, what is cut off is never completed, and nothing else is ever raised."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical import json_values, objects
from places import TESTS
from tables import every_case
from toolwire.ir import BrokenJSON
from toolwire.ir.text import dumps
from toolwire.schema import repair_arguments
from toolwire.schema.repair.arguments import POLICIES
from toolwire.stream.repair import interpretations, repair_json

VECTORS = json.loads((TESTS / "vectors/repair/corruptions.json").read_text(encoding="utf-8"))
SOUND = [(row["right"], VECTORS["schemas"][row["schema"]]) for row in VECTORS["corruptions"] if "right" in row]
BRACKETS = st.text("{}[]\"'“”,:\\ \n\t/*#<>`|_abnurtTFN0123x.+-e=", max_size=60)
FREE = {"type": "object", "additionalProperties": True}


def spellings(value):
    return [json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, indent=3)]


@given(value=objects)
def test_valid_arguments_pass_unchanged(value):
    for spelling in spellings(value):
        for policy in POLICIES:
            for finished in (True, False):
                found = repair_arguments(spelling, FREE, policy=policy, finished=finished)
                assert (dumps(found.arguments), found.steps, found.problems) == (dumps(value), (), ())


@every_case(("value", "schema"), SOUND, ids=dumps)
@every_case("policy", POLICIES)
def test_arguments_that_match_the_schema_pass_unchanged(value, schema, policy):
    for given_form in (value, *spellings(value)):
        found = repair_arguments(given_form, schema, policy=policy)
        assert (dumps(found.arguments), found.steps, found.problems) == (dumps(value), (), ())


def leaves(value, path=()):
    if isinstance(value, dict):
        return {where: leaf for key, one in value.items() for where, leaf in leaves(one, (*path, key)).items()}
    if isinstance(value, list):
        return {where: leaf for at, one in enumerate(value) for where, leaf in leaves(one, (*path, at)).items()}
    return {path: dumps(value)}


def assert_part_of(value, whole):
    assert leaves(value).items() <= leaves(whole).items()


@given(value=json_values)
def test_repaired_prefix_contains_only_values_of_the_full_text(value):
    whole = {"value": value, "last": 1}
    spelling = json.dumps(whole, ensure_ascii=False)
    for cut in range(1, len(spelling)):
        found = repair_arguments(spelling[:cut], FREE, policy="aggressive")
        if found.arguments is not None:
            assert_part_of(found.arguments, whole)
        assert repair_arguments(spelling[:cut], FREE, policy="aggressive", finished=False).arguments is None


@every_case(("value", "schema"), SOUND, ids=dumps)
def test_repaired_prefix_of_a_vector_contains_only_values_of_the_full_text(value, schema):
    for spelling in spellings(value):
        for cut in range(1, len(spelling)):
            for policy in POLICIES:
                found = repair_arguments(spelling[:cut], schema, policy=policy)
                if found.arguments is not None:
                    assert_part_of(found.arguments, value)


STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')


@given(value=objects, place=st.integers(0, 10**4), twice=st.booleans())
def test_missing_or_doubled_punctuation_is_repaired_exactly_or_rejected(value, place, twice):
    """One comma, colon or bracket: it comes out as it was, or not at all."""
    text = json.dumps({"value": value, "last": "x"})
    masked = STRINGS.sub(lambda found: "s" * len(found.group()), text)
    marks = [at for at, char in enumerate(masked) if char in ",:{}[]"]
    at = marks[place % len(marks)]
    broken = text[:at] + text[at] * 2 * twice + text[at + 1 :]
    for policy in POLICIES:
        found = repair_arguments(broken, FREE, policy=policy)
        assert found.arguments is None or dumps(found.arguments) == dumps({"value": value, "last": "x"})


CODE = st.sampled_from(
    [
        'x = ["5"]',
        'd["a"]',
        'f("a", "b")',
        'say "hi" now',
        '{"k": "v"}',
        'a "b", c',
        'a["5"',
        '5"]',
        '3" pipe',
        "c",
        "[5]",
    ]
)


@pytest.mark.finding("TX2")
@given(items=st.lists(CODE, min_size=1, max_size=3), is_text=st.booleans(), separator=st.sampled_from([", ", ","]))
def test_list_items_with_unescaped_quotes_are_read_as_written_or_rejected(items, is_text, separator):
    schema = {
        "type": "object",
        "properties": {"lines": {"type": "array", "items": {"type": "string"} if is_text else {}}},
    }
    text = '{"lines": [' + separator.join(f'"{item}"' for item in items) + "]}"
    assert repair_arguments(text, schema, policy="aggressive").arguments in (None, {"lines": items})


SPELLINGS = st.sampled_from(
    [
        r"max\_results",
        "max_results ",
        " max_results",
        "'max_results'",
        "max_results\u200b",
        "max\u200b_results",
        "max\uff3fresults",
        "\uff4d\uff41\uff58_results",
    ]
)


@pytest.mark.finding("TX1")
@given(key=SPELLINGS, quotes=st.sampled_from(["“”", "``", "''", "«»"]), policy=st.sampled_from(POLICIES[1:]))
def test_repaired_text_has_no_other_spelling_of_a_declared_key(key, quotes, policy):
    schema = {"type": "object", "properties": {"max_results": {"type": "integer"}}}
    text = f'{{{quotes[0]}q{quotes[1]}: 1, "{key}": 5}}'
    assert repair_arguments(text, schema, policy=policy).arguments in (None, {"q": 1, "max_results": 5})


@given(text=st.one_of(BRACKETS, BRACKETS.map('{{"a": "{}'.format), st.text()))
def test_any_text_is_repaired_or_rejected(text):
    for read in (repair_json, lambda text: list(interpretations(text))):
        try:
            read(text)
        except BrokenJSON as error:
            assert error.reason in ("truncated", "ambiguous", "invalid")
    for policy in POLICIES:
        found = repair_arguments(text, FREE, policy=policy)
        assert (found.arguments is None) == bool(found.problems)


@given(text=st.one_of(BRACKETS, st.tuples(objects, BRACKETS).map(lambda pair: json.dumps(pair[0]) + pair[1])))
def test_repaired_value_needs_no_further_repair(text):
    try:
        found = [repair_json(text), *interpretations(text)]
    except BrokenJSON:
        return
    for one in found:
        again = repair_json(dumps(one.value))
        assert (dumps(again.value), again.steps) == (dumps(one.value), ())


@given(value=json_values)
def test_python_repr_is_read_or_rejected_as_ambiguous(value):
    """`repr` of a value is the most common way of writing something that is almost JSON."""
    try:
        found = repair_json(repr({"value": value}))
    except BrokenJSON as error:
        assert error.reason == "ambiguous"  # escapes that Python has and JSON does not
    else:
        assert dumps(found.value) == dumps({"value": value})
