"""Save the parts of an index, and open saved ones.

A saved index is compact: removed tools and their words are left out, and numbers start at 0. Opening one reads the
words and maps the rest into memory, which processes share. If two processes save to one path, the last one wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProtocolError, StoreError
from ..ir.text import to_bytes
from ..ir.tools import Tool
from ..run.tools.words import split_words
from .documents import FIELDS, make_document
from .entry_table import EFFECTS, EntryTable, IndexedTool, decode_entry, encode_entry
from .section_file import REBUILD, IndexFile, IndexFileError, IndexInfo, Manifest, open_index_file, write_index_file
from .vectors import Encoder, GrowingArray, Vectors, VectorTable
from .word_index import Segment, WordIndex, join_segments

_ROWS = 8_192  # vectors that are copied at once


class IndexParts(NamedTuple):
    """The content of an index. `vectors` is None for an index of words only."""

    entries: EntryTable
    words: WordIndex
    vectors: VectorTable | None


class IndexSnapshot:
    """The content of an index at one time. It is taken under the lock of the index, and written without it."""

    def __init__(self, parts: IndexParts, encoder: str | None) -> None:
        """Copy the parts, so that they can be written without the index's lock.

        Raises `StoreError` if they have different lengths, after a change that failed halfway.
        """
        self._encoder = encoder
        entries, words, vectors = parts
        lengths = {entries.end, len(words.is_present), entries.end if vectors is None else len(vectors)}
        if len(lengths) > 1 or words.count != len(entries):
            raise StoreError("the index was not saved, because an earlier change of it failed", hint="make a new index")
        self._numbers = entries.numbers()
        self._names = entries.names()
        self._tools = entries.tools()
        self._servers, self._tag_sets, self._columns = entries.columns()
        self._words = list(words.words)
        self._segments = tuple(words.segments)
        self._is_present = words.is_present.values.copy()
        self._lengths = words.lengths.values[self._numbers]
        self._dimensions = 0 if vectors is None else vectors.dimensions
        self._blocks = () if vectors is None else vectors.blocks()

    def write(self, path: str | Path) -> None:
        """Write the index. A reader sees the old or the new index, also if this process is killed."""
        vocabulary, segment = self._compact_words()
        offsets, checks = [0], list[int]()
        sections: dict[str, Iterator[bytes | NDArray[np.generic]]] = {
            "columns": iter([self._columns[self._numbers]]),
            "names": iter([to_bytes(self._names)]),
            "tools": self._encode_tools(offsets, checks),
            "tool_offsets": (np.array(values, np.int64) for values in [offsets]),  # filled by the section before
            "tool_checks": (np.array(values, np.uint32) for values in [checks]),
            "words": iter([to_bytes(vocabulary)]),
            "word_offsets": iter([segment.offsets]),
            "documents": iter([segment.documents]),
            "counts": iter([segment.counts]),
            "lengths": iter([self._lengths]),
        }
        if self._encoder is not None:
            sections["vectors"] = self._list_vectors()
        info = IndexInfo(len(self._numbers), self._encoder, self._dimensions, tuple(self._servers))
        write_index_file(Path(path), Manifest(info, analysis_key(), tuple(self._tag_sets)), sections)

    def _encode_tools(self, offsets: list[int], checks: list[int]) -> Iterator[bytes]:
        for tool in self._tools:
            data = encode_entry(tool) if isinstance(tool, IndexedTool) else tool()
            offsets.append(offsets[-1] + len(data))
            checks.append(crc32(data))
            yield data

    def _compact_words(self) -> tuple[list[str], Segment]:
        """Return the words that occur and one segment, with new numbers for words and documents."""
        joined = join_segments(self._segments, self._is_present, len(self._words))
        sizes = np.diff(joined.offsets)
        offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
        numbers = np.cumsum(self._is_present) - 1
        vocabulary = [self._words[number] for number in np.flatnonzero(sizes)]
        return vocabulary, Segment(offsets, numbers[joined.documents].astype(np.int32), joined.counts)

    def _list_vectors(self) -> Iterator[Vectors]:
        first = 0
        for block in self._blocks:
            rows = self._numbers[(self._numbers >= first) & (self._numbers < first + len(block))] - first
            for start in range(0, len(rows), _ROWS):
                yield block[rows[start : start + _ROWS]]
            first += len(block)


def read_index_info(path: str | Path) -> IndexInfo:
    """Return the number of tools, the encoder and the servers of a saved index."""
    return open_index_file(Path(path)).manifest.info


def load_parts(path: str | Path, encoder: Encoder | None) -> tuple[IndexParts, str | None]:
    """Open a saved index.

    Without an encoder, or if the index has no vectors, it is searched without meanings. The second value is the name of
    the encoder of an index with vectors that is opened without them. Raises `IndexFileError` for a damaged or older
    index and for another encoder.
    """
    opened = open_index_file(Path(path))
    manifest = opened.manifest
    if manifest.analysis != analysis_key():
        raise IndexFileError(
            f"the index {path} was made by a version of toolwire that splits words differently", hint=REBUILD
        )
    if encoder is not None and manifest.info.encoder is not None:
        _check_encoder(opened, encoder)
    vectors = None if encoder is None else _load_vectors(opened)
    parts = IndexParts(EntryTable(_FileEntries(opened)), _load_words(opened), vectors)
    return parts, manifest.info.encoder if vectors is None else None


def _check_encoder(opened: IndexFile, encoder: Encoder) -> None:
    """Raise IndexFileError if the index was made with another encoder."""
    info = opened.manifest.info
    if (info.encoder, info.dimensions) != (encoder.name, encoder.dimensions):
        raise IndexFileError(
            f"the index {opened.path} was made with the encoder {info.encoder!r} ({info.dimensions} dimensions), "
            f"not with {encoder.name!r} ({encoder.dimensions})",
            hint=f"open it with the encoder {info.encoder!r}, or {REBUILD}",
        )


class _FileEntries:
    """The entries of a file. Each has a checksum, which is compared when the entry is read."""

    def __init__(self, opened: IndexFile) -> None:
        """Map the tables of a file. Raises `IndexFileError` if their lengths or values do not match."""
        info = opened.manifest.info
        self._file = opened
        self._data = opened.array("tools")
        self._offsets = opened.array("tool_offsets")
        self._checks = opened.array("tool_checks")
        self.columns = opened.array("columns")
        self.servers: Sequence[str] = info.servers
        self.tag_sets: Sequence[tuple[str, ...]] = opened.manifest.tag_sets
        sizes = (len(self.columns), len(self._offsets) - 1, len(self._checks))
        limits = np.array([len(self.servers), len(self.tag_sets), len(EFFECTS)])
        if any(size != info.tools for size in sizes) or not _are_offsets(self._offsets, len(self._data)):
            raise opened.damaged("its tables of tools have different lengths")
        if info.tools and ((self.columns < 0).any() or (self.columns >= limits).any()):
            raise opened.damaged("a tool has an unknown server, effect or set of tags")

    def names(self) -> Sequence[str]:
        names = self._file.texts("names")
        if len(names) != len(self.columns):
            raise self._file.damaged("its list of names has a different length")
        return names

    def read(self, number: int) -> bytes:
        data = self._data[self._offsets[number] : self._offsets[number + 1]].tobytes()
        if crc32(data) != self._checks[number]:
            raise self._file.damaged(f"the checksum of tool {number} does not match")
        return data

    def decode(self, number: int) -> IndexedTool:
        try:
            return decode_entry(self.read(number))
        except ProtocolError as error:
            raise self._file.damaged(f"tool {number} cannot be decoded: {error}") from None


def _load_words(opened: IndexFile) -> WordIndex:
    """Return the index of terms, with one segment for all tools.

    Raises `IndexFileError` if its tables are inconsistent.
    """
    count = opened.manifest.info.tools
    vocabulary = opened.texts("words")
    segment = Segment(opened.array("word_offsets"), opened.array("documents"), opened.array("counts"))
    lengths = opened.array("lengths")
    is_consistent = (
        len(lengths) == count
        and len(segment.offsets) == len(vocabulary) + 1
        and len(segment.counts) == len(segment.documents)
        and _are_offsets(segment.offsets, len(segment.documents))
        and (not len(segment.documents) or 0 <= segment.documents.min() <= segment.documents.max() < count)
        and bool(np.isfinite(lengths).all())
    )
    words = WordIndex()
    words.words = {word: number for number, word in enumerate(vocabulary)}
    if not is_consistent or len(words.words) != len(vocabulary):
        raise opened.damaged("its tables of words are inconsistent")
    words.document_counts = GrowingArray(np.int32, rows=np.diff(segment.offsets).astype(np.int32))
    words.lengths = GrowingArray(np.float32, len(FIELDS), lengths)
    words.is_present = GrowingArray(np.bool_, rows=np.ones(count, np.bool_))
    words.totals = lengths.sum(axis=0, dtype=np.float64)
    words.count = count
    words.segments = [segment] if vocabulary else []
    return words


def _load_vectors(opened: IndexFile) -> VectorTable | None:
    info = opened.manifest.info
    if info.encoder is None:
        return None
    vectors = opened.array("vectors")
    if len(vectors) != info.tools or not info.dimensions:
        raise opened.damaged("it has a different number of vectors")
    return VectorTable(info.dimensions, vectors, lambda: opened.check("vectors"))


def _are_offsets(offsets: NDArray[np.int64], end: int) -> bool:
    return bool(len(offsets) and offsets[0] == 0 and offsets[-1] == end and (np.diff(offsets) >= 0).all())


_SAMPLE = Tool(
    "getHTTPStatus_of.item2",
    "Lists cities, planning and stopped Größe 東京都の天気 e-mails; the classes' sizes.",
    {"properties": {"userId": {"description": "Identifier"}, "filters": {"items": {"properties": {"from": {}}}}}},
)


@cache
def analysis_key() -> str:
    """Identify the conversion of tools to words and texts by its result for a sample."""
    document = make_document(_SAMPLE, server="s", tags=("t",))
    words = [split_words(document.field_text(field)) for field in FIELDS]
    return sha256(repr((words, document.text)).encode()).hexdigest()[:16]
