"""The README: claim, picture and entries in this order, figures of bench/RESULTS.md, and every extra."""

import re
import tomllib

import pytest

from doc_blocks import FENCE
from places import ROOT
from tables import every_case

README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "bench/RESULTS.md").read_text(encoding="utf-8")
FIGURES = README.partition("\n## Figures\n")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in FIGURES.splitlines() if line.startswith("| ")][1:]
# For each figure: the section of RESULTS.md, the beginnings of its rows, the names in the README and in these rows, and the cell.
GATEWAY = {
    "toolwire": "toolwire",
    "LiteLLM": "litellm",
    "Portkey": "portkey",
    "llm-rosetta": "llm-rosetta",
    "TensorZero": "tensorzero",
    "9router": "9router",
    "OmniRoute": "omniroute",
    "nginx": "nginx",
}
GATEWAY_MEDIAN = r"(?:\S+ \()?([\d.,]+)(?:\)| \()"  # before its interval, or in parentheses after the best round
MCP = {name: name for name in ("toolwire", "mcp SDK", "FastMCP")}
SCHEMAS = {"toolwire": "toolwire", "PydanticAI": "PydanticAI", "openai-agents": "openai-agents", "openai": "openai "}
REPAIR = {"toolwire": "toolwire safe", "BAML": "BAML 0.226.3, classes", "json_repair": "json_repair 0.64.2 |"}
SOURCES = [
    ("The gateway (", "", GATEWAY, 3, GATEWAY_MEDIAN),
    ("The gateway (", "", GATEWAY, 1, GATEWAY_MEDIAN),
    ("Serve a call over MCP", "HTTP, 2026-07-28 | ", MCP, 4, r"(\S+)"),
    ("Serve a call over MCP", "stdio, 2026-07-28 | ", MCP, 4, r"(\S+)"),
    ("Fit a schema to a provider", "openai_strict | ", SCHEMAS, 2, r"(\S+)"),
    ("Repair arguments", "", REPAIR, 4, r"(\S+)"),
]


def values(row):
    """Return the figures of a row of the README, by name."""
    found = {"toolwire": re.match(r"[\d.,]+", row[1])[0]}
    for part in row[2].split("; "):
        name, _, value = part.rpartition(" ")
        found[name] = value
    return found


@every_case(("row", "source"), list(zip(ROWS, SOURCES, strict=True)), ids=lambda case: str(case)[:40])
def test_figure_of_the_readme_is_the_median_of_the_results(row, source):
    section, prefix, names, cell, pattern = source
    text = RESULTS.partition(f"\n## {section}")[2].partition("\n## ")[0]
    assert text
    for name, value in values(row).items():
        line = next(line for line in text.splitlines() if line.startswith(f"| {prefix}{names[name]}"))
        assert re.search(pattern, line.split("|")[cell + 1])[1] == value, (name, line)


@pytest.mark.finding("NU8")
def test_readme_has_six_figures():
    assert len(ROWS) == 6


@pytest.mark.finding("NU8")
def test_readme_starts_with_the_claim_the_picture_and_short_quickstarts():
    head = README.partition("\n## ")[0]
    assert "Write a tool once; call it from any model, over any wire." in head
    assert "A *wire* is" in head
    assert "](docs/pictures/one-call.svg)" in head
    section = README.partition("## Quickstarts")[2].partition("\n## ")[0]
    quickstarts = section.split("\n**")[1:]
    assert [quickstart.partition("**")[0] for quickstart in quickstarts] == [
        "Run any program on any model",
        "Library",
        "Gateway",
        "MCP",
    ]
    for quickstart in quickstarts:
        code = [block for language, _, block in FENCE.findall(quickstart) if language != "text"]
        assert 0 < sum(bool(line.strip()) for block in code for line in block.splitlines()) < 10


def test_readme_names_every_extra():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    table = README.partition("\n| extra | for |")[2].partition("\n\n")[0]
    assert set(
        re.findall(
            r"`([a-z]+)`(?=[, |])",
            "\n".join(line.split("|")[1] + "|" for line in table.splitlines() if line.count("|") > 2),
        )
    ) == set(extras)
