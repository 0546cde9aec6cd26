"""The cost of `map_items` beside a plain loop over the same work, in this process and with stored results.

    python bench/executors.py            CPU time of the process: medians of interleaved rounds, so that load cancels out

`tools eval` is the search of 20,000 generated tools by words: the smallest work that the executors are used for. An item
of mining or of an evaluation with a model takes seconds, so its share is far smaller.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
import time
from pathlib import Path

from toolwire.ir.tools import Tool
from toolwire.net import open_results
from toolwire.retrieve import ToolIndex
from toolwire.retrieve.evaluation import LabelledQuery, _measure, _RankingMethods, compare_methods
from toolwire.run import map_items

ROUNDS = 15
ITEMS = 2_000
WORDS = "list read write delete copy move search create open close user order mail file city price stock task".split()


def empty(_: int) -> bytes:
    return b"{}"


def timed(function) -> float:
    gc.collect()
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(*functions) -> list[list[float]]:
    """Return the CPU seconds of each function in each round; the first round warms up and is left out."""
    rounds = [[timed(function) for function in functions] for _ in range(ROUNDS + 1)]
    return [list(column) for column in zip(*rounds[1:], strict=True)]


def main() -> None:
    plain, mapped = compare(lambda: [empty(item) for item in range(ITEMS)], lambda: map_items(empty, range(ITEMS)))
    per_item = (statistics.median(mapped) - statistics.median(plain)) / ITEMS

    def store() -> None:
        with tempfile.TemporaryDirectory() as folder:
            names = [str(item) for item in range(ITEMS)]
            map_items(empty, range(ITEMS), results=open_results(Path(folder)), names=names)

    [stored] = compare(store)
    index = ToolIndex()
    count = len(WORDS)
    index.add(
        Tool(f"tool_{n}", f"{WORDS[n % count]} the {WORDS[n // count % count]} {WORDS[n // 7 % count]}")
        for n in range(20_000)
    )
    queries = [LabelledQuery(f"{WORDS[n % count]} a {WORDS[n // 3 % count]}", (f"tool_{n}",)) for n in range(256)]
    direct, through = compare(
        lambda: _measure(_RankingMethods(index), queries), lambda: compare_methods(index, queries)
    )
    share = statistics.median(after / before for before, after in zip(direct, through, strict=True)) - 1
    result = {
        "items in memory, microseconds each": round(per_item * 1e6, 2),
        "items in a folder, microseconds each": round(statistics.median(stored) / ITEMS * 1e6, 1),
        "tools eval, plain loop, seconds": round(statistics.median(direct), 3),
        "tools eval, map_items, seconds": round(statistics.median(through), 3),
        "tools eval, overhead in percent": round(100 * share, 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
