"""Ways to cut bytes into chunks. A decoder must give the same result for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

__all__ = ["bytewise", "every_split", "random_chunks"]


def every_split(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the data in two pieces, cut at every position."""
    for position in range(len(data) + 1):
        yield data[:position], data[position:]


def bytewise(data: bytes) -> list[bytes]:
    """Return the data byte by byte."""
    return [data[position : position + 1] for position in range(len(data))]


def random_chunks(data: bytes, random: Random, pieces: int) -> list[bytes]:
    """Return the data in about `pieces` pieces, cut at random positions."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(max(pieces - 1, 0)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
