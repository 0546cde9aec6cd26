"""Reading the leaderboard: counts, types, ground truth and its checker."""

import re
import sys
from importlib.machinery import ModuleSpec

import jsonschema_rs
import pytest

from toolwire.ir.errors import ConfigError, MissingExtra
from toolwire.ir.parts import ToolCall
from toolwire.learn import BFCL_CATEGORIES, check_calls, read_bfcl
from toolwire.learn.bfcl import entries as wheel
from toolwire.learn.bfcl.entries import (
    CALL_CATEGORIES,
    MULTI_TURN_CATEGORIES,
    choose_call,
    parameter_schema,
    parse_call,
)

ENTRIES = list(read_bfcl(BFCL_CATEGORIES))
CALLS = [entry for entry in ENTRIES if entry.category in CALL_CATEGORIES]
MULTI_TURN = [entry for entry in ENTRIES if entry.category in MULTI_TURN_CATEGORIES]


def test_all_entries_and_calls_are_read():
    assert len(CALLS) == 2_501
    assert sum(len(entry.all_calls) for entry in CALLS) == 3_302
    assert len(MULTI_TURN) == 800
    assert sum(len(entry.all_calls) for entry in MULTI_TURN) == 4_625
    counts = {name: sum(entry.category == name for entry in ENTRIES) for name in ("irrelevance", "live_irrelevance")}
    assert counts == {"irrelevance": 240, "live_irrelevance": 884}


def test_names_that_break_provider_rules_are_read_unchanged():
    names = {tool.name for entry in ENTRIES if entry not in MULTI_TURN for tool in entry.tools}
    broken = {name for name in names if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)}
    assert (len(names), len(broken)) == (1_853, 871)


def test_every_tool_has_a_valid_schema_of_standard_types():
    tools = {id(tool): tool for entry in ENTRIES for tool in entry.tools}.values()
    types = set()
    for tool in tools:
        jsonschema_rs.validator_for(tool.input_schema)
        types |= set(_types(tool.input_schema))
    assert types == {"object", "string", "integer", "number", "boolean", "array", None}


def _types(schema):
    yield schema.get("type")
    for nested in [*schema.get("properties", {}).values(), schema.get("items")]:
        if isinstance(nested, dict):
            yield from _types(nested)


def test_turns_are_canonical_messages():
    entry = next(one for one in ENTRIES if one.id == "simple_python_1")
    assert entry.turns[0][0].role == "user"
    assert entry.turns[0][0].text == "Calculate the factorial of 5 using math functions."
    assert entry.all_calls == [ToolCall("call_0", "math.factorial", {"number": 5})]


def test_expected_calls_pass_the_leaderboards_checker():
    python = [entry for entry in CALLS if entry.language == "python"]
    failed = {entry.id for entry in python if not check_calls(entry, entry.all_calls).valid}
    # the ground truth of these four contradicts their own declarations
    impossible = {"live_simple_106-63-0", "live_simple_112-68-0", "live_multiple_862-181-3", "live_multiple_964-207-0"}
    assert (len(python), failed) == (2_351, impossible)


def test_checker_explains_a_wrong_call():
    entry = next(one for one in ENTRIES if one.id == "simple_python_1")
    result = check_calls(entry, [ToolCall("c", "math.factorial", {"number": "5"})])
    assert not result.valid
    assert result.error_type == "type_error:simple"
    assert "'number'" in result.message
    assert check_calls(entry, []).error_type == "simple_function_checker:wrong_count"


def test_checker_restores_the_imported_modules(monkeypatch):
    from toolwire.learn.bfcl import judgement as checker

    marker = type(sys)("bfcl_eval.constants")
    monkeypatch.setitem(sys.modules, marker.__name__, marker)
    before = {name for name in sys.modules if name.startswith("bfcl_eval")}
    checker._load.cache_clear()
    assert check_calls(CALLS[0], CALLS[0].all_calls).valid
    assert sys.modules[marker.__name__] is marker
    assert {name for name in sys.modules if name.startswith("bfcl_eval")} == before


def test_category_without_expected_calls_has_no_check():
    entry = next(one for one in ENTRIES if one.category == "irrelevance")
    with pytest.raises(ConfigError, match="irrelevance has no check"):
        check_calls(entry, [])


def test_unknown_category_is_an_error():
    with pytest.raises(ConfigError, match=r"unknown category of the leaderboard 'simple' \(use one of simple_python"):
        list(read_bfcl(["simple"]))


def test_missing_wheel_names_its_installation(monkeypatch):
    monkeypatch.setattr(wheel, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install --no-deps bfcl-eval"):
        list(read_bfcl())


def test_wheel_without_data_names_its_installation(monkeypatch, tmp_path):
    found = ModuleSpec("bfcl_eval", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(wheel, "find_spec", lambda name: found)
    with pytest.raises(MissingExtra, match="has no folder data"):
        list(read_bfcl())


def test_broken_line_is_reported_with_its_number(tmp_path):
    (tmp_path / "BFCL_v4_multiple.json").write_text('{"id": "a", "question": [], "function": []}\n{"id"\n')
    with pytest.raises(ConfigError, match=r"BFCL_v4_multiple\.json, line 2"):
        list(read_bfcl(["multiple"], folder=tmp_path))


def test_folder_without_the_category_is_an_error(tmp_path):
    (tmp_path / "BFCL_v4_parallel_multiple.json").write_text("{}")
    with pytest.raises(ConfigError, match="no category 'multiple'"):
        list(read_bfcl(["multiple"], folder=tmp_path))


def test_unknown_class_is_an_error(tmp_path):
    row = '{"id": "a", "question": [], "involved_classes": ["Robot"]}'
    (tmp_path / "BFCL_v4_multi_turn_base.json").write_text(row)
    with pytest.raises(ConfigError, match="unknown class 'Robot'"):
        list(read_bfcl(["multi_turn_base"], folder=tmp_path))


def test_types_of_three_languages_become_json_schema():
    java = {"type": "dict", "properties": {"n": {"type": "long"}, "m": {"type": "HashMap"}, "x": {"type": "any"}}}
    assert parameter_schema(java) == {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "m": {"type": "object"}, "x": {}},
    }
    assert parameter_schema({"type": "tuple", "items": {"type": "float"}}) == {
        "type": "array",
        "items": {"type": "number"},
    }
    assert parameter_schema({"type": "any"}, any_type="string") == {"type": "string"}


def test_parameter_named_type_is_not_a_type():
    schema = {"type": "dict", "properties": {"type": {"type": "String"}, "items": {"type": "Array"}}}
    assert parameter_schema(schema)["properties"] == {"type": {"type": "string"}, "items": {"type": "array"}}


def test_first_accepted_alternative_is_chosen():
    truth = {"f": {"a": [1, 2], "b": ["", "x"], "c": [""], "d": [""], "e": ["", 4], "g": [[{"k": ["", 7], "l": [""]}]]}}
    declared = {"f": {"properties": {key: {} for key in "abcdg"}, "required": ["a", "d"]}}
    assert choose_call(truth, declared, "c").arguments == {"a": 1, "b": "x", "d": "", "g": [{"k": 7}]}


def test_python_call_is_parsed_without_evaluation():
    call = parse_call("mv('a', destination=('b', -1.5, None))", {"mv": ["source", "destination"]}, "c")
    assert call == ToolCall("c", "mv", {"source": "a", "destination": ["b", -1.5, None]})


@pytest.mark.parametrize(
    "text",
    [
        "mv(open('x'))",
        "mv(**{})",
        "mv('a', source='b')",
        "mv('a', 'b', 'c')",
        "rm('a')",
        "mv",
        "mv(",
        "mv({1: 2})",
        "mv({1, 2})",
        "mv(b'x')",
        "mv(1j)",
        "mv(" + "[" * 5_000,
        "mv('" + "a" * 100_000 + "')",
    ],
)
def test_other_python_is_refused(text):
    with pytest.raises(ConfigError):
        parse_call(text, {"mv": ["source", "destination"]}, "c")
