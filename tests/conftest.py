"""What all tests share: the requests that real clients sent, and a seed for hypothesis that CI can repeat."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from recordings import RECORDED, Recorded
from toolwire.net import blocking
from toolwire.testing import Upstream
from virtual_time import VirtualTimeLoop
from waiting import SAFETY

# The same examples in every run; EXPLORE=1 looks for new ones, and more of them.
_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, **_QUIET)
settings.register_profile("explore", max_examples=1000, **_QUIET)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "fixed")

# A shell starts background jobs with SIGINT ignored, and child processes inherit that: Ctrl-C would have no effect.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A scripted provider that waits for a request or a disconnect gives up by itself only where a test hangs.
for _waits in (Upstream.wait_for_requests, Upstream.disconnected):
    _waits.__kwdefaults__["within"] = SAFETY


@pytest.fixture(params=RECORDED, ids=repr)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return request.param


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every event loop of the test, also those that the package makes, a clock of its own."""
    monkeypatch.setattr(asyncio.events, "new_event_loop", VirtualTimeLoop)
    monkeypatch.setattr(asyncio, "new_event_loop", VirtualTimeLoop)
    loops: list[Any] = []
    monkeypatch.setattr(blocking, "_loops", loops)
    yield
    for background in loops:
        background.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `full` what `make test` leaves out of expensive parametrisations.

    Strides are prime, so that the selection does not always meet the same value of an inner parameter.
    """
    numbers: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("one_in")
        if marker is not None:
            function = item.nodeid.partition("[")[0]
            if numbers[function] % marker.args[0]:
                item.add_marker(pytest.mark.full)
            numbers[function] += 1
