"""Recorded exchanges and runs for tests: replay the answers of a real provider to the code under test.

trace = load_trace("tests/traces/two-calls.jsonl")
async with Upstream(*script_of(trace)) as upstream:
    … send the request of trace.ingress to upstream.url

await replay_run(load_run("tests/traces/run.jsonl"), agent)     # raises ReplayDifference
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from ..net.trace.file import read_trace
from ..net.trace.replay import load_run, replay_run
from ..run.traces.recordings import ExchangeTrace, RecordedAnswer, RunTrace, exchange_of, piece_bytes
from ..run.traces.redact import REMOVED
from ..run.traces.replay import ReplayDifference
from .upstream import PartialReply, Recorded, ScriptedReply

__all__ = ["ExchangeTrace", "ReplayDifference", "RunTrace", "load_run", "load_trace", "replay_run", "script_of"]

_CONNECTION_HEADERS = frozenset({"content-length", "transfer-encoding", "content-encoding", "connection", "keep-alive"})


def load_trace(path: str | Path) -> ExchangeTrace:
    """Load a file of `toolwire trace record`; raise ConfigError for any other file."""
    header, events = read_trace(Path(path))
    return exchange_of(header, events, Path(path).name)


def script_of(trace: ExchangeTrace, *, in_time: bool = False) -> list[ScriptedReply]:
    """Return the answers of the upstreams, in order and with their chunking; `in_time` also keeps their pauses."""
    return [
        _make_reply(one.answer, one.request.ms, in_time=in_time) for one in trace.upstreams if one.answer is not None
    ]


def _make_reply(answer: RecordedAnswer, began: float, *, in_time: bool) -> ScriptedReply:
    """Build the scripted reply for a recorded answer; status 0 means that no answer arrived.

    Headers of the connection are left out, because the test server sets its own.
    """
    head = answer.head
    if not head.status:
        return PartialReply(then="stall" if (head.error or "").startswith("Timeout") else "reset")
    headers = {
        name: value for name, value in head.headers.items() if name not in _CONNECTION_HEADERS and value != REMOVED
    }
    times = [began, *(piece.ms for piece in answer.pieces)]
    waits = [(after - before) / 1000 if in_time else 0.0 for before, after in pairwise(times)]
    pieces = [(wait, piece_bytes(piece)) for wait, piece in zip(waits, answer.pieces, strict=True)]
    return Recorded(tuple(pieces or [(0.0, answer.data)]), head.status, headers)
