"""The plugin is found by its entry point in an installation, and leaves the tests of other projects alone."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import toolwire

ROOT = Path(__file__).parents[2]
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
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(folder)]
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
