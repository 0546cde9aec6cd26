"""The silence of an upstream while tools of the gateway run."""

import asyncio
from types import SimpleNamespace

import pytest

from toolwire.asgi.offload import LARGE, ClientOffload, Offload
from toolwire.gateway.answer.attempt import Attempt
from toolwire.gateway.answer.work import AnswerWork


class Steps(list):
    """A delivery, and a request whose tools run: the steps of both, in order."""

    def __init__(self, body, error=None):
        self.body = body
        self.error = error

    def suspend_idle_timeout(self):
        self.append("suspend")

    def note_activity(self):
        self.append("resume")

    has_output = True

    async def write(self, data):
        self.append(data)

    async def run_tools(self):
        self.append("tools")
        if self.error is not None:
            raise self.error
        return self.prepare

    def release_events(self):
        self.append("release")
        return b"run"

    def prepare(self):
        self.append("prepare")
        return self


def run_tools(steps):
    offload = ClientOffload(Offload(), "client")
    work = AnswerWork(None, None, None, None, None, offload, None)
    state = SimpleNamespace(stream_delivery=steps, streamed_bytes=len(steps.body))
    return asyncio.run(Attempt(SimpleNamespace(work=work), state, None, 0.0, 0.0)._run_tools(steps))


@pytest.mark.parametrize("size", [0, LARGE + 1], ids=["at once", "in a thread"])
def test_silence_is_ignored_only_while_tools_run(size):
    """A wait for a thread counts, as it does before the first request of an attempt."""
    steps = Steps(bytes(size))
    assert run_tools(steps) is steps
    assert steps == ["suspend", "tools", "resume", "release", "prepare", b"run"]


def test_silence_counts_again_after_tools_that_failed():
    steps = Steps(b"", ConnectionError())
    with pytest.raises(ConnectionError):
        run_tools(steps)
    assert steps == ["suspend", "tools", "resume"]
