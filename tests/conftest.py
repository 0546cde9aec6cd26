"""What all tests share: the requests that real clients sent, and a seed for hypothesis that CI can repeat."""

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import tables
from recordings import RECORDED, Recorded
from toolwire.net import threads as blocking
from toolwire.testing import Upstream
from virtual_time import VirtualTimeLoop
from waiting import SAFETY

# Every run has the same random examples: 30 of each property in `make test`, else 100. EXPLORE=1 draws 1,000 new ones.
_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("few", derandomize=True, max_examples=30, **_QUIET)
settings.register_profile("fixed", derandomize=True, **_QUIET)
settings.register_profile("explore", max_examples=1000, **_QUIET)

# A shell starts background jobs with SIGINT ignored, and child processes inherit that: Ctrl-C would have no effect.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The package would fit tables to this width. xdist sets it for its workers. GNU readline, which pytest imports if it captures
# output in this process, sets it to the terminal's width, but only in the environment of child processes.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

# No test verifies a certificate of the internet, and every client of an SDK loads all of the system's: 30 ms of CPU.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "fixtures" / "tls" / "client.pem")

# The test processes share the cores. Threads of a matrix product spin while they wait for a core: three quarters of its CPU.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

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


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of random examples before the test modules are imported."""
    tables.selects = config.getoption("markexpr") == "not full"
    settings.load_profile("explore" if os.environ.get("EXPLORE") else "few" if tables.selects else "fixed")
    if not os.environ.get("EXPLORE"):
        # It also draws constants of the modules that are imported so far: other examples after each change of a module,
        # and in each order of the tests. Reading them takes seconds in every process.
        providers._get_local_constants = lambda: providers._local_constants
    gc.disable()  # until everything is collected: nothing of it is garbage


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make no tests of expensive parametrisations that `make test` leaves out. Else they are marked as `full`.

    Strides are prime, so that the selection does not always meet the same value of an inner parameter.
    """
    yield
    marker = metafunc.definition.get_closest_marker("one_in")
    stride = marker.args[0] if marker else 1
    calls = metafunc._calls  # pytest has no public way to leave out a combination of several parametrisations
    if tables.selects:
        calls[:] = [call for call in calls[::stride] if pytest.mark.full.mark not in call.marks] or calls[:1]
    else:
        for number, call in enumerate(calls):
            if number % stride:
                call.marks.append(pytest.mark.full.mark)


def pytest_collection_finish() -> None:
    """Leave the collected tests, several 100,000 objects, out of all later garbage collections."""
    gc.enable()
    gc.freeze()
