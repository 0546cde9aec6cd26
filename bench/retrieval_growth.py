"""Measure how ToolIndex grows: query, build, memory, load and update at 1,000, 10,000 and 100,000 tools.

    python bench/retrieval_growth.py                all sizes; the first run encodes 9,856 tools and takes minutes
    python bench/retrieval_growth.py 1000           one size

1,000 tools are a sample of the five corpora of `retrieval/tools.jsonl`, 10,000 all 9,856 of them and 144 perturbed copies;
the vectors of the real ones are encoded. 100,000 are those and nine perturbed copies of each: a fifth of the words of the description is
replaced by words of other tools, the name gets a number, and the vector is the original's with noise (cosine about 0.9)
instead of an encoding of the new text. Queries are real ones of `retrieval/test.jsonl`. Each size runs in processes of its
own, with one thread. All times are CPU times; the embedding of the query, and of changed tools, is measured apart. The
peer is a plain numpy product over all vectors and bm25s with reciprocal rank fusion, the usual recipe; it has no filters,
reasons or updates.
"""

import ctypes
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from retrieval_data import (
    DATA,
    Bm25,
    CachedEncoder,
    baseline_text,
    best_numbers,
    has_data,
    make_tool,
    open_encoder,
    read_lines,
)
from toolwire import Tool
from toolwire.retrieve import ToolIndex
from toolwire.retrieve.documents import make_document
from toolwire.retrieve.ranking import split_query

SIZES = (1_000, 10_000, 100_000)
REAL = 9_856
QUERIES = 300
EMBEDDED = 60
UPDATES = (1, 10, 100)
ROUNDS = 9
K = 10
CHUNK = 10_000
REPLACED = 0.2  # share of the words of a copy
NOISE = 0.48  # gives a cosine of about 0.9


class KnownVectors:
    """An encoder of texts whose vectors are given in advance, so that searches and changes are measured without it."""

    def __init__(self, encoder: CachedEncoder) -> None:
        self.name, self.dimensions = encoder.name, encoder.dimensions
        self.vectors: dict[str, np.ndarray] = {}

    def encode(self, texts, progress=None) -> np.ndarray:
        return np.stack([self.vectors[text] for text in texts])


def main() -> None:
    if len(sys.argv) == 3:
        part, given = sys.argv[1:]
        measure = {"build": measure_index, "peer": measure_peer, "loaded": measure_loaded}[part]
        print(json.dumps(measure(given if part == "loaded" else int(given))))
        return
    rows = []
    for size in [int(given) for given in sys.argv[1:]] or SIZES:
        row = {"size": size, "ours": _run("build", size), "peer": _run("peer", size)}
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    print(json.dumps({"rows": rows, "queries": QUERIES, "rounds": ROUNDS, "k": K}))


def _run(*arguments: object) -> dict:
    """Measure a part in a process of its own, with one thread."""
    variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, check=True, env=variables, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def load_tools() -> list[Tool]:
    """Return the tools of the five corpora in a fixed random order, with unique names."""
    seen: dict[str, int] = {}
    tools = []
    for line in read_lines(DATA / "retrieval" / "tools.jsonl"):
        seen[line["name"]] = number = seen.get(line["name"], -1) + 1
        tools.append(make_tool(line["name"], line["description"], line["parameters"], number))
    random.Random(13).shuffle(tools)
    return tools


def iter_chunks(size: int, encoder: CachedEncoder) -> Iterator[tuple[list[Tool], np.ndarray]]:
    """Yield the tools of a catalogue with their vectors: first the real ones, then perturbed copies."""
    tools = load_tools()[:size]
    vectors = encoder.encode([make_document(tool).text for tool in tools])
    encoder.save()
    yield tools, vectors
    rng, noise = random.Random(14), np.random.default_rng(14)
    words = [word for tool in tools for word in (tool.description or "").split()]
    missing = size - len(tools)
    while missing:
        count = min(missing, CHUNK)
        picked = [rng.randrange(len(tools)) for _ in range(count)]
        copies = [perturb(tools[number], words, rng, missing - place) for place, number in enumerate(picked)]
        shifted = vectors[picked] + noise.normal(0, NOISE / np.sqrt(vectors.shape[1]), (count, vectors.shape[1]))
        yield copies, (shifted / np.linalg.norm(shifted, axis=1, keepdims=True)).astype(np.float32)
        missing -= count


def perturb(tool: Tool, words: list[str], rng: random.Random, number: int) -> Tool:
    """Return a copy with another name and some other words in its description."""
    changed = [rng.choice(words) if rng.random() < REPLACED else word for word in (tool.description or "").split()]
    return Tool(f"{tool.name} copy {number}", " ".join(changed), tool.input_schema)


def load_queries() -> list[str]:
    lines = read_lines(DATA / "retrieval" / "test.jsonl")
    return [line["query"] for line in random.Random(13).sample(lines, QUERIES)]


def measure_index(size: int) -> dict:
    """Build, search, save, load and change an index."""
    encoder, queries = open_encoder(), load_queries()
    known_queries = encode_queries(encoder, queries)
    documents = [make_document(tool).text for tool in load_tools()[:EMBEDDED]]
    encoding = cpu_seconds(lambda: encoder.encoder.encode(documents)) / EMBEDDED
    embedding = percentiles(
        [cpu_seconds(lambda text=text: encoder.encoder.encode([text])) for text in queries[:EMBEDDED]]
    )
    known = KnownVectors(encoder)
    index = ToolIndex(known)
    built, changeable, resident = 0.0, [], resident_bytes()
    for tools, vectors in iter_chunks(size, encoder):
        known.vectors = {make_document(tool).text: vector for tool, vector in zip(tools, vectors, strict=True)}
        built += cpu_seconds(lambda tools=tools: index.add(tools))
        changeable = changeable or tools[:1_000]
    known.vectors = known_queries
    del tools, vectors
    resident = resident_bytes() - resident
    encoder.clear()
    result = {
        "encoder": encoder.name,
        "build": built,
        "encoding": encoding,
        "resident": resident,
        "embedding": embedding,
        "query": measure_queries(index, queries),
        "filtered": measure_queries(index, queries, effects=["write"]),
        "changes": measure_changes(index, known, changeable),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tools.index"
        result["save"] = cpu_seconds(lambda: index.save(path))
        result["file"] = path.stat().st_size
        result["loaded"] = _run("loaded", path)
    return result


def encode_queries(encoder: CachedEncoder, queries: list[str]) -> dict[str, np.ndarray]:
    """Return the vectors of all texts that searches for the queries encode."""
    texts = [text for query in queries for text in split_query(query)]
    vectors = encoder.encode(texts)
    encoder.save()
    return dict(zip(texts, vectors, strict=True))


def measure_loaded(path: str) -> dict:
    """Load an index that `measure_index` has saved, and search it."""
    encoder, queries = open_encoder(), load_queries()
    known = KnownVectors(encoder)
    known.vectors = encode_queries(encoder, queries)
    before, loaded = resident_kinds(), list[ToolIndex]()
    load = cpu_seconds(lambda: loaded.append(ToolIndex.load(path, known)))
    first = cpu_seconds(lambda: loaded[0].search(queries[0], K))
    query = measure_queries(loaded[0], queries)
    memory = {kind: count - before[kind] for kind, count in resident_kinds().items()}
    return {"load": load, "first": first, "query": query, "memory": memory}


def measure_queries(index: ToolIndex, queries: list[str], **filters) -> dict:
    for query in queries[:5]:
        index.search(query, K, **filters)
    return percentiles([cpu_seconds(lambda query=query: index.search(query, K, **filters)) for query in queries])


def measure_changes(index: ToolIndex, known: KnownVectors, tools: list[Tool]) -> dict:
    """Update, remove and add 1, 10 and 100 tools; the median of several rounds, without the embedding."""
    result = {}
    rng = random.Random(15)
    kept = known.vectors
    vector = next(iter(kept.values()))
    for count in UPDATES:
        times: dict[str, list[float]] = {"update": [], "remove": [], "add": []}
        for number in range(ROUNDS):
            chosen = rng.sample(tools, count)
            changed = [Tool(one.name, f"{one.description} revision {number}", one.input_schema) for one in chosen]
            known.vectors = dict.fromkeys((make_document(tool).text for tool in changed), vector)
            names = [tool.name for tool in changed]
            times["update"].append(cpu_seconds(lambda changed=changed: index.add(changed)))
            times["remove"].append(cpu_seconds(lambda names=names: index.remove(names)))
            times["add"].append(cpu_seconds(lambda changed=changed: index.add(changed)))
        result[str(count)] = {kind: sorted(values)[ROUNDS // 2] for kind, values in times.items()}
        result[str(count)]["worst"] = max(times["update"])
    known.vectors = kept
    return result


def measure_peer(size: int) -> dict:
    """Measure numpy and bm25s with reciprocal rank fusion."""
    encoder = open_encoder()
    queries = load_queries()
    query_vectors = encoder.encode(queries)
    texts, blocks = [], []
    for tools, vectors in iter_chunks(size, encoder):
        texts += [baseline_text(tool) for tool in tools]
        blocks.append(vectors)
    before = resident_bytes()
    built = time.process_time()
    matrix, words = np.concatenate(blocks), Bm25(texts)
    built = time.process_time() - built

    def search(number: int) -> list[int]:
        fused = fuse_ranks(words.score(queries[number]), matrix @ query_vectors[number])
        return best_numbers(fused, K)

    for number in range(5):
        search(number)
    query = percentiles([cpu_seconds(lambda number=number: search(number)) for number in range(len(queries))])
    return {"build": built, "resident": resident_bytes() - before, "query": query}


def fuse_ranks(*scores: np.ndarray) -> np.ndarray:
    """Reciprocal rank fusion with the usual constant of 60."""
    fused = np.zeros(len(scores[0]), np.float32)
    for one in scores:
        ranks = np.empty(len(one), np.float32)
        ranks[np.argsort(-one)] = np.arange(1, len(one) + 1)
        fused += 1 / (60 + ranks)
    return fused


def cpu_seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds."""
    return {name: float(np.percentile(seconds, share)) * 1e3 for name, share in (("p50", 50), ("p99", 99))}


def resident_bytes() -> int:
    """Return the resident memory after free memory was returned to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return sum(resident_kinds().values())


def resident_kinds() -> dict[str, int]:
    """Return the resident memory of this process: its own, and pages of files, which processes share."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    values = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if "Rss" in name
    }
    return {"own": values["RssAnon"], "shared": values["RssFile"]}


if __name__ == "__main__":
    if has_data("retrieval"):
        main()
