"""The plugin is found by its entry point in an installation, and leaves the tests of other projects alone."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import toolwire
from places import ROOT

USER_TEST = """
from toolwire.testing import assert_called, says
from toolwire import Agent, ToolCall, tool

@tool
def get_weather(city: str) -> str:
    "Get the weather of a city."
    return "rain"

def test_weather(toolwire_model):
    model = toolwire_model(says(ToolCall("c1", "get_weather", {"city": "Oslo"})), "Rain.")
    answer = Agent(model, tools=[get_weather]).run_sync("Weather?")
    assert_called(answer, "get_weather", city="Oslo")
"""
OTHER_TEST = """
import sys

import pytest

@pytest.fixture
def upstream():
    return "the fixture of another project"

def test_other(upstream):
    assert upstream.startswith("the fixture")
    assert "toolwire.testing.pytest_plugin" in sys.modules  # found by the entry point
    assert not [name for name in sys.modules if name.startswith(("toolwire.ir", "toolwire.net", "msgspec"))]
"""


def run_pytest(folder, *options):
    """Run pytest with the entry points of pyproject.toml, as an installer writes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plugins = project["entry-points"]["pytest11"]
    site = folder / "site" / "toolwire_plugin-1.dist-info"
    site.mkdir(parents=True, exist_ok=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: toolwire-plugin\nVersion: 1\n")
    lines = [f"{name} = {module}" for name, module in plugins.items()]
    (site / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    source = str(Path(toolwire.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site.parent), source]), "NO_COLOR": "1"}
    others = ("cacheprovider", "hypothesispytest", "xdist", "xdist.looponfail")  # half of the time of a start
    without = [option for name in others for option in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *without, "--rootdir", str(folder)]
    done = subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_fixtures_are_available_without_configuration(tmp_path):
    (tmp_path / "test_user.py").write_text(USER_TEST)
    assert run_pytest(tmp_path, "test_user.py")[0] == 0


def test_other_projects_are_not_affected(tmp_path):
    (tmp_path / "test_other.py").write_text(OTHER_TEST)
    code, output = run_pytest(tmp_path, "test_other.py")
    assert code == 0, output
    code, output = run_pytest(tmp_path, "--help")
    assert code == 0 and "--toolwire-record" in output


def test_tests_of_the_documentation_pass(tmp_path):
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_page.py").write_text("\n\n".join(blocks))
    code, output = run_pytest(tmp_path)
    assert code == 1 and "no recording for this test" in output and "--toolwire-record" in output
    assert re.search(r"FAILED test_page.py::test_\w*forecast", output) and "1 failed, 2 passed" in output, output


RECORDED_TEST = """
import os

from toolwire import Agent, ModelClient, ToolCall, tool
from toolwire.testing import assert_calls, says

@tool
def get_weather(city: str) -> str:
    "Get the weather of a city."
    return "rain"

def test_stream(toolwire_upstream, toolwire_recording):
    script = [says(ToolCall("c1", "get_weather", {"city": "Oslo"})), says("It rains.")]
    upstream = toolwire_upstream(*script)
    client = ModelClient("anthropic/claude-sonnet-5", base_url=upstream.url, key=os.environ["TEST_API_KEY"])
    agent = Agent(toolwire_recording(client), [get_weather])
    text = "".join(event.text for event in agent.stream_sync("Weather?") if type(event).__name__ == "TextDelta")
    assert text == "It rains."
    assert len(upstream.requests) == (2 if "RECORDING" in os.environ else 0)
"""


def test_http_traffic_of_a_stream_is_recorded_without_the_key_and_replayed(tmp_path, monkeypatch):
    (tmp_path / "test_stream.py").write_text(RECORDED_TEST)
    monkeypatch.setenv("TEST_API_KEY", "sk-ant-0123456789abcdef")
    monkeypatch.setenv("RECORDING", "1")
    code, output = run_pytest(tmp_path, "test_stream.py", "--toolwire-record")
    assert code == 0, output
    (file,) = (tmp_path / "recordings").iterdir()
    text = file.read_text(encoding="utf-8")
    assert "0123456789abcdef" not in text and [len(json.loads(line)) for line in text.splitlines()] == [1, 2, 2]
    monkeypatch.delenv("RECORDING")
    code, output = run_pytest(tmp_path, "test_stream.py")
    assert code == 0, output


PARAMETRISED_TEST = """
import pytest
from toolwire import Agent
from toolwire.testing import ScriptedModel

@pytest.mark.parametrize("model", ["anthropic/claude-x", "bedrock/claude-x", "a b", "a?b", "l" * 120 + "1", "l" * 120 + "2"])
def test_answer(model, toolwire_recording):
    recorded = toolwire_recording(ScriptedModel([f"answer of {model} in MODULE"]))
    assert Agent(recorded).run_sync(f"Ask {model} in MODULE").text == f"answer of {model} in MODULE"
"""


def test_every_test_has_a_recording_of_its_own(tmp_path):
    for module in ("test_a", "test_b"):
        (tmp_path / f"{module}.py").write_text(PARAMETRISED_TEST.replace("MODULE", module))
    code, output = run_pytest(tmp_path, "--toolwire-record")
    assert code == 0, output
    assert len(list((tmp_path / "recordings").iterdir())) == 12
    code, output = run_pytest(tmp_path)
    assert code == 0 and "12 passed" in output, output


UNPASSED_TEST = """
import pytest
from toolwire import Agent
from toolwire.testing import ScriptedModel

def test_skipped(toolwire_model):
    toolwire_model("unused")
    pytest.skip("not today")

@pytest.mark.xfail
def test_expected_failure(toolwire_recording):
    Agent(toolwire_recording(ScriptedModel(["hello"]))).run_sync("hi")
    raise AssertionError

def test_unused(toolwire_model):
    toolwire_model("unused")
"""


def test_only_a_passed_test_is_recorded_and_checked(tmp_path):
    (tmp_path / "test_unpassed.py").write_text(UNPASSED_TEST)
    _, output = run_pytest(tmp_path, "--toolwire-record")
    assert "1 passed, 1 skipped, 1 xfailed, 1 error" in output
    assert "ERROR test_unpassed.py::test_unused" in output
    assert not (tmp_path / "recordings").exists()


def test_two_tests_cannot_write_the_same_recording(tmp_path):
    body = "(toolwire_recording):\n    toolwire_recording(ScriptedModel(['hello']))\n\n"
    names = ("def test_case", "def test_Case")
    text = "from toolwire.testing import ScriptedModel\n\n" + "".join(name + body for name in names)
    (tmp_path / "test_names.py").write_text(text)
    code, output = run_pytest(tmp_path, "--toolwire-record")
    assert code == 1 and "is the recording of test_names.py::test_case, too: rename one of the tests" in output
