"""The plan of a request: the order of its targets, and the wait after each failure."""

from types import SimpleNamespace

import pytest

from toolwire.gateway.answer.request_handler import AttemptPlan
from toolwire.gateway.faults import IDLE_FAULT, UPSTREAM_BUSY
from toolwire.ir.response import Fault
from toolwire.net.model.health import TargetHealth

OVERLOADED = Fault("overloaded", "busy", 529)
INVALID = Fault("invalid_request", "no", 400)
TOO_LONG = Fault("invalid_request", "prompt is too long", 400, "context_length_exceeded")


class Outcomes:
    """The outcomes that a plan reports."""

    def __init__(self, clock):
        self.steps = []
        self.clock = clock

    def fail(self, target, sent_at, fault):
        self.steps.append(("fail", target.name, fault.retry_after))
        target.health.fail(self.clock[0], sent_at, retry_after=fault.retry_after)

    def succeed(self, target, sent_at):
        self.steps.append(("succeed", target.name))
        target.health.succeed(self.clock[0], sent_at)

    def probe_if_due(self, target):
        pass


def target(name, *, timeout=10.0, idle=5.0, retries=1, window=None):
    row = SimpleNamespace(timeout=timeout, idle=idle, retries=retries)
    return SimpleNamespace(name=name, upstream=SimpleNamespace(row=row), window=window, health=TargetHealth())


def make_plan(*targets, now=0.0):
    clock = [now]
    outcomes = Outcomes(clock)
    return AttemptPlan(targets, outcomes, lambda: clock[0]), outcomes, clock


def test_all_targets_are_tried_before_one_is_tried_again():
    first, second = target("a"), target("b")
    plan, _, _ = make_plan(first, second)
    assert plan.next_target() is first
    assert plan.wait_after(OVERLOADED, first) == 0.0
    assert plan.next_target() is second
    assert plan.wait_after(OVERLOADED, second) > 0  # one round is over
    assert plan.next_target() is first
    assert plan.wait_after(OVERLOADED, first) == 0.0
    assert plan.next_target() is second
    assert plan.wait_after(OVERLOADED, second) is None  # `retries` further rounds


def test_error_of_the_client_is_final_and_starts_no_cooldown():
    only = target("a")
    plan, outcomes, _ = make_plan(only)
    plan.next_target()
    assert plan.wait_after(INVALID, only) is None
    assert outcomes.steps == [("succeed", "a")]


@pytest.mark.parametrize("fault", [Fault("authentication", "no", 401), Fault("server", "no", 402)])
def test_refusal_of_our_key_tries_the_next_target(fault):
    first, second = target("a"), target("b")
    plan, outcomes, _ = make_plan(first, second)
    plan.next_target()
    assert plan.wait_after(fault, first) == 0.0
    assert outcomes.steps == [("fail", "a", None)]


def test_time_of_all_targets_is_shared():
    first, second = target("a", timeout=10.0), target("b", timeout=20.0, idle=7.0)
    plan, _, clock = make_plan(first, second, now=100.0)
    assert (plan.deadline, plan.idle_timeout) == (130.0, 7.0)
    plan.next_target()
    clock[0] = 131.0
    assert plan.wait_after(OVERLOADED, first) is None  # the second target would get no time


def test_silent_target_is_not_retried():
    only = target("a", retries=5)
    plan, _, _ = make_plan(only)
    plan.next_target()
    assert plan.wait_after(IDLE_FAULT, only) is None


def test_answer_ends_a_cooldown_and_a_late_failure_starts_one():
    only = target("a")
    plan, outcomes, _ = make_plan(only)
    plan.succeed(only, failed_late=False)
    plan.succeed(only, failed_late=True)
    assert outcomes.steps == [("succeed", "a"), ("fail", "a", None)]
    assert only.health.state == "cooling"


@pytest.mark.finding("CA4")
def test_long_prompt_is_tried_only_at_targets_with_a_larger_or_unknown_window():
    small, equal, unknown, large = target("a", window=10), target("b", window=10), target("c"), target("d", window=20)
    plan, outcomes, _ = make_plan(small, equal, unknown, large)
    assert plan.next_target() is small
    assert plan.wait_after(TOO_LONG, small) == 0.0
    assert plan.next_target() is unknown
    assert plan.wait_after(OVERLOADED, unknown) == 0.0
    assert plan.next_target() is large
    assert plan.wait_after(TOO_LONG, large) == 0.0
    assert plan.next_target() is unknown  # its failure was transient
    assert plan.wait_after(TOO_LONG, unknown) is None
    assert plan.overflow is TOO_LONG
    assert [step for step in outcomes.steps if step[0] == "fail"] == [("fail", "c", None)]


@pytest.mark.finding("CA4")
def test_long_prompt_for_the_only_target_is_final():
    only = target("a", window=10)
    plan, _, _ = make_plan(only)
    plan.next_target()
    assert plan.wait_after(TOO_LONG, only) is None


@pytest.mark.finding("OP5")
def test_retries_end_with_the_budget():
    only = target("a", retries=9)
    only.health = TargetHealth(0.0)  # without states, so that only the budget limits
    sent = 0
    for _ in range(100):  # at one moment
        plan, _, _ = make_plan(only)
        while plan.next_target() is not None:
            sent += 1
            if plan.wait_after(OVERLOADED, only) is None:
                break
    assert 100 + 30 <= sent <= 100 + 30 + 0.2 * 200


@pytest.mark.finding("OP5")
def test_retry_costs_budget_also_if_the_other_targets_are_refused():
    first, second = target("a"), target("b")
    for _ in range(5):
        second.health.fail(0.0, 0.0)
    while first.health.budget.take(0.0):
        pass
    plan, _, _ = make_plan(first, second)
    assert plan.next_target() is first
    assert plan.wait_after(OVERLOADED, first) == 0.0
    assert plan.next_target() is None
    assert plan.wait_after_refusal(OVERLOADED) is None


@pytest.mark.finding("OP10")
def test_trial_is_not_used_up_by_a_request_without_budget():
    first, second = target("a", retries=3), target("b", retries=3)
    plan, _, clock = make_plan(first, second)
    for current in (first, second):
        assert plan.next_target() is current
        assert plan.wait_after(OVERLOADED, current) is not None
    for _ in range(5):
        second.health.fail(0.0, 0.0)
    while second.health.budget.take(0.0):
        pass
    second.health.budget.ratio, clock[0] = 0.0, 0.1
    assert plan.next_target() is first
    plan.wait_after(OVERLOADED, first)
    clock[0] = second.health.cooldown_end
    second.health.budget._filled_at = clock[0]
    assert plan.next_target() is None
    assert second.health.state == "open"  # its trial is left for another request


@pytest.mark.finding("OP5")
def test_failing_targets_are_refused_to_new_requests_with_a_retry_after():
    targets = [target("a"), target("b")]
    for failing in targets:
        for _ in range(5):
            failing.health.fail(0.0, 0.0)
    plan, outcomes, clock = make_plan(*targets)
    assert plan.next_target() is None
    refusal = plan.refusal()
    assert (refusal.status, refusal.retry_after) == (503, 1.0)
    for limited in targets:
        limited.health.is_limited = True
    assert plan.refusal().status == 429
    clock[0] = 1.5
    assert plan.next_target() is targets[0]  # a trial
    assert plan.wait_after(OVERLOADED, targets[0]) == 0.0
    assert plan.next_target() is targets[1]
    assert [step[:2] for step in outcomes.steps] == [("fail", "a")]


@pytest.mark.finding("OP6")
@pytest.mark.parametrize(("demanded", "waits"), [(0.5, True), (2.0, True), (2.1, False), (12.0, False)])
def test_long_demanded_wait_is_left_to_the_client(demanded, waits):
    only = target("a")
    plan, _, _ = make_plan(only)
    plan.next_target()
    assert (plan.wait_after(Fault("rate_limit", "later", 429, retry_after=demanded), only) is not None) == waits


@pytest.mark.finding("OP2")
def test_same_target_is_no_other_target():
    """Two models may differ only in their settings. A slow request is not sent to their target twice."""
    first, second = target("a"), target("a")
    second.health = first.health
    plan, _, _ = make_plan(first, second)
    plan.next_target()
    assert not plan.has_other_target


def test_healthy_target_is_tried_before_failing_targets():
    first, second, third = target("a"), target("b"), target("c")
    first.health.fail(0.0, 0.0)
    plan, _, _ = make_plan(first, second, third)
    assert plan.next_target() is second
    assert plan.has_other_target
    assert plan.wait_after(OVERLOADED, second) == 0.0
    assert plan.next_target() is third
    assert plan.wait_after(OVERLOADED, third) == 0.0
    assert plan.next_target() is first  # a last resort
    assert not plan.has_other_target


@pytest.mark.finding("OP5")
def test_fault_without_a_retry_costs_no_budget():
    """A client can cause as many 404 as it likes."""
    only = target("a")
    only.health = TargetHealth(0.0)  # without states, so that only the budget limits
    for _ in range(100):
        plan, _, _ = make_plan(only)
        assert plan.wait_after(Fault("not_found", "no such file", 404), plan.next_target()) is None
    plan, _, _ = make_plan(only)
    assert plan.wait_after(OVERLOADED, plan.next_target()) is not None


@pytest.mark.finding("CA4")
def test_long_prompt_is_no_success_of_its_target():
    """The gateway itself may have found it, without a request."""
    only = target("a", window=10)
    plan, outcomes, _ = make_plan(only)
    plan.wait_after(TOO_LONG, plan.next_target())
    assert outcomes.steps == []


@pytest.mark.finding("OP10")
def test_trial_that_got_no_connection_is_released():
    only = target("a")
    for _ in range(5):
        only.health.fail(0.0, 0.0)
    now = only.health.cooldown_end + 1.0
    for _ in range(2):  # nothing was sent, so the next request is the trial
        plan, _, _ = make_plan(only, now=now)
        assert plan.next_target() is only
        plan.wait_after(Fault("overloaded", "no connection is free", 503, UPSTREAM_BUSY), only)
