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
    assert "did you mean 'TW" in err and len(err) < 120


def test_broken_file_among_several_is_named_in_the_error(file, tmp_path, capsys):
    (tmp_path / "broken.json").write_text("[")
    assert main(["audit", file([{"name": "f", "inputSchema": {"type": "object"}}]), str(tmp_path / "broken.json")]) == 2
    assert f"{tmp_path / 'broken.json'} is not JSON" in capsys.readouterr().err


AGENT = """
MODES = ["fast"]
PARAMETERS = {"type": "object", "properties": {}}
TOOLS = [
    {"type": "function", "function": {"name": "chat 1", "description": "d",
                                      "parameters": {"type": "object", "properties": {}}}},
    {"name": "computed", "input_schema": {"type": "object", "properties": {"mode": {"enum": MODES}}}},
]
RESPONSES = {"type": "function", "name": "responses 2", "parameters": {"type": "object"}}
GEMINI = {"function_declarations": [{"name": "gemini 3", "description": "d"}, {"name": "gemini 4"}]}
PLAIN = [{"name": "plain 5", "description": "d", "parameters": {"type": "object"}}]
def ask():
    return client.messages.create(tools=[{"name": "messages 6", "input_schema": {"required": ("a",)}}])
SERVER = {"tools": [{"name": "mcp 7", "inputSchema": {"type": "object"}}]}
CALL = {"type": "function", "function": {"name": "call 8", "arguments": "{}"}}
CHOICE = {"type": "function", "function": {"name": "choice 9"}}
ROW = {"name": "row 10", "description": "no tool"}
"""


def audit_json(capsys, *arguments):
    main(["audit", *map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def test_literal_declarations_in_python_are_audited_with_their_lines(tmp_path, capsys):
    (tmp_path / "agent.py").write_text("import missing_package\n" + AGENT)
    for source in (tmp_path, tmp_path / "agent.py"):
        report = audit_json(capsys, source, "--select", "TW007")
        assert [(finding["tool"], finding["line"]) for finding in report["findings"]] == [
            ("chat 1", 6),
            ("responses 2", 10),
            ("gemini 3", 11),
            ("gemini 4", 11),
            ("plain 5", 12),
            ("messages 6", 14),
            ("mcp 7", 15),
        ]
        (note,) = report["notes"]
        assert note == f"{tmp_path / 'agent.py'}:8: tool 'computed' not audited: `MODES` is computed at run time"


def test_values_that_are_not_json_are_a_note(tmp_path, capsys):
    total = " + ".join(['"a"'] * 1500)
    (tmp_path / "agent.py").write_text(
        'A = {"name": "a", "input_schema": {"enum": {1}}}\n'
        'B = {"name": "b", "input_schema": {"minimum": 1e999}}\n'
        f'C = {{"name": "c", "input_schema": {{"title": {total}}}}}\n'
        + 'D = {"name": "d", **MORE, "input_schema": {}}\n'
        * 20
    )
    report = audit_json(capsys, tmp_path)
    assert report["tools"] == [] and len(report["notes"]) == 11
    assert ["set is not JSON" in report["notes"][0], "d' not audited: `MORE`" in report["notes"][3]] == [True, True]
    assert report["notes"][-1] == "13 other declarations with computed values not audited"


def test_declarations_with_computed_parts_are_noted_and_other_items_searched(tmp_path, capsys):
    plain = '"parameters": {"type": "object", "properties": {}}}'
    (tmp_path / "agent.py").write_text(
        f'A = {{"name": "a", "description": DOC, {plain}\n'
        f'B = {{"name": "b", "description": "Search. " + "More.", {plain}\n'
        f'C = {{"type": KIND, "function": {{"name": "c", {plain}}}\n'
        f'TOOLS = [{{"name": "d", "description": "x", {plain},\n make("e"),\n *MORE,\n'
        f' {{"name": "f g", "description": "x", {plain} if FLAG else {{}},\n wrap({{"name": "h i", "description": "x", {plain})]\n'
        'JOBS = [{"name": "j", "description": "x", "parameters": {"type": "grid"}}]\n'
        'def convert(t): return {"name": t.name, "description": t.text, "parameters": t.schema}\n'
    )
    report = audit_json(capsys, tmp_path, "--select", "TW002")
    assert [(finding["tool"], finding["line"]) for finding in report["findings"]] == [("f g", 7), ("h i", 8)]
    assert [tool["tool"] for tool in report["tools"]] == ["d", "f g", "h i"]
    notes = [note.removeprefix(str(tmp_path / "agent.py")) for note in report["notes"]]
    assert [note.partition(" not audited")[0] for note in notes] == [
        ":1: tool 'a'",
        ":2: tool 'b'",
        ":3: tool 'c'",
        ":5: a tool",
        ":6: a tool",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bad.toml", '[[tools]]\nname = "n"\n[tools.input_schema]\ntype = "object"\nmaximum = nan\n'),
        ("bad.py", 'T = {"name": "n", "description": "\\ud800", "parameters": {"type": "object"}}\n'),
    ],
)
def test_list_with_a_value_that_json_lacks_is_a_finding_with_its_file(tmp_path, capsys, name, text):
    (tmp_path / name).write_text(text)
    alone = audit_json(capsys, tmp_path, "--select", "TW087")["findings"]
    (tmp_path / "good.json").write_text(json.dumps(BAD))
    report = audit_json(capsys, tmp_path, "--select", "TW087", "--select", "TW002")
    assert [finding["file"] for finding in alone] == [str(tmp_path / name)]
    assert {(finding["rule"], finding["file"]) for finding in report["findings"]} == {
        ("TW087", str(tmp_path / name)),
        ("TW002", str(tmp_path / "good.json")),
    }


def test_dates_of_toml_are_text(tmp_path, capsys):
    schema = 'type = "object"\nproperties.at = {type = "string", default = 2026-01-02, examples = [2026-01-02T03:04:05Z, 03:04:05]}\n'
    (tmp_path / "tools.toml").write_text(f'[[tools]]\nname = "a b"\n[tools.input_schema]\n{schema}')
    for source in (tmp_path, tmp_path / "tools.toml"):
        rules = {finding["rule"] for finding in audit_json(capsys, source)["findings"]}
        assert "TW002" in rules and rules.isdisjoint(("TW087", "TQ20"))


def test_large_python_file_in_a_folder_is_counted_in_a_note(tmp_path, capsys):
    (tmp_path / "large.py").write_text("x = 1\n" * 170_000)
    (tmp_path / "small.py").write_text("x = 1\n")
    assert audit_json(capsys, tmp_path)["notes"] == [f"{tmp_path}: Python files not audited: 1 above 1,000,000 bytes"]


def test_lock_of_tools_with_equal_names_is_refused(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"name": "same", "description": name, "input_schema": {}}]))
    lock = tmp_path / "tools.lock"
    for sources in ([tmp_path / "one.json", tmp_path / "two.json"], [tmp_path]):
        assert main(["audit", *map(str, sources), "--lock", str(lock)]) == 2
        error = capsys.readouterr().err
        assert "'same'" in error and str(tmp_path / "one.json") in error and str(tmp_path / "two.json") in error
    assert not lock.exists()


def test_documents_in_a_folder_are_audited_and_the_others_counted(tmp_path, capsys):
    listed = [{"name": "a b", "input_schema": {"type": "object"}}]
    (tmp_path / "tools.json").write_text(json.dumps({"tools": listed}))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "config.toml").write_text('[mcp_servers.crm]\ncommand = "npx"\nargs = ["-y", "crm"]\n')
    (tmp_path / "sub" / "tools.yaml").write_text("- name: c d\n  inputSchema: {type: object}\n")
    (tmp_path / "package.json").write_text('{"name": "x", "version": "1"}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "large.json").write_text(json.dumps([*listed, "x" * 1_000_000]))
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "other.json").write_text(json.dumps(listed))
    report = audit_json(capsys, tmp_path, "--select", "TW002", "--select", "TW092")
    assert {(finding["rule"], finding["tool"], finding["file"]) for finding in report["findings"]} == {
        ("TW002", "a b", str(tmp_path / "tools.json")),
        ("TW002", "c d", str(tmp_path / "sub" / "tools.yaml")),
        ("TW092", "", str(tmp_path / "sub" / "config.toml")),
    }
    assert report["notes"][-1].endswith(
        "files not audited: 1 above 1,000,000 bytes, 1 unreadable, 1 without tools or servers"
    )
    main(["audit", str(tmp_path), "--select", "TW002"])
    assert f"{tmp_path / 'tools.json'} a b/name" in capsys.readouterr().out
    assert audit_json(capsys, tmp_path / "sub" / "tools.yaml", "--select", "TW002")["counts"]["error"] == 1


def test_yaml_whose_aliases_repeat_without_end_is_no_list_of_tools(tmp_path, capsys):
    levels = "".join(f"  l{n}: &l{n} [*l{n - 1}, *l{n - 1}, *l{n - 1}]\n" for n in range(1, 40))
    (tmp_path / "tools.yaml").write_text(f"tools:\n- name: f\n  inputSchema: {{}}\n  l0: &l0 [x]\n{levels}")
    assert main(["audit", str(tmp_path)]) == 2
    assert "no Python source" in capsys.readouterr().err


def test_function_that_is_no_tool_is_a_finding_and_the_others_are_audited(tmp_path, capsys):
    (tmp_path / "tools.py").write_text(
        'def search(text: str, **more):\n    """Search."""\n\n'
        'def delete(at: "datetime.date"):\n    """Delete."""\n\n'
        'def find(text: str) -> str:\n    """Find an order by its text."""\n'
    )
    (tmp_path / "marked.py").write_text(
        'import toolwire\n\ndef search(*text: str):\n    """Search."""\n\ntoolwire.tool(search)\n'
    )
    (tmp_path / "other.json").write_text(json.dumps(BAD))
    sources = [tmp_path / name for name in ("tools.py", "marked.py", "other.json")]
    report = audit_json(capsys, *sources, "--select", "TW087", "--select", "TW002")
    found = [
        (finding["rule"], finding["tool"], finding["file"], finding.get("line", 0)) for finding in report["findings"]
    ]
    assert found == [
        ("TW002", "a b", str(sources[2]), 0),
        ("TW087", "search", str(sources[0]), 1),
        ("TW087", "delete", str(sources[0]), 4),
        ("TW087", "", str(sources[1]), 6),
    ]
    assert {tool["tool"] for tool in report["tools"]} == {"find", "a b"}


def test_folder_without_python_source_is_an_error(tmp_path, capsys):
    (tmp_path / "tools.json").write_text("[]")
    assert main(["audit", str(tmp_path)]) == 2
    assert "no Python source" in capsys.readouterr().err


def test_document_without_tools_is_an_error_with_a_hint(file, capsys):
    assert main(["audit", file({"choices": [{"message": {}}]})]) == 2
    assert "give" in capsys.readouterr().err


def many_tools(number):
    fields = {f"field_{index}": {"type": "string"} for index in range(4)}
    names = [f"find_{index}" for index in range(number)]
    return [{"name": name, "description": f"Find {name}.", "input_schema": {"properties": fields}} for name in names]


def test_findings_that_differ_only_in_their_place_are_one_row(file, capsys):
    main(["audit", file(many_tools(3)), "--select", "TQ02"])
    rows = [line for line in capsys.readouterr().out.splitlines() if "TQ02" in line]
    assert [row.split("  ") for row in rows] == [
        ["warning", "TQ02", "find_0.field_0, find_0.field_1, find_0.field_2, +9 more", "property without a description"]
    ]
    report = audit_json(capsys, file(many_tools(3)), "--select", "TQ02")
    assert sum(len(finding["paths"]) for finding in report["findings"]) == 12


def test_closing_line_explains_the_worst_rule(file, capsys):
    findings = audit_json(capsys, file(BAD))["findings"]
    worst = min(finding["rule"] for finding in findings if finding["level"] == "error")
    main(["audit", file(BAD)])
    assert capsys.readouterr().err.endswith(
        f"toolwire audit --explain {worst}   the meaning of the rule, and its fix\n"
    )
    main(["audit", file(GOOD), "--select", "TW002"])
    assert "--explain" not in capsys.readouterr().err


def test_tool_that_is_rejected_as_written_is_marked_as_accepted_after_translation(file, capsys):
    main(["audit", file(BAD), "--target", "openai"])
    out = capsys.readouterr().out
    assert "~ rejected as written, accepted as toolwire translates it\n" in out
    assert "tool name rejected by OpenAI" in out.partition("problems of the tools as written:\n")[2]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_explanation_fits_the_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for rule_id in ("TW024", "TW031", "TW003"):
        main(["audit", "--explain", rule_id])
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > width and " " in line.strip()] == []
