"""The pytest plugin: fixtures, recordings and readable differences, used as in a project of a user."""

import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]
# An installation older than the entry point does not load the plugin by itself; loading it twice is an error.
INSTALLED = "toolwire" in entry_points(group="pytest11").names
LOAD = () if INSTALLED else ("-p", "toolwire.testing.pytest_plugin")
# Hypothesis takes half of the time of a start.
PLUGIN = (*LOAD, "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "error")

FIXTURES = '''
import json
import urllib.request

from toolwire import Agent, ToolCall, tool
from toolwire.run import Claim
from toolwire.testing import assert_called, assert_calls, says

@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"rain in {city}"

def test_agent_with_a_scripted_model(toolwire_model):
    model = toolwire_model(says(ToolCall("c1", "get_weather", {"city": "Oslo"})), "It rains.")
    answer = Agent(model, tools=[get_weather]).run_sync("Weather?")
    assert answer.text == "It rains."
    assert assert_called(answer, "get_weather", city="Oslo").id
    assert_calls(answer, ["get_weather"])

def post(url, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)

BODY = {"model": "anthropic/x", "messages": [{"role": "user", "content": "hi"}]}

def test_gateway_in_front_of_an_upstream(toolwire_upstream, toolwire_gateway):
    upstream = toolwire_upstream(says("hello"))
    gateway = toolwire_gateway(upstream)
    answer = post(f"{gateway.url}/v1/chat/completions", BODY)
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert upstream.requests[0].wire == "anthropic"

def test_stores(toolwire_store, tmp_path):
    for kind in ("memory", "sqlite", str(tmp_path / "other.db")):
        claim = Claim(key="k", tool="pay", fingerprint="f", token="a")
        assert toolwire_store(kind).claim(claim).token == "a"
'''


def test_fixtures_work_in_synchronous_tests_with_warnings_as_errors(pytester):
    pytester.makepyfile(test_fixtures=FIXTURES)
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=3)


FAILURES = """
from toolwire import Response, Text, ToolCall
from toolwire.testing import assert_called, assert_calls, assert_same, says

ANSWER = says(ToolCall("c1", "get_weather", {"city": "Paris"}), ToolCall("c2", "send", {}))

def test_called():
    assert_called(ANSWER, "get_weather", city="Oslo")

def test_calls():
    assert_calls(ANSWER, [("get_weather", {"city": "Oslo"}), "send"])

def test_same():
    assert_same(ANSWER, says(ToolCall("c1", "get_weather", {"city": "Oslo"}), ToolCall("c2", "send", {})))

def test_plain_assertion():
    assert says("one") == says("two")

def test_unused_answer(toolwire_model):
    toolwire_model("never asked")
"""


def test_failures_show_readable_differences(pytester):
    pytester.makepyfile(test_failures=FAILURES)
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(failed=4, passed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            'E*get_weather(city="Oslo") was not called; the answer has 2 calls',
            'E*1. get_weather({"city": "Paris"})',
            'E*city: expected "Oslo", got "Paris"',
            'E*- get_weather({"city": "Oslo"})',
            'E*+ get_weather({"city": "Paris"})',
            'E*-*"city": "Oslo"',
            'E*+*"city": "Paris"',
            "E*Response == Response",
            'E*+*"text": "one"',
            "E*unused lines in the script: 1",
        ]
    )


RECORDED = """
import os

from toolwire import Agent, ToolCall, tool
from toolwire.testing import ScriptedModel, assert_called, says

@tool
def get_weather(city: str) -> str:
    "Get the weather of a city."
    return "rain"

def real_model():
    call = ToolCall("c1", "get_weather", {"city": "Oslo"})
    return ScriptedModel([says(call), "It rains. " + os.environ["TEST_API_KEY"]] if os.environ.get("REAL") else [])

def test_weather(toolwire_recording):
    agent = Agent(toolwire_recording(real_model()), tools=[get_weather])
    answer = agent.run_sync(os.environ.get("QUESTION", "Weather in Oslo?"))
    assert_called(answer, "get_weather", city="Oslo")
"""


def test_traffic_is_recorded_without_secrets_and_replayed(pytester, monkeypatch):
    secret = "my-very-secret-value-1"
    monkeypatch.setenv("TEST_API_KEY", secret)
    pytester.makepyfile(test_recorded=RECORDED)
    missing = pytester.runpytest_inprocess(*PLUGIN)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*no recording for this test*", "*--toolwire-record*"])

    monkeypatch.setenv("REAL", "1")
    pytester.runpytest_inprocess(*PLUGIN, "--toolwire-record").assert_outcomes(passed=1)
    (file,) = (pytester.path / "recordings").iterdir()
    assert file.name == "test_recorded.test_weather.jsonl"
    text = file.read_text(encoding="utf-8")
    assert secret not in text and "[removed]" in text
    assert [sorted(json.loads(line)) for line in text.splitlines()[1:]] == [["request", "response"]] * 2

    monkeypatch.delenv("REAL")
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=1)

    monkeypatch.setenv("QUESTION", "Weather in Rome?")
    changed = pytester.runpytest_inprocess(*PLUGIN)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines_random(
        [
            "E*differs from the recording at request 1 of test_recorded.test_weather.jsonl, /messages/0*",
            "E*recorded: *Oslo*",
            "E*replayed: *Rome*",
            "E*record again with --toolwire-record",
        ]
    )


def test_recorded_request_that_is_not_sent_fails_the_test(pytester):
    source = """
from toolwire.testing import ScriptedModel

def test_it(toolwire_recording):
    toolwire_recording(ScriptedModel([]))
"""
    pytester.makepyfile(test_unsent=source)
    folder = pytester.mkdir("recordings")
    response = {"id": "1", "model": "m", "parts": [], "stop": {"reason": "stop"}}
    rows = [{"toolwire_recording": 1}, {"request": {"messages": []}, "response": response}]
    (folder / "test_unsent.test_it.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["E*1 of 1 recorded requests were not sent*"])
    (folder / "test_unsent.test_it.jsonl").write_text("{}")
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.stdout.fnmatch_lines(["E*is not a recording of model traffic*"])


def test_plugin_imports_nothing_until_a_fixture_is_used(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n"
        "def test_other():\n"
        "    loaded = {name for name in sys.modules if name.startswith('toolwire')}\n"
        "    assert loaded <= {'toolwire', 'toolwire._lazy', 'toolwire.testing', 'toolwire.testing.pytest_plugin'}\n"
        "    assert [1] != [2]\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["model", "upstream", "gateway", "store", "recording"])
def test_fixture_names_have_the_prefix(name):
    from toolwire.testing import pytest_plugin

    assert hasattr(pytest_plugin, f"toolwire_{name}") and not hasattr(pytest_plugin, name)
