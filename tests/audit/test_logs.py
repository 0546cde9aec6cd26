"""Logs of requests: every line is looked at, what repeats is told once, and a finding names its line."""

import json

import pytest

from toolwire.cli.main import main

SCHEMA = {"type": "object", "properties": {}}
TOOL = {"type": "function", "function": {"name": "a b", "description": "Get something.", "parameters": SCHEMA}}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
ANTHROPIC = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"name": "c d", "description": "Get something else.", "input_schema": SCHEMA}],
}
UNANSWERED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
OPEN = {"model": "m", "messages": [UNANSWERED, {"role": "user", "content": "and?"}], "tools": [TOOL]}


@pytest.fixture
def audit(tmp_path, capsys):
    def run(lines, *options, name="log.jsonl"):
        path = tmp_path / name
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text(text, encoding="utf-8")
        code = main(["audit", str(path), "--format", "json", *options])
        captured = capsys.readouterr()
        return json.loads(captured.out) if captured.out else (code, captured.err)

    return run


def locations(document):
    return [(one["rule"], one["tool"], one.get("line", 0), one["path"]) for one in document["findings"]]


def test_log_lines_of_several_wires_are_audited(audit):
    document = audit([CHAT, "", ANTHROPIC], "--select", "TW002")
    assert locations(document) == [("TW002", "a b", 1, "/name"), ("TW002", "c d", 3, "/name")]
    assert [tool["tool"] for tool in document["tools"]] == ["a b", "c d"]


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (OPEN, ""),
        ({"request": OPEN, "response": {}}, "/request"),
        ({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": OPEN}, "/body"),
        ({"request": {"method": "POST", "body": json.dumps(OPEN)}}, "/request/body"),
    ],
    ids=["bare", "request", "batch", "text"],
)
def test_nested_requests_in_log_lines_are_audited(audit, line, at):
    assert locations(audit([line], "--select", "TW061")) == [("TW061", "", 1, f"{at}/messages/0/tool_calls/0")]


def test_repeated_finding_is_reported_once_with_a_count(audit):
    document = audit([OPEN, CHAT, OPEN, OPEN], "--select", "TW061", "--select", "TW002")
    assert locations(document) == [("TW002", "a b", 1, "/name"), ("TW061", "", 1, "/messages/0/tool_calls/0")]
    assert "and on 2 other lines" in document["findings"][1]["message"]


def test_lines_without_requests_are_skipped_and_listed(audit):
    document = audit([CHAT, {"level": "info"}, '{"cut', {"choices": [{"message": {}}]}], "--select", "TW002")
    assert [one["line"] for one in document["findings"]] == [1]
    assert document["notes"][0].endswith("3 lines are neither tools nor requests: 2, 3, 4")
    code, err = audit([{"level": "info"}])
    assert code == 2 and "no requests" in err


def test_file_with_several_documents_is_read_as_a_log(audit):
    assert [one["line"] for one in audit([CHAT, ANTHROPIC], "--select", "TW002", name="log.txt")["findings"]] == [1, 2]


def test_requests_in_a_har_file_are_audited(audit):
    entries = [{"request": {"method": "GET"}}, {"request": {"postData": {"text": json.dumps(OPEN)}}}]
    document = audit([{"log": {"entries": entries}}], "--select", "TW061", name="traffic.har")
    at = "/log/entries/1/request/postData/text/messages/0/tool_calls/0"
    assert locations(document) == [("TW061", "", 0, at)]


def with_tools(*tools, words="hi", model="m"):
    declared = [{"type": "function", "name": name, "description": said} for name, said in tools]
    return {"model": model, "input": words, "tools": declared}


A, B = ("a", "Get one thing."), ("b", "Get another.")


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([with_tools(A, B), with_tools(B, A, words="other")], "different order"),
        ([with_tools(A), with_tools(("a", "Get one thing. It is 10:42."), words="other")], "changed: a"),
        ([with_tools(A), with_tools(A, B)], "added: b"),
        ([with_tools(A, B), with_tools(A)], "removed: b"),
    ],
)
def test_changed_tool_declarations_between_requests_are_found(audit, requests, words):
    document = audit(requests, "--select", "TW068")
    assert locations(document) == [("TW068", "", 2, "/tools/0")]
    assert words in document["findings"][0]["message"]
    assert "log.jsonl:1" in document["findings"][0]["message"]


@pytest.mark.parametrize(
    "requests",
    [
        [with_tools(A, B), with_tools(A, B, words="other")],
        [with_tools(A), with_tools(B, words="other")],
        [with_tools(A, B), with_tools(B, A, model="another")],
        [with_tools(A, B), {"model": "m", "input": "hi"}],
    ],
    ids=["the same", "another agent", "another model", "none"],
)
def test_legitimate_differences_in_declarations_are_not_reported(audit, requests):
    assert audit(requests, "--select", "TW068")["findings"] == []


def test_alternating_declarations_are_reported_once(audit):
    flapping = [with_tools(A, B), with_tools(B, A)] * 4
    assert [one["line"] for one in audit(flapping, "--select", "TW068")["findings"]] == [2]


def test_tool_list_and_request_with_the_same_tools_are_no_duplicates(tmp_path, capsys):
    tools, request = tmp_path / "tools.json", tmp_path / "request.json"
    tools.write_text(json.dumps([TOOL]), encoding="utf-8")
    request.write_text(json.dumps(CHAT), encoding="utf-8")
    assert main(["audit", str(tools), str(request), "--select", "TW001"]) == 0
    assert "TW001" not in capsys.readouterr().out
