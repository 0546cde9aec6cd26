"""Calls of a small model on BFCL prompts, free and masked: how many are finished, valid and right.

    python bench/bfcl_masked.py -m smollm2 --out bench/.bfcl-masked --device cuda
    python bench/bfcl_masked.py --out bench/.bfcl-masked --report        # the table of finished runs, without a model

Both modes see the same prompts: one call is required, and tools are declared in the text format's own form. Every
answer is stored; a second start continues. `--minutes` stops after an answer. Goals: all finished masked calls are
valid, and at least 99 % of them are finished.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from toolwire.learn import LocalAnswers, evaluate_bfcl, open_model, select_entries
from toolwire.learn.run_folder import RunFolder

CATEGORIES = ("simple_python", "multiple", "live_simple", "live_multiple")  # one expected call each
MODES = {"free": False, "masked": True}
RESULTS = "bfcl_masked.json"


class OutOfTime(Exception):
    """The time of `--minutes` is over."""


def main() -> int:
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        try:
            measure(options, time.monotonic() + 60 * options.minutes)
        except OutOfTime:
            print("out of time; start again to continue", file=sys.stderr)
            return 1
    return report(options)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".bfcl-masked")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--format", default="hermes")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=131_072)
    parser.add_argument("--minutes", type=float, default=1_000.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", action="store_true")
    return parser.parse_args()


def measure(options: argparse.Namespace, deadline: float) -> None:
    """Answer all prompts in both modes, masked first, because the goals are about it."""
    entries = select_entries(CATEGORIES, limit=options.limit, seed=options.seed)
    model = open_model(options.model, device=options.device, dtype=options.dtype)
    for mode, masked in sorted(MODES.items(), reverse=True):
        source = LocalAnswers(
            model,
            options.format,
            mask=masked,
            choice="required",
            parallel=False,
            may_reason=False,
            max_tokens=options.max_tokens,
            seed=options.seed,
            batch_tokens=options.batch_tokens,
        )
        settings = {**source.settings, "limit": options.limit, "dtype": options.dtype}
        run = RunFolder.create(options.out / mode, settings, resume=True)
        if run.has("report.json"):
            continue
        evaluate_bfcl(source, entries, run=run, on_answer=Progress(mode, run, deadline))


class Progress:
    """Print the number of answers and record the time; raise OutOfTime after the deadline."""

    def __init__(self, mode: str, run: RunFolder, deadline: float) -> None:
        self.mode = mode
        self.run = run
        self.deadline = deadline
        self.last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        self.run.append("seconds.jsonl", [{"answers": done, "seconds": now - self.last}])
        self.last = now
        print(f"{self.mode}: {done}/{total}", file=sys.stderr)
        if now > self.deadline and done < total:
            raise OutOfTime


def report(options: argparse.Namespace) -> int:
    """Print a table, write the results as JSON, and return 1 if a goal is missed."""
    found = {mode: summary(options.out / mode) for mode in MODES}
    (options.out / RESULTS).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print("| mode | prompts | finished | valid of finished | right function | right | seconds |")
    print("|---|---|---|---|---|---|---|")
    for mode, row in found.items():
        print(
            f"| {mode} | {row['prompts']} | {row['finished']} ({share(row['finished'], row['prompts'])}) "
            f"| {row['finished_valid']} ({share(row['finished_valid'], row['finished'])}) "
            f"| {row['right_function']} ({share(row['right_function'], row['prompts'])}) "
            f"| {row['right']} ({share(row['right'], row['prompts'])}) | {row['seconds']:.0f} |"
        )
    masked = found["masked"]
    reached = masked["finished_valid"] == masked["finished"] and masked["finished"] >= 0.99 * masked["prompts"]
    print("goals reached" if reached else "goals missed")
    return 0 if reached else 1


def summary(folder: Path) -> dict:
    """Return the counts of a finished run."""
    run = RunFolder(folder, {})
    if not run.has("report.json"):
        raise SystemExit(f"{folder} has no finished run; start without --report")
    rows = {row["id"]: row for row in run.rows("answers.jsonl")}.values()
    outcomes = run.read_json("report.json")["total"]["outcomes"]
    finished = [row for row in rows if row.get("finished", True)]
    return {
        "prompts": len(rows),
        "finished": len(finished),
        "finished_valid": sum(row.get("valid", False) for row in finished),
        "right_function": outcomes.get("right", 0) + outcomes.get("wrong_arguments", 0),
        "right": outcomes.get("right", 0),
        "outcomes": outcomes,
        "seconds": sum(row["seconds"] for row in run.rows("seconds.jsonl")),
    }


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


if __name__ == "__main__":
    sys.exit(main())
