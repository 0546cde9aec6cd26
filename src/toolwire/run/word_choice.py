"""Select tools for a request by the words that they share with the user's texts, in pure Python.

    prepare(request, wire, choose=choose_by_words)

BM25 over the names, descriptions and parameters of the tools. The cost is linear in the number of tools and bounded: each
tool contributes at most `_MAX_CHARACTERS` characters, and fewer if the list is long. The words of a declaration are
cached by a digest of its text. `toolwire.retrieve` has a better ranking, which needs numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from heapq import nsmallest
from itertools import islice
from math import log

from ..ir.parts import Text
from ..ir.request import Request
from ..ir.tools import Tool
from .words import split_words

__all__ = ["choose_by_words", "rank_by_words"]

_MAX_CHARACTERS = 1_200  # of a declaration
_ALL_CHARACTERS = 800_000  # of all declarations of a request
_MIN_CHARACTERS = 80  # of a declaration in the longest list
_MAX_WORDS = 120  # of a declaration
_MAX_QUERY_WORDS = 200
_MAX_TEXTS = 3  # user texts that are read, the last one first
_CACHED_TOOLS = 20_000
_NAME_WEIGHT = 3
_MAX_COUNT = 4  # occurrences of a word that count: repetition does not help
_SATURATION = 1.2  # k1 of BM25
_LENGTH_WEIGHT = 0.5  # b of BM25

_words_by_digest: dict[bytes, tuple[str, ...]] = {}


def choose_by_words(request: Request, tools: Sequence[Tool], count: int) -> Sequence[Tool]:
    """Return the `count` tools that share the most significant words with the last texts of the user.

    The result has the order of `tools`. Tools without a common word are selected by name, never by position, so that
    the same set of tools has the same selection in every order.
    """
    if count <= 0:
        return ()
    if len(tools) <= count:
        return tools
    scores = _score_tools(tools, _query_weights(request))
    best = nsmallest(count, range(len(tools)), key=lambda index: (-scores[index], tools[index].name, index))
    return [tools[index] for index in sorted(best)]


def rank_by_words(query: str, tools: Sequence[Tool], count: int) -> list[Tool]:
    """Return up to `count` tools that share words with a text, the best first."""
    weights = dict.fromkeys(split_words(query)[:_MAX_QUERY_WORDS], 1.0)
    if not weights or not tools:
        return []
    scores = _score_tools(tools, weights)
    best = nsmallest(count, range(len(tools)), key=lambda index: (-scores[index], tools[index].name, index))
    return [tools[index] for index in best if scores[index] > 0]


def _score_tools(tools: Sequence[Tool], query: dict[str, float]) -> list[float]:
    budget = min(_MAX_CHARACTERS, max(_MIN_CHARACTERS, _ALL_CHARACTERS // len(tools)))
    return _scores([_declaration_words(tool, budget) for tool in tools], query)


def _query_weights(request: Request) -> dict[str, float]:
    """Return the weights of the words of the last user texts; each earlier text has half the weight of the next one."""
    weights: dict[str, float] = {}
    weight = 1.0
    for text in islice(_user_texts(request), _MAX_TEXTS):
        for word in split_words(text):
            if word not in weights and len(weights) < _MAX_QUERY_WORDS:
                weights[word] = weight
        weight /= 2
    return weights


def _user_texts(request: Request) -> Iterator[str]:
    for message in reversed(request.messages):
        if message.role == "user":
            text = " ".join(part.text for part in message.parts if isinstance(part, Text))
            if text.strip():
                yield text


def _declaration_words(tool: Tool, budget: int) -> tuple[str, ...]:
    name = tool.name[:budget]
    description = " ".join(_descriptions(tool, budget - len(name)))
    digest = blake2b(f"{name}\n{description}".encode("utf-8", "replace"), digest_size=16).digest()
    words = _words_by_digest.get(digest)
    if words is None:
        if len(_words_by_digest) >= _CACHED_TOOLS:
            _words_by_digest.clear()
        words = (*split_words(name) * _NAME_WEIGHT, *split_words(description))[:_MAX_WORDS]
        _words_by_digest[digest] = words
    return words


def _descriptions(tool: Tool, budget: int) -> Iterator[str]:
    """Yield at most `budget` characters of the texts of a declaration."""
    for text in _texts(tool):
        if budget <= 0:
            return
        yield text[:budget]
        budget -= len(text)


def _texts(tool: Tool) -> Iterator[str]:
    """Yield the namespace, the description, and the names and descriptions of the parameters."""
    if tool.namespace is not None:
        yield tool.namespace
    if tool.description is not None:
        yield tool.description
    properties = None if tool.input_schema is None else tool.input_schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, schema in properties.items():
        yield name
        description = schema.get("description") if isinstance(schema, dict) else None
        if isinstance(description, str):
            yield description


def _scores(documents: list[tuple[str, ...]], query: dict[str, float]) -> list[float]:
    """Return the BM25 score of each document."""
    found = [[word for word in words if word in query] for words in documents]
    frequencies: dict[str, int] = {}
    for words in found:
        for word in set(words):
            frequencies[word] = frequencies.get(word, 0) + 1
    total = len(documents)
    significance = {
        word: query[word] * log(1 + (total - count + 0.5) / (count + 0.5)) for word, count in frequencies.items()
    }
    mean_length = sum(map(len, documents)) / total or 1.0
    scores = []
    for words, document in zip(found, documents, strict=True):
        norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(document) / mean_length)
        score = 0.0
        for word in dict.fromkeys(words):
            count = min(words.count(word), _MAX_COUNT)
            score += significance[word] * count * (_SATURATION + 1) / (count + norm)
        scores.append(score)
    return scores
