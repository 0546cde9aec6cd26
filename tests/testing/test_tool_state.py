"""Fingerprints of the state that calls can change, and the reports of test runs."""

import sqlite3
import time
import types
import uuid
from contextlib import closing
from xml.etree import ElementTree as ET

import pytest

from toolwire.ir import ConfigError
from toolwire.testing import ToolFinding, ToolTestReport, ToolTestResult, ToolTestSettings
from toolwire.testing.tool_tests.checks import reproduction_command, require_checks
from toolwire.testing.tool_tests.report import report_as_json, report_as_junit
from toolwire.testing.tool_tests.state import FrozenState, defaults_state, files_state, module_state


def test_state_of_a_module_changes_with_its_variables():
    module = types.ModuleType("sample")
    module.LOG = []
    before = module_state(module, [])
    module.LOG.append("entry")
    assert module_state(module, []) != before


def test_order_of_keys_times_and_random_ids_are_no_state():
    freeze = FrozenState().freeze
    first = {"a": 1, "at": time.time(), "id": str(uuid.uuid4()), "on": "2026-01-02T03:04:05Z"}
    second = {"on": "2027-01-02T03:04:06Z", "id": str(uuid.uuid4()), "at": time.time() + 5, "a": 1}
    assert freeze(first) == freeze(second)
    assert freeze({"a": 1}) != freeze({"a": 2})


def test_cyclic_and_failing_objects_are_frozen():
    class Hostile:
        @property
        def __dict__(self):
            raise RuntimeError

    cycle = []
    cycle.append(cycle)
    assert FrozenState().freeze([cycle, Hostile()])


def test_rows_of_a_database_are_state():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t (x)")
        before = FrozenState().freeze(connection)
        connection.execute("insert into t values (1)")
        assert FrozenState().freeze(connection) != before


def test_changed_default_is_noticed():
    def collect(item, items=[]):
        items.append(item)

    before = defaults_state(collect)
    collect(1)
    assert defaults_state(collect) != before


def test_files_are_state_by_their_content(tmp_path):
    file = tmp_path / "ledger.txt"
    file.write_text("one")
    before = files_state([str(tmp_path)])
    file.write_text("one")
    assert files_state([str(tmp_path)]) == before
    file.write_text("two")
    assert files_state([str(tmp_path)]) != before


REPORT = ToolTestReport(
    "tools.py",
    "functions",
    0,
    (
        ToolTestResult("good", "pure", 10),
        ToolTestResult("bad", "read", 10, (ToolFinding("bad", "crash", "boom \x1b[31m"),)),
        ToolTestResult("skipped", "write", skipped="effect write"),
    ),
)


def test_json_report_states_the_result_of_every_tool():
    document = report_as_json(REPORT)
    assert [result["passed"] for result in document["results"]] == [True, False, False]
    assert document["total"] == 1


def test_junit_report_is_valid_xml_with_failures():
    suite = ET.fromstring(report_as_junit(REPORT))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    failure = suite.find("testcase[@name='bad']/failure")
    assert failure.get("type") == "crash"
    assert "\x1b" not in failure.get("message")


def test_reproduction_is_a_copyable_command():
    finding = ToolFinding("bad", "crash", "", {"text": "it's \x07"})
    command = reproduction_command(["my tools.py"], finding, ToolTestSettings(include_writes=True))
    assert command.startswith("toolwire test 'my tools.py' --tool bad --include-writes --arguments ")
    assert command.isprintable()
    long = reproduction_command(
        ["t.py"], ToolFinding("bad", "crash", "", {"text": "x" * 9000}), ToolTestSettings(seed=3)
    )
    assert long == "toolwire test t.py --tool bad --seed 3 --cases 60"


def test_unknown_check_and_limits_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'crash"):
        require_checks(("crahs",))
    with pytest.raises(ConfigError, match="timeout must be positive, got 0"):
        ToolTestSettings(timeout=0)
