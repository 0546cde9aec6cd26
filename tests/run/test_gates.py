"""The gates: each passes a call on, or ends it with words for the model."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tables import every_case
from toolwire import ToolCall, ToolResult, tool
from toolwire.run.calls.gates import GATES, pass_gates, validate
from toolwire.run.calls.pending import Ask, Deny, Pending
from toolwire.run.calls.policy import Policy, allow, at_most, deny, hosts, only_effects, path_jail
from toolwire.run.tools.function_tool import Options
from toolwire.run.tools.toolbox import Entry, Toolbox
from toolwire.run.values.results import result_code
from toolwire.schema.lowering.lowered import lower


@tool(effect="read")
def forecast(city: str, days: int = 1) -> str:
    """The forecast."""
    return f"{city} {days}"


@tool
def pay(amount: int, to: str) -> str:
    """Pay somebody."""
    return "paid"


BOX = Toolbox(forecast, pay)


def passed(call: ToolCall, **known):
    return pass_gates(Pending(call, BOX, **known), GATES)


def refused(call: ToolCall, code: str) -> str:
    result = passed(call)
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert result_code(result) == code
    return result.text


def test_valid_call_passes():
    pending = passed(ToolCall("1", "forecast", {"city": "Paris"}))
    assert pending.tool.name == "forecast"
    assert pending.arguments == {"city": "Paris"}


def test_unknown_tool_error_suggests_similar_names():
    assert "forecast" in refused(ToolCall("1", "forcast", {}), "unknown_tool")


def test_truncated_call_is_never_run():
    cut = ToolCall("1", "forecast", None, '{"city": "Paris"', "truncated")
    assert "truncated and was not run" in refused(cut, "truncated")


def test_all_argument_problems_are_reported_at_once():
    words = refused(ToolCall("1", "pay", {"amount": "much", "too": 1}), "invalid_arguments")
    assert "/amount" in words
    assert "to" in words


def test_broken_json_is_repaired_as_far_as_the_effect_allows():
    read = ToolCall("1", "forecast", None, '{"city": "Paris", "days": "3",}', "invalid")
    assert passed(read).arguments == {"city": "Paris", "days": 3}
    write = ToolCall("1", "pay", None, '{"amount": "3", "to": "x",}', "invalid")
    refused(write, "invalid_arguments")
    assert passed(replace(write, raw='{"amount": 3, "to": "x",}')).arguments == {"amount": 3, "to": "x"}


def test_idempotency_key_is_removed_from_the_arguments():
    pending = passed(ToolCall("1", "pay", {"amount": 1, "to": "x", "idempotency_key": "k1"}))
    assert pending.key == "k1"
    assert "idempotency_key" not in pending.arguments
    refused(ToolCall("1", "pay", {"amount": 1, "to": "x", "idempotency_key": "k" * 300}), "invalid_arguments")


def test_declared_idempotency_key_parameter_is_kept():
    @tool
    def charge(idempotency_key: str) -> str:
        """Charge."""
        return idempotency_key

    pending = pass_gates(Pending(ToolCall("1", "charge", {"idempotency_key": "k"}), Toolbox(charge)), GATES)
    assert pending.arguments == {"idempotency_key": "k"}
    assert pending.key is None


def test_arguments_of_a_lowered_schema_are_lifted():
    lowered = lower(forecast.input_schema, "openai_strict")
    sent = {"city": "Paris", "days": None}
    assert "days" in lowered.schema["required"]
    pending = passed(ToolCall("1", "forecast", sent), lowerings={"forecast": lowered})
    assert pending.arguments == pending.call.arguments == {"city": "Paris"}
    other = passed(ToolCall("1", "forecast", {"city": "Paris"}), lowerings={"pay": lowered})
    assert other.call.arguments == {"city": "Paris"}


def test_unknown_parameter_is_refused_with_the_known_ones():
    @tool(effect="read")
    def ping() -> str:
        """Ping."""
        return "pong"

    text = refused(ToolCall("1", "pay", {"amount": 1, "to": "x", "note": "y"}), "invalid_arguments")
    assert "pay has no parameter note; it has amount, to." in text
    text = refused(ToolCall("1", "pay", {"sum": 1, "to": "x"}), "invalid_arguments")
    assert "- pay does not declare sum; it declares amount, to\n" in text, "also if a required one is missing"
    assert "'amount' is missing" in text
    result = pass_gates(Pending(ToolCall("1", "ping", {"host": "x"}), Toolbox(ping)), GATES)
    assert "ping has no parameter host; it has none." in result.text


def test_custom_gate_can_be_appended():
    def no_paris(pending):
        return pending.call.result("not Paris", is_error=True) if pending.arguments.get("city") == "Paris" else pending

    result = pass_gates(Pending(ToolCall("1", "forecast", {"city": "Paris"}), BOX), (*GATES, no_paris))
    assert result.text == "not Paris"


def test_arguments_changed_by_a_gate_are_validated():
    def spoil(pending):
        return replace(pending, arguments={"city": 7})

    position = GATES.index(validate)
    gates = (*GATES[:position], spoil, *GATES[position:])
    result = pass_gates(Pending(ToolCall("1", "forecast", {"city": "Paris"}), BOX), gates)
    assert isinstance(result, ToolResult)
    assert result_code(result) == "invalid_arguments"


def verdict(policy: Policy, name: str, arguments, **known):
    box = Toolbox(
        Entry(replace(forecast, name=name), forecast.function),
    )
    pending = Pending(ToolCall("1", name, arguments), box, box.find(name), arguments, **known)
    return policy.verdict(pending)


@every_case(
    ("check", "arguments", "refused"),
    [
        (allow("read_*"), {}, True),
        (allow("f*"), {}, False),
        (deny("fore*"), {}, True),
        (deny("pay"), {}, False),
        (only_effects("pure"), {}, True),
        (only_effects("read", "pure"), {}, False),
        (path_jail("path", "/files"), {"path": "../../etc/passwd"}, True),
        (path_jail("path", "/files"), {"path": "/files/../etc/passwd"}, True),
        (path_jail("path", "/files"), {"path": "..\\..\\etc"}, True),
        (path_jail("path", "/files"), {"path": "/filesystem/x"}, True),
        (path_jail("path", "/files"), {"path": "a\x00b"}, True),
        (path_jail("path", "/files"), {"path": "~/.ssh/id_rsa"}, True),
        (path_jail("path", "/files"), {"path": "/etc/passwd"}, True),
        (path_jail("path", "/files"), {"path": ["a", "../../x"]}, True),
        (path_jail("path", "/files"), {"path": "notes/../a.txt"}, False),
        (path_jail("path", "/files"), {"path": "/files/a.txt"}, False),
        (path_jail("path", "/"), {"path": "/etc/passwd"}, False),
        (hosts("url", "api.example.com"), {"url": "https://api.example.com/x"}, False),
        (hosts("url", "*.example.com"), {"url": "https://a.example.com:8443/x"}, False),
        (hosts("url", "api.example.com"), {"url": "https://api.example.com@evil.org/"}, True),
        (hosts("url", "api.example.com"), {"url": "https://evil.org/?api.example.com"}, True),
        (hosts("url", "api.example.com"), {"url": "file:///etc/passwd"}, True),
        (hosts("url", "api.example.com"), {"url": "https://api.example.com\\@evil.org"}, True),
        (hosts("url", "api.example.com"), {"url": "https://[bad"}, True),
        (at_most("amount", 100), {"amount": 101}, True),
        (at_most("amount", 100), {"amount": float("nan")}, True),
        (at_most("amount", 100), {"amount": 100}, False),
    ],
)
def test_policy_checks_deny_or_allow(check, arguments, refused):
    found = verdict(Policy(checks=(check,)), "forecast", arguments)
    assert isinstance(found, Deny) if refused else found is None


def test_effects_and_taint_require_approval():
    assert isinstance(verdict(Policy(approve=("read",)), "forecast", {}), Ask)
    pending = Pending(ToolCall("1", "pay", {}), BOX, BOX.find("pay"), {}, tainted=True)
    assert isinstance(Policy(taint="enforce").verdict(pending), Ask)
    assert Policy(taint="warn").verdict(pending) is None
    assert Policy(taint="enforce").verdict(replace(pending, tainted=False)) is None


def test_denial_takes_precedence_over_approval():
    policy = Policy(checks=(deny("*"),), approve=("read",))
    assert isinstance(verdict(policy, "forecast", {}), Deny)


def test_toolbox_options_apply_to_every_entry():
    quick = BOX.with_options(timeout=1.0)
    assert {entry.options for entry in quick} == {Options(timeout=1.0)}


def test_withdrawn_tool_is_refused_with_a_reason_and_not_offered():
    why = ["its server is gone"]
    box = Toolbox(forecast, Entry(pay, pay.function, Options(withdrawn=lambda: why[0])))
    call = ToolCall("1", "pay", {"amount": 1, "to": "ann"})
    result = pass_gates(Pending(call, box), GATES)
    assert isinstance(result, ToolResult)
    assert (result_code(result), result.text) == (
        "withdrawn",
        "The tool pay is withdrawn and was not run: its server is gone",
    )
    assert [tool.name for tool in box.filter_available(box.tools)] == ["forecast"]
    why[0] = None
    assert isinstance(pass_gates(Pending(call, box), GATES), Pending)
    assert len(box.filter_available(box.tools)) == 2


@pytest.mark.finding("Z20")
@every_case(
    "url",
    [
        "https://evil.org\x00.example.com/",
        "https://evil.org%00.example.com/",
        "https://evil.org%2f.example.com/",
        "https://evil.org .example.com/",
        "https://evil.org;.example.com/",
        "https://evil.org&.example.com/",
        "https://api.example.com:80;evil.org/",
        "https://api.example.com:&evil.org/",
        "https://api.example.com:%2f@evil.org/",
        "https://api.example.com:%00/",
        "https://api.example.com:80 evil.org/",
        "https://api.example.com:8o/",
        "https://api.example.com:123456/",
        "https://api.example.com:\u0663/",
        "https://x\u2488example.com/",
        "https://api.example.com/\x00",
        "https:api.example.com",
        "https:///api.example.com",
    ],
)
def test_hosts_refuses_urls_that_clients_may_split_differently(url):
    for allowed in ("*.example.com", "*example.com*", "api.example.com"):
        assert isinstance(verdict(Policy(checks=(hosts("url", allowed),)), "forecast", {"url": url}), Deny)


@pytest.mark.finding("Z20")
@pytest.mark.parametrize(
    "url", ["https://api.example.com:443/a;b&c=%2f%00", "http://API.example.com", "https://api.example.com./"]
)
def test_hosts_accepts_plain_urls(url):
    assert verdict(Policy(checks=(hosts("url", "api.example.com"),)), "forecast", {"url": url}) is None


@pytest.mark.finding("R")
@pytest.mark.parametrize("raw", ['{"city": "Paris"}', '{"city": "Paris",'])
def test_malformed_call_with_readable_arguments_is_not_run(raw):
    """The text parser marks a call as invalid that has two names, or a stray closing tag, and keeps its arguments."""
    refused(ToolCall("1", "forecast", None, raw, "invalid"), "invalid_arguments")
