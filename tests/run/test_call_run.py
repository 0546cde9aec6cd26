"""One call, step by step, with a driver that is a list of replies."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from toolwire import ToolCall, tool
from toolwire.ir.errors import StoreError
from toolwire.run.calls.context import NotExecuted, ToolError, Transient
from toolwire.run.calls.execution import CallRun
from toolwire.run.calls.policy import Policy, deny
from toolwire.run.calls.settings import RunSettings
from toolwire.run.calls.steps import (
    ArgumentMismatch,
    ClaimKey,
    CompleteClaim,
    Failed,
    Finished,
    Invoke,
    Reconcile,
    ReleaseClaim,
    Returned,
    TimedOut,
    Wait,
)
from toolwire.run.tools.function_tool import Options
from toolwire.run.tools.toolbox import Entry, Toolbox
from toolwire.run.values.keys import fingerprint
from toolwire.run.values.outputs import cap_result
from toolwire.run.values.records import Record
from toolwire.run.values.results import NOTES_KEY, result_code, to_record
from toolwire.schema.bounds import BoundedCache

ARGUMENTS = {"amount": 3}
CALL = ToolCall("c1", "pay", ARGUMENTS)


def made(effect: str, **options) -> Toolbox:
    @tool(effect=effect)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return Toolbox(Entry(pay, pay.function, Options(**options)))


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        self.time += 1
        return self.time


def settings(box: Toolbox, **more) -> RunSettings:
    tokens = itertools.count()
    known = {"has_store": True, "run_id": "r1", **more}
    return RunSettings(box, Clock(), lambda: f"t{next(tokens)}", **known)


def drive(run: CallRun, *replies):
    """The steps that it took; each is answered with the next reply (a function gets the step)."""
    steps = [run.next()]
    for reply in replies:
        assert not isinstance(steps[-1], Finished), steps
        steps.append(run.next(reply(steps[-1]) if callable(reply) else reply))
    return steps


def granted(step: ClaimKey) -> Record:
    claim = step.claim
    return Record(claim.key, claim.tool, claim.fingerprint, "running", claim.token, 0, 0, 0)


def found(state: str, result: str | None = None, **changes):
    def reply(step: ClaimKey) -> Record:
        claim = step.claim
        return replace(Record(claim.key, claim.tool, claim.fingerprint, state, "somebody", 0, 0, 0, result), **changes)

    return reply


def kinds(steps) -> list[type]:
    return [type(step) for step in steps]


def test_a_write_is_claimed_run_and_recorded():
    steps = drive(CallRun(CALL, settings(made("write"))), granted, Returned("paid 3"), True)
    assert kinds(steps) == [ClaimKey, Invoke, CompleteClaim, Finished]
    claim, invoke, complete, end = steps
    assert claim.claim.durable
    assert not claim.claim.reclaim
    assert invoke.context.idempotency_key == claim.claim.key
    assert (complete.state, complete.token) == ("done", claim.claim.token)
    assert end.result.text == "paid 3"
    assert not end.result.is_error


@pytest.mark.parametrize("outcome", [Returned("paid 3"), TimedOut(1), Failed(RuntimeError())])
def test_claim_of_a_keyless_call_may_be_released(outcome):
    steps = drive(CallRun(CALL, settings(made("write"), keeps_keyless=False)), granted, outcome, True)
    assert kinds(steps) == [ClaimKey, Invoke, ReleaseClaim, Finished]
    assert steps[1].context.idempotency_key == steps[0].claim.key  # the backend may make use of it


@pytest.mark.parametrize(("given", "options"), [("k", {}), (None, {"key": lambda arguments: "k"})])
def test_result_of_a_call_with_a_key_is_kept(given, options):
    run = CallRun(CALL, settings(made("write", **options), keeps_keyless=False), key=given)
    assert kinds(drive(run, granted, Returned("paid 3"), True)) == [ClaimKey, Invoke, CompleteClaim, Finished]


@pytest.mark.parametrize("effect", ["pure", "read"])
def test_read_only_call_needs_no_claim(effect):
    assert kinds(drive(CallRun(CALL, settings(made(effect))), Returned("x"))) == [Invoke, Finished]


def test_recorded_result_is_replayed_without_running_the_tool():
    kept = to_record(CALL.result("paid 3"))
    steps = drive(CallRun(replace(CALL, id="c9"), settings(made("write"))), found("done", kept))
    assert kinds(steps) == [ClaimKey, Finished]
    assert steps[-1].result.text == "paid 3"
    assert steps[-1].result.call_id == "c9"
    assert steps[-1].result.extra[NOTES_KEY]["replayed"] is True


def test_call_can_be_stopped_until_its_function_starts():
    run = CallRun(CALL, settings(made("write", retries=1)))
    assert (run.stop(), run.release_step()) == (True, None)  # there is no claim yet
    *_, claim, first, wait = drive(run, granted, Failed(NotExecuted("all threads were busy")))
    assert isinstance(wait, Wait)
    assert run.stop()
    assert run.release_step() == ReleaseClaim(claim.claim.key, claim.claim.token)
    assert not first.start.begin(), "what was stopped never begins"


@pytest.mark.parametrize(("effect", "is_given_back"), [("write", False), ("idempotent", False), ("read", True)])
def test_started_call_releases_its_claim_only_if_read_only(effect, is_given_back):
    run = CallRun(CALL, settings(made(effect)), key="k")
    _, invoke = drive(run, granted)
    assert invoke.start.begin()
    assert not run.stop()
    assert (run.release_step() is not None) == is_given_back


def test_call_cannot_be_stopped_while_its_outcome_is_recorded():
    run = CallRun(CALL, settings(made("write")))
    assert kinds(drive(run, granted, ArgumentMismatch("no"))) == [
        ClaimKey,
        Invoke,
        ReleaseClaim,
    ]  # the function was not called
    assert not run.stop()


def test_the_same_key_with_other_arguments_is_a_conflict():
    steps = drive(CallRun(CALL, settings(made("write")), key="k"), found("done", fingerprint="other"))
    assert result_code(steps[-1].result) == "key_conflict"


def test_unknown_outcome_is_reported_and_not_retried():
    steps = drive(CallRun(CALL, settings(made("write"))), found("unknown"))
    assert kinds(steps) == [ClaimKey, Finished]
    assert result_code(steps[-1].result) == "outcome_unknown"


def test_unknown_outcome_is_reconciled_if_the_tool_supports_it():
    box = made("write", reconcile=lambda key, arguments: None)
    steps = drive(CallRun(CALL, settings(box)), found("unknown"), Returned("it was paid"))
    assert kinds(steps) == [ClaimKey, Reconcile, Finished]
    assert steps[-1].result.text == "it was paid"
    steps = drive(CallRun(CALL, settings(box)), found("unknown"), Returned(None))
    assert result_code(steps[-1].result) == "outcome_unknown"


@pytest.mark.failure(5)
def test_concurrent_duplicate_waits_or_is_refused():
    kept = to_record(CALL.result("paid 3"))
    steps = drive(CallRun(CALL, settings(made("write"))), found("running"), None, found("done", kept))
    assert kinds(steps) == [ClaimKey, Wait, ClaimKey, Finished]
    assert steps[-1].result.text == "paid 3"
    steps = drive(CallRun(CALL, settings(made("write"), while_running="refuse")), found("running"))
    assert result_code(steps[-1].result) == "in_progress"


def test_waiting_for_a_concurrent_duplicate_times_out():
    run = CallRun(CALL, settings(made("write"), wait_timeout=2.0))
    steps = drive(run, found("running"), None, found("running"))
    assert result_code(steps[-1].result) == "in_progress"


@pytest.mark.failure(10)
def test_write_fails_closed_when_the_store_is_down():
    steps = drive(CallRun(CALL, settings(made("write"))), StoreError("gone"))
    assert result_code(steps[-1].result) == "store_down"
    steps = drive(CallRun(CALL, settings(made("read")), key="k"), StoreError("gone"), Returned("x"))
    assert kinds(steps) == [ClaimKey, Invoke, Finished]


@pytest.mark.failure(4)
def test_unrecorded_result_is_returned_and_marked():
    steps = drive(CallRun(CALL, settings(made("write"))), granted, Returned("paid 3"), StoreError("gone"))
    assert steps[-1].result.text == "paid 3"
    assert steps[-1].result.extra[NOTES_KEY]["recorded"] is False


@pytest.mark.failure(7)
@pytest.mark.parametrize(
    ("effect", "outcome", "after", "code"),
    [
        ("write", Failed(ToolError("no funds")), CompleteClaim, "failed"),
        ("write", Failed(ValueError("boom")), CompleteClaim, "outcome_unknown"),
        ("write", Failed(SystemExit(3)), CompleteClaim, "outcome_unknown"),
        ("write", TimedOut(5.0), CompleteClaim, "outcome_unknown"),
        ("idempotent", Failed(ValueError("boom")), ReleaseClaim, "failed"),
        ("idempotent", TimedOut(5.0), ReleaseClaim, "timeout"),
        ("idempotent", Failed(ToolError("no funds")), CompleteClaim, "failed"),
    ],
)
def test_failures_after_the_claim_complete_or_release_it(effect, outcome, after, code):
    steps = drive(CallRun(CALL, settings(made(effect))), granted, outcome, True)
    assert kinds(steps) == [ClaimKey, Invoke, after, Finished]
    assert result_code(steps[-1].result) == code
    assert steps[-1].result.is_error
    if after is CompleteClaim:
        assert steps[-2].state == ("unknown" if code == "outcome_unknown" else "done")


def test_call_that_was_not_executed_is_retried_and_then_released():
    nothing = Failed(NotExecuted("busy"))
    steps = drive(CallRun(CALL, settings(made("write", retries=1))), granted, nothing, None, nothing, True)
    assert kinds(steps) == [ClaimKey, Invoke, Wait, Invoke, ReleaseClaim, Finished]


@pytest.mark.parametrize(
    ("effect", "error", "again"),
    [
        ("read", Transient("429"), True),
        ("idempotent", Transient("429"), True),
        ("write", Transient("429"), False),
        ("write", Transient("429", before_effect=True), True),
        ("read", ValueError("boom"), False),
        ("read", ToolError("no"), False),
    ],
)
def test_only_safe_failures_are_retried(effect, error, again):
    run = CallRun(CALL, settings(made(effect), has_store=False))
    steps = drive(run, Failed(error))
    assert isinstance(steps[-1], Wait if again else Finished)


def test_retry_after_is_honoured_and_bounded():
    run = CallRun(CALL, settings(made("read")))
    assert drive(run, Failed(Transient("429", retry_after=7.5)))[-1] == Wait(7.5)
    run = CallRun(CALL, settings(made("read")))
    assert isinstance(drive(run, Failed(Transient("429", retry_after=9999.0)))[-1], Finished), "nobody waits that long"


def test_denied_call_is_not_run():
    steps = drive(CallRun(CALL, settings(made("write"), policy=Policy(checks=(deny("pay"),)))))
    assert result_code(steps[-1].result) == "denied"


def test_idempotency_key_depends_on_run_tenant_and_occurrence():
    def key_of(run: CallRun) -> str:
        return run.next().claim.key

    box = made("write")
    first = key_of(CallRun(CALL, settings(box)))
    assert key_of(CallRun(replace(CALL, id="another"), settings(box))) == first, "the id of a call is not what it is"
    assert key_of(CallRun(CALL, settings(box), occurrence=1)) != first
    assert key_of(CallRun(CALL, settings(box, run_id="r2"))) != first
    assert key_of(CallRun(CALL, settings(box, tenant="t"))) != first
    assert key_of(CallRun(CALL, settings(box), key="mine")) == "mine"
    assert key_of(CallRun(CALL, settings(box, tenant="t"), key="mine")) == "t/mine"
    own = made("write", key=lambda arguments: f"order-{arguments['amount']}")
    assert key_of(CallRun(CALL, settings(own))) == "order-3"
    assert key_of(CallRun(CALL, settings(own), key="mine")) == "mine"
    assert fingerprint("pay", {"a": 1, "b": 2}) == fingerprint("pay", {"b": 2, "a": 1})


def test_cached_results_of_reads_are_reused_until_they_expire():
    box = made("read", cache=60.0)
    shared = settings(box, cache=BoundedCache())
    assert kinds(drive(CallRun(CALL, shared), Returned("x"))) == [Invoke, Finished]
    again = drive(CallRun(replace(CALL, id="c2"), shared))
    assert kinds(again) == [Finished]
    assert again[0].result.call_id == "c2"
    assert again[0].result.extra[NOTES_KEY]["cached"] is True
    shared.now.time += 100
    assert kinds(drive(CallRun(CALL, shared), Returned("x"))) == [Invoke, Finished]


def test_failures_are_not_cached():
    shared = settings(made("read", cache=60.0, retries=0), cache=BoundedCache())
    drive(CallRun(CALL, shared), Failed(ValueError("x")))
    assert isinstance(CallRun(CALL, shared).next(), Invoke)


def test_large_output_is_truncated_in_the_middle():
    text = "".join(f"{number:07d}\n" for number in range(20_000))
    short = cap_result(CALL.result(text), 1000)
    assert len(short.text) < 1200
    assert short.text.startswith("0000000")
    assert short.text.endswith("0019999\n")
    assert "[… 159,000 of 160,000 characters omitted …]" in short.text
    assert cap_result(CALL.result("short"), 1000) == CALL.result("short")


@pytest.mark.parametrize(("reply", "notes"), [(True, None), (False, False), (StoreError("gone"), False)])
def test_result_that_was_not_recorded_has_a_note(reply, notes):
    steps = drive(CallRun(CALL, settings(made("write"))), granted, Returned("paid 3"), reply)
    assert steps[-1].result.text == "paid 3"
    assert steps[-1].result.extra.get(NOTES_KEY, {}).get("recorded") is notes


def test_shortened_result_has_three_quarters_of_its_beginning_and_one_quarter_of_its_end():
    text = "a" * 75 + "b" * 10 + "c" * 25
    assert cap_result(CALL.result(text[:100]), 100) == CALL.result(text[:100])
    short = cap_result(CALL.result(text), 100)
    assert short.text == "a" * 75 + "\n\n[… 10 of 110 characters omitted …]\n\n" + "c" * 25
    assert short.extra[NOTES_KEY]["left_out"] == 10


def test_repairs_are_listed_in_the_result():
    broken = ToolCall("c1", "pay", None, '{"amount": 3,}', "invalid")
    steps = drive(CallRun(broken, settings(made("write"))), granted, Returned("x"), True)
    assert steps[-1].result.extra[NOTES_KEY]["repaired"] == ["trailing_comma"]
