"""Untrusted patterns run on one linear engine, at a bounded cost; refused ones are findings."""

import re
from random import Random

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.audit.tools import audit_tools
from toolwire.ir import SchemaError, Tool
from toolwire.schema import Validator, lower, repair_arguments, validator
from toolwire.schema.bounds import StepBudget
from toolwire.schema.dialects import DIALECTS
from toolwire.schema.parsing import membership as fits_module
from toolwire.schema.parsing.membership import are_disjoint, fits
from toolwire.schema.parsing.nodes import EnumNode, StringNode
from toolwire.schema.parsing.parser import parse_schema
from toolwire.schema.repair.coercion import Coercion, coercion_budget
from toolwire.schema.validation import patterns
from toolwire.schema.validation.patterns import (
    automaton_size,
    engine_options,
    match_cost,
    matches,
    refusal,
    unchecked_patterns,
)
from toolwire.testing.instances import generate_matching, instances
from work_counter import count_work

EXPONENTIAL = ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^(.*a){20}$", "^(([a-z])+.)+[A-Z]$", "(x+x+)+y", "^(a?){30}a{30}$"]
REFUSED = {
    "lookahead": "^(?=x)x",
    "negative lookahead": "^(?!.*secret)",
    "lookbehind": "(?<=a)b",
    "negative lookbehind": "(?<!a)b",
    "atomic group": "(?>a+)b",
    "backreference": r"(a)\1",
    "named backreference": r"(?<n>a)\k<n>",
    "open group": "(",
    "open set": "[a",
    "empty set": "[]a]",
    "negated empty set": "[^]a]",
    "nothing to repeat": "*",
    "half a character": "\ud800",
    "verbose mode": "(?x)a{ 9999 # \n}",
    "nested repetition": "((((a{100}){100}){100}){100})",
    "stacked repetition": "a{9999}{9999}",
    "large Unicode class": r"\p{L}{5000}",
    "long": "a" * 20_000,
}


def record(**properties):
    return {"type": "object", "properties": properties}


def text(**keywords):
    return {"type": "string", **keywords}


# one engine


def every_use(schema, value):
    """Send a schema and a value through everything that looks at patterns."""
    check = Validator(schema)
    check.accepts(value)
    check.problems(value)
    for policy in ("strict", "safe", "aggressive"):
        repair_arguments(value, schema, policy=policy)
        repair_arguments(str(value).replace('"', ""), schema, policy=policy)
    source = parse_schema(schema)
    Coercion(source.defs.get, coercion_budget(value)).coerce(source.root, value, "")
    for name in DIALECTS:
        lowered = lower(schema, name)
        lowered.lift(lowered.encode(value))
    audit_tools([Tool("find_user", "Find a user by name.", schema)])
    list(instances(schema, count=2))


@pytest.mark.finding("Z2")
@pytest.mark.parametrize("pattern", [*EXPONENTIAL, *REFUSED.values()])
def test_python_never_compiles_an_untrusted_pattern(pattern, monkeypatch):
    compiled = []
    compile_ = re._compile
    monkeypatch.setattr(re, "_compile", lambda found, flags: compiled.append(found) or compile_(found, flags))
    name = text(pattern=pattern)
    schema = {
        **record(
            name={"anyOf": [name, {"type": "integer"}, {"type": "array", "items": name}]},
            kind={"oneOf": [{"enum": ["aab", "b"]}, name]},
            both={"allOf": [{"enum": ["aab"]}, name]},
            map={"type": "object", "patternProperties": {pattern: {"type": "integer"}}},
            keys={"type": "object", "propertyNames": {"pattern": pattern}},
        ),
        "required": ["name"],
    }
    if pattern == "\ud800":  # JSON cannot carry it
        assert matches(pattern, "a") is None
        return
    every_use(schema, {"name": "aaaaab", "kind": "aab", "both": "aab", "map": {"aab": 1}, "keys": {"aab": 1}})
    assert compiled  # the spy sees what it should see
    assert not [found for found in compiled if found == pattern or (len(pattern) > 3 and pattern in str(found))]


@pytest.mark.one_in(7)
@pytest.mark.finding("Z2")
@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_exponential_pattern_is_repaired_and_validated_in_linear_steps(pattern):
    schema = {**record(name={"anyOf": [text(pattern=pattern), {"type": "integer"}]}), "required": ["name"]}
    validator(schema)

    def repair(n):
        for policy in ("safe", "aggressive"):
            repair_arguments({"name": "a" * n + "b"}, schema, policy=policy)
            repair_arguments('{"name": "' + "a" * n + 'b",}', schema, policy=policy)

    repair(1)
    first, second, third = (count_work(lambda n=n: repair(n)) for n in (1_000, 2_000, 4_000))
    assert second <= 2 * first + 50 and third <= 2 * second + 50


@every_case(
    ("pattern", "accepted", "refused"),
    [
        (r"^\d+$", ["12"], ["٣", "12\n", ""]),
        (r"^\w+$", ["a_1"], ["é", "a b"]),
        (r"\w", ["é a"], ["é"]),
        ("^a$", ["a"], ["a\n", "ba"]),
        ("b", ["abc"], ["ac"]),
        (r"^\s$", ["\ufeff", "\u00a0"], ["\x85", "a"]),
        (r"^\p{L}+$", ["é"], ["1"]),
        (r"^\u0041$", ["A"], ["u0041"]),
        (r"^\/$", ["/"], [r"\/"]),
        ("^[[a]$", ["["], ["]"]),
        ("^.$", ["é", "😀"], ["\n", "ab"]),
    ],
)
def test_pattern_matches_the_same_text_in_validator_and_unions(pattern, accepted, refused):
    check = Validator(text(pattern=pattern))
    for value in accepted:
        assert check.accepts(value) and matches(pattern, value) is True, value
    for value in refused:
        assert not check.accepts(value) and matches(pattern, value) is False, value


# refused patterns


@pytest.mark.finding("Z2")
@every_case("pattern", [one for one in REFUSED.values() if one != "\ud800"])
def test_a_refused_pattern_is_a_finding_and_the_rest_is_checked(pattern):
    schema = record(a=text(pattern=pattern, maxLength=2), b={"type": "object", "patternProperties": {pattern: text()}})
    check = Validator(schema)
    assert next(finding.partition(": ")[0] for finding in check.findings) == "/properties/a/pattern"
    assert len(check.findings) == 2 and all("is not checked: " in finding for finding in check.findings)
    assert check.accepts({"a": "y"}) and check.accepts({"b": {"any": 1}})
    assert not check.accepts({"a": "yyy"}) and not check.accepts({"b": []})
    assert [one.at for one in parse_schema(schema).unchecked] == [
        finding.partition(": ")[0] for finding in check.findings
    ]


@pytest.mark.finding("Z2")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"patternProperties": {"(?=x)x": text()}, "additionalProperties": False}, {"x": "a"}),
        ({"patternProperties": {"(?=x)x": text()}, "unevaluatedProperties": False}, {"x": "a"}),
        ({"propertyNames": {"pattern": "(?=x)x"}}, {"x": "a"}),
        (record(a={"not": text(pattern="(?=x)x")}), {"a": "b"}),
        (record(a={"oneOf": [text(pattern="(?=x)x"), text(maxLength=3)]}), {"a": "b"}),
        (record(a={"allOf": [{"minLength": 1}], "oneOf": [text(pattern="(?=x)x"), text()]}), {"a": "b"}),
        (record(a={"if": text(pattern="(?=x)x"), "then": {"maxLength": 1}}), {"a": "bcd"}),
        ({**record(a={"$ref": "#/parts/a"}), "parts": {"a": text(pattern="(?=x)x")}}, {"a": "b"}),
    ],
)
def test_no_valid_call_is_refused_because_of_a_refused_pattern(schema, value):
    check = Validator(schema)
    assert len(check.findings) == 1 and check.problems(value) == ()


def test_data_that_looks_like_a_pattern_is_left_alone():
    data = {"pattern": "(?=x)x", "patternProperties": {"(": 1}}
    check = Validator(record(a={"const": data}, b={"enum": [data]}, c={"default": data}, pattern={"type": "integer"}))
    assert check.findings == []
    assert check.accepts({"a": data, "b": data}) and not check.accepts({"a": {}}) and not check.accepts({"b": {}})


def test_pattern_that_is_not_a_string_is_rejected():
    with pytest.raises(SchemaError, match="not a JSON Schema"):
        Validator(text(pattern=5))


@pytest.mark.finding("Z2")
def test_lowering_reports_patterns_that_toolwire_does_not_check():
    schema = record(a=text(pattern="^(?=x)x"), b={"type": "object", "patternProperties": {"(?=y)y": text()}})

    def losses(dialect):
        found = {loss.path: loss for loss in lower(schema, dialect).losses}
        return found["/properties/a/pattern"], found["/properties/b/patternProperties/(?=y)y"]

    sent, names = losses("openai")
    assert (sent.severity, names.severity) == ("info", "info") and "by the provider only" in sent.detail
    told, names = losses("anthropic_strict")
    assert (told.severity, names.severity) == ("warning", "warning")
    assert "checked nowhere: lookaround" in told.detail and "checked nowhere: lookaround" in names.detail


# budgets


@pytest.mark.finding("Z2")
def test_total_pattern_size_of_a_schema_is_limited(monkeypatch):
    compiled = []
    compile_ = patterns._compile
    monkeypatch.setattr(
        patterns, "_compile", lambda pattern: compiled.append(automaton_size(pattern)) or compile_(pattern)
    )

    def bytes_compiled(n):
        patterns._refusal.cache_clear()
        patterns._engine.cache_clear()
        compiled.clear()
        schema = record(**{f"p{i}": text(pattern=rf"^\p{{L}}{{{i + 10}}}$") for i in range(n)})
        found = unchecked_patterns(schema)
        assert {one.reason for one in found} == {"all patterns together are too large"}
        check = Validator(schema)
        assert len(check.findings) == len(found)
        return sum(compiled)

    first, second, third = map(bytes_compiled, (50, 100, 200))
    assert first == second == third <= patterns.SCHEMA_SIZE


@pytest.mark.finding("Z2")
def test_text_too_long_for_a_large_pattern_is_a_problem():
    check = Validator(record(a=text(pattern="^(?:[ab]*a){1000}c$"), b={"type": "string"}))
    assert not check.findings
    (problem,) = check.problems({"a": "ab" * 50_000})
    assert problem.keyword == "effort" and "too long for the patterns" in problem.message
    assert not check.accepts({"a": "ab" * 50_000})
    # the long text is elsewhere
    assert check.problems({"b": "ab" * 50_000}) == ()
    assert [problem.keyword for problem in check.problems({"a": "abc", "b": "ab" * 50_000})] == ["pattern"]


@pytest.mark.finding("Z2")
def test_pattern_cost_counts_every_reference_and_property_name():
    large = "^(?:[ab]*a){300}c$"
    refs = {"allOf": [{"$ref": "#/$defs/p"}] * 100, "$defs": {"p": text(pattern=large)}}
    assert Validator(refs).problems("ab" * 100)[0].keyword == "effort"
    assert Validator(refs["$defs"]["p"]).problems("ab" * 100)[0].keyword == "pattern"
    names = {f"{i}" + "ab" * 100: 1 for i in range(200)}
    assert Validator({"patternProperties": {large: {}}}).problems(names)[0].keyword == "effort"
    assert Validator({"propertyNames": {"pattern": large}}).problems(names)[0].keyword == "effort"
    assert Validator({"propertyNames": {"anyOf": [{"pattern": large}]}}).problems(names)[0].keyword == "effort"


@pytest.mark.finding("Z2")
def test_pattern_above_the_cost_limit_does_not_decide_a_union():
    large = "^(?:[ab]*a){1000}c$"
    assert matches(large, "c") is False and matches(large, "ab" * 5_000) is None
    assert fits(StringNode(pattern=large), "ab" * 5_000, {}.get)
    assert not are_disjoint([EnumNode(("ab" * 5_000,)), StringNode(pattern=large)], {}.get)


@pytest.mark.finding("Z2")
def test_work_for_unions_of_patterns_is_linear_in_the_number_of_branches():
    calls = []

    def engine_calls(n):
        calls.clear()
        branches = [text(pattern=f"^x{i}a+$", minLength=i + 1) for i in range(n)]
        source = parse_schema(record(a={"anyOf": branches}))
        fits(source.root, {"a": "a" * 10}, source.defs.get)
        return len(calls)

    refusal_ = patterns.refusal
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(patterns, "refusal", lambda pattern: calls.append(pattern) or refusal_(pattern))
        first, second, third = map(engine_calls, (100, 200, 400))
    assert second <= 2 * first and third <= 2 * second


def test_caches_are_bounded_and_hold_no_long_pattern():
    before = patterns._refusal.cache_info().currsize, patterns._measure.cache_info().currsize
    for number in range(3):
        long = f"{number}" + "a" * 20_000
        assert refusal(long) and match_cost(long) and automaton_size(long) and matches(long, "a") is None
    assert before == (patterns._refusal.cache_info().currsize, patterns._measure.cache_info().currsize)
    for cache in (patterns._refusal, patterns._measure):
        assert cache.cache_info().maxsize <= 2048


def named_and_matched(n):
    patterns_ = {f"^p{i}.*$": {"type": "string"} for i in range(n)}
    return {**record(**{f"p{i}": {"type": "string"} for i in range(n)}), "patternProperties": patterns_}


def large_patterns(n):
    """More automata than the cache of engines holds."""
    return {**record(a={}, b={}, c={}), "patternProperties": {rf"^\p{{L}}{{{i + 20}}}$": {} for i in range(n)}}


@pytest.fixture
def compiled(monkeypatch):
    """The patterns that are compiled, from empty caches."""
    found = []
    compile_ = jsonschema_rs.validator_for
    monkeypatch.setattr(
        jsonschema_rs,
        "validator_for",
        lambda schema, **options: found.append(schema["pattern"]) or compile_(schema, **options),
    )
    patterns._refusal.cache_clear()
    patterns._engine.cache_clear()
    return found


@pytest.mark.finding("Z1")
@pytest.mark.parametrize("schema", [named_and_matched(300), large_patterns(60)], ids=["many", "large"])
def test_a_pattern_is_compiled_once_for_all_names_of_a_schema(schema, compiled):
    parse_schema(schema)
    assert compiled and len(compiled) == len(set(compiled))


@pytest.mark.finding("Z1")
def test_a_pattern_is_compiled_once_for_all_values(compiled):
    branches = [text(pattern=rf"^\p{{L}}{{{i + 20}}}$") for i in range(40)]
    source = parse_schema(record(a={"type": "array", "items": {"anyOf": branches}}))
    budget = StepBudget(100_000)
    for _ in range(3):
        fits(source.root, {"a": ["x"] * 20}, source.defs.get, budget)
    assert compiled and len(compiled) == len(set(compiled))


@pytest.mark.finding("Z1")
def test_names_are_matched_with_patterns_in_proportion_to_the_schema(monkeypatch):
    calls = []
    matches_ = fits_module.matches
    monkeypatch.setattr(fits_module, "matches", lambda *arguments: calls.append(arguments) or matches_(*arguments))

    def match_calls(n):
        calls.clear()
        source = parse_schema(named_and_matched(n))
        (defect,) = source.defects
        assert defect.at == "/patternProperties" and "too many patterns and properties" in defect.message
        return len(calls)

    first, second, third = map(match_calls, (100, 200, 400))
    assert second <= 2.2 * first and third <= 2.2 * second


def test_names_within_the_budget_are_matched_with_every_pattern():
    source = parse_schema(named_and_matched(20))
    assert not source.defects


@pytest.mark.parametrize("pattern", ["a{99999999}", "(a{100}){100}", "[^]", "("])
def test_an_example_for_a_refused_pattern_stays_small(pattern):
    assert len(generate_matching(pattern, Random(1))) < 20_000


_ATOMS = [
    "a",
    "é",
    ".",
    r"\d",
    r"\W",
    r"\S",
    r"\p{L}",
    "[a-z]",
    "[^a]",
    "[é-ü]",
    "(?i:k)",
    "^",
    "$",
    r"\b",
    r"\u0041",
    "|",
]
_REPEATS = ["", "", "*", "+", "?", "{3}", "{2,}", "{0,7}", "{20}", "{40}?"]


@given(
    st.recursive(
        st.sampled_from(_ATOMS), lambda inner: st.lists(st.tuples(inner, st.sampled_from(_REPEATS)), max_size=4)
    )
)
def test_estimated_automaton_size_is_not_far_below_the_real_size(parts):
    def written(part):
        return part if type(part) is str else f"({''.join(written(one) + repeat for one, repeat in part)})"

    pattern = written(parts)
    estimate = automaton_size(pattern)
    if estimate > 2_000_000:
        return
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=engine_options())
    except ValueError:
        return
    limit = jsonschema_rs.RegexOptions(size_limit=4 * estimate + 10_000)
    jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=limit)
