"""Vectors of texts by their digest, shared by all clients (needs numpy).

Only digests and vectors are kept, so nothing of a client's text can reach another client.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ...retrieve.vectors import Encoder, ProgressCallback, Vectors

__all__ = ["VectorCache"]

_MAX_BYTES = 64 * 1024 * 1024
_ENTRY_OVERHEAD = 250  # bytes


class VectorCache:
    """An encoder that encodes each text once, while its vector is among the most recently used ones."""

    def __init__(self, encoder: Encoder, max_bytes: int = _MAX_BYTES) -> None:
        self._encoder = encoder
        self._max_vectors = max(1, max_bytes // (4 * encoder.dimensions + _ENTRY_OVERHEAD))
        self._lock = threading.Lock()
        self._vectors: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    @property
    def name(self) -> str:
        return self._encoder.name

    @property
    def dimensions(self) -> int:
        return self._encoder.dimensions

    def encode(self, texts: Sequence[str], progress: ProgressCallback | None = None) -> Vectors:
        """Return one vector per text. Only texts without a stored vector are encoded."""
        digests = [_digest(text) for text in texts]
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        missing: dict[bytes, list[int]] = {}
        with self._lock:
            for number, digest in enumerate(digests):
                vector = self._vectors.get(digest)
                if vector is None:
                    missing.setdefault(digest, []).append(number)
                else:
                    self._vectors.move_to_end(digest)
                    vectors[number] = vector
        if missing:
            encoded = self._encoder.encode([texts[numbers[0]] for numbers in missing.values()], progress)
            for vector, numbers in zip(encoded, missing.values(), strict=True):
                vectors[numbers] = vector
            self._keep(missing, encoded)
        return vectors

    def list_missing(self, texts: Sequence[str]) -> list[str]:
        """Return the texts without a stored vector."""
        digests = [_digest(text) for text in texts]
        with self._lock:
            return [text for text, digest in zip(texts, digests, strict=True) if digest not in self._vectors]

    def _keep(self, digests: dict[bytes, list[int]], encoded: Vectors) -> None:
        with self._lock:
            for digest, vector in zip(digests, encoded, strict=True):
                self._vectors[digest] = vector.copy()  # a view would keep the whole batch
            while len(self._vectors) > self._max_vectors:
                self._vectors.popitem(last=False)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
