"""The examples on the pages of the rules: the bad one is found by its rule, the good one is not."""

import json

import pytest

from toolwire.audit.explain import examples, list_rules, render_page, rule_kind
from toolwire.cli.main import main

TOO_LONG_FOR_AN_EXAMPLE = {"TQ05", "TW010", "TW011", "TW012", "TW034"}
SUFFIXES = {"code": ".py", "log": ".jsonl"}


def document(rule, text):
    """As a file that the command takes: a schema alone becomes a tool."""
    if rule_kind(rule) != "tools":
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
    path = tmp_path / f"example{SUFFIXES.get(rule_kind(rule), '.json')}"
    path.write_text(document(rule, text), encoding="utf-8")
    example = examples()[rule]
    if example.provider:  # the body of a request
        options = {"--provider": example.provider, "--model": example.model, "--api-version": example.version}
        given = [word for name, value in options.items() if value for word in (name, value)]
        main(["audit", "--body", str(path), *given, "--select", rule, "--json"])
    else:
        main(["audit", str(path), "--select", rule, "--format", "json"])
    return json.loads(capsys.readouterr().out)["findings"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("rule", sorted(examples()))
def test_bad_example_is_found_and_good_example_is_not(rule, tmp_path, capsys):
    bad = findings(rule, examples()[rule].bad, tmp_path, capsys)
    assert bad and {finding["rule"] for finding in bad} == {rule}
    assert {finding["file"] for finding in bad} == {str(next(tmp_path.glob("example.*")))}
    assert findings(rule, examples()[rule].good, tmp_path, capsys) == []


def test_every_rule_has_an_example_unless_it_is_too_long():
    assert {rule.id for rule in list_rules()} - set(examples()) == TOO_LONG_FOR_AN_EXAMPLE
    assert set(examples()) <= {rule.id for rule in list_rules()}


def test_rule_page_has_title_level_fix_and_example():
    page = render_page("TW031")
    for words in ("# TW031: ", "**error**", "openai_strict", "**Fix:**", examples()["TW031"].bad):
        assert words in page
