"""Dictionaries of dictd, as Debian's packages `dict-*` install them: `NAME.index` and `NAME.dict.dz`.

A line of the index has a headword, the offset of its entry in the uncompressed text, and the length of the entry, with
tabs between them. Both numbers are in base 64, the most significant digit first (dictfmt(1)). `.dict.dz` is a gzip file
whose extra field allows random access. It is not used: the whole text is read, because mining needs most of it.

An entry is its headword, and below it the definitions (WordNet, FOLDOC) or the translations (FreeDict).

Passages are ranked by BM25. An answer is extracted, not written: MiniLM compares the question with the best passages, and
then with the sentences of the most similar one. So the cost of a question does not depend on the size of the dictionary.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import ConfigError, MissingExtra
from ...run.calls.context import ToolError
from ..run_folder import reading

if TYPE_CHECKING:
    from ...retrieve.vectors import Encoder

_FOLDER = Path("/usr/share/dictd")  # of the Debian packages
_DIGITS = {
    digit: value for value, digit in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}
_ABOUT = ("00database", "00-database")  # headwords of entries about the dictionary itself
_SENSE = re.compile(r"^ {1,12}(?:(?:n|v|adj|adv) )?\d{1,2}: ", re.MULTILINE)  # WordNet numbers the senses of a headword
_SYNONYMS = re.compile(r"\[syn:([^\[\]]*)\]")
_LINK = re.compile(r"[{}]")
_REMARK = re.compile(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]|/[^/]*/")  # grammar, notes and pronunciation in FreeDict
_NUMBER = re.compile(r"^\s*\d{1,2}\. ")

_CANDIDATES = 10  # passages that are encoded for a question; encoding is the cost of an answer
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")


def installed_dictionary(name: str, option: str) -> Path:
    """Return the index of a dictionary that its Debian package installed; raise MissingExtra if it is not installed."""
    path = _FOLDER / f"{name}.index"
    if not path.is_file():
        raise MissingExtra(
            f"there is no dictionary {name!r} in {_FOLDER}", hint=f"apt install dict-{name}, or give {option}=FILE"
        )
    return path


def dictionary_files(index: Path) -> tuple[Path, Path]:
    """Return the two files of a dictionary. Raise ConfigError if its text is missing."""
    for suffix in (".dict.dz", ".dict"):
        text = index.with_suffix(suffix)
        if text.is_file():
            return index, text
    raise ConfigError(f"{index} has no text: there is no {index.with_suffix('.dict.dz')}")


def read_passages(index: Path) -> list[str]:
    """Return the definitions of a dictionary, each with its headwords: "Canberra, capital of Australia: the capital …".

    Each sense is a passage. WordNet repeats a sense under each of its synonyms; it is one passage.
    """
    found: dict[str, None] = {}
    for entry in _read_entries(index):
        headword, _, body = entry.partition("\n")
        for sense in _SENSE.split(body):
            synonyms = _SYNONYMS.search(sense)
            names = _one_line(synonyms[1]) if synonyms else headword.strip()
            definition = _one_line(_SYNONYMS.sub("", sense))
            if definition:
                found[f"{names}: {definition}"] = None
    return list(found)


def read_translations(index: Path) -> dict[str, str]:
    """Return the first translation of each headword of a bilingual dictionary."""
    found: dict[str, str] = {}
    for entry in _read_entries(index):
        headword, _, body = entry.partition("\n")
        line = next((line for line in body.splitlines() if line.strip()), "")
        source = _one_line(_REMARK.sub(" ", headword))
        target = _one_line(_REMARK.sub(" ", _NUMBER.sub("", line))).split(",")[0]
        if source and target:
            found.setdefault(source, target)
    return found


def _read_entries(index: Path) -> Iterator[str]:
    """Yield the text of each entry once, also if several headwords lead to it. Raise ConfigError for damaged files."""
    _, file = dictionary_files(index)
    with reading(index):
        lines = index.read_bytes().splitlines()
    with reading(file):
        content = file.read_bytes()
    try:
        content = content if file.suffix == ".dict" else gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ConfigError(f"{file} is damaged: {error}", hint="install its package again") from None
    seen: set[tuple[int, int]] = set()
    for number, line in enumerate(lines, 1):
        headword, *place = line.split(b"\t")
        if headword.decode("utf-8", "replace").startswith(_ABOUT):
            continue
        try:
            start, size = map(_decode_number, place[:2])
        except (KeyError, ValueError):
            raise ConfigError(f"{index}, line {number} is not an entry of a dictionary") from None
        if start + size > len(content):
            raise ConfigError(f"{index}, line {number} is outside of {file}", hint="install its package again")
        if (start, size) not in seen:
            seen.add((start, size))
            yield content[start : start + size].decode("utf-8", "replace")


def _decode_number(digits: bytes) -> int:
    """Decode a number in base 64."""
    number = 0
    for digit in digits:
        number = number * 64 + _DIGITS[digit]
    return number


def _one_line(text: str) -> str:
    return " ".join(_LINK.sub("", text).split())


class PassageIndex:
    """Passages that are ranked by BM25. Several tools can share one."""

    def __init__(self, passages: Iterable[str]) -> None:
        """Raise ConfigError if there are no passages."""
        from ...retrieve.documents import ToolDocument
        from ...retrieve.word_index import WordIndex

        self.passages = list(passages)
        if not self.passages:
            raise ConfigError("there is no passage to search", hint="give at least one")
        self._words = WordIndex()
        self._words.add(0, [ToolDocument("", "", passage) for passage in self.passages])

    def find(self, query: str, count: int) -> list[str]:
        """Return the best passages for a query. Raise ToolError if no term occurs in any."""
        scores = self._words.score(query)
        best = (-scores).argsort(kind="stable")[:count]
        found = [self.passages[number] for number in best if scores[number] > 0]
        if not found:
            raise ToolError("nothing was found")
        return found

    def answer(self, question: str, encoder: Encoder) -> tuple[str, float]:
        """Return the sentence that answers a question, and the similarity of the question to its passage (a cosine).

        Raise ToolError as `find` does.
        """
        passages = self.find(question, _CANDIDATES)
        vectors = encoder.encode([question, *passages])
        similarities = vectors[1:] @ vectors[0]
        best = int(similarities.argmax())
        sentences = _SENTENCE_END.split(passages[best])
        likeness = encoder.encode(sentences) @ vectors[0] if len(sentences) > 1 else similarities[:1]
        return sentences[int(likeness.argmax())].rstrip(";"), float(similarities[best])
