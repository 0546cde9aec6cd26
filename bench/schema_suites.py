"""Run public JSON Schema suites through the validator and the dialects, and count every outcome. Nothing is downloaded.

    git clone https://github.com/json-schema-org/JSON-Schema-Test-Suite
    git clone https://github.com/guidance-ai/jsonschemabench
    python bench/schema_suites.py --test-suite JSON-Schema-Test-Suite --schema-bench jsonschemabench

For every schema: compile it for the local validator and lower it to every dialect. For every instance: compare the verdict of
the local validator with the expected one. A valid instance must be expressible under the lowered schema and come back equal,
or a loss must name why not. An invalid instance must be rejected when it comes back.

The folders can also be given as TOOLWIRE_TEST_SUITE and TOOLWIRE_SCHEMA_BENCH. JSONSchemaBench has instances in
`maskbench/data`, with the same schemas as `data`.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from report_suites import report
from suite_checks import Case, Check
from toolwire.schema import DIALECTS

DRAFTS = {
    "draft3": "http://json-schema.org/draft-03/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
STRICT = ("openai_strict", "anthropic_strict", "gemini")


def test_suite(folder: Path) -> Iterator[tuple[str, Case]]:
    """Yield the draft and the case. Schemas of an old draft do not name it, so the folder decides; proposals have no draft."""
    tests = folder / "tests"
    for file in sorted(tests.rglob("*.json")):
        draft = file.relative_to(tests).parts[0]
        if (tests / draft).is_symlink() or "proposals" in file.parts:
            continue
        for group in _load(file):
            schema = group["schema"]
            if draft in DRAFTS and type(schema) is dict:
                schema = {"$schema": DRAFTS[draft], **schema}
            instances = [(test["data"], test["valid"]) for test in group["tests"]]
            yield draft, Case(f"{file.relative_to(tests)}: {group['description']}", schema, instances)


def schema_bench(folder: Path) -> Iterator[tuple[str, Case]]:
    """Yield the split and the case."""
    for file in sorted((folder / "maskbench" / "data").glob("*.json")):
        document = _load(file)
        instances = [(test["data"], test["valid"]) for test in document["tests"]]
        split = file.stem.partition("---")[0]
        family = split.partition("_")[0]
        yield family if family in ("BFCL", "JME") else split, Case(file.stem, document["schema"], instances)


def measure(name: str, cases: Iterable[tuple[str, Case]], dialects: list[str], only: str) -> dict:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    times: dict[str, list[tuple[float, str]]] = {"compile": [], "lower": []}
    defects: list[dict] = []
    gc.disable()
    for number, (group, case) in enumerate(cases):
        if only not in case.name:
            continue
        if number % 1000 == 0:
            print(f"{name}: {number:,} schemas …", file=sys.stderr, flush=True)
        if number % 200 == 0:
            gc.collect()  # not timed: the caches of a run over thousands of schemas make collections slow
        check = Check(case)
        check.run(dialects)
        counts[group, "", "schema", "all"] += 1
        for (dialect, subject, outcome), times_found in check.counts.items():
            counts[group, dialect, subject, outcome] += times_found
        times["compile"].append((check.compile_seconds, case.name))
        times["lower"].append((check.lower_seconds, case.name))
        defects += check.defects
    rows = [{"group": g, "dialect": d, "subject": s, "outcome": o, "count": n} for (g, d, s, o), n in counts.items()]
    return {
        "name": name,
        "dialects": dialects,
        "counts": rows,
        "milliseconds": {step: _spread(found) for step, found in times.items() if found},
        "defects": defects,
    }


def _spread(found: list[tuple[float, str]]) -> dict:
    found.sort()
    p50, p99, most = (1000 * found[min(len(found) * part // 100, len(found) - 1)][0] for part in (50, 99, 100))
    return {"p50": p50, "p99": p99, "max": most, "slowest": [name for _, name in found[:-4:-1]]}


def _version(folder: Path) -> str:
    """Return the commit of a clone; empty for a copy without its history."""
    command = ["git", "-C", folder, "log", "-1", "--format=%h of %cs"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() if (folder / ".git").exists() else ""


def _load(file: Path) -> list | dict:
    return json.loads(file.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test-suite", type=Path, metavar="DIR", default=os.environ.get("TOOLWIRE_TEST_SUITE"))
    parser.add_argument("--schema-bench", type=Path, metavar="DIR", default=os.environ.get("TOOLWIRE_SCHEMA_BENCH"))
    parser.add_argument("--dialects", default=",".join(STRICT), help="names, separated by commas, or all")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
    parser.add_argument("--show", type=int, default=10, metavar="N", help="print so many defects of each kind")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of tables")
    options = parser.parse_args()
    dialects = list(DIALECTS) if options.dialects == "all" else options.dialects.split(",")
    suites = []
    for name, folder, reader, expected in (
        ("JSON-Schema-Test-Suite", options.test_suite, test_suite, "tests"),
        ("JSONSchemaBench", options.schema_bench, schema_bench, "maskbench/data"),
    ):
        if folder is None:
            continue
        if not (Path(folder) / expected).is_dir():
            parser.error(f"{folder} is not a copy of {name}: it has no folder {expected}")
        measured = measure(name, reader(Path(folder)), dialects, options.only)
        suites.append({**measured, "version": _version(Path(folder))})
    if not suites:
        parser.error("give --test-suite or --schema-bench; see --help for where to get them")
    if options.json:
        print(json.dumps({"suites": suites}))
        return
    print(report({"suites": suites}))
    shown: Counter[tuple[str, str]] = Counter()
    for defect in (one for suite in suites for one in suite["defects"]):
        shown[defect["defect"], defect["dialect"]] += 1
        if shown[defect["defect"], defect["dialect"]] <= options.show:
            print(json.dumps(defect, ensure_ascii=False))


if __name__ == "__main__":
    main()
