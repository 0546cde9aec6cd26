"""Approvals: asked once, bound to a definition, its source and the arguments, and valid for one call."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Policy, Runner, ToolCall, tool
from toolwire.ir.errors import StoreError
from toolwire.run import Approved, Denied, Entry, Options, Toolbox, at_most, path_jail
from toolwire.run.calls.context import NotExecuted
from toolwire.run.calls.execution import CallRun
from toolwire.run.calls.settings import RunSettings
from toolwire.run.calls.steps import (
    Approve,
    ClaimKey,
    CompleteClaim,
    Failed,
    Finished,
    GetRecord,
    Invoke,
    ReleaseClaim,
    Returned,
    Wait,
    approval_hash,
)
from toolwire.run.values.records import Record
from toolwire.run.values.results import NOTES_KEY, result_code, to_record

ASK = Policy(approve=("write",))


@tool
def order(items: list[str], amount: int = 1) -> str:
    """Order items."""
    return f"ordered {items}"


ENTRY = Entry(order, order.function)
CALL = ToolCall("c1", "order", {"items": ["a"]})


def settings(entry: Entry = ENTRY, policy: Policy | None = ASK, **more: Any) -> RunSettings:
    tokens = itertools.count()
    return RunSettings(
        Toolbox(entry), lambda: 1000.0, lambda: f"t{next(tokens)}", run_id="r1", **{"policy": policy, **more}
    )


def drive(run: CallRun, *replies: Any) -> list[Any]:
    """Return the steps; each is answered with the next reply (a function receives the step)."""
    steps = [run.next()]
    for reply in replies:
        assert not isinstance(steps[-1], Finished), steps
        steps.append(run.next(reply(steps[-1]) if callable(reply) else reply))
    return steps


def kinds(steps: list[Any]) -> list[type]:
    return [type(step) for step in steps]


def granted(step: ClaimKey) -> Record:
    claim = step.claim
    return Record(claim.key, claim.tool, claim.fingerprint, "running", claim.token, 0, 0, 0)


def recorded(state: str, fingerprint: str | None = None, result: str | None = None) -> Any:
    """Return the record that a store has for the key of a GetRecord step."""
    claimed = claim_of(CALL)
    return lambda step: Record(step.key, "order", fingerprint or claimed.fingerprint, state, "other", 0, 0, 0, result)


def claim_of(call: ToolCall) -> Any:
    steps = drive(CallRun(call, settings(has_store=True)), None, True)
    return steps[-1].claim


@pytest.mark.finding("U9")
def test_recorded_result_is_returned_without_approval():
    kept = to_record(CALL.result("ordered before"))
    steps = drive(CallRun(CALL, settings(has_store=True)), recorded("done", result=kept))
    assert kinds(steps) == [GetRecord, Finished]
    assert steps[-1].result.text == "ordered before"


@pytest.mark.finding("U9")
@pytest.mark.parametrize("found", [None, StoreError("gone"), "running", "unknown"])
def test_call_without_a_recorded_result_is_approved_before_its_claim(found):
    reply = recorded(found) if isinstance(found, str) else found
    steps = drive(CallRun(CALL, settings(has_store=True)), reply, True)
    assert kinds(steps) == [GetRecord, Approve, ClaimKey]


@pytest.mark.finding("U9")
def test_key_conflict_is_refused_without_an_approval_request():
    steps = drive(CallRun(CALL, settings(has_store=True), key="k"), recorded("done", fingerprint="other"))
    assert kinds(steps) == [GetRecord, Finished]
    assert result_code(steps[-1].result) == "key_conflict"


def test_approved_write_is_claimed_run_and_recorded():
    steps = drive(CallRun(CALL, settings(has_store=True)), None, True, granted, Returned("x"), True)
    assert kinds(steps) == [GetRecord, Approve, ClaimKey, Invoke, CompleteClaim, Finished]


@pytest.mark.parametrize(
    ("reply", "code", "text"),
    [
        (False, "needs_approval", "order is a write tool"),
        (None, "needs_approval", "order is a write tool"),
        ("yes", "needs_approval", "order is a write tool"),
        (1, "needs_approval", "order is a write tool"),
        (Denied("too expensive"), "denied", "too expensive"),
        (Denied(), "denied", "This call was not approved. Nothing was run."),
    ],
)
def test_call_that_is_not_approved_is_not_run(reply, code, text):
    steps = drive(CallRun(CALL, settings()), reply)
    assert kinds(steps) == [Approve, Finished]
    assert result_code(steps[-1].result) == code
    assert text in steps[-1].result.text


@pytest.mark.finding("Z21")
def test_approval_is_bound_to_arguments_and_definition():
    (step,) = drive(CallRun(CALL, settings()))
    entry = Entry(order, order.function)
    assert step.hash == approval_hash(entry, {"items": ["a"]})
    assert (step.call_id, step.effect) == ("c1", "write")
    changes = {"name": "other", "description": "Order.", "input_schema": {"type": "object"}, "effect": "idempotent"}
    entries = [replace(entry, tool=replace(order, **{field: value})) for field, value in changes.items()]
    entries += [replace(entry, function=len), replace(entry, origin="mcp:shop")]
    others = [approval_hash(changed, step.arguments) for changed in entries]
    assert len({step.hash, approval_hash(entry, {"items": ["b"]}), *others}) == 8


@pytest.mark.finding("Z21")
def test_changes_by_the_approver_or_caller_do_not_reach_the_function():
    call = ToolCall("c1", "order", {"items": ["a"]})

    def approve(step: Approve) -> bool:
        step.arguments["items"].append("from the approver")
        call.arguments["items"].append("from the holder of the call")
        return True

    steps = drive(CallRun(call, settings()), approve)
    assert steps[-1].arguments == {"items": ["a"]}


@pytest.mark.finding("Z21")
@pytest.mark.parametrize("policy", [None, ASK])
def test_function_cannot_change_its_next_attempt_or_the_call(policy):
    call = ToolCall("c1", "order", {"items": ["a"]})
    run = CallRun(call, settings(policy=policy))

    def spoil(step: Invoke) -> Failed:
        step.arguments["items"].append("spoiled")
        return Failed(NotExecuted("busy"))

    steps = drive(run, *([] if policy is None else [True]), spoil, None)
    assert kinds(steps[-3:]) == [Invoke, Wait, Invoke]
    assert steps[-1].arguments == {"items": ["a"]}
    assert call.arguments == {"items": ["a"]}


@pytest.mark.finding("Z21")
def test_gate_cannot_change_a_call_after_the_policy():
    from toolwire.run import GATES

    def late(pending):
        return replace(pending, arguments={"items": ["a"], "amount": 500})

    denying = Policy(checks=(at_most("amount", 100),))
    (step,) = drive(CallRun(CALL, settings(policy=denying, gates=(*GATES, late))))
    assert result_code(step.result) == "denied"
    (step,) = drive(CallRun(CALL, settings(gates=(*GATES, late))))
    assert step.arguments == {"items": ["a"], "amount": 500}, "the person sees what runs"


def test_edited_arguments_pass_all_gates_again():
    edited = drive(CallRun(CALL, settings()), Approved({"items": ["b"]}), Returned("done"))
    assert kinds(edited) == [Approve, Invoke, Finished]
    assert edited[1].arguments == {"items": ["b"]}
    assert edited[-1].result.extra[NOTES_KEY]["edited"] == {"items": ["b"]}
    invalid = drive(CallRun(CALL, settings()), Approved({"items": "b", "amount": "much"}))
    assert result_code(invalid[-1].result) == "invalid_arguments"
    limited = Policy(checks=(at_most("amount", 100),), approve=("write",))
    denied = drive(CallRun(CALL, settings(policy=limited)), Approved({"items": ["b"], "amount": 101}))
    assert result_code(denied[-1].result) == "denied"


def test_edited_call_keeps_the_key_of_the_request():
    first = claim_of(CALL)
    steps = drive(CallRun(CALL, settings(has_store=True)), None, Approved({"items": ["b"]}))
    assert (steps[-1].claim.key, steps[-1].claim.fingerprint) == (first.key, first.fingerprint)


def test_key_of_an_approved_call_does_not_depend_on_the_rewritten_path():
    @tool
    def save(path: str) -> str:
        """Save."""
        return path

    keys = []
    for root in ("/files", "/other"):
        policy = Policy(checks=(path_jail("path", root),), approve=("write",))
        given = settings(Entry(save, save.function), policy, has_store=True)
        steps = drive(CallRun(ToolCall("c", "save", {"path": "a.txt"}), given), None, True)
        assert steps[1].arguments == {"path": f"{root}/a.txt"}
        keys += [steps[0].key, steps[2].claim.key]
    assert len(set(keys)) == 1


def test_edited_call_has_the_tool_key_of_the_edited_arguments():
    entry = replace(ENTRY, options=Options(key=lambda arguments: "-".join(arguments["items"])))
    steps = drive(CallRun(CALL, settings(entry, has_store=True)), None, Approved({"items": ["b"]}))
    assert steps[0].key == "a"
    assert steps[-1].claim.key == "b"


def test_policy_is_checked_again_after_the_approval():
    allowed = [True, False]
    policy = Policy(
        checks=(lambda pending: None if allowed.pop(0) else at_most("amount", 0)(pending),), approve=("write",)
    )
    steps = drive(CallRun(CALL, settings(policy=policy)), True)
    assert kinds(steps) == [Approve, Finished]
    assert result_code(steps[-1].result) == "denied"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (True, "order requires approval"),
        ("orders cost money", "orders cost money"),
        (lambda arguments: "many" if len(arguments["items"]) > 2 else False, None),
        (lambda arguments: len(arguments["items"]) == 1, "order requires approval"),
        (False, None),
        ("", None),
    ],
)
def test_tool_can_require_approval_itself(rule, why):
    entry = replace(ENTRY, options=Options(approve=rule))
    (step,) = drive(CallRun(CALL, settings(entry, policy=None)))
    assert isinstance(step, Invoke if why is None else Approve)
    assert why is None or step.why == why


def test_approval_rule_that_raises_stops_the_call():
    called = []

    def rule(arguments):
        raise KeyError("amount")

    def note(items: list[str]) -> str:
        """Note."""
        called.append(items)
        return "noted"

    runner = Runner(tool(approve=rule)(note), approve=lambda step: True)
    (result,) = runner.run_sync([ToolCall("c", "note", {"items": []})])
    assert (result_code(result), called) == ("failed", [])


def test_abandoned_call_releases_its_claim_after_an_approval():
    run = CallRun(CALL, settings(has_store=True))
    steps = drive(run, None, True, granted)
    assert isinstance(steps[-1], Invoke)
    assert isinstance(run.release_step(), ReleaseClaim)
