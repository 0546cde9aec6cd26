"""A few schedules of each scenario, and what the simulator found; `make test-sim` runs a thousand of each."""

import subprocess
import sys
from pathlib import Path

import pytest

from sim.run import SCENARIOS, replay_command, simulate
from sim.world import World

FEW = {"calls": 12, "runs": 6, "limits": 12, "locks": 4, "failover": 5}  # some seconds together


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Drop thousands of warnings about stores that cannot be reached."""
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_schedules_keep_the_invariants(scenario):
    for seed in range(FEW[scenario]):
        simulate(scenario, seed)


@pytest.mark.parametrize("scenario", ["calls", "runs"])
def test_seed_decides_the_whole_schedule(scenario):
    """Another process with another order of hashes has the same log."""
    program = f"from sim.run import simulate; print(chr(10).join(simulate({scenario!r}, 2)))"
    path = str(Path(__file__).parents[1])
    logs = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", f"import sys; sys.path[:0] = [{path!r}]; {program}"],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]
    assert logs[0] == logs[1] != ""


def test_failure_names_the_command_that_replays_it(monkeypatch):
    from sim import calls

    def fail(seed):
        world = World(seed)

        async def scenario():
            world.note("a step")
            world.fail("an invariant does not hold")

        world.run(scenario())

    monkeypatch.setattr(calls, "simulate", fail)
    with pytest.raises(AssertionError) as raised:
        simulate("calls", 7)
    text = str(raised.value)
    assert "a step" in text
    assert text.endswith(replay_command("calls", 7))
    assert replay_command("calls", 7) == "python tests/sim/run.py --scenario calls --first 7 --seeds 1 --log"
