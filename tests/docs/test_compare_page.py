"""docs/compare.md agrees with bench/RESULTS.md, and the public names of peers that it mentions exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT
from run_program import PEERS
from tables import every_case

PAGE = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "bench/RESULTS.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\|(.*)\|(.*)\|(.*)\| \[section\]\(\.\./bench/RESULTS\.md#([\w-]+)\), \[script\]\(\.\./(\S+)\) \|$", re.MULTILINE
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
COLUMNS = ("toolwire", "litellm", "pydantic-ai", "openai-agents")
# A module that needs an extra of its package exists, but cannot be imported.
RESOLVE = """
import importlib.util, pkgutil, sys
for name in sys.argv[1:]:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        assert importlib.util.find_spec(name), name
"""


def section(anchor):
    """Return the text of the section of RESULTS.md with this anchor."""
    for part in RESULTS.split("\n## ")[1:]:
        heading = re.sub(r"[^\w\- ]", "", part.partition("\n")[0].lower()).replace(" ", "-")
        if heading == anchor:
            return part
    raise AssertionError(f"RESULTS.md has no section {anchor}")


def numbers(text):
    return set(NUMBER.findall(text))


@every_case("row", ROW.findall(PAGE), ids=lambda row: row[0].strip())
def test_figure_of_the_comparison_is_in_the_results(row):
    _, ours, peers, anchor, script = row
    assert numbers(ours) | numbers(peers) <= numbers(section(anchor))
    assert (ROOT / script).exists()


def test_all_figures_link_their_section():
    figures = PAGE.partition("## Figures")[2].partition("\n## ")[0]
    rows = [line for line in figures.splitlines() if line.startswith("| ") and not line.startswith("| figure")]
    assert len(rows) == len(ROW.findall(PAGE)) > 15


def test_figures_in_the_text_are_in_the_results():
    text = PAGE.partition("## Better figures of peers")[2].partition("\n## ")[0]
    goals = numbers((ROOT / "bench/README.md").read_text(encoding="utf-8"))
    assert numbers(text) <= numbers(RESULTS) | goals


def named(column):
    """Return the qualified names in a column of the table of features."""
    table = PAGE.partition("## Features")[2]
    cells = [line.split("|")[2 + COLUMNS.index(column)] for line in table.splitlines() if line.startswith("| ")]
    return [name for cell in cells for name in re.findall(r"`(\w+(?:\.\w+)+)`", cell)]


@pytest.mark.parametrize("column", COLUMNS)
def test_public_names_of_the_comparison_exist(column):
    python = Path(sys.executable) if column == "toolwire" else PEERS / column / "bin/python"
    if not python.exists():
        assert "TOOLWIRE_PEERS" not in os.environ, f"{python} does not exist"
        pytest.skip("`make test-peers` creates the environments of the peers")
    found = named(column)
    assert len(found) >= 4
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run([python, "-c", RESOLVE, *found], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-1000:]
