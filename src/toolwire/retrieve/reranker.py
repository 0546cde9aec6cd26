"""Order the best tools of a search again by the tokens that they have in common with the request (late interaction).

    index = ToolIndex(open_minilm(), reranker=open_reranker())

The encoder makes one vector of a whole text, in which a detail counts little: "list", "delete" and "restore" of one
thing have similar vectors. The reranker compares the hidden states of the encoder, one vector per token. Two
similarities are added to the score of the search:

- Of each token of the request, the similarity with the nearest token of the tool, on average. So each part of the request
  has to be found somewhere in the tool.
- Of the request as a whole, the similarity with the beginning of the tool's text. There are the server and the name,
  which count little in the vector of a long description.

Nothing was trained for it; the two weights were chosen on the development queries (bench/retriever/README.md). They are
on the scale of an index with the encoder; BM25 scores alone are larger. The states of a tool take up to 32 times
the memory of its vector, so only the vectors of the tools that were used last are kept. A tool that is not among them is encoded
anew, which is most of the cost.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from .documents import make_document
from .minilm import MiniLm, open_minilm
from .ranking import SearchHit
from .vectors import Vectors

_NAME_TOKENS = 12  # of the beginning: a server and a name
_MAX_TOKENS = 64  # of a request and of a tool, which bounds the time and the memory
_MAX_CACHED = 2_000  # tools; 50 kB each at most
_EPSILON = 1e-12  # avoids a division by zero


@lru_cache(maxsize=1)
def open_reranker() -> TokenReranker:
    """Return a reranker with the encoder of `open_minilm`. Raises `MissingExtra` without the encoder's weights."""
    return TokenReranker(open_minilm())


class TokenReranker:
    """Compares a request with tools token by token. It may be used from several threads."""

    def __init__(self, encoder: MiniLm, *, token_weight: float = 1.0, name_weight: float = 0.5) -> None:
        self._encoder = encoder
        self._token_weight = token_weight
        self._name_weight = name_weight
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, NDArray[np.float16]] = OrderedDict()  # by text; the last used are last

    def __reduce__(self) -> tuple[partial[TokenReranker], tuple[MiniLm]]:
        """Copy the settings. Another process opens the encoder, and starts without hidden states of tools."""
        make = partial(TokenReranker, token_weight=self._token_weight, name_weight=self._name_weight)
        return make, (self._encoder,)

    def score(self, query: str, hits: Sequence[SearchHit]) -> list[float]:
        """Return the score of each hit, plus its similarities."""
        tools = self._read_tools([make_document(hit.tool, server=hit.server).text for hit in hits])
        (states,) = self._encoder.encode_tokens([query], _MAX_TOKENS)
        tokens, whole = _scale(_inner(states)), _scale(states.sum(axis=0))
        return [hit.score + self._compare(tokens, whole, tool) for hit, tool in zip(hits, tools, strict=True)]

    def _read_tools(self, texts: Sequence[str]) -> list[NDArray[np.float16]]:
        """Return the hidden states of texts of tools, in half precision, which changes a score by less than 1e-3."""
        with self._lock:
            known = {text: self._cached[text] for text in texts if text in self._cached}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for text, states in zip(missing, self._encoder.encode_tokens(missing, _MAX_TOKENS), strict=True):
            known[text] = states.astype(np.float16)
        with self._lock:
            for text in texts:
                self._cached[text] = known[text]
                self._cached.move_to_end(text)
            while len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
        return [known[text] for text in texts]

    def _compare(self, tokens: Vectors, whole: Vectors, tool: NDArray[np.float16]) -> float:
        """Return the weighted similarities of a request, as its tokens and as a whole, with the states of a tool."""
        states = tool.astype(np.float32)
        nearest = (tokens @ _scale(_inner(states)).T).max(axis=1).mean()
        name = whole @ _scale(states[:_NAME_TOKENS].sum(axis=0))
        return float(self._token_weight * nearest + self._name_weight * name)


def _inner(states: Vectors) -> Vectors:
    """Return the states without the marks of begin and end; all of them for an empty text."""
    return states[1:-1] if len(states) > 2 else states


def _scale(vectors: Vectors) -> Vectors:
    scaled: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _EPSILON)
    return scaled
