"""Ways to cut bytes. A decoder must not care."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

__all__ = ["bytewise", "every_split", "random_chunks"]


def every_split(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The data in two pieces, at every place."""
    for position in range(len(data) + 1):
        yield data[:position], data[position:]


def bytewise(data: bytes) -> list[bytes]:
    """The data byte by byte."""
    return [data[position : position + 1] for position in range(len(data))]


def random_chunks(data: bytes, random: Random, pieces: int) -> list[bytes]:
    """The data in about `pieces` pieces, cut at random places."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(max(pieces - 1, 0)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
