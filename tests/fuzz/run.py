"""Fuzz the parsers of untrusted bytes: JSON, frames of streams, fields of pieces, and HTTP.

    python tests/fuzz/run.py                       each target for ten seconds
    python tests/fuzz/run.py --seconds 600 fields  one target, longer
    python tests/fuzz/run.py --write               also keep the inputs that reach something new

Needs Python 3.12 or newer. The exit code is 1 if an input fails; it is printed, shrunk, to be added to the tests.
"""

import argparse
import json
import sys
import traceback
from pathlib import Path

from engine import Report, fuzz
from targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


def load_corpus(name: str) -> list[bytes]:
    """Return the inputs of a target, one JSON string of Latin-1 characters on each line."""
    file = CORPUS / f"{name}.jsonl"
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return [json.loads(line).encode("latin-1") for line in lines]


def save_corpus(name: str, corpus: list[bytes]) -> None:
    CORPUS.mkdir(exist_ok=True)
    lines = [json.dumps(data.decode("latin-1")) + "\n" for data in corpus]
    (CORPUS / f"{name}.jsonl").write_text("".join(lines), encoding="ascii")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the parsers of untrusted bytes.")
    names = [target.name for target in TARGETS]
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all by default: {', '.join(names)}")
    parser.add_argument("--seconds", type=float, default=10, help="for each target (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices (default: 1)")
    parser.add_argument("--write", action="store_true", help="add the inputs that reach something new to the corpus")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(names):
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}; known are {', '.join(names)}")
    if sys.version_info < (3, 12):
        parser.error("coverage needs Python 3.12 or newer (sys.monitoring)")
    has_failed = False
    for target in TARGETS:
        if options.targets and target.name not in options.targets:
            continue
        known = load_corpus(target.name)
        report = fuzz(target, known, options.seconds, options.seed, lambda report, name=target.name: show(name, report))
        show(target.name, report)
        if options.write and not report.failures:
            save_corpus(target.name, [data for data in report.corpus if data not in target.seeds])
        for failure in report.failures:
            has_failed = True
            print(f"\n{target.name} fails for {failure.data!r}:", file=sys.stderr)
            traceback.print_exception(failure.error)
    return int(has_failed)


def show(name: str, report: Report) -> None:
    speed = report.executions / max(report.seconds, 0.001)
    print(
        f"{name:9} {report.executions:>10,} runs {speed:>8,.0f}/s {report.edges:>6,} edges {len(report.corpus):>6,} inputs",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
