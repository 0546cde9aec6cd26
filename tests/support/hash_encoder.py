"""A real encoder without weights: texts with common words have similar vectors. It counts the texts that it encoded."""

from functools import cache
from zlib import crc32

import numpy as np

from toolwire.run.tools.words import split_words


class HashEncoder:
    """Adds a fixed pseudo-random vector per word."""

    def __init__(self, name="hash", dimensions=16):
        self.name = name
        self.dimensions = dimensions
        self.texts = []

    def encode(self, texts, progress=None):
        self.texts += texts
        vectors = np.array([self._sum_words(text) for text in texts], np.float32).reshape(-1, self.dimensions)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def _sum_words(self, text):
        rows = [make_vector(word, self.dimensions) for word in split_words(text)]
        return np.sum(rows, axis=0) if rows else np.zeros(self.dimensions)


@cache
def make_vector(word, dimensions):
    return np.random.default_rng(crc32(word.encode())).standard_normal(dimensions)
