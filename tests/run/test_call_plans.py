"""The steps of a dry run: gates, policy and store decide, and only the preview of a tool is called."""

from __future__ import annotations

import itertools
from datetime import date
from typing import Any

import pytest

from toolwire import Policy, ToolCall, ToolResult, tool
from toolwire.ir.errors import StoreError
from toolwire.run import CallPlan, Options, Toolbox, deny, path_jail, plan_of
from toolwire.run.calls.claims import make_claim
from toolwire.run.calls.execution import CallRun
from toolwire.run.calls.settings import RunSettings
from toolwire.run.calls.steps import Failed, Finished, GetRecord, Invoke, Returned, TimedOut
from toolwire.run.values.records import Record
from toolwire.run.values.results import result_code


def delete(path: str, force: bool = False) -> str:
    """Delete a file."""
    raise AssertionError("a dry run called the function")


def settings(effect: Any = "write", *, policy: Policy | None = None, has_store: bool = False, **options: Any):
    tokens = itertools.count()
    box = Toolbox(tool(effect=effect, **options)(delete))
    return RunSettings(
        box, lambda: 0.0, lambda: f"t{next(tokens)}", run_id="r", policy=policy, has_store=has_store, dry_run=True
    )


CALL = ToolCall("c", "delete", {"path": "a.txt"})


def finish(given: RunSettings, *replies: Any, call: ToolCall = CALL, key: str | None = None) -> ToolResult:
    run = CallRun(call, given, key=key)
    step = run.next()
    for reply in replies:
        step = run.next(reply(step) if callable(reply) else reply)
    assert isinstance(step, Finished), step
    return step.result


@pytest.mark.finding("X9")
@pytest.mark.parametrize("effect", ["pure", "read", "idempotent", "write"])
def test_plan_describes_a_call_that_would_run(effect):
    result = finish(settings(effect, resource=lambda arguments: f"file:{arguments['path']}"))
    assert plan_of(result) == CallPlan("delete", "would_run", {"path": "a.txt"}, effect, "file:a.txt")
    assert result_code(result) == "dry_run"
    assert not result.is_error
    assert result.text.startswith("Dry run: delete was not executed. It would run.")
    assert f"effect: {effect} on file:a.txt" in result.text


@pytest.mark.finding("X9")
def test_plan_has_the_arguments_that_the_policy_rewrote():
    plan = plan_of(finish(settings(policy=Policy(checks=(path_jail("path", "/files"),)))))
    assert plan.arguments == {"path": "/files/a.txt"}


@pytest.mark.finding("X9")
def test_plan_names_the_reason_for_an_approval_without_asking_for_it():
    plan = plan_of(finish(settings(policy=Policy(approve=("write",)))))
    assert (plan.verdict, plan.why) == ("needs_approval", "delete is a write tool")
    plan = plan_of(finish(settings(approve="files cannot be restored")))
    assert (plan.verdict, plan.why) == ("needs_approval", "files cannot be restored")


@pytest.mark.finding("X9")
def test_plan_of_a_denied_call_is_the_refusal():
    result = finish(settings(policy=Policy(checks=(deny("delete"),))))
    assert (plan_of(result).verdict, result_code(result), result.is_error) == ("denied", "denied", True)


@pytest.mark.finding("X9")
@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ToolCall("c", "erase", {}), "unknown_tool"),
        (ToolCall("c", "delete", {"force": 3}), "invalid_arguments"),
        (ToolCall("c", "delete", None, '{"path": "a', state="truncated"), "truncated"),
    ],
)
def test_plan_of_an_invalid_call_is_the_refusal(call, code):
    result = finish(settings(), call=call)
    plan = plan_of(result)
    assert (plan.verdict, result_code(result)) == ("refused", code)
    assert plan.why == result.text
    assert plan.effect == (None if call.name == "erase" else "write")


@pytest.mark.finding("X9")
def test_plan_of_arguments_that_cannot_be_converted_is_the_refusal():
    def book(day: date) -> str:
        """Book."""
        raise AssertionError("a dry run called the function")

    given = RunSettings(Toolbox(tool(book)), lambda: 0.0, lambda: "t", dry_run=True)
    result = finish(given, call=ToolCall("c", "book", {"day": "2026-02-30"}))
    assert (plan_of(result).verdict, result_code(result)) == ("refused", "invalid_arguments")


def stored(given: RunSettings, state: str, **changes: Any) -> Any:
    def reply(step: GetRecord) -> Record:
        assert isinstance(step, GetRecord)
        pending = CallRun(CALL, given, key="k").pass_gates()
        found = {"fingerprint": make_claim(pending, given, 0).fingerprint, **changes}
        return Record(
            step.key, "delete", state=state, token="other", lease_until=0, expires_at=0, created_at=0, **found
        )

    return reply


@pytest.mark.finding("X9")
@pytest.mark.parametrize(
    ("effect", "state", "changes", "verdict"),
    [
        ("write", "done", {}, "replayed"),
        ("read", "done", {}, "replayed"),
        ("write", "running", {}, "replayed"),
        ("write", "unknown", {}, "refused"),
        ("idempotent", "unknown", {}, "would_run"),
        ("write", "done", {"fingerprint": "other"}, "refused"),
    ],
)
def test_plan_depends_on_the_record_of_the_call(effect, state, changes, verdict):
    given = settings(effect, has_store=True)
    assert plan_of(finish(given, stored(given, state, **changes), key="k")).verdict == verdict


@pytest.mark.finding("X9")
def test_recorded_call_needs_no_approval_in_the_plan():
    given = settings(has_store=True, policy=Policy(approve=("write",)))
    assert plan_of(finish(given, stored(given, "done"), key="k")).verdict == "replayed"


@pytest.mark.finding("X9")
@pytest.mark.parametrize(("effect", "verdict"), [("write", "refused"), ("read", "would_run")])
def test_unreachable_store_refuses_only_calls_with_effects(effect, verdict):
    plan = plan_of(finish(settings(effect, has_store=True), StoreError("gone"), key="k"))
    assert plan.verdict == verdict


@pytest.mark.finding("X9")
def test_preview_is_called_with_the_values_of_the_call():
    def preview(path: str, force: bool = False) -> str:
        return f"would delete {path}"

    def called(step: Invoke) -> Returned:
        assert (step.entry.function, step.entry.tool.effect, step.token) == (preview, "pure", None)
        return Returned(step.entry.function(**step.arguments))

    for options in ({"preview": preview}, {"preview": preview, "approve": True}):
        result = finish(settings(**options), called)
        assert plan_of(result).preview == "would delete a.txt"
        assert "preview: would delete a.txt" in result.text


@pytest.mark.finding("X9")
@pytest.mark.parametrize("value", [{"files": 3}, ["a"], 3, True])
def test_preview_may_return_any_json(value):
    result = finish(settings(preview=lambda path: value), Returned(value))
    assert plan_of(result).preview == value


@pytest.mark.finding("X9")
@pytest.mark.parametrize("outcome", [Failed(ValueError("no such file")), TimedOut(1.0)])
def test_failed_preview_is_reported_and_not_retried(outcome):
    result = finish(settings(preview=lambda path: path), outcome)
    plan = plan_of(result)
    assert plan.verdict == "would_run"
    assert plan.preview is None
    assert "no such file" in plan.preview_error or "did not finish" in plan.preview_error
    assert plan.preview_error in result.text


@pytest.mark.finding("X9")
def test_long_preview_and_arguments_are_cut():
    call = ToolCall("c", "delete", {"path": "a" * 100_000})
    result = finish(settings(preview=lambda path: path), Returned("b" * 200_000), call=call)
    assert len(result.text) < 70_000
    assert len(plan_of(result).preview) < 70_000


@pytest.mark.finding("X9")
@pytest.mark.parametrize(("extra", "is_cut"), [(0, False), (1, True)])
def test_arguments_in_the_text_have_at_most_4000_characters(extra, is_cut):
    path = "a" * (4000 - len('{"path":""}') + extra)
    result = finish(settings(), call=ToolCall("c", "delete", {"path": path}))
    assert ("…" in result.text) is is_cut
    assert plan_of(result).arguments == {"path": path}


@pytest.mark.finding("X9")
def test_result_of_an_executed_call_has_no_plan():
    assert plan_of(CALL.result("done")) is None


@pytest.mark.finding("X9")
def test_preview_must_be_a_function():
    from toolwire.ir.errors import ConfigError

    with pytest.raises(ConfigError, match="preview"):
        Options(preview="text")
