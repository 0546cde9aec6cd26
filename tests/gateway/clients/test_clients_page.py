"""docs/clients-matrix.md is of the agents that `make test-clients` installs, and of all upstreams."""

import json
import runpy

from places import ROOT


def test_clients_matrix_page_matches_the_pinned_versions():
    pinned = json.loads((ROOT / "tests/clients/package.json").read_text("utf-8"))["optionalDependencies"]
    lines = (ROOT / "tests/clients/requirements.txt").read_text("utf-8").split()
    pinned |= dict(line.split("==") for line in lines)
    agents = runpy.run_path(str(ROOT / "tests/clients/agents.py"))["AGENTS"]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs/clients-matrix.md").read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    assert [row[0] for row in rows[1:]] == [f"{agent.name} {pinned[agent.package]}" for agent in agents]
    assert all(row[2:] == ["works"] * 6 for row in rows[1:])
