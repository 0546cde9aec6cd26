"""Measure the order of the best tools with and without the reranker, and what the reranker costs.

    python bench/run.py retrieval_rerank
    python bench/retrieval_rerank.py --dev platform/520 metatool/own      # the development queries of some sets

The sets are a sample of the test queries of `retrieval/`, within the tools of their own corpus and within all, the platform's
requests in `tool_calls/evaluation`, and tasks of APIBench within their hub, where the right card is the reference API itself
(`gorilla_calls.py`). With `--dev`, they are the queries on which the weights of the reranker were chosen:
`retrieval/dev.jsonl` and `platform_requests.jsonl`. Each query is searched once; both orders are of the same tools. An
interval is the paired bootstrap of the difference over queries. CPU is of one thread, apart for tools that the reranker has
not read yet, and for tools that it has.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

# before numpy is imported: the CPU time of several threads is no measure
os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})

from gorilla import FILES, Hub
from platform_catalogue import index_endpoints
from platform_data import load_catalogue, load_large_catalogue, load_requests
from retrieval_data import DATA, HERE, CachedEncoder, has_data, open_encoder, read_lines
from retrieval_quality import read_tools
from toolwire.retrieve import SearchHit, TokenReranker, ToolIndex, open_minilm, open_reranker
from toolwire.retrieve.evaluation import bootstrap_difference
from toolwire.retrieve.ranking import RERANK_COUNT, rerank_hits, split_query

CUTS = (1, 3, 5, 10)
SETS = ("platform/520", "platform/5000", "metatool/own", "torchhub")
QUERIES = 120  # of a corpus and of a hub
TIMED = 40
SEED = 13

Rate = Callable[[list[SearchHit], int], float]


class Asked(NamedTuple):
    """A query, and the function that rates the first hits."""

    query: str
    rate: Rate


class QuerySet(NamedTuple):
    """An index and its queries. `within` says which tools the index has."""

    name: str
    within: str
    index: ToolIndex
    asked: list[Asked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--dev", action="store_true")
    parser.add_argument("--weights", type=float, nargs=2, help="of tokens and of the name, instead of the reranker's")
    given = parser.parse_args()
    encoder, reranker = open_encoder(), open_reranker()
    if given.weights:
        tokens, name = given.weights
        reranker = TokenReranker(open_minilm(), token_weight=tokens, name_weight=name)
    rows = []
    for name in given.sets:
        chosen = open_set(name, encoder, is_dev=given.dev)
        encoder.encode([text for asked in chosen.asked for text in split_query(asked.query)])
        encoder.save()
        rows.append(compare_orders(chosen, reranker))
        print(rows[-1], file=sys.stderr, flush=True)
    cpu = None if given.dev else measure_cpu(encoder)
    print(json.dumps({"rows": rows, "cpu": cpu, "encoder": encoder.name, "count": RERANK_COUNT}))


def compare_orders(one: QuerySet, reranker: TokenReranker) -> dict:
    plain, ordered = defaultdict(list), defaultdict(list)
    for asked in one.asked:
        hits = one.index.search(asked.query, RERANK_COUNT)
        for values, ranked in ((plain, hits), (ordered, rerank_hits(reranker, asked.query, hits))):
            for cut in CUTS:
                values[cut].append(asked.rate(ranked, cut))
    return {
        "name": one.name,
        "within": one.within,
        "queries": len(one.asked),
        "plain": {cut: 100 * statistics.mean(plain[cut]) for cut in CUTS},
        "reranked": {cut: 100 * statistics.mean(ordered[cut]) for cut in CUTS},
        "difference": {
            cut: [100 * value for value in bootstrap_difference(ordered[cut], plain[cut], seed=1)] for cut in CUTS
        },
    }


def open_set(name: str, encoder: CachedEncoder, *, is_dev: bool) -> QuerySet:
    kind, _, within = name.partition("/")
    if kind == "platform":
        endpoints = load_catalogue() if within == "520" else load_large_catalogue()
        test = HERE / "tool_calls" / "evaluation" / "platform.jsonl"
        asked = [
            Asked(line["request"], rate_any({tuple(one.split("/", 1)) for one in line["endpoints"]}))
            for line in (load_requests() if is_dev else read_lines(test))
        ]
        return QuerySet(kind, f"{len(endpoints):,}", index_endpoints(endpoints, encoder), asked)
    if kind in FILES:
        hub = Hub(kind, encoder)
        asked = [Asked(task["query"], rate_card(hub, task)) for task in sample(hub.tasks, kind)]
        return QuerySet(kind, f"{len(hub.cards):,}", hub._index, asked)
    rows, tools = read_tools()
    names = {row["id"]: tool.name for row, tool in zip(rows, tools, strict=True)}
    lines = read_lines(DATA / "retrieval" / ("dev.jsonl" if is_dev else "test.jsonl"))
    asked = [
        Asked(line["query"], rate_share({("", names[one]) for one in line["gold"]}))
        for line in sample([line for line in lines if line["corpus"] == kind], kind)
    ]
    index = ToolIndex(encoder)
    index.add([tool for row, tool in zip(rows, tools, strict=True) if within == "all" or row["corpus"] == kind])
    return QuerySet(kind, within, index, asked)


def sample(items: list, name: str) -> list:
    return random.Random(f"{SEED} {name}").sample(items, min(QUERIES, len(items)))


def rate_share(gold: set[tuple[str, str]]) -> Rate:
    """Rate by the share of the right tools that are among the first."""
    return lambda hits, cut: len(gold & {(hit.server, hit.tool.name) for hit in hits[:cut]}) / len(gold)


def rate_any(gold: set[tuple[str, str]]) -> Rate:
    """Rate by whether a right tool is among the first."""
    return lambda hits, cut: float(any((hit.server, hit.tool.name) in gold for hit in hits[:cut]))


def rate_card(hub: Hub, task: dict) -> Rate:
    """Rate by whether the reference API of a task is among the first cards."""

    def is_reference(hit: SearchHit) -> bool:
        card = hub.cards[hub._numbers[hit.tool.name]]
        return hub.database.judge(card["api_call"], task["reference"]) == "exact"

    return lambda hits, cut: float(any(map(is_reference, hits[:cut])))


def measure_cpu(encoder: CachedEncoder) -> dict:
    """Return milliseconds of CPU of a search with the query's embedding, and of the reranker, as medians."""
    plain, reranker = open_minilm(), TokenReranker(open_minilm())
    index = index_endpoints(load_catalogue(), encoder)
    index.encoder = plain  # encodes each query anew
    queries = [line["request"] for line in read_lines(HERE / "tool_calls" / "evaluation" / "platform.jsonl")][:TIMED]
    times = defaultdict(list)
    for query in queries:
        began = time.process_time()
        hits = index.search(query, RERANK_COUNT)
        times["search"].append(time.process_time() - began)
        for kind, used in (("cold", TokenReranker(plain)), ("warm", reranker)):
            if kind == "warm":
                used.score(query, hits)
            began = time.process_time()
            used.score(query, hits)
            times[kind].append(time.process_time() - began)
    return {kind: 1e3 * statistics.median(values) for kind, values in times.items()}


if __name__ == "__main__":
    if has_data("retrieval", "apibench", "apizoo", "tool_schemas"):
        main()
