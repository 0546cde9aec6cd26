"""Measure how often the right tools are found, beside BM25, MiniLM and their plain fusion.

    python bench/run.py retrieval_quality              # the test queries, as a table
    python bench/retrieval_quality.py --split dev      # the development queries, on which the numbers were chosen

Every query is searched within the tools of its own corpus and within all tools. The baselines are those of the table in
`retrieval/README.md`: BM25 with split identifiers and the parameters of bm25s, all-MiniLM-L6-v2 with cosine similarity,
and reciprocal rank fusion (k = 60). An interval is the paired bootstrap of the difference to the best baseline, over
queries. Vectors are cached (`retrieval_data.py`); the first run encodes 33,000 texts, which takes half an hour of CPU.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import mean

import numpy as np

from retrieval_data import DATA, Bm25, CachedEncoder, baseline_text, best_numbers, make_tool, read_lines
from toolwire import Tool
from toolwire.retrieve import ToolIndex, open_minilm
from toolwire.retrieve.evaluation import bootstrap_difference, ndcg, recall

CUTS = (1, 5, 10)
DEPTH = 10
_RANK_OFFSET = 60
BASELINES = ("BM25", "MiniLM", "RRF")
OURS = ("words only", "toolwire")


class Corpus:
    """Some of the tools, searched by every method. Results are numbers of tools in the whole list."""

    def __init__(
        self, numbers: Sequence[int], tools: Sequence[Tool], plain: CachedEncoder, adapted: CachedEncoder
    ) -> None:
        self.numbers = list(numbers)
        chosen = [tools[number] for number in numbers]
        texts = [baseline_text(tool) for tool in chosen]
        self._by_name = {tool.name: number for tool, number in zip(chosen, numbers, strict=True)}
        self._bm25 = Bm25(texts)
        self._plain = plain
        self._vectors = plain.encode(texts)
        self._index, self._words = ToolIndex(adapted), ToolIndex()
        self._index.add(chosen)
        self._words.add(chosen)

    def search(self, query: str) -> dict[str, list[int]]:
        words = self._bm25.score(query)
        meanings = (self._plain.encode([query]) @ self._vectors.T)[0]
        fused = _reciprocal_ranks(words) + _reciprocal_ranks(meanings)
        found = {"BM25": words, "MiniLM": meanings, "RRF": fused}
        ranked = {name: [self.numbers[one] for one in best_numbers(scores, DEPTH)] for name, scores in found.items()}
        for name, index in zip(OURS, (self._words, self._index), strict=True):
            ranked[name] = [self._by_name[hit.tool.name] for hit in index.search(query, DEPTH)]
        return ranked


def _reciprocal_ranks(scores: np.ndarray) -> np.ndarray:
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return 1 / (_RANK_OFFSET + ranks)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def read_tools() -> tuple[list[dict], list[Tool]]:
    """Return the rows of the file and their tools. A repeated name gets a number."""
    rows = read_lines(DATA / "retrieval" / "tools.jsonl")
    seen: dict[str, int] = defaultdict(int)
    tools = []
    for row in rows:
        seen[row["name"]] += 1
        tools.append(make_tool(row["name"], row["description"], row["parameters"], seen[row["name"]] - 1))
    return rows, tools


def measure(split: str) -> dict:
    """Return per corpus and set of tools, per method, the values of each query."""
    rows, tools = read_tools()
    ids = {row["id"]: number for number, row in enumerate(rows)}
    queries = read_lines(DATA / "retrieval" / f"{split}.jsonl")
    plain, adapted = CachedEncoder(open_minilm(adapted=False)), CachedEncoder(open_minilm())
    by_corpus: dict[str, list[dict]] = defaultdict(list)
    for query in queries:
        by_corpus[query["corpus"]].append(query)
    _report("encode all tools")
    whole = Corpus(range(len(tools)), tools, plain, adapted)
    plain.save()
    adapted.save()
    results: dict = {}
    for corpus, asked in sorted(by_corpus.items()):
        own = Corpus([number for number, row in enumerate(rows) if row["corpus"] == corpus], tools, plain, adapted)
        for name, place in (("own", own), ("all", whole)):
            _report(f"{corpus} within {name}: {len(asked)} queries")
            values: dict = defaultdict(lambda: defaultdict(list))
            for query in asked:
                gold = {ids[one] for one in query["gold"]}
                for method, ranked in place.search(query["query"]).items():
                    for cut in CUTS:
                        values[method][f"R@{cut}"].append(recall(ranked, gold, cut))
                    values[method]["NDCG@10"].append(ndcg(ranked, gold, DEPTH))
            results[corpus, name] = {method: dict(columns) for method, columns in values.items()}
        plain.save()
        adapted.save()
    return results


def compare(values: dict) -> tuple[str, float, float, float]:
    """Return the best baseline by R@10, and the difference of toolwire to it with its interval."""
    best = max(BASELINES, key=lambda name: mean(values[name]["R@10"]))
    difference = bootstrap_difference(values["toolwire"]["R@10"], values[best]["R@10"], seed=1)
    return (best, *(100 * one for one in difference))


def summarise(results: dict, split: str) -> dict:
    """Return the means of each method, and the comparison with the best baseline, one row per corpus and set of tools."""
    rows = []
    for (corpus, place), values in results.items():
        means = {
            method: {column: 100 * mean(scores) for column, scores in columns.items()}
            for method, columns in values.items()
        }
        best, difference, low, high = compare(values)
        count = len(values["toolwire"]["R@10"])
        interval = {"best": best, "difference": difference, "low": low, "high": high}
        rows.append({"corpus": corpus, "within": place, "queries": count, "means": means, **interval})
    return {"split": split, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", default="test", choices=("dev", "test"))
    given = parser.parse_args()
    print(json.dumps(summarise(measure(given.split), given.split)))


if __name__ == "__main__":
    main()
