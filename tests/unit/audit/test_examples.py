"""The examples on the pages of the rules: the bad one is found by its rule, the good one is not."""

import json

import pytest

from toolwire.audit.explain import every_rule, examples, kind_of, page_of
from toolwire.cli.main import main

TOO_LONG_TO_SHOW = {"TQ05", "TW010", "TW011", "TW012", "TW034"}
SUFFIXES = {"code": ".py", "log": ".jsonl"}


def document(rule, text):
    """As a file that the command takes: a schema alone becomes a tool."""
    if kind_of(rule) != "tools":
        return text
    value = json.loads(text)
    if isinstance(value, list):
        tools = [{"inputSchema": {"type": "object", "properties": {}}, **one} for one in value]
    elif "name" in value:
        tools = [{"inputSchema": {"type": "object", "properties": {}}, **value}]
    else:
        tools = [{"name": "example", "description": "Does what the example is about.", "inputSchema": value}]
    return json.dumps({"tools": tools})


def findings(rule, text, tmp_path, capsys):
    path = tmp_path / f"example{SUFFIXES.get(kind_of(rule), '.json')}"
    path.write_text(document(rule, text), encoding="utf-8")
    main(["audit", str(path), "--select", rule, "--format", "json"])
    return json.loads(capsys.readouterr().out)["findings"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("rule", sorted(examples()))
def test_the_bad_one_is_found_and_the_good_one_is_not(rule, tmp_path, capsys):
    bad = findings(rule, examples()[rule].bad, tmp_path, capsys)
    assert bad and {finding["rule"] for finding in bad} == {rule}
    assert {finding["file"] for finding in bad} == {str(next(tmp_path.iterdir()))}
    assert findings(rule, examples()[rule].good, tmp_path, capsys) == []


def test_every_rule_has_an_example_that_can_be_shown():
    assert {rule.id for rule in every_rule()} - set(examples()) == TOO_LONG_TO_SHOW
    assert set(examples()) <= {rule.id for rule in every_rule()}


def test_a_page_says_all_that_there_is_to_say():
    page = page_of("TW031")
    for words in ("# TW031: ", "**error**", "openai_strict", "**Fix:**", examples()["TW031"].bad):
        assert words in page
