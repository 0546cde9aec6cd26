"""Metrics do not depend on the times at which they are read."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from toolwire.bridge.restoration.repair import CallRepair
from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.observe.request_log import RequestLog
from toolwire.ir.losses import Loss
from toolwire.ir.response import Usage
from toolwire.schema.repair.coercion import RepairStep
from toolwire.schema.validation.validator import Problem

NAMES = st.sampled_from(["a", "b", "c", "d", "long " * 300])
COUNTS = st.none() | st.integers(0, 10**9)
SECONDS = st.integers(0, 700 * 1024).map(lambda number: number / 1024)  # their sums are exact, in any order

LOSSES = st.builds(lambda name: Loss(f"/{name}", name, "dropped", "warning", "…"), NAMES)
REPAIRS = st.builds(
    CallRepair,
    NAMES,
    NAMES,
    st.lists(NAMES.map(RepairStep), max_size=2).map(tuple),
    st.sampled_from([(), (Problem("/a", "type", "…"),)]),
)


def few(values):
    return st.lists(values, max_size=3).map(tuple)


REQUESTS = st.builds(
    RequestLog,
    st.just("id"),
    st.just(0.0),
    st.sampled_from(["anthropic", "openai_chat"]),
    action=st.sampled_from(["generate", "generate", "models", "alive"]),
    model=NAMES,
    upstream=st.sampled_from(["", "u", "v"]),
    status=st.sampled_from([200, 404, 503]),
    error=st.sampled_from([None, None, "server"]),
    attempts=st.integers(0, 3),
    failures=few(st.tuples(st.sampled_from("uv"), st.sampled_from(["timeout", "server"]))),
    seconds=SECONDS,
    first_chunk_seconds=st.none() | SECONDS,
    overhead=SECONDS,
    usage=st.none() | st.builds(Usage, COUNTS, COUNTS, cached=COUNTS, reasoning=COUNTS),
    calls=few(NAMES),
    losses=few(LOSSES),
    repairs=st.just(()) | few(REPAIRS),
    declared_tools=st.sampled_from([0, 0, 9]),
    offered_tools=st.integers(0, 9),
    tool_searches=st.integers(0, 9),
    hosted_runs=st.dictionaries(st.sampled_from(["web_search", "web_fetch"]), st.integers(1, 9)),
    has_begun=st.booleans(),
)


def encoded(metrics):
    return msgspec.msgpack.encode(metrics.snapshot())


@given(st.lists(REQUESTS, max_size=12), st.integers(1, 4))
def test_reading_does_not_change_the_figures(requests, max_values):
    unread, read = Metrics(max_values=max_values), Metrics(max_values=max_values)
    for request_log in requests:
        unread(request_log)
        read(request_log)
        read.snapshot()
    assert encoded(unread) == encoded(read)
