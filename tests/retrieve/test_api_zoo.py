"""The API zoo and the tool lists of real servers, where the data is present."""

import os

import pytest

from places import ROOT
from toolwire.retrieve import ToolIndex, load_api_specs

DATA = ROOT.parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir() and not os.environ.get("CI"), reason="needs ../shared/data")


def test_api_zoo_is_read_except_for_files_that_are_not_json():
    specs = load_api_specs(DATA / "apizoo")
    assert len(specs.tools) > 4_000
    assert {problem.path for problem in specs.problems} == {
        "Gmail_API.json",
        "KubernetesAPI.JSON",
        "KubernetesPodPodTemplateAPI.json",
    }
    zoom = next(file for file in specs.files if file.name == "Zoom_API")
    index = ToolIndex()
    index.add(zoom.tools, server=zoom.name)
    names = [hit.tool.name for hit in index.search("list the registrants of a meeting", 3)]
    assert any("egistrant" in name for name in names)


def test_tool_lists_of_servers_are_read():
    specs = load_api_specs(DATA / "tool_schemas")
    assert len(specs.tools) > 3_000
    assert specs.problems == ()
