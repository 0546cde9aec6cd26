"""Pages of experiments: each is written from committed results, which name no path of a machine."""

import json
import re
import sys

import pytest

from places import ROOT
from tables import every_case

sys.path.append(str(ROOT / "bench"))
sys.path.append(str(ROOT / "bench/tool_calls"))

import tool_calls_page

import learn_sft
import learn_toolformer_report
import learn_toolken_page

FOLDER = ROOT / "docs/experiments"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
RESULTS = [*FOLDER.glob("*.*"), *(ROOT / "bench").rglob("*.json"), ROOT / "bench/RESULTS.md"]
WRITERS = {
    "fine-tuning": lambda: learn_sft.page_text(read("fine-tuning")),
    "toolformer": lambda: learn_toolformer_report.page_text(read("toolformer"), read("toolformer-tools")),
    "tool-calls": lambda: tool_calls_page.page_text(read("tool-calls")),
    "toolkengpt": lambda: learn_toolken_page.page_text(read("toolkengpt"), read("toolkengpt-baselines")),
}
# An absolute path, a home folder, or a drive. A URL, a fraction and a closing tag contain a slash as well, so a path needs
# two parts, and no letter, digit, colon or other slash before the first.
MACHINE_PATH = re.compile(r"(?<![\w.:/<)\]*-])(?:/[\w.-]+){2,}|~[\w-]*/\w|\b[A-Za-z]:[\\/]{1,2}\w")


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def machine_paths(path):
    """Return the paths in a file; for a picture, those of its metadata and labels."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".svg":
        text = re.sub(r'xmlns:?\w*="[^"]*"|\bd="[^"]*"|https?://\S+|"-//[^"]*"', "", text)
    return MACHINE_PATH.findall(text)


@every_case("page", PAGES)
def test_page_is_written_from_its_committed_results(page):
    assert (FOLDER / f"{page}.md").read_text(encoding="utf-8") == WRITERS[page]()


@every_case("page", PAGES)
def test_page_names_its_results(page):
    assert f"({page}.json)" in (FOLDER / f"{page}.md").read_text(encoding="utf-8")


@every_case("path", RESULTS, ids=lambda path: path.name)
def test_results_name_no_path_of_a_machine(path):
    assert machine_paths(path) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "/tmp/g/model"}',
        "ran in `/home/ann/runs`",
        "~/models/a.gguf",
        "~ann/models",
        r'"C:\\models"',
        "(/opt/x)",
    ],
)
def test_path_of_a_machine_is_found(text, tmp_path):
    file = tmp_path / "results.json"
    file.write_text(text, encoding="utf-8")
    assert machine_paths(file)


@pytest.mark.parametrize(
    "text", ["https://a.org/b/c", "1/2", "docs/experiments/x.json", "../toolformer.md", "85.7 / 96.1"]
)
def test_other_slashes_are_no_path(text, tmp_path):
    file = tmp_path / "results.md"
    file.write_text(text, encoding="utf-8")
    assert machine_paths(file) == []


def test_another_run_replaces_the_figures():
    """The page of a run, from a results file in the form that bench/learn_toolformer.py writes."""
    measured = {"calls": 10, "right calls": 0.5, "accuracy": 0.25, "problems": 20}
    variant = {"calls": 7, "right": 0.5, "svamp": measured, "arithmetic": {**measured, "accuracy": 0.75}}
    other = {**variant, "arithmetic": {**measured, "accuracy": 0.5}}
    kept = read("toolformer")
    results = {name: kept[name] for name in ("mined", "precision", "throughput")}
    results |= {"variant enabled 0": variant, "variant enabled 1": other}
    page = learn_toolformer_report.page_text(learn_toolformer_report.summarise(results), read("toolformer-tools"))
    assert "filter `paper` | 2 | 7 | 50.0 % | 25.0 % | 62.5 % (50.0–75.0) | 50.0 % | 50.0 % |" in page
    assert "was not kept" not in page
