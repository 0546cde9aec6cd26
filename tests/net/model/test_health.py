"""The states of a target, without I/O: every transition of the table, the budget, and properties of any history."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.net.model.health import (
    DEPARTURES,
    FAILURE_LIMIT,
    MAX_COOLDOWN,
    MIN_WAIT,
    SLOW_TRIAL,
    TRIAL_SECONDS,
    RetryBudget,
    TargetHealth,
)

COOLDOWN = 10.0
LATER = COOLDOWN * 1.1 + 0.001  # the end of a cooldown, with its jitter
SILENCE = 30.0


def new_health(*, can_probe=False, cooldown=COOLDOWN):
    return TargetHealth(cooldown, can_probe=can_probe, random=Random(1))


def admits(health, now):
    """Return whether a request is admitted with another target, and without."""
    other = health.admit(now, is_last_resort=False)
    return other, other or health.admit(now, is_last_resort=True)


def failing(times, *, can_probe=False, is_silent=False):
    health = new_health(can_probe=can_probe)
    for _ in range(times):
        health.fail(0.0, 0.0, is_silent=is_silent)
    return health


def test_first_failure_only_makes_other_targets_preferred():
    health = failing(1)
    assert health.state == "cooling"
    assert admits(health, 5.0) == (False, True)
    assert not health.is_preferred(5.0)


def test_target_that_only_fails_is_refused_to_everyone():
    health = failing(FAILURE_LIMIT)
    assert health.state == "open"
    assert admits(health, 0.5) == (False, False)
    assert 0.0 < health.retry_after(0.5) <= 0.5


@pytest.mark.finding("OP10")
def test_one_trial_at_a_time_is_admitted_after_the_cooldown():
    health = failing(1)
    assert [health.admit(LATER, is_last_resort=False) for _ in range(80)] == [True] + [False] * 79
    assert health.state == "half-open"
    health.succeed(LATER + 0.1, LATER)
    assert health.state == "closed"


@pytest.mark.finding("OP10")
def test_failed_trial_starts_another_cooldown():
    health = failing(FAILURE_LIMIT)
    assert health.admit(LATER, is_last_resort=False)
    health.fail(LATER + 0.1, LATER)
    assert health.state == "open"
    assert not health.admit(LATER + COOLDOWN, is_last_resort=False)
    assert health.admit(LATER + 0.1 + LATER, is_last_resort=False)


def test_only_target_gets_a_trial_a_second():
    health = failing(FAILURE_LIMIT)
    now, trials = 0.0, []
    while now < 20.0:
        if health.admit(now, is_last_resort=True):
            trials.append(now)
            health.fail(now, now)
        now += 0.01
    assert 15 <= len(trials) <= 27
    assert min(after - before for before, after in pairwise(trials)) >= 0.5


@pytest.mark.finding("OP9")
def test_demanded_cooldown_has_a_cap():
    health = new_health()
    health.fail(0.0, 0.0, retry_after=3600.0)
    assert admits(health, MAX_COOLDOWN - 1)[0] is False
    assert admits(health, MAX_COOLDOWN * 1.1 + 1)[0] is True


def test_demanded_wait_is_kept_also_without_another_target():
    health = new_health()
    for _ in range(FAILURE_LIMIT):
        health.fail(0.0, 0.0, retry_after=12.0)
    assert not health.admit(11.9, is_last_resort=True)
    assert health.admit(13.3, is_last_resort=True)


def test_demand_of_no_wait_does_not_raise_the_rate_of_trials():
    health = new_health()
    for _ in range(FAILURE_LIMIT):
        health.fail(0.0, 0.0, retry_after=0.0)
    assert not health.admit(0.5, is_last_resort=False)


def test_refusals_never_open_a_target():
    health = failing(FAILURE_LIMIT - 1)
    for _ in range(3 * FAILURE_LIMIT):
        health.fail(5.0, 5.0, is_refusal=True)
        assert health.state == "cooling"
    assert admits(health, 5.0) == (False, True)


def test_success_ends_a_row_of_failures():
    health = new_health()
    for number in range(50):
        health.fail(number, number)
        health.succeed(number, number - 1.0)  # sent before the failure: the cooldown stays
        assert health.state == "cooling"
        assert health.admit(number, is_last_resort=True)


def test_requests_of_an_earlier_state_do_not_change_the_current_state():
    health = failing(FAILURE_LIMIT)
    health.admit(LATER, is_last_resort=False)
    health.fail(LATER + 0.1, 0.0)
    health.succeed(LATER + 0.1, -1.0)
    assert health.state == "half-open"
    health.succeed(LATER + 0.2, LATER)
    health.fail(LATER + 0.3, 0.0)
    assert health.state == "closed"


def test_no_cooldown_means_no_states():
    health = new_health(cooldown=0.0)
    for _ in range(20):
        health.fail(0.0, 0.0, retry_after=60.0)
        health.depart(9.0, 0.0, is_stream=True)
    assert health.state == "closed" and admits(health, 0.0) == (True, True)


def test_target_that_was_silent_is_probed_instead_of_tried():
    health = failing(1, can_probe=True, is_silent=True)
    assert not health.admit(LATER, is_last_resort=False)
    assert health.begin_probe(LATER, SILENCE)
    assert not health.begin_probe(LATER, SILENCE)  # one at a time
    assert health.report_probe(LATER + 0.1, is_answered=True) == []
    assert health.state == "closed"


@pytest.mark.finding("OP2")
def test_answered_probe_admits_a_trial_after_a_timeout_of_the_model():
    """A server whose model is stuck still answers probes."""
    health = new_health(can_probe=True)
    health.fail(0.0, 0.0, is_silent=True, is_timeout=True)
    assert health.begin_probe(LATER, SILENCE)
    health.report_probe(LATER, is_answered=True)
    assert [health.admit(LATER, is_last_resort=False) for _ in range(80)] == [True] + [False] * 79
    assert health.admit(LATER, is_last_resort=True)  # nothing else is left
    assert health.begin_probe(LATER + SLOW_TRIAL, SILENCE)
    health.report_probe(LATER + SLOW_TRIAL, is_answered=True)
    assert health.state == "half-open"
    assert not health.begin_probe(LATER + SLOW_TRIAL + 0.1, SILENCE)
    health.succeed(LATER + TRIAL_SECONDS, LATER)
    assert health.state == "closed" and health.is_healthy


@pytest.mark.finding("OP5")
@pytest.mark.parametrize("can_probe", [True, False])
@pytest.mark.parametrize("succeeds", [True, False])
def test_slow_trial_passes_once_without_a_success(can_probe, succeeds):
    """A proxy that needs a minute for its status 504 must not get all requests of this minute, again and again."""
    health, now, states = failing(FAILURE_LIMIT, can_probe=can_probe), 0.0, []
    for _ in range(3):
        now += LATER
        assert health.admit(now, is_last_resort=False)
        if health.begin_probe(now + SLOW_TRIAL, SILENCE):
            health.report_probe(now + SLOW_TRIAL, is_answered=True)
        health.admit(now + TRIAL_SECONDS, is_last_resort=False)
        states.append(health.state)
        if succeeds:
            health.succeed(now + 20.0, now)
            assert health.is_healthy
        now += 60.0
        health.fail(now, now - 60.0 + TRIAL_SECONDS)
    assert states == (["closed"] * 3 if succeeds else ["closed", "half-open", "half-open"])


def test_answered_probe_is_enough_after_an_unanswered_probe():
    health = new_health(can_probe=True)
    health.fail(0.0, 0.0, is_silent=True, is_timeout=True)
    health.is_limited = True
    for moment, is_answered in ((LATER, False), (2 * LATER + 5.0, True)):
        assert health.begin_probe(moment, SILENCE)
        health.report_probe(moment + 0.1, is_answered=is_answered)
    assert health.state == "closed"
    assert not health.is_limited


@pytest.mark.finding("OP10")
@pytest.mark.parametrize("processes", [1, 2, 4, 8])
@pytest.mark.parametrize("is_last_resort", [True, False])
def test_several_processes_together_send_few_trials(processes, is_last_resort):
    targets = [TargetHealth(COOLDOWN, random=Random(number)) for number in range(processes)]
    for health in targets:
        health.processes = processes
        for _ in range(FAILURE_LIMIT):
            health.fail(0.0, 0.0)
    trials = 0
    for tick in range(10_000):  # 100 seconds
        for health in targets:
            if health.admit(tick / 100, is_last_resort=is_last_resort):
                trials += 1
                health.fail(tick / 100, tick / 100)
    assert trials <= 100 * 2 if is_last_resort else trials <= 100


def test_slow_trial_ends_with_an_answered_probe():
    health = failing(FAILURE_LIMIT, can_probe=True)
    health.admit(LATER, is_last_resort=False)
    assert not health.begin_probe(LATER + SLOW_TRIAL - 0.1, SILENCE)
    assert health.begin_probe(LATER + SLOW_TRIAL, SILENCE)
    health.report_probe(LATER + SLOW_TRIAL + 0.1, is_answered=True)
    assert health.state == "closed"


def test_no_other_trial_is_sent_while_a_probe_has_no_answer():
    health = failing(FAILURE_LIMIT, can_probe=True)
    health.admit(LATER, is_last_resort=False)
    assert health.begin_probe(LATER + SLOW_TRIAL, SILENCE)
    assert not health.admit(LATER + TRIAL_SECONDS, is_last_resort=False)


def test_slow_trial_passes_where_no_probe_is_possible():
    health = failing(FAILURE_LIMIT)
    health.admit(LATER, is_last_resort=False)
    assert not health.admit(LATER + TRIAL_SECONDS - 0.1, is_last_resort=False)
    assert health.admit(LATER + TRIAL_SECONDS, is_last_resort=False)
    assert health.state == "closed"


@pytest.mark.finding("OP2")
def test_target_hangs_if_nothing_comes_and_a_probe_is_not_answered():
    health = new_health(can_probe=True)
    health.begin_wait("a", 0.0)
    health.begin_wait("b", 20.0)
    assert not health.begin_probe(SILENCE - 0.1, SILENCE)
    assert health.begin_probe(SILENCE, SILENCE)
    assert health.report_probe(SILENCE + 5, is_answered=False) == ["a", "b"]
    assert health.state == "open" and not health.is_waiting


@pytest.mark.finding("OP2")
@pytest.mark.parametrize("sign", ["byte", "probe"])
def test_sign_of_life_delays_the_next_probe(sign):
    health = new_health(can_probe=True)
    health.begin_wait("slow whole answer", 0.0)
    if sign == "byte":
        health.is_heard = True
        assert not health.begin_probe(SILENCE, SILENCE)
    else:
        assert health.begin_probe(SILENCE, SILENCE)
        assert health.report_probe(SILENCE, is_answered=True) == []
    assert not health.begin_probe(2 * SILENCE - 0.1, SILENCE)
    assert health.begin_probe(2 * SILENCE, SILENCE)
    assert health.state == "closed"


@pytest.mark.finding("OP2")
def test_byte_during_a_probe_is_an_answer():
    """A server that is busy with whole answers may be slow to list its models."""
    health = new_health(can_probe=True)
    health.begin_wait("slow whole answer", 0.0)
    assert health.begin_probe(SILENCE, SILENCE)
    health.is_heard = True
    assert not health.begin_probe(SILENCE + 1, SILENCE)  # as a timer asks every second
    assert health.report_probe(SILENCE + 5, is_answered=False) == []
    assert health.state == "closed" and health.is_waiting


@pytest.mark.finding("OP10")
@pytest.mark.parametrize("can_probe", [True, False])
def test_trial_that_was_not_sent_closes_nothing(can_probe):
    health = failing(FAILURE_LIMIT, can_probe=can_probe)
    assert health.admit(LATER, is_last_resort=False)
    health.release_trial(LATER - 1)  # of another request
    assert not health.admit(LATER, is_last_resort=False)
    health.release_trial(LATER)
    assert health.admit(LATER, is_last_resort=False)
    health.release_trial(LATER)
    assert not health.begin_probe(LATER + SLOW_TRIAL, SILENCE)
    assert health.admit(LATER + TRIAL_SECONDS, is_last_resort=False)  # as another trial
    assert health.state == "half-open"


@pytest.mark.finding("OP2")
@pytest.mark.parametrize("succeeds", [True, False])
def test_outcome_of_a_trial_counts_after_later_trials(succeeds):
    """Whole answers, and timeouts of stuck models, take longer than the interval of trials."""
    health = new_health(can_probe=True)
    health.fail(0.0, 0.0, is_silent=True, is_timeout=True)
    assert health.begin_probe(LATER, SILENCE)
    health.report_probe(LATER, is_answered=True)
    trials = [LATER + number * TRIAL_SECONDS for number in range(5)]
    assert all(health.admit(moment, is_last_resort=False) for moment in trials)
    if succeeds:
        health.succeed(LATER + 21.0, trials[0])
        assert health.is_healthy
    else:
        health.fail(LATER + 30.0, trials[0], is_timeout=True)
        assert health.state == "cooling"


@pytest.mark.finding("OP2")
@pytest.mark.parametrize("is_shared", [True, False])
def test_waiting_requests_are_released_during_a_cooldown_too(is_shared):
    health = new_health(can_probe=True)
    health.begin_wait("a", 0.0)
    if is_shared:
        health.share_cooldown(SILENCE - 1.0, COOLDOWN)
    else:
        health.fail(SILENCE - 1.0, 0.0)
    assert health.begin_probe(SILENCE, SILENCE)
    assert health.state == "cooling"
    assert health.report_probe(SILENCE, is_answered=True) == []
    assert health.state == "cooling"  # slow answers do not shorten the cooldown
    assert health.begin_probe(2 * SILENCE, SILENCE)
    assert health.report_probe(2 * SILENCE + 5.0, is_answered=False) == ["a"]


def test_silence_counts_only_while_requests_wait():
    health = new_health(can_probe=True)
    assert not health.begin_probe(1000.0, SILENCE)
    health.begin_wait("a", 1000.0)
    assert not health.begin_probe(1001.0, SILENCE)
    health.end_wait("a")
    assert not health.begin_probe(2000.0, SILENCE)


@pytest.mark.finding("OP2")
def test_repeated_departures_from_a_silent_stream_start_a_cooldown():
    health = new_health()
    for number in range(DEPARTURES):
        assert health.state == "closed"
        health.depart(number + 5.0, number, is_stream=True)
    assert health.state == "cooling"
    for number in range(10 * DEPARTURES):
        health.depart(number + 20.0, number + 15.0, is_stream=True)
    assert health.state == "cooling"  # departures alone never refuse a target to everyone


@pytest.mark.finding("OP2")
def test_departures_from_whole_answers_need_a_probe():
    health = new_health(can_probe=True)
    health.begin_wait("another request", 0.0)
    for number in range(DEPARTURES):
        assert not health.begin_probe(number + 4.0, SILENCE)
        health.depart(number + 5.0, number, is_stream=False)
    assert health.state == "closed"
    assert health.begin_probe(9.0, SILENCE)
    assert health.report_probe(14.0, is_answered=False) == ["another request"]


@pytest.mark.finding("OP2")
@pytest.mark.parametrize("reason", ["impatient", "byte in between"])
def test_impatient_clients_do_not_harm_a_target(reason):
    health = new_health(can_probe=True)
    for number in range(100):
        sent_at = 10.0 * number
        health.is_heard = reason == "byte in between"
        health.depart(sent_at + (MIN_WAIT / 2 if reason == "impatient" else 9.0), sent_at, is_stream=number % 2 == 0)
        assert health.state == "closed"
        assert not health.begin_probe(sent_at + 9.5, SILENCE)


@pytest.mark.finding("OP5")
def test_retries_are_a_share_of_the_traffic_and_a_few_a_second():
    budget = RetryBudget(0.2)
    allowed = 0
    for number in range(6000):  # 100 requests a second for a minute, and every request fails
        budget.requests += 1
        allowed += budget.take(number / 100)
    assert 0.2 * 6000 <= allowed <= 0.2 * 6000 + 3 * 60 + 31
    assert budget.refused == 6000 - allowed
    quiet = RetryBudget(0.0)
    assert sum(quiet.take(0.0) for _ in range(100)) == 30
    assert [quiet.take(1.0) for _ in range(4)] == [True, True, True, False]
    workers = [RetryBudget(0.0) for _ in range(8)]
    for budget in workers:
        budget.processes = 8
    assert sum(budget.take(second) for second in range(60) for budget in workers for _ in range(9)) <= 30 + 3 * 60 + 8


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "admit",
                "last resort",
                "fail",
                "silent",
                "timeout",
                "demand",
                "succeed",
                "depart",
                "byte",
                "probe",
                "dead",
            ]
        ),
        st.floats(0.0, 4.0),
    ),
    max_size=120,
)


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(EVENTS, st.booleans())
def test_any_history_keeps_the_rules(events, can_probe):
    """At most two trials a second; a target is never lost for longer than a cooldown; only outcomes change a state."""
    health, now, trials, is_probing = new_health(can_probe=can_probe), 0.0, [], False
    for event, elapsed in events:
        now += elapsed
        before = health.state
        if event in ("admit", "last resort"):
            is_admitted = health.admit(now, is_last_resort=event == "last resort")
            assert is_admitted or before != "closed"
            if is_admitted and before == "open":
                assert health.state == "half-open"
            if health.state == "half-open" and before != "half-open":
                trials.append(now)
        elif event in ("fail", "silent", "timeout", "demand"):
            retry_after, is_silent = 900.0 if event == "demand" else None, event in ("silent", "timeout")
            health.fail(now, now, is_silent=is_silent, is_timeout=event == "timeout", retry_after=retry_after)
            assert health.state in ("cooling", "open")
        elif event == "succeed":
            health.succeed(now, now)
            assert health.state == "closed"
        elif event == "depart":
            health.depart(now, now - 3.0, is_stream=True)
            assert health.state != "open" or before == "open"
        elif event == "byte":
            health.is_heard = True
        elif is_probing or health.begin_probe(now, SILENCE):
            health.report_probe(now, is_answered=event == "probe")
    for first, third in zip(trials, trials[2:], strict=False):
        assert third - first >= 0.9
    end = now + MAX_COOLDOWN * 1.1 + TRIAL_SECONDS
    assert health.admit(end, is_last_resort=False) or health.begin_probe(end, SILENCE)
