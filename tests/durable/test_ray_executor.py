"""The executor on a cluster of Ray on this machine: equal results with workers killed, and a report of items that always fail."""

import importlib.util
import os

import pytest

from executor_work import DoomedWork, digest, square
from places import ROOT
from toolwire.durable.ray_executor import RayExecutor
from toolwire.ir.errors import ConfigError
from toolwire.ir.tools import Tool
from toolwire.net.executors import open_results
from toolwire.retrieve import ToolIndex
from toolwire.retrieve.evaluation import LabelledQuery, compare_methods
from toolwire.run.executor import WorkFailed, map_items

ITEMS = range(24)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Start a cluster that all tests use; a busy machine may not start one in two minutes."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "support"), before])
    executor = RayExecutor("local", workers=4)
    import ray

    try:
        assert list(executor.map(square, {0: 3})) == [(0, b"9")]  # it starts and ends a cluster of its own
        ray.init(address="local", include_dashboard=False, num_cpus=4, log_to_driver=False)
    except (ConfigError, OSError, RuntimeError) as error:
        pytest.skip(f"Ray does not start here: {error}")
    assert ray.util.get_node_ip_address() == "127.0.0.1"
    yield
    ray.shutdown()
    os.environ["PYTHONPATH"] = before


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_results_are_equal_with_workers_killed(tmp_path, workers):
    work = DoomedWork(tmp_path, killed_once=[3, 9, 17])
    assert map_items(work, ITEMS, executor=RayExecutor("local", workers=workers)) == [digest(item) for item in ITEMS]
    assert sorted(work.tries()) == sorted(map(str, [*ITEMS, 3, 9, 17]))


def test_item_that_always_fails_or_kills_is_reported_and_the_others_are_done(tmp_path):
    work, results = DoomedWork(tmp_path, killed=[5], failing=[2]), open_results(tmp_path / "results")
    names = [str(item) for item in ITEMS]
    with pytest.raises(WorkFailed) as caught:
        map_items(work, ITEMS, executor=RayExecutor("local", workers=2, attempts=2), results=results, names=names)
    failing, killing = caught.value.failures
    assert (failing.number, failing.fault.reason) == (2, "ValueError: no answer to 2")
    assert (killing.number, killing.attempts) == (5, 2)
    assert killing.fault.reason.startswith("the worker of Ray was lost: ")
    assert len(list((tmp_path / "results").iterdir())) == len(ITEMS) - 2


def test_evaluation_of_a_search_is_equal_on_the_cluster():
    index = ToolIndex()
    index.add(Tool(f"tool_{number}", f"{'read' if number % 2 else 'write'} the file {number}") for number in range(40))
    queries = [LabelledQuery(f"write file {number}", (f"tool_{number}",)) for number in range(40)]
    expected = compare_methods(index, queries)
    assert compare_methods(index, queries, executor=RayExecutor("local", workers=2)) == expected


def test_local_function_is_refused():
    with pytest.raises(ConfigError, match="function cannot be sent to other processes"):
        map_items(lambda item: b"", [1], executor=RayExecutor("local", workers=1))


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="workers must be positive, got 0"):
        RayExecutor("local", workers=0)
