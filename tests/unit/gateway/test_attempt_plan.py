"""The plan of a request: the order of its targets, and the wait after each failure."""

from types import SimpleNamespace

import pytest

from toolwire.gateway.answer.plan import AttemptPlan
from toolwire.gateway.faults import IDLE_FAULT
from toolwire.ir.response import Fault

OVERLOADED = Fault("overloaded", "busy", 529)
INVALID = Fault("invalid_request", "no", 400)
TOO_LONG = Fault("invalid_request", "prompt is too long", 400, "context_length_exceeded")


class Cooldowns:
    """The cooldowns that a plan starts and ends."""

    def __init__(self):
        self.steps = []

    def start_cooldown(self, target, retry_after=None):
        self.steps.append(("start", target.name, retry_after))

    def end_cooldown(self, target):
        self.steps.append(("end", target.name))


def target(name, *, timeout=10.0, idle=5.0, retries=1, window=None):
    row = SimpleNamespace(timeout=timeout, idle=idle, retries=retries)
    return SimpleNamespace(name=name, upstream=SimpleNamespace(row=row), window=window)


def make_plan(*targets, now=0.0):
    cooldowns, clock = Cooldowns(), [now]
    return AttemptPlan(targets, cooldowns, lambda: clock[0]), cooldowns, clock


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
    plan, cooldowns, _ = make_plan(only)
    plan.next_target()
    assert plan.wait_after(INVALID, only) is None
    assert cooldowns.steps == []


@pytest.mark.parametrize("fault", [Fault("authentication", "no", 401), Fault("server", "no", 402)])
def test_refusal_of_our_key_tries_the_next_target(fault):
    first, second = target("a"), target("b")
    plan, cooldowns, _ = make_plan(first, second)
    plan.next_target()
    assert plan.wait_after(fault, first) == 0.0
    assert cooldowns.steps == [("start", "a", None)]


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
    plan, cooldowns, _ = make_plan(only)
    plan.succeed(only, failed_late=False)
    plan.succeed(only, failed_late=True)
    assert cooldowns.steps == [("end", "a"), ("start", "a", None)]


@pytest.mark.finding("CA4")
def test_long_prompt_is_tried_only_at_targets_with_a_larger_or_unknown_window():
    small, equal, unknown, large = target("a", window=10), target("b", window=10), target("c"), target("d", window=20)
    plan, cooldowns, _ = make_plan(small, equal, unknown, large)
    assert plan.next_target() is small
    assert plan.wait_after(TOO_LONG, small) == 0.0
    assert plan.next_target() is unknown
    assert plan.wait_after(OVERLOADED, unknown) == 0.0
    assert plan.next_target() is large
    assert plan.wait_after(TOO_LONG, large) == 0.0
    assert plan.next_target() is unknown  # its failure was transient
    assert plan.wait_after(TOO_LONG, unknown) is None
    assert plan.overflow is TOO_LONG
    assert cooldowns.steps == [("start", "c", None)]


@pytest.mark.finding("CA4")
def test_long_prompt_for_the_only_target_is_final():
    only = target("a", window=10)
    plan, _, _ = make_plan(only)
    plan.next_target()
    assert plan.wait_after(TOO_LONG, only) is None
