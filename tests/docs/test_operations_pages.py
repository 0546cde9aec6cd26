"""The pages of docs/operations: each step changes few lines of valid settings, and figures are those of the benchmarks."""

import re
import tomllib

from doc_blocks import FENCE
from places import ROOT
from toolwire.gateway.config.parsing import parse_settings

PAGE = (ROOT / "docs/operations/many-machines.md").read_text("utf-8")
RUNBOOK = (ROOT / "docs/operations/runbook.md").read_text("utf-8")
RESULTS = (ROOT / "bench/RESULTS.md").read_text("utf-8")
MOST = 5  # lines that a step changes


def apply(change, lines):
    """Return the lines with a change of a `diff` block, whose context lines name the place."""
    at, found = 0, list(lines)
    for line in change.splitlines():
        sign, text = line[:1], line[1:]
        if sign == "+":
            found.insert(at, text)
            at += 1
        elif sign in "- ":
            at = found.index(text, at)
            if sign == "-":
                del found[at]
            else:
                at += 1
        else:
            assert line == "…"
    return found


def test_each_step_changes_at_most_five_lines_of_valid_settings():
    blocks = FENCE.findall(PAGE)
    [lines] = [text.splitlines() for language, title, text in blocks if title == "toolwire.toml"]
    changes = [text for language, _, text in blocks if language == "diff"]
    assert len(changes) == 2
    steps = [parse_settings(tomllib.loads("\n".join(lines)))]
    for change in changes:
        assert 0 < len(re.findall(r"^\+", change, re.MULTILINE)) <= MOST
        lines = apply(change, lines)
        steps.append(parse_settings(tomllib.loads("\n".join(lines))))
    one, several, cluster = steps
    assert (one.state.url, one.state.usage, one.server.workers) == ("state.db", "usage.db", 2)
    assert (several.state.url, several.state.usage) == (None, None)
    shipped = parse_settings(tomllib.loads((ROOT / "deploy/toolwire.toml").read_text("utf-8")))
    for name in ("drain", "secret_env", "metrics_key_env", "workers"):
        assert getattr(cluster.server, name) == getattr(shipped.server, name)
    assert (cluster.state.url_env, cluster.state.usage_env) == (shipped.state.url_env, shipped.state.usage_env)


def test_capacity_is_that_of_the_benchmark():
    header = re.findall(r"^\| gateway \| pass \| of .*\n.*\n(?:\|.*\n)*", RESULTS, re.MULTILINE)[0]
    [row] = [line for line in header.splitlines() if line.startswith("| toolwire |")]
    cells = [cell.split(" (")[0].strip() for cell in row.split("|")[2:-1]]
    through, cross, rate, paced = cells[0], cells[2], cells[5], cells[7]
    assert f"| {through} | {round(1e6 / int(through)):,} requests per second |" in RUNBOOK
    assert f"| {cross} | {rate} requests per second |" in RUNBOOK
    assert f"| {paced} events per second |" in RUNBOOK
