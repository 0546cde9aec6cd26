"""Measure masks on JSONSchemaBench's schemas and instances, beside llguidance itself, in one interleaved run.

    python bench/masks.py --data maskbench/data --tokenizer MODEL --every 10

`--data` is the folder `maskbench/data` of the repository guidance-ai/jsonschemabench; `--tokenizer` is the folder of a
model. For each schema, both compile it, and both compute the mask of every token of its instances, with the same
settings of llguidance. Times are CPU times of this thread, the best of three for each compilation. A validator judges
instances by the schema without the residual keywords. Instances keep the order of their properties.
"""

import argparse
import copy
import json
import sys
import time
from collections import Counter
from pathlib import Path

import jsonschema_rs
import llguidance
import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from toolwire.ir.errors import SchemaError
from toolwire.ir.pointer import resolve
from toolwire.mask import JSONSchemaMask, MaskTokenizer, TokenLimitError, UnfinishedOutput

COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ROUNDS = 3
MAX_TOKENS = 2_000
SLOW_SECONDS = 5.0


def compile_raw(schema, tokenizer):
    matcher = LLMatcher(tokenizer.engine, LLMatcher.grammar_from_json_schema(schema, defaults=COMPACT), log_level=0)
    return None if matcher.is_error() else matcher


def compile_own(schema, tokenizer):
    try:
        return JSONSchemaMask(schema, tokenizer)
    except SchemaError:
        return None


def time_once(run, *options):
    started = time.thread_time()
    found = run(*options)
    return time.thread_time() - started, found


def compile_both(schema, tokenizer):
    """Compile with both in turn; return the best times and the results."""
    best, found = {}, {}
    rounds = ROUNDS
    while rounds:
        rounds -= 1
        for name, run in (("raw", compile_raw), ("own", compile_own)):
            seconds, found[name] = time_once(run, schema, tokenizer)
            best[name] = min(seconds, best.get(name, seconds))
            if seconds > SLOW_SECONDS:
                rounds = 0
    return best, found


def replay_raw(matcher, tokens, row, times):
    matcher = matcher.deep_copy()
    flat = row[0].view(np.uint32)
    for token in tokens:
        started = time.thread_time()
        fill_next_token_bitmask(matcher, row)
        is_allowed = flat[token >> 5] >> np.uint32(token & 31) & 1
        if is_allowed:
            matcher.consume_token(token)
        times.append(time.thread_time() - started)
        if not is_allowed:
            return False
    return matcher.is_accepting()


def replay_own(mask, tokens, times, limit):
    try:
        return follow_own(start_own(mask, limit), tokens, times)
    except UnfinishedOutput:  # the engine gave up
        return False


def start_own(mask, limit):
    try:
        return mask.start(limit)
    except TokenLimitError:
        return mask.start()


def follow_own(state, tokens, times):
    row = np.empty(state.width, np.uint32)
    for token in tokens:
        started = time.thread_time()
        state.fill(row)
        is_allowed = row[token >> 5] >> np.uint32(token & 31) & 1
        if is_allowed:
            state.accept(token)
        times.append(time.thread_time() - started)
        if not is_allowed:
            return False
    return state.is_complete


def without_residual(schema, residual):
    """Return the schema without the keywords that the mask leaves to the validator."""
    schema = copy.deepcopy(schema)
    for left in sorted(
        residual, key=lambda left: -left.pointer.count("/")
    ):  # inner ones first: outer ones contain them
        resolve(schema, left.pointer).pop(left.keyword, None)
    return schema


def make_validator(schema):
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    except Exception:  # not a valid schema, or a reference outside of the document
        return None


def percentiles(values):
    if not values:
        return {}
    return {f"p{share}": float(np.percentile(values, share)) * 1e6 for share in (50, 90, 99)}


class Report:
    """Counts and times of one run."""

    def __init__(self):
        self.counts = Counter()
        self.compile = {"raw": [], "own": []}
        self.tokens = {"raw": [], "own": []}
        self.refused = []
        self.unsound = []
        self.uncovered = []

    def as_json(self):
        both = {name: percentiles(times) for name, times in self.compile.items()}
        tokens = {name: percentiles(times) for name, times in self.tokens.items()}
        ratio = {
            kind: {share: found["own"][share] / found["raw"][share] for share in found["raw"]}
            for kind, found in (("compile", both), ("token", tokens))
        }
        return {
            "llguidance": llguidance.get_version() if hasattr(llguidance, "get_version") else "",
            "counts": dict(sorted(self.counts.items())),
            "compile_us": both,
            "token_us": tokens,
            "ratio": ratio,
            "valid_refused_that_raw_accepts": self.refused,
            "invalid_accepted_outside_residual": self.unsound,
            "schemas_that_only_raw_compiles": self.uncovered,
        }


def check_instances(document, found, tokenizer, row, report, name, limit):
    raw, own = found["raw"], found["own"]
    judge = make_validator(without_residual(document["schema"], own.residual)) if own is not None else None
    for number, test in enumerate(document.get("tests", ())):
        text = json.dumps(test["data"], ensure_ascii=False)
        try:
            tokens = tokenizer.encode(text)
        except UnicodeEncodeError:
            continue
        if len(tokens) > min(MAX_TOKENS, limit or MAX_TOKENS):
            continue
        kind = "valid" if test["valid"] else "invalid"
        report.counts[kind] += 1
        times = {"raw": [], "own": []}
        accepted = {
            "raw": raw is not None and replay_raw(raw, tokens, row, times["raw"]),
            "own": own is not None and replay_own(own, tokens, times["own"], limit),
        }
        if raw is not None and own is not None and accepted["raw"] == accepted["own"]:
            for engine, values in times.items():
                report.tokens[engine] += values
        for engine, is_accepted in accepted.items():
            report.counts[f"{kind} accepted by {engine}"] += bool(is_accepted)
        if kind == "valid" and accepted["raw"] and not accepted["own"]:
            report.refused.append(f"{name} #{number}")
        if kind == "invalid" and accepted["own"]:
            if judge is not None and not judge.is_valid(test["data"]):
                report.unsound.append(f"{name} #{number}")
            else:
                report.counts["invalid accepted by own, residual"] += 1


def run(files, tokenizer, report, quiet, limit):
    row = allocate_token_bitmask(1, tokenizer.vocabulary_size)
    for number, file in enumerate(files):
        document = json.loads(file.read_text("utf-8"))
        if "schema" not in document:
            continue
        best, found = compile_both(document["schema"], tokenizer)
        report.counts["schemas"] += 1
        for engine in ("raw", "own"):
            report.counts[f"compiled by {engine}"] += found[engine] is not None
        if found["raw"] is not None and found["own"] is not None:
            report.counts["with residual"] += bool(found["own"].residual)
            for engine, seconds in best.items():
                report.compile[engine].append(seconds)
        elif found["raw"] is not None:
            report.uncovered.append(file.stem)
        check_instances(document, found, tokenizer, row, report, file.stem, limit)
        if not quiet and number % 50 == 0:
            print(f"\r{number}/{len(files)}", end="", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, help="start outputs with this limit (default: no limit)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tokenizer = MaskTokenizer.from_folder(options.tokenizer)
    report = Report()
    run(
        sorted(options.data.glob("*.json"))[options.first :: options.every],
        tokenizer,
        report,
        options.json,
        options.max_tokens,
    )
    found = report.as_json()
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print("\r" + "\n".join(f"{name:40} {count}" for name, count in found["counts"].items()))
    for kind in ("compile", "token"):
        for share, ratio in found["ratio"][kind].items():
            raw, own = (found[f"{kind}_us"][engine][share] for engine in ("raw", "own"))
            print(f"{kind:8} {share:4} raw {raw:10.1f} us   own {own:10.1f} us   {ratio:.2f} times")
    for title in (
        "valid_refused_that_raw_accepts",
        "invalid_accepted_outside_residual",
        "schemas_that_only_raw_compiles",
    ):
        print(title, len(found[title]), *found[title][:20])


if __name__ == "__main__":
    main()
