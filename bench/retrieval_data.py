"""Data, encoder and BM25 baseline of the benchmarks of retrieval.

The data is not part of the repository: TOOLWIRE_BENCH_DATA names the folder with `retrieval/`, `apibench/`, `apizoo/` and
`tool_schemas/`; the default is `../shared/data` beside the checkout. Vectors are cached in `bench/.cache-retrieval`,
because the encoding of 10,000 tools takes minutes.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import numpy as np

from toolwire import Tool

HERE = Path(__file__).parent
DATA = Path(os.environ.get("TOOLWIRE_BENCH_DATA") or HERE.parent.parent / "shared" / "data")
CACHE = HERE / ".cache-retrieval"

_IDENTIFIER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[a-z0-9]+")


def has_data(*folders: str) -> bool:
    """Return True if these folders exist. Otherwise print an empty result, with which `run.py` keeps the old section."""
    if all((DATA / folder).is_dir() for folder in folders):
        return True
    print(f"no data in {DATA}: set TOOLWIRE_BENCH_DATA", file=sys.stderr)
    print("null")
    return False


def read_lines(path: Path) -> list[dict]:
    """Read a file of JSON Lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def make_tool(name: str, description: str, parameters: list[dict], number: int = 0) -> Tool:
    """Make a tool of a name, a description and parameters with `name` and `description`."""
    properties = {one["name"]: {"type": "string", "description": one.get("description") or ""} for one in parameters}
    return Tool(f"{name} {number}" if number else name, description, {"type": "object", "properties": properties})


def tokenize(text: str) -> list[str]:
    """Split a text for the BM25 baseline: identifiers are split, nothing else is changed."""
    return _WORD.findall(_IDENTIFIER.sub(" ", text).lower())


def baseline_text(tool: Tool) -> str:
    """Return the text of a tool for the baselines: name, description, names and descriptions of parameters."""
    properties = (tool.input_schema or {}).get("properties") or {}
    parameters = (f"{name} {one.get('description') or ''}" for name, one in properties.items())
    return " ".join([tool.name, tool.description or "", *parameters])


class Bm25:
    """BM25 of bm25s with its default parameters."""

    def __init__(self, texts: list[str]) -> None:
        import bm25s

        self._index = bm25s.BM25()
        self._index.index([tokenize(text) for text in texts], show_progress=False)

    def score(self, query: str) -> np.ndarray:
        known = [word for word in tokenize(query) if word in self._index.vocab_dict]
        if not known:
            return np.zeros(self._index.scores["num_docs"], np.float32)
        return self._index.get_scores(known)

    def search(self, query: str, k: int) -> list[int]:
        return best_numbers(self.score(query), k)


def best_numbers(scores: np.ndarray, k: int) -> list[int]:
    """Return the numbers of the k highest scores, the highest first."""
    k = min(k, len(scores))
    best = np.argpartition(-scores, k - 1)[:k]
    return [int(number) for number in best[np.lexsort((best, -scores[best]))]]


def open_encoder() -> "CachedEncoder":
    """Return the encoder of our retriever, with a cache on disk."""
    from toolwire.retrieve import open_minilm

    return CachedEncoder(open_minilm())


class CachedEncoder:
    """An encoder that keeps its vectors on disk, by the hash of the text."""

    def __init__(self, encoder) -> None:
        self.encoder = encoder
        self.name = encoder.name
        self.dimensions = encoder.dimensions
        self._file = CACHE / f"{re.sub(r'[^A-Za-z0-9.-]', '_', self.name)}.npz"
        self._vectors: dict[str, np.ndarray] = {}
        self._is_changed = False
        if self._file.exists():
            with np.load(self._file) as stored:
                self._vectors = dict(zip(map(str, stored["keys"]), stored["vectors"], strict=True))

    def encode(self, texts, progress=None) -> np.ndarray:
        keys = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors}
        if missing:
            vectors = self.encoder.encode(list(missing.values()), progress)
            self._vectors.update(zip(missing, vectors, strict=True))
            self._is_changed = True
        return np.stack([self._vectors[key] for key in keys]) if keys else np.zeros((0, self.dimensions), np.float32)

    def clear(self) -> None:
        """Free the memory of the vectors."""
        self._vectors.clear()
        self._is_changed = False

    def save(self) -> None:
        """Write the vectors if there are new ones."""
        if not self._is_changed:
            return
        CACHE.mkdir(exist_ok=True)
        temporary = self._file.with_suffix(".new.npz")
        vectors = np.array(list(self._vectors.values()), np.float32)
        np.savez(temporary, keys=np.array(list(self._vectors)), vectors=vectors)
        temporary.replace(self._file)
        self._is_changed = False
