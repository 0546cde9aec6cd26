"""Count random outputs of masks that are not closed within their token limit, on JSONSchemaBench's schemas.

    python bench/mask_walks.py --data maskbench/data --tokenizer MODEL --every 16

`--data` is the folder `maskbench/data` of the repository guidance-ai/jsonschemabench; `--tokenizer` is the folder of a
model, or `bytes` for a tokenizer of single bytes. Each schema gets limits from the smallest that `start` accepts, and an
output of random allowed tokens for each limit. Every second output prefers tokens with brackets and quotes, which open
many values. An output is closed if it ends within its limit; a validator then judges it by the schema without the
residual keywords. Times are CPU times of this thread.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from masks import make_validator, without_residual
from toolwire.ir.errors import ConfigError, SchemaError
from toolwire.mask import JSONSchemaMask, MaskTokenizer, TokenLimitError, UnfinishedOutput

LONGER = (0, 3, 12, 40, 120, 300)  # tokens beyond the smallest limit
STRUCTURE = frozenset(b'"{}[],:')
PREFERENCE = 0.4  # share of tokens with structure, in every second output


def byte_tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_end|>"])
    return MaskTokenizer.from_tokenizer(backend)


def allowed_tokens(row):
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))


def walk(mask, limit, rng, structural, times):
    """Choose random tokens until the end or the limit; return the state."""
    state = mask.start(limit)
    for _ in range(limit):
        if state.is_finished:
            break
        started = time.thread_time()
        row = state.allowed()
        times.append(time.thread_time() - started)
        tokens = allowed_tokens(row)
        if structural is not None and rng.random() < PREFERENCE:
            preferred = tokens[structural[tokens]]
            tokens = preferred if preferred.size else tokens
        state.accept(int(rng.choice(tokens)))
    return state


def smallest_limit(mask):
    try:
        mask.start(1)
    except TokenLimitError as error:
        if error.least is None:
            raise
        return error.least
    return 1


def check(mask, judge, limit, rng, structural, times):
    """Return the outcome of one output and its text."""
    state = walk(mask, limit, rng, structural, times)
    try:
        text = state.finish()
    except UnfinishedOutput:
        return "not closed", state.text
    if len(state.tokens) > limit:
        return "longer than its limit", text
    try:
        value = json.loads(text)
    except ValueError:
        return "not JSON", text
    return ("invalid" if judge is not None and not judge.is_valid(value) else "closed and valid"), text


def check_refusal(mask, least):
    if least == 1:
        return True
    try:
        mask.start(least - 1)
    except TokenLimitError as error:
        return error.least == least
    return False


def run(files, tokenizer, walks, quiet):
    counts, refused, defects, times, starts = Counter(), {}, [], [], []
    structural = np.array([not STRUCTURE.isdisjoint(text) for text in tokenizer.token_bytes])
    for number, file in enumerate(files):
        schema = json.loads(file.read_text("utf-8"))["schema"]
        counts["schemas"] += 1
        try:
            mask = JSONSchemaMask(schema, tokenizer)
        except SchemaError:
            counts["schemas that are not compiled"] += 1
            continue
        started = time.thread_time()
        try:
            least = smallest_limit(mask)
        except TokenLimitError as error:
            refused[file.stem] = str(error)
            counts["schemas refused with any limit"] += 1
            continue
        finally:
            starts.append(time.thread_time() - started)
        counts["schemas with outputs"] += 1
        if not check_refusal(mask, least):
            defects.append((file.stem, least, "refusal", ""))
        judge = make_validator(without_residual(schema, mask.residual))
        for seed in range(walks):
            for more in LONGER:
                rng = random.Random(f"{file.stem} {more} {seed}")
                preferred = structural if (seed + len(file.stem) + more) % 2 else None
                try:
                    outcome, text = check(mask, judge, least + more, rng, preferred, times)
                except ConfigError as error:
                    outcome, text = "empty mask", str(error)
                counts[f"outputs {outcome}"] += 1
                if outcome != "closed and valid":
                    defects.append((file.stem, least + more, outcome, text[-200:]))
        if not quiet and number % 20 == 0:
            print(f"\r{number}/{len(files)} {dict(counts)}", end="", file=sys.stderr, flush=True)
    return counts, refused, defects, times, starts


def percentiles(seconds):
    return {f"p{share}": round(float(np.percentile(seconds, share)) * 1e6, 1) for share in (50, 90, 99, 99.9)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--every", type=int, default=16)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--walks", type=int, default=1, help="outputs for each limit")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    is_bytes = options.tokenizer == "bytes"
    tokenizer = byte_tokenizer() if is_bytes else MaskTokenizer.from_folder(options.tokenizer)
    files = sorted(options.data.glob("*.json"))[options.first :: options.every]
    counts, refused, defects, times, starts = run(files, tokenizer, options.walks, options.json)
    found = {
        "counts": dict(sorted(counts.items())),
        "refused": refused,
        "defects": defects,
        "token_us": percentiles(times),
        "start_us": percentiles(starts),
    }
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    print("\r" + "\n".join(f"{name:40} {count}" for name, count in found["counts"].items()))
    print("mask of a token, us", found["token_us"], "first start, us", found["start_us"])
    for name, reason in refused.items():
        print("refused", name, reason)
    for defect in defects[:40]:
        print("defect", *defect)


if __name__ == "__main__":
    main()
