"""A lead of the gateway is claimed only where the intervals of both medians are apart in the committed rounds."""

import re
import sys
from math import comb

import pytest

from places import ROOT
from tables import every_case

sys.path.append(str(ROOT / "bench"))

from gateway_rounds import FIGURES, MINIMUM, ROUNDS, Rounds, estimate
from report_gateway import section

PAGE = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "bench/RESULTS.md").read_text(encoding="utf-8")
MEASURED = Rounds.read(ROUNDS)
HEADER = "| figure | toolwire is better than | the intervals overlap | better than toolwire |"
FIGURE_OF = {figure.title: name for name, figure in FIGURES.items()}


def claims(page):
    """Return the names in the columns of the table of claims, by the title of the figure."""
    rows = page.partition(HEADER)[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    return {title: [set(cell.split(", ")) - {"–"} for cell in others] for title, *others in cells}


def wrong_claims(page, rounds):
    """Return the figures and peers of which the page claims a lead that is not measured, or hides one of the peer."""
    wrong = []
    for title, (better, _, worse) in claims(page).items():
        figure = FIGURE_OF[title]
        ours = rounds.estimate("toolwire", figure)
        for name, about in rounds.peers.items():
            theirs = rounds.estimate(name, figure)
            if theirs is None:
                continue
            lower, higher = ours.high < theirs.low, theirs.high < ours.low
            leads, trails = (lower, higher) if FIGURES[figure].is_lower_better else (higher, lower)
            if (about["title"] in better and not leads) or (about["title"] in worse) != trails:
                wrong.append((title, about["title"]))
    return wrong


def made_up(ours, theirs, figure="cross"):
    candidates = {name: {"title": name, "version": "1", "skipped": {}} for name in ("toolwire", "peer")}
    found = [{"toolwire": {figure: one}, "peer": {figure: other}} for one, other in zip(ours, theirs, strict=True)]
    return Rounds({"candidates": candidates, "missing": {}, "before": None}, found)


def page_with(better, worse, figure="cross"):
    return f"{HEADER}\n|---|---|---|---|\n| {FIGURES[figure].title} | {better} | – | {worse} |\n\n"


@pytest.mark.skipif(MEASURED is not None, reason="the rounds are measured")
def test_comparison_without_rounds_claims_nothing():
    assert HEADER not in PAGE


@pytest.mark.skipif(MEASURED is None, reason="no rounds are measured")
def test_comparison_claims_no_lead_whose_intervals_overlap():
    assert len(MEASURED.rounds) >= MINIMUM
    assert claims(PAGE).keys() >= {
        FIGURES[figure].title for figure in ("pass", "cross", "paced", "added_cross", "memory")
    }
    assert wrong_claims(PAGE, MEASURED) == []


LOW, HIGH = [float(value) for value in range(100, 115)], [float(value) for value in range(200, 215)]
NEAR = [value + 5 for value in LOW]


@every_case(
    ("ours", "theirs", "better", "worse", "figure", "is_wrong"),
    [
        (LOW, NEAR, "peer", "–", "cross", True),  # overlap
        (LOW, NEAR, "–", "peer", "cross", True),
        (LOW, NEAR, "–", "–", "cross", False),
        (LOW, HIGH, "peer", "–", "cross", False),
        (LOW, HIGH, "peer", "–", "paced", True),  # a rate: more is better
        (HIGH, LOW, "peer", "–", "paced", False),
        (HIGH, LOW, "peer", "–", "cross", True),  # the peer leads
        (HIGH, LOW, "–", "–", "cross", True),  # and the page does not state it
        (HIGH, LOW, "–", "peer", "cross", False),
    ],
)
def test_claim_that_the_rounds_do_not_show_is_found(ours, theirs, better, worse, figure, is_wrong):
    rounds = made_up(ours, theirs, figure)
    assert bool(wrong_claims(page_with(better, worse, figure), rounds)) is is_wrong


@pytest.mark.skipif(MEASURED is None, reason="no rounds are measured")
def test_readme_names_every_peer_whose_intervals_overlap():
    claim = README.partition("<!-- gateway claims -->\n")[2].partition("<!-- end -->")[0]
    for figure in ("cross", "pass"):
        stated = re.search(f"{FIGURES[figure].title}: ([^;.]+)", claim)
        named = set(stated[1].split(", ")) if stated else set()
        unclear = {name for name in MEASURED.peers if MEASURED.compare(figure, name) == "unclear"}
        assert named == {MEASURED.peers[name]["title"] for name in unclear}


@pytest.mark.skipif(MEASURED is None, reason="no rounds are measured")
def test_results_have_the_figures_of_the_rounds():
    tables = [line for line in section(MEASURED).splitlines() if line.startswith("|")]
    assert len(tables) > 20
    assert [line for line in tables if line not in RESULTS] == []


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (15, 4), (20, 6), (25, 8)])
def test_interval_of_a_median_has_the_ranks_of_the_sign_test(count, rank):
    found = estimate([float(value) for value in range(1, count + 1)])
    assert (found.low, found.high) == (rank, count + 1 - rank)
    outside = 2 * sum(comb(count, below) for below in range(rank)) / 2**count
    wider = outside + 2 * comb(count, rank) / 2**count
    assert outside <= 0.05 < wider


def test_interval_of_few_rounds_is_their_range():
    assert estimate([3.0, 1.0]) == (2.0, 1.0, 3.0)


def test_failed_round_leaves_no_figure():
    assert made_up([1.0, None], [1.0, 2.0]).estimate("toolwire", "cross") is None


def test_interrupted_run_keeps_its_rounds(tmp_path):
    rounds = made_up(LOW, HIGH)
    rounds.write(tmp_path / "rounds.jsonl")
    assert Rounds.read(tmp_path / "rounds.jsonl") == rounds
    assert Rounds.read(tmp_path / "none.jsonl") is None
