"""Recorded exchanges as scripts: replay the answers of a real provider to the code under test.

trace = load_trace("tests/traces/two-calls.json")
async with Upstream(*script_of(trace)) as upstream:
    … send the request of trace.ingress to upstream.url
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from ..gateway.observe.redact import REMOVED
from ..gateway.observe.trace import RecordedAnswer, Trace, load_recording
from .upstream import PartialReply, Recorded, ScriptedReply

__all__ = ["Trace", "load_trace", "script_of"]

_CONNECTION_HEADERS = frozenset({"content-length", "transfer-encoding", "content-encoding", "connection", "keep-alive"})


def load_trace(path: str | Path) -> Trace:
    """Load a file of `toolwire trace record`; raise ConfigError for any other file."""
    return load_recording(Path(path))


def script_of(trace: Trace, *, in_time: bool = False) -> list[ScriptedReply]:
    """Return the answers of the upstreams, in order and with their chunking; `in_time` also keeps their pauses."""
    return [_make_reply(one.answer, one.ms, in_time=in_time) for one in trace.upstreams if one.answer is not None]


def _make_reply(answer: RecordedAnswer, began: float, *, in_time: bool) -> ScriptedReply:
    """Build the scripted reply for a recorded answer; status 0 means that no answer arrived.

    Headers of the connection are left out, because the test server sets its own.
    """
    if not answer.status:
        return PartialReply(then="stall" if (answer.error or "").startswith("Timeout") else "reset")
    headers = {
        name: value for name, value in answer.headers.items() if name not in _CONNECTION_HEADERS and value != REMOVED
    }
    times = [began, *(piece.ms for piece in answer.pieces)]
    waits = [(after - before) / 1000 if in_time else 0.0 for before, after in pairwise(times)]
    pieces = [(wait, piece.data) for wait, piece in zip(waits, answer.pieces, strict=True)]
    return Recorded(tuple(pieces or [(0.0, answer.data)]), answer.status, headers)
