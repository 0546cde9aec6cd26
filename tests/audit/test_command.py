"""`toolwire audit`, as a user types it."""

import json

import pytest

from toolwire.cli.main import main

BAD = [{"name": "a b", "description": "Does something or other.", "input_schema": {"type": "object", "properties": {}}}]
GOOD = [
    {
        "name": "find_orders",
        "description": "Find the orders of a customer, newest first.",
        "input_schema": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    }
]


@pytest.fixture
def file(tmp_path):
    def write(content, name="tools.json"):
        path = tmp_path / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    return write


def test_findings_set_the_exit_code(file, capsys):
    assert main(["audit", file(GOOD)]) == 0
    assert main(["audit", file(BAD)]) == 1
    out = capsys.readouterr().out
    assert "TW002" in out and "anthropic_strict" in out
    assert main(["audit", file(BAD), "--fail-on", "none"]) == 0
    assert main(["audit", file(BAD), "--ignore", "TW0"]) == 0


def test_json_sarif_and_markdown_output(file, capsys):
    main(["audit", file(BAD), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert document["counts"]["error"] == len([one for one in document["findings"] if one["level"] == "error"])
    main(["audit", file(BAD), "--format", "sarif"])
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert all(result["partialFingerprints"] for result in run["results"])
    assert {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]} == {
        file(BAD)
    }
    assert all(rule["help"]["markdown"].startswith(f"# {rule['id']}") for rule in run["tool"]["driver"]["rules"])
    main(["audit", file(BAD), "--format", "markdown"])
    assert capsys.readouterr().out.startswith("| tool | openai |")


def test_baseline_findings_are_not_reported_again(file, tmp_path, capsys):
    known = str(tmp_path / "known.json")
    assert main(["audit", file(BAD), "--write-baseline", known]) == 0
    assert main(["audit", file(BAD), "--baseline", known]) == 0
    assert "TW002" not in capsys.readouterr().out.rpartition("tokens")[2]


def test_lock_check_fails_when_tools_change(file, tmp_path, capsys):
    locked = str(tmp_path / "tools.lock")
    assert main(["audit", file(GOOD), "--lock", locked]) == 0
    assert main(["audit", file(GOOD), "--check-lock", locked]) == 0
    assert main(["audit", file(BAD), "--check-lock", locked]) == 1
    assert "find_orders: gone" in capsys.readouterr().out


def test_requests_and_tool_lists_of_every_provider_are_read(file, capsys):
    schema = {"type": "object", "properties": {}}
    for document in (
        {
            "model": "m",
            "messages": [],
            "tools": [{"type": "function", "function": {"name": "a b", "parameters": schema}}],
        },
        {"tools": [{"name": "a b", "inputSchema": schema}]},
        [{"functionDeclarations": [{"name": "a b", "parametersJsonSchema": schema}]}],
        [{"type": "function", "name": "a b", "parameters": schema}],
    ):
        assert main(["audit", file(document), "--select", "TW002"]) == 1
        assert "'a b'" in capsys.readouterr().out


def test_explain_prints_a_rule(capsys):
    assert main(["audit", "--explain", "TW031"]) == 0
    out = capsys.readouterr().out
    assert "gemini" in out
    assert main(["audit", "--explain", "tw031"]) == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    "arguments",
    [["audit"], ["audit", "--explain", "TW999"], ["audit", "/nowhere.json"]],
    ids=["nothing", "rule", "file"],
)
def test_wrong_usage_exits_with_code_two(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("toolwire: ")


def test_unknown_rule_error_suggests_similar_rules(capsys):
    assert main(["audit", "--explain", "TW999"]) == 2
    err = capsys.readouterr().err
    assert "did you mean TW" in err and len(err) < 120


def test_broken_file_among_several_is_named_in_the_error(file, tmp_path, capsys):
    (tmp_path / "broken.json").write_text("[")
    assert main(["audit", file([{"name": "f", "inputSchema": {"type": "object"}}]), str(tmp_path / "broken.json")]) == 2
    assert f"{tmp_path / 'broken.json'} is not JSON" in capsys.readouterr().err


def test_folder_without_python_source_is_an_error(tmp_path, capsys):
    (tmp_path / "tools.json").write_text("[]")
    assert main(["audit", str(tmp_path)]) == 2
    assert "no Python source" in capsys.readouterr().err


def test_document_without_tools_is_an_error_with_a_hint(file, capsys):
    assert main(["audit", file({"choices": [{"message": {}}]})]) == 2
    assert "give" in capsys.readouterr().err
