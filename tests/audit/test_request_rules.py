"""What in a recorded request another provider refuses."""

import json

from tables import every_case
from toolwire.audit import check_body
from toolwire.audit.provider_rules.constraints import BODY_RULES
from toolwire.audit.request_rules import REQUEST_CHECKS, audit_request
from toolwire.cli.main import main
from toolwire.wire import get

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": False}}


def call(call_id="c1", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def assistant_message(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id="c1", content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def chat(*messages, **fields):
    return "openai_chat", {"model": "m", "messages": [USER, *messages], "tools": [TOOL], **fields}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PLANTED = {
    "TW014": (chat(assistant_message(call()), result(), tools=[]), "/messages/1/tool_calls/0"),
    "TW050": (
        chat(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
        "/tool_choice",
    ),
    "TW051": (
        (
            "anthropic",
            {
                "model": "m",
                "max_tokens": 9000,
                "messages": [USER],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "any"},
                "thinking": {"type": "enabled", "budget_tokens": 2000},
            },
        ),
        "/tool_choice",
    ),
    "TW052": (chat(parallel_tool_calls=False), "/parallel_tool_calls"),
    "TW053": (chat(tool_choice={"type": "function", "function": {"name": "gone"}}), "/tool_choice/function/name"),
    "TW054": (
        ("openai_responses", {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f"}]}),
        "/tools/0",
    ),
    "TW060": (chat(assistant_message(call("x" * 50)), result("x" * 50)), "/messages/1/tool_calls/0"),
    "TW061": (chat(assistant_message(call()), USER), "/messages/1/tool_calls/0"),
    "TW062": (chat(assistant_message(call(), call()), result(), result()), "/messages/1/tool_calls/1/id"),
    "TW063": (
        (
            "anthropic",
            {
                "model": "m",
                "max_tokens": 9,
                "messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}]}, USER],
            },
        ),
        "/messages/0/content/0",
    ),
    "TW064": (chat(assistant_message(call(arguments="nope")), result()), "/messages/1/tool_calls/0"),
    "TW065": (chat({"role": "assistant", "content": [{"type": "text", "text": " "}]}), "/messages/1/content/0"),
    "TW066": (
        (
            "anthropic",
            {
                "model": "m",
                "max_tokens": 9,
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [IMAGE]}]},
                ],
            },
        ),
        "/messages/1/content/0",
    ),
    "TW067": (chat(assistant_message(call()), result(content="Error: no such file")), "/messages/2"),
}


def audit(wire, body, **options):
    return audit_request(get(wire).decode_request(body), get(wire), body, **options)


@every_case("rule", PLANTED)
def test_planted_problem_is_found_at_its_path(rule):
    (wire, body), path = PLANTED[rule]
    found = audit(wire, body, select=[rule])
    assert path in [finding.path for finding in found]


def test_every_rule_has_a_planted_problem():
    assert set(PLANTED) - set(BODY_RULES) == set(REQUEST_CHECKS)


def test_rules_about_bodies_are_reported_for_recorded_requests():
    wire, body = chat(stream_options={"include_usage": True})
    (finding,) = audit(wire, body)
    assert (finding.rule, finding.path, finding.level) == ("TW107", "/stream_options", "error")
    assert audit(wire, body, ignore=["TW107"]) == audit(wire, body, select=["TW061"]) == ()


def test_tool_rules_are_reported_once():
    """`audit_tools` reports them, so the body's own check of the same rule is left out."""
    wire, body = chat(tools=[{"type": "function", "function": {"name": "a.b", "strict": False}}])
    assert "TW002" in [violation.rule for violation in check_body(body, wire)]
    assert audit(wire, body) == ()


def test_valid_conversation_has_no_findings():
    _, body = chat(
        assistant_message(call("a"), call("b")), result("a"), result("b"), {"role": "assistant", "content": "done"}
    )
    assert audit("openai_chat", body) == ()


def test_audit_command_reads_a_request(tmp_path, capsys):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(PLANTED["TW061"][0][1]), encoding="utf-8")
    assert main(["audit", str(path), "--ignore", "TQ"]) == 1
    assert "TW061" in capsys.readouterr().out
