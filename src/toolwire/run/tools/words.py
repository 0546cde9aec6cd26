"""Split names and texts into comparable words, and select tools by the words that they share with a request.

    split_words("getUserAccounts by e-mail")   # ["user", "account", "mail"]
    prepare(request, wire, choose=choose_by_words)

Identifiers are split at case changes, digits, underscores and dots. English endings are removed, so that "listing" and
"list" are equal. Words that occur in every request, such as "please", are left out. Text in other languages is compared
by whole words, and text without spaces (Chinese, Japanese, Thai) by pairs of characters.

Tools are ranked by BM25 over their names, descriptions and parameters, in pure Python. The cost is linear in the
number of tools and bounded: each tool contributes at most `_MAX_CHARACTERS` characters, and fewer if the list is long.
The words of a declaration are cached by a digest of its text. `toolwire.retrieve` has a better ranking, which needs
numpy.

Tools are selected for the first text that has matches. So a conversation that begins with "hello" gets its tools later,
and a conversation with a selection keeps it: the prompt cache of a provider depends on an unchanged beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest
from itertools import islice, takewhile
from math import log
from unicodedata import normalize

from ...ir.parts import Text
from ...ir.request import Message, Request
from ...ir.tools import Tool

MAX_TEXT = 8_000
"""Characters of a text that are read; a description may have any length."""

_MAX_WORD = 40  # characters; longer ones are hashes or encoded data, which no request repeats
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIGITS = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_STOP_WORDS = frozenset(
    """a about all also am an and any are as at be been by can could did do does for from get give had has have he help
    her here his how i id if im in into is it its ive just let like may me might more most my need no not of on or our
    please she should so some than that the their them then there these they this those to us very want was we were what
    when where which who why will with would you your""".split()
)


def split_words(text: str) -> list[str]:
    """Return the words of a text in their order, without stop words and English endings."""
    return list(_iter_words(text))


def split_identifier(name: str) -> str:
    """Insert a space at each change of case: "getUserHTTPName" becomes "get User HTTP Name"."""
    return _CASE_CHANGE.sub(" ", name)


def _iter_words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case: English ones stemmed, without stop words; unspaced scripts as pairs."""
    folded = normalize("NFKC", text[:MAX_TEXT])
    for word in _WORD.findall(_DIGITS.sub(" ", split_identifier(folded))):
        lowered = word[:_MAX_WORD].lower()
        if lowered.isascii():
            if lowered not in _STOP_WORDS:
                yield stem_word(lowered)
        elif _UNSPACED.search(lowered):
            yield from _split_unspaced(lowered)
        else:
            yield lowered


def _split_unspaced(word: str) -> Iterator[str]:
    """Yield pairs of adjacent characters, and the parts in other scripts as they are."""
    position = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > position:
            yield word[position : run.start()]
        characters = run.group()
        if len(characters) == 1:
            yield characters
        for start in range(len(characters) - 1):
            yield characters[start : start + 2]
        position = run.end()
    if position < len(word):
        yield word[position:]


@lru_cache(maxsize=20_000)
def stem_word(word: str) -> str:
    """Remove the English endings of a lower-case word: plural, past and progressive forms, and a final e."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith("sses"):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        stem = word[: -len(ending)]
        if word.endswith(ending) and len(stem) >= 3 and not set(stem).isdisjoint("aeiouy"):
            word = _repair_stem(stem)
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _repair_stem(stem: str) -> str:
    """Undo a doubled consonant: "planning" has the stem "plan"."""
    is_doubled = len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsz"
    return stem[:-1] if is_doubled else stem


_MAX_CHARACTERS = 1_200  # of a declaration: its name and the beginning of its description decide
_ALL_CHARACTERS = 800_000  # of all declarations of a request, which bounds the time of a choice
_MIN_CHARACTERS = 80  # of a declaration in the longest list: its name
_MAX_WORDS = 120  # of a declaration: about 1,200 characters with spaces between them
_MAX_QUERY_WORDS = 200  # a prompt with a pasted file must not cost more than the tools
_MAX_TEXTS = 3  # user texts that are read, the last one first: "yes, do it" refers to an earlier text
_CACHED_TOOLS = 20_000  # declarations; several agents with thousands of tools each
_NAME_WEIGHT = 3  # a name is short and chosen with care, so each of its words counts like three of the description
_MAX_COUNT = 4  # occurrences of a word that count: repetition does not help
_SATURATION = 1.2  # k1 of BM25; the usual value (Robertson and Zaragoza, 2009: 1.2 to 2)
_LENGTH_WEIGHT = 0.5  # b of BM25; below the usual 0.75, because a long description is not a worse tool; not measured

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
    """Return the weights of words in the last user texts; each earlier text has half the weight of the next."""
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
    """Return the words of a tool's name, repeated for their weight, and its texts, within `budget` characters.

    They are cached by content.
    """
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
    """Yield at most `budget` characters of a declaration's texts."""
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
    """Return the BM25 score of each document. `query` has the weight of each word."""
    matching = [[word for word in words if word in query] for words in documents]
    frequencies: dict[str, int] = {}
    for words in matching:
        for word in set(words):
            frequencies[word] = frequencies.get(word, 0) + 1
    total = len(documents)
    significance = {
        word: query[word] * log(1 + (total - count + 0.5) / (count + 0.5)) for word, count in frequencies.items()
    }
    mean_length = sum(map(len, documents)) / total or 1.0
    scores = []
    for words, document in zip(matching, documents, strict=True):
        norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(document) / mean_length)
        score = 0.0
        for word in dict.fromkeys(words):
            count = min(words.count(word), _MAX_COUNT)
            score += significance[word] * count * (_SATURATION + 1) / (count + norm)
        scores.append(score)
    return scores


# The texts for which the tools of a conversation are selected, as a function of its messages.
#
# Tools are selected for the first text that has matches. So a conversation that begins with "hello" gets its tools
# later, and one that has a selection keeps it: the prompt cache of a provider depends on an unchanged beginning.


_MAX_QUERY = 4_000  # characters of a user message: half of `MAX_TEXT`
_MAX_SYSTEM = 1_000  # characters of the system prompt that are added to a short message: its beginning names the task
_MAX_QUERIES = 8  # user messages that are searched until one has matches; each costs a search
_FEW_WORDS = 3  # "hello", "help me" have no meaning for a search


def selection_queries(messages: Sequence[Message]) -> list[str]:
    """Return the texts to search for, in order, until one of them has matches.

    A conversation that begins with an image begins with the system prompt as its query.
    """
    beginning = list(takewhile(lambda message: message.role != "user", messages))
    system = "\n".join(message.text for message in beginning if message.role in ("system", "developer"))
    first = next((message.text for message in messages[len(beginning) :]), "")
    texts = _last_user_texts(messages, _MAX_QUERIES)
    queries = [_add_system(text, system) for text in (texts if first.strip() else ["", *texts])]
    return [query for query in dict.fromkeys(queries) if query]


def _last_user_texts(messages: Sequence[Message], count: int) -> list[str]:
    texts = (message.text for message in messages if message.role == "user")
    return list(islice((text for text in texts if text.strip()), count))


def _add_system(text: str, system: str) -> str:
    """Return the query for a text. A message such as "hello" has no meaning without the system prompt."""
    query = text[:_MAX_QUERY]
    if len(split_words(query)) < _FEW_WORDS:
        query = f"{query}\n{system[:_MAX_SYSTEM]}"
    return query.strip()
