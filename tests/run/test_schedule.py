"""The order of the calls of a turn: a call waits for earlier writes, unless both declare different resources (X1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.ir.parts import ToolCall
from toolwire.ir.tools import Tool
from toolwire.run.calls.schedule import Schedule
from toolwire.run.tools.function_tool import Options
from toolwire.run.tools.toolbox import Entry, Toolbox

EFFECTS = ("pure", "read", "idempotent", "write")
RESOURCES = (None, "a", "b", "c")


def tool_name(effect, resource):
    return f"{effect}_{resource}"


BOX = Toolbox(
    *(
        Entry(Tool(tool_name(effect, resource), effect=effect), print, Options(resource=resource))
        for effect in EFFECTS
        for resource in RESOURCES
    )
)


def make_schedule(*tools, **options):
    schedule = Schedule(BOX, **options)
    for number, (effect, resource) in enumerate(tools):
        schedule.add(ToolCall(str(number), tool_name(effect, resource)))
    return schedule


def must_wait(earlier, later):
    """The rule, as the documentation states it."""
    (effect, resource), (later_effect, later_resource) = earlier, later
    if "pure" in (effect, later_effect):
        return False
    if effect == "read":
        return later_effect != "read" and resource is not None and resource == later_resource
    return resource is None or later_resource is None or resource == later_resource


@pytest.mark.finding("X1")
@every_case(
    ("earlier", "later", "waits"),
    [
        (("write", None), ("read", None), True),
        (("idempotent", None), ("read", None), True),
        (("write", "a"), ("read", None), True),
        (("write", None), ("read", "a"), True),
        (("write", "a"), ("read", "a"), True),
        (("write", "a"), ("read", "b"), False),
        (("write", None), ("pure", None), False),
        (("write", "a"), ("pure", "a"), False),
        (("write", None), ("write", "a"), True),
        (("write", "a"), ("write", "b"), False),
        (("read", None), ("write", None), False),
        (("read", "a"), ("write", "a"), True),
        (("read", None), ("read", None), False),
    ],
)
def test_a_read_after_a_write_waits_unless_both_declare_different_resources(earlier, later, waits):
    assert must_wait(earlier, later) is waits
    schedule = make_schedule(earlier, later)
    assert schedule.take_ready() == ([0] if waits else [0, 1])
    schedule.mark_finished(0)
    assert schedule.take_ready() == ([1] if waits else [])


@pytest.mark.finding("X1")
@given(st.lists(st.tuples(st.sampled_from(EFFECTS), st.sampled_from(RESOURCES)), max_size=24), st.data())
def test_calls_start_as_soon_as_and_not_before_the_rule_allows(tools, data):
    schedule = make_schedule(*tools, max_running=len(tools) + 1)
    started, finished = [], set()
    while len(finished) < len(tools):
        started += schedule.take_ready()
        allowed = {
            later
            for later in range(len(tools))
            if all(not must_wait(tools[earlier], tools[later]) or earlier in finished for earlier in range(later))
        }
        assert set(started) == allowed
        done = data.draw(st.sampled_from(sorted(set(started) - finished)))
        schedule.mark_finished(done)
        finished.add(done)
    assert sorted(started) == list(range(len(tools)))


@given(st.lists(st.tuples(st.sampled_from(EFFECTS), st.sampled_from(RESOURCES)), max_size=24), st.data())
def test_cancelled_calls_never_start_and_later_calls_do(tools, data):
    schedule = make_schedule(*tools, max_running=4)
    started = schedule.take_ready()
    cancelled = schedule.cancel_waiting()
    assert sorted(started + cancelled) == list(range(len(tools)))
    late = schedule.add(ToolCall("late", tool_name("write", None)))
    for number in started:
        schedule.mark_finished(number)
    assert schedule.take_ready() == [late]


@pytest.mark.finding("X1")
def test_a_read_in_a_stream_does_not_start_before_an_earlier_write():
    schedule = make_schedule(("read", None), ("write", None), ("read", None), ("pure", None))
    assert schedule.take_ready(writes=False) == [0, 3]
    schedule.mark_finished(0)
    assert schedule.take_ready(writes=False) == []
    assert schedule.take_ready() == [1]


@pytest.mark.finding("X1")
def test_a_call_with_incomplete_arguments_would_wait_for_a_write():
    schedule = make_schedule(("write", "a"))
    waiting = {name: schedule.would_wait(ToolCall("x", name)) for name in ("read_None", "read_a", "read_b", "pure_a")}
    assert waiting == {"read_None": True, "read_a": True, "read_b": False, "pure_a": False}
    assert schedule.take_ready() == [0]
    schedule.mark_finished(0)
    assert not schedule.would_wait(ToolCall("x", "read_a"))


@pytest.mark.parametrize(
    "period", [("write", "read"), ("write_each", "read"), ("write_each", "write_each", "write", "read")]
)
def test_the_number_of_edges_is_linear(period):
    resource_of = Toolbox(
        Entry(Tool("write_each"), print, Options(resource=lambda arguments: str(arguments["n"]))),
        Entry(Tool("write"), print),
        Entry(Tool("read", effect="read"), print),
    )
    schedule = Schedule(resource_of)
    count = 2000
    for number in range(count):
        schedule.add(ToolCall(str(number), period[number % len(period)], {"n": number}))
    assert sum(node.blockers for node in schedule._nodes) <= 3 * count
