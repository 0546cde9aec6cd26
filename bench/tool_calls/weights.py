"""Choose the weights of `toolwire.local.choice` on development requests.

    python bench/tool_calls/evaluate.py tasks tasks.jsonl --sets dev platform_dev commands_dev
    python bench/tool_calls/weights.py tasks.jsonl scores.jsonl --count 100

The scores of the names do not depend on the weights, so they are computed once; a run that was interrupted continues.
Each line of the output has the weights, the logarithm of the likelihood of the right functions, and the right choices of each set.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from itertools import product
from math import exp, log, log1p
from pathlib import Path

from evaluate import NOTHING_FITS, read, spread

from toolwire.local import open_model
from toolwire.local.choice import score_names
from toolwire.local.model import decode_request
from toolwire.local.plan import plan_call
from toolwire.run.tools.refusal import RANKED


async def score_task(model, task):
    """Return the scores of the names, and the usual ones."""
    plan = plan_call(decode_request(task["body"]))

    def write(names, *, without_request):
        return model._read_tokens(plan.name_body(names, without_request=without_request))

    usual = await score_names(plan.functions, lambda names: write(names, without_request=True))
    scores = await score_names(plan.functions, lambda names: write(names, without_request=False))
    return {"id": task["id"], "scores": scores, "usual": usual}


def right_names(task):
    """Return the names that are right; `nothing_fits` is one of them for a request that no function fulfils."""
    expected = task["expected"]
    if "endpoints" in expected:
        return {name for name, endpoint in expected["names"].items() if endpoint in expected["endpoints"]}
    if "command" in expected:
        return {expected["command"].replace(" ", "_").replace("-", "_") if expected["command"] else NOTHING_FITS}
    return set(expected["tools"])


def probabilities(row, ranks, weight, usual, rank):
    total = {
        name: weight * (score - usual * row["usual"][name]) - rank * log1p(ranks.get(name, 0))
        for name, score in row["scores"].items()
    }
    most = max(total.values())
    parts = {name: exp(score - most) for name, score in total.items()}
    return {name: part / sum(parts.values()) for name, part in parts.items()}


def judge(tasks, rows, *weights):
    """Return the logarithm of the likelihood, and the right choices and the requests of each set."""
    likelihood, sets = 0.0, defaultdict(lambda: [0, 0])
    for row in rows:
        task = tasks[row["id"]]
        names = [tool["function"]["name"] for tool in task["body"]["tools"]]
        ranks = {name: number for number, name in enumerate(names) if name != NOTHING_FITS}
        found = probabilities(row, ranks if RANKED in task["body"] else {}, *weights)
        right = right_names(task)
        counts = sets[row["id"].rpartition("/")[0]]
        counts[0] += max(found, key=lambda name: found[name]) in right
        counts[1] += 1
        if not right.isdisjoint(found):
            likelihood += log(max(sum(share for name, share in found.items() if name in right), 1e-9))
    return round(likelihood, 1), {name: "/".join(map(str, counts)) for name, counts in sorted(sets.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--count", type=int, default=100)
    given = parser.parse_args()
    chosen = spread(read(given.tasks))[: given.count]
    rows = read(given.scores) if given.scores.exists() else []
    known, model = {row["id"] for row in rows}, open_model(threads=1)
    with given.scores.open("a") as file:
        for task in chosen:
            if task["id"] not in known:
                rows.append(asyncio.run(score_task(model, task)))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    tasks = {task["id"]: task for task in read(given.tasks)}
    grid = product((0.5, 0.7, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.5, 1.0, 1.5, 2.0))
    judged = sorted(((*judge(tasks, rows, *weights), weights) for weights in grid), key=lambda line: -line[0])
    for likelihood, sets, weights in (*judged[:10], (*judge(tasks, rows, 1.0, 0.0, 0.0), (1.0, 0.0, 0.0))):
        print(json.dumps({"weights": weights, "likelihood": likelihood, "right": sets}))


if __name__ == "__main__":
    main()
