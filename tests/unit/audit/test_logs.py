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


def places(document):
    return [(one["rule"], one["tool"], one.get("line", 0), one["path"]) for one in document["findings"]]


def test_lines_of_several_wires(audit):
    document = audit([CHAT, "", ANTHROPIC], "--select", "TW002")
    assert places(document) == [("TW002", "a b", 1, "/name"), ("TW002", "c d", 3, "/name")]
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
def test_requests_inside_something_else(audit, line, at):
    assert places(audit([line], "--select", "TW061")) == [("TW061", "", 1, f"{at}/messages/0/tool_calls/0")]


def test_what_repeats_is_told_once_and_counted(audit):
    document = audit([OPEN, CHAT, OPEN, OPEN], "--select", "TW061", "--select", "TW002")
    assert places(document) == [("TW002", "a b", 1, "/name"), ("TW061", "", 1, "/messages/0/tool_calls/0")]
    assert "and on 2 other lines" in document["findings"][1]["message"]


def test_other_lines_are_skipped_and_named(audit):
    document = audit([CHAT, {"level": "info"}, '{"cut', {"choices": [{"message": {}}]}], "--select", "TW002")
    assert [one["line"] for one in document["findings"]] == [1]
    assert document["notes"][0].endswith("3 lines are neither tools nor requests: 2, 3, 4")
    code, err = audit([{"level": "info"}])
    assert code == 2 and "no requests" in err


def test_several_documents_are_a_log_whatever_the_file_is_called(audit):
    assert [one["line"] for one in audit([CHAT, ANTHROPIC], "--select", "TW002", name="log.txt")["findings"]] == [1, 2]


def test_what_a_browser_has_recorded(audit):
    entries = [{"request": {"method": "GET"}}, {"request": {"postData": {"text": json.dumps(OPEN)}}}]
    document = audit([{"log": {"entries": entries}}], "--select", "TW061", name="traffic.har")
    at = "/log/entries/1/request/postData/text/messages/0/tool_calls/0"
    assert places(document) == [("TW061", "", 0, at)]


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
def test_declarations_that_change(audit, requests, words):
    document = audit(requests, "--select", "TW068")
    assert places(document) == [("TW068", "", 2, "/tools/0")]
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
def test_declarations_that_may_differ(audit, requests):
    assert audit(requests, "--select", "TW068")["findings"] == []


def test_a_change_is_told_once(audit):
    flapping = [with_tools(A, B), with_tools(B, A)] * 4
    assert [one["line"] for one in audit(flapping, "--select", "TW068")["findings"]] == [2]


def test_tools_and_a_request_that_declares_them_are_no_duplicates(tmp_path, capsys):
    tools, request = tmp_path / "tools.json", tmp_path / "request.json"
    tools.write_text(json.dumps([TOOL]), encoding="utf-8")
    request.write_text(json.dumps(CHAT), encoding="utf-8")
    assert main(["audit", str(tools), str(request), "--select", "TW001"]) == 0
    assert "TW001" not in capsys.readouterr().out
