"""The pytest plugin: fixtures for models, servers, recordings and stores, and readable differences of values.

It is loaded by the entry point `pytest11` in every test run of an environment with toolwire, so it imports nothing else
of toolwire until a test uses a fixture. All names have the prefix `toolwire_`, so that they cannot clash.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..net.model.interface import Model
    from ..run.values.records import Store
    from .models import ScriptedModel
    from .servers import BackgroundGateway
    from .upstream import Upstream

__all__: list[str] = []

_MAX_NAME = 100  # characters of the name of a recording
_PASSED = pytest.StashKey[bool]()
_WRITERS = pytest.StashKey[dict[str, str]]()
"""The test that writes a recording, by the path of the recording."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("toolwire")
    group.addoption(
        "--toolwire-record",
        action="store_true",
        default=False,
        help="send the requests of toolwire_recording to the real models, and write the recordings",
    )


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show the different lines of two canonical values. Without toolwire in the test, nothing is imported.

    Return None for other comparisons.
    """
    values = sys.modules.get("toolwire.ir.value")
    if op != "==" or values is None or not (isinstance(left, values.Value) and isinstance(right, values.Value)):
        return None
    from .assertions import difference_lines

    lines = difference_lines(right, left)
    kinds = f"{type(left).__name__} == {type(right).__name__}"
    return [kinds, "(- right, + left)", *lines] if lines else [kinds, "equal as JSON; they differ in form only"]


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note whether a test has passed, for the end of its fixtures. A skipped test and an expected failure have not."""
    made: Any = yield
    report: pytest.TestReport = made.get_result()
    if call.when == "call":
        item.stash[_PASSED] = report.passed and not hasattr(report, "wasxfail")


def _has_passed(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.stash.get(_PASSED, False))


@pytest.fixture
def toolwire_model(request: pytest.FixtureRequest) -> Iterator[Callable[..., ScriptedModel]]:
    """Make models with scripted answers: `toolwire_model(says(ToolCall(…)), "the text of the second answer")`.

    An answer that is not used fails the test.
    """
    from .models import ScriptedModel

    made: list[ScriptedModel] = []

    def make(*lines: Any) -> ScriptedModel:
        made.append(ScriptedModel(lines))
        return made[-1]

    yield make
    for model in made if _has_passed(request) else ():
        model.assert_complete()


@pytest.fixture
def toolwire_upstream() -> Iterator[Callable[..., Upstream]]:
    """Start scripted servers that answer like providers, on every wire: `toolwire_upstream(says("hello")).url`.

    They run in a background thread, so the test may be synchronous. The arguments are passed to `testing.Upstream`.
    """
    from .servers import start_upstream, stop_upstream
    from .upstream import Upstream

    with ExitStack() as stack:

        def start(*script: Any, **options: Any) -> Upstream:
            upstream = Upstream(*script, **options)
            start_upstream(upstream)
            stack.callback(stop_upstream, upstream)
            return upstream

        yield start


@pytest.fixture
def toolwire_gateway() -> Iterator[Callable[..., BackgroundGateway]]:
    """Start gateways: `toolwire_gateway(upstream).url`. The model `anthropic/x` is sent to the upstream in that wire.

    `settings` are the settings of a configuration file, `environment` replaces the variables of the process.
    """
    from .servers import start_gateway

    with ExitStack() as stack:

        def start(*arguments: Any, **options: Any) -> BackgroundGateway:
            gateway = start_gateway(*arguments, **options)
            stack.callback(gateway.stop)
            return gateway

        yield start


@pytest.fixture
def toolwire_store(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Open stores: `toolwire_store()` in memory, `toolwire_store("sqlite")` in a temporary file, or any address."""
    from ..net.stores import open_store

    addresses = {"memory": "memory:", "sqlite": str(tmp_path / "toolwire.db")}
    with ExitStack() as stack:

        def open_one(kind: str = "memory") -> Store:
            store = open_store(addresses.get(kind, kind))
            stack.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def toolwire_recording(request: pytest.FixtureRequest) -> Iterator[Callable[..., Model]]:
    """Make a model with recorded answers: `toolwire_recording("anthropic/claude-sonnet-5")`, or with a model.

    With `--toolwire-record` the requests are sent to the model, and the recording is written if the test passes.
    Otherwise the recording answers, and a request that differs from the recorded one raises ReplayDifference. The files
    are in the folder `recordings` next to the test.
    """
    from .recording import ModelRecorder, ModelReplay

    made: list[ModelRecorder | ModelReplay] = []
    records = bool(request.config.getoption("--toolwire-record"))

    def make(model: str | Model) -> Model:
        path = _recording_path(request.node, len(made))
        if records:
            _claim_recording(request.node, path)
        inner = _make_client(model, has_key=records) if isinstance(model, str) else model
        made.append(ModelRecorder(inner, path) if records else ModelReplay(path, inner))
        return made[-1]

    yield make
    for one in made if _has_passed(request) else ():
        if isinstance(one, ModelRecorder):
            one.save()
        else:
            one.assert_complete()


def _make_client(model: str, *, has_key: bool) -> Model:
    """Make the client of a model; for a replay, which sends nothing, without the key of the user."""
    from ..net.model.client import ModelClient

    return ModelClient(model) if has_key else ModelClient(model, key="unused-in-a-replay")


def _recording_path(node: Any, number: int) -> Path:
    """Return the file of a test: `recordings/MODULE.TEST.jsonl`, with a number for its second model and later ones.

    A name that is cut, or has characters that files should not have, gets a hash, so that no two tests share a file.
    """
    test = node.nodeid.partition("::")[2].replace("::", ".")
    name = re.sub(r"[^\w.-]+", "_", f"{node.path.stem}.{test}", flags=re.ASCII)
    if len(name) > _MAX_NAME or re.search(r"[^\w.\[\]-]", test, re.ASCII):
        name = f"{name[:_MAX_NAME]}.{hashlib.sha256(test.encode()).hexdigest()[:8]}"
    suffix = f".{number + 1}" if number else ""
    return Path(node.path).parent / "recordings" / f"{name}{suffix}.jsonl"


def _claim_recording(node: Any, path: Path) -> None:
    """Fail the test if another test of this run writes the same file."""
    writers = node.session.stash.setdefault(_WRITERS, {})
    key = str(path).casefold()  # some file systems ignore case
    if writers.setdefault(key, node.nodeid) != node.nodeid:
        pytest.fail(f"{path} is the recording of {writers[key]}, too: rename one of the tests", pytrace=False)
