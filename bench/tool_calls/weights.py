"""Choose the weights of `toolwire.local.choice` on development requests.

    python bench/tool_calls/evaluate.py tasks tasks.jsonl --sets dev platform_dev commands_dev
    python bench/tool_calls/weights.py tasks.jsonl scores.jsonl --count 100

The scores of the names do not depend on the weights, so they are computed once; a run that was interrupted continues.
Each line of the output has the weights, the logarithm of the likelihood of the right functions, and the right choices of each set.
"""

import argparse
import asyncio
import json
import multiprocessing
from collections import defaultdict
from itertools import product
from math import exp, log, log1p
from pathlib import Path
from typing import NamedTuple

import evaluate
from evaluate import NOTHING_FITS, read, spread

from toolwire.ir.losses import Losses
from toolwire.local.choice import score_names
from toolwire.local.model import decode_request
from toolwire.local.plan import _nearest_tools as nearest_tools
from toolwire.local.plan import plan_call
from toolwire.run.tools.refusal import RANKED


async def score_task(model, task):
    """Return the scores of the names, the usual ones, and the ranks of the functions."""
    request = decode_request(task["body"])
    plan = plan_call(request)

    def write(names, *, without_request):
        return model._read_tokens(plan.name_body(names, without_request=without_request))

    usual = await score_names(plan.functions, lambda names: write(names, without_request=True))
    scores = await score_names(plan.functions, lambda names: write(names, without_request=False))
    order = {name: rank for rank, name in enumerate(plan.functions) if name != NOTHING_FITS}
    ranks = order if RANKED in task["body"] else nearest_tools(request, Losses())[1]
    return {"id": task["id"], "scores": scores, "usual": usual, "ranks": ranks}


def _score(task):
    return asyncio.run(score_task(evaluate.MODEL, task))


def right_names(task):
    """Return the names that are right; `nothing_fits` is one of them for a request that no function fulfils."""
    expected = task["expected"]
    if "endpoints" in expected:
        return {name for name, endpoint in expected["names"].items() if endpoint in expected["endpoints"]}
    if "command" in expected:
        return {expected["command"].replace(" ", "_").replace("-", "_") if expected["command"] else NOTHING_FITS}
    return set(expected["tools"])


class Weights(NamedTuple):
    """The weights of `toolwire.local.choice`."""

    weight: float
    usual: float
    rank: float
    found: float
    refusal: float
    count: float = 1.0


def probabilities(row, counts, weights):
    """Return the probability of each name. `counts`: of the entries of ranked functions; None if the caller has no ranking."""
    ranks = row["ranks"]
    known, usual = normalise(row["scores"]), normalise(row["usual"])
    total = {}
    for name, score in known.items():
        total[name] = weights.weight * (score - weights.usual * usual[name])
        if name == NOTHING_FITS:
            total[name] += weights.refusal
        elif counts is None:
            total[name] -= weights.found * log1p(ranks[name])
        else:
            total[name] += weights.count * log(counts.get(name, 1)) - weights.rank * log1p(ranks[name])
    return {name: exp(score) for name, score in normalise(total).items()}


def normalise(scores):
    most = max(scores.values())
    total = most + log(sum(exp(score - most) for score in scores.values()))
    return {name: score - total for name, score in scores.items()}


def judge(tasks, rows, weights):
    """Return the mean over the sets of the right choices in percent, the logarithm of the likelihood, and the figures of each set."""
    likelihood, sets = 0.0, defaultdict(lambda: [0, 0])
    for row in rows:
        task = tasks[row["id"]]
        names = [tool["function"]["name"] for tool in task["body"]["tools"]]
        counts = task["body"].get(RANKED)
        known = None if counts is None else dict(zip((n for n in names if n != NOTHING_FITS), counts, strict=False))
        found = probabilities(row, known, weights)
        right = right_names(task)
        parts = sets[row["id"].rpartition("/")[0]]
        parts[0] += max(found, key=lambda name: found[name]) in right
        parts[1] += 1
        if not right.isdisjoint(found):
            likelihood += log(max(sum(share for name, share in found.items() if name in right), 1e-9))
    mean = sum(100 * right / total for right, total in sets.values()) / max(len(sets), 1)
    figures = {name: "/".join(map(str, parts)) for name, parts in sorted(sets.items())}
    return round(mean, 2), round(likelihood, 1), figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="beginnings of task ids")
    given = parser.parse_args()
    everything = [task for task in read(given.tasks) if not given.only or task["id"].startswith(tuple(given.only))]
    rows = read(given.scores) if given.scores.exists() else []
    known = {row["id"] for row in rows}
    left = [task for task in spread(everything)[: given.count] if task["id"] not in known]
    with (
        multiprocessing.get_context("spawn").Pool(given.processes, evaluate._open, (False,)) as pool,
        given.scores.open("a") as file,
    ):
        for row in pool.imap_unordered(_score, left, chunksize=1):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    tasks = {task["id"]: task for task in everything}
    rows = [row for row in rows if row["id"] in tasks]
    grid = product(
        (0.5, 0.7, 1.0, 1.4), (0.0, 0.25, 0.5, 0.75), (0.5, 1.0, 1.5, 2.0), (0.0, 0.5, 1.0, 1.5), (-2.0, -1.0, 0.0, 1.0)
    )
    judged = sorted(((*judge(tasks, rows, Weights(*one)), one) for one in grid), key=lambda line: (-line[0], -line[1]))
    for mean, likelihood, sets, weights in (
        *judged[:12],
        (*judge(tasks, rows, Weights(1, 0, 0, 0, 0, 0)), "model alone"),
    ):
        print(json.dumps({"weights": weights, "mean": mean, "likelihood": likelihood, "right": sets}))


if __name__ == "__main__":
    main()
