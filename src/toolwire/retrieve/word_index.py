"""An inverted index of the words of tools with BM25 scores (needs numpy).

Documents have numbers. Each addition is a segment of its own, and segments of similar size are merged, so that an
update costs about as much as its change, and a saved index is read from a memory map. Removed documents are excluded
from the counts at once, and from the segments when these are merged. Scores depend only on the documents that are
present, not on the order of the changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..run.tools.words import split_words
from .documents import FIELDS, ToolDocument
from .vectors import GrowingArray

Floats: TypeAlias = NDArray[np.float32]
FieldCounts: TypeAlias = Sequence[int]

FIELD_WEIGHTS = np.array([2.0, 1.0, 0.5], np.float32)
LENGTH_WEIGHTS = np.array([0.4, 0.75, 0.6], np.float32)  # b of BM25 per field: the discount for a long text
SATURATION = 1.5  # k1 of BM25: how soon further occurrences of a word stop to count
_MAX_COUNT = 4  # occurrences of a word in a field that count
# each costs a pass over its postings; a longer query is a document, and its first part states the request
_MAX_QUERY_WORDS = 200
_MAX_QUERY_COUNT = 2  # repetitions of a word in a query that count


class Segment(NamedTuple):
    """The documents that contain each word, and the occurrences of the word per field. The arrays never change."""

    offsets: NDArray[np.int64]  # the entries of word w are at offsets[w]:offsets[w + 1]
    documents: NDArray[np.int32]
    counts: NDArray[np.uint8]  # one row of FIELDS per entry

    def find(self, word: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the documents of a word, and its occurrences there."""
        if word + 1 >= len(self.offsets):  # a later segment brought the word
            return self.documents[:0], self.counts[:0]
        start, stop = self.offsets[word], self.offsets[word + 1]
        return self.documents[start:stop], self.counts[start:stop]


class WordIndex:
    """Finds documents by words. The caller chooses the numbers of documents and never uses one twice."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.document_counts = GrowingArray(np.int32)  # per word, the number of documents that contain it
        self.lengths = GrowingArray(np.float32, len(FIELDS))
        self.is_present = GrowingArray(np.bool_)
        self.totals = np.zeros(len(FIELDS), np.float64)  # the sum of the lengths of present documents
        self.count = 0
        self.segments: list[Segment] = []
        self._norms: Floats | None = None  # computed by the first query after a change

    def add(self, first_number: int, documents: Sequence[ToolDocument]) -> None:
        """Add documents with successive numbers as a new segment, and merge small segments."""
        entries: list[tuple[int, int, FieldCounts]] = []
        for number, document in enumerate(documents, first_number):
            counts, lengths = _count_words(document)
            entries += [(self._word_number(word), number, fields) for word, fields in counts.items()]
            self.lengths.set(number, lengths)
            self._change_counts(counts, lengths, 1)
            self.is_present.set(number, value=True)
        if entries:
            self.segments.append(_build_segment(entries, len(self.words)))
        self._merge_segments()

    def remove(self, number: int, document: ToolDocument) -> None:
        """Remove a document that was added with this number."""
        self._change_counts(*_count_words(document), -1)
        self.is_present.set(number, value=False)

    def score(self, query: str) -> Floats:
        """Return the BM25 score of every number for a query; 0 for removed documents."""
        scores = np.zeros(len(self.is_present), np.float32)
        if not self.count:
            return scores
        found, counts, weights = self._collect_entries(query)
        frequency = np.einsum("ij,ij->i", counts, self._length_norms()[found])
        scores += np.bincount(found, weights * frequency / (frequency + SATURATION), len(scores))
        scores[~self.is_present.values] = 0
        return scores

    def _collect_entries(self, query: str) -> tuple[NDArray[np.int32], NDArray[np.uint8], Floats]:
        """Return the entries of all words of a query, with their weights, so that they are scored at once."""
        documents, counts, weights = (
            [np.zeros(0, np.int32)],
            [np.zeros((0, len(FIELDS)), np.uint8)],
            [np.zeros(0, np.float32)],
        )
        for word, weight in self.weigh_words(query).items():
            for segment in self.segments:
                found, occurrences = segment.find(word)
                documents.append(found)
                counts.append(occurrences)
                weights.append(np.full(len(found), weight * (SATURATION + 1), np.float32))
        return np.concatenate(documents), np.concatenate(counts), np.concatenate(weights)

    def match_fields(self, words: Sequence[str], numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return whether each field of each document contains each word: an array of numbers, words and fields."""
        matches = np.zeros((len(numbers), len(words), len(FIELDS)), np.bool_)
        for column, word in enumerate(words):
            for segment in self.segments if word in self.words else ():
                found, counts = segment.find(self.words[word])
                if len(found):
                    places = np.minimum(np.searchsorted(found, numbers), len(found) - 1)
                    is_found = found[places] == numbers
                    matches[is_found, column] = counts[places[is_found]] > 0
        return matches

    def weigh_words(self, query: str) -> dict[int, float]:
        """Return the weight of each known word of a query: its rarity times its bounded count in the query."""
        counts = Counter(split_words(query)[:_MAX_QUERY_WORDS])
        known = {self.words[word]: count for word, count in counts.items() if word in self.words}
        return {word: self._rarity(word) * min(count, _MAX_QUERY_COUNT) for word, count in known.items()}

    def _rarity(self, word: int) -> float:
        count = int(self.document_counts.values[word])
        return math.log(1 + (self.count - count + 0.5) / (count + 0.5))

    def _length_norms(self) -> Floats:
        """Return the weight of an occurrence per document and field: less in a long text."""
        if self._norms is None:
            average = np.maximum(self.totals / self.count, 1e-9).astype(np.float32)
            discounts = 1 - LENGTH_WEIGHTS + LENGTH_WEIGHTS * (self.lengths.values / average)
            self._norms = (FIELD_WEIGHTS / discounts).astype(np.float32)
        return self._norms

    def _word_number(self, word: str) -> int:
        number = self.words.setdefault(word, len(self.words))
        if number == len(self.document_counts):
            self.document_counts.set(number, 0)
        return number

    def _change_counts(self, counts: Mapping[str, FieldCounts], lengths: FieldCounts, sign: int) -> None:
        """Add or subtract the words of a document."""
        for word in counts:
            self.document_counts.values[self._word_number(word)] += sign
        self.totals += sign * np.array(lengths, np.float64)
        self._norms = None
        self.count += sign

    def _merge_segments(self) -> None:
        """Merge the last segments while they are of similar size: each entry is moved a logarithmic number of times."""
        while len(self.segments) > 1 and len(self.segments[-1].documents) * 2 > len(self.segments[-2].documents):
            last, previous = self.segments.pop(), self.segments.pop()
            self.segments.append(join_segments((previous, last), self.is_present.values, len(self.words)))


def _count_words(document: ToolDocument) -> tuple[dict[str, FieldCounts], FieldCounts]:
    """Count the words of a document per field, each at most a few times, and the length of each field.

    Repetition does not help: repeated words count towards the length, but not towards the match.
    """
    counts: dict[str, list[int]] = {}
    lengths: list[int] = []
    for number, field in enumerate(FIELDS):
        words = split_words(document.field_text(field))
        lengths.append(len(words))
        for word, count in Counter(words).items():
            counts.setdefault(word, [0] * len(FIELDS))[number] = min(count, _MAX_COUNT)
    return dict(counts), lengths


def _build_segment(entries: Sequence[tuple[int, int, FieldCounts]], words: int) -> Segment:
    numbers = np.array([entry[0] for entry in entries], np.int64)
    documents = np.array([entry[1] for entry in entries], np.int32)
    counts = np.array([entry[2] for entry in entries], np.uint8).reshape(-1, len(FIELDS))
    return _sort_entries(numbers, documents, counts, words)


def _sort_entries(
    numbers: NDArray[np.int64], documents: NDArray[np.int32], counts: NDArray[np.uint8], words: int
) -> Segment:
    """Order the entries by word. Entries of one word stay in the order of their documents."""
    order = np.argsort(numbers, kind="stable")
    offsets = np.zeros(words + 1, np.int64)
    np.cumsum(np.bincount(numbers, minlength=words), out=offsets[1:])
    return Segment(offsets, documents[order], counts[order])


def join_segments(segments: Sequence[Segment], is_present: NDArray[np.bool_], words: int) -> Segment:
    """Return one segment with the entries of several, without entries of removed documents."""
    if not segments:
        return _build_segment((), words)
    numbers = [np.repeat(np.arange(len(part.offsets) - 1), np.diff(part.offsets)) for part in segments]
    documents = np.concatenate([part.documents for part in segments])
    kept = is_present[documents]
    counts = np.concatenate([part.counts for part in segments])
    return _sort_entries(np.concatenate(numbers)[kept], documents[kept], counts[kept], words)
