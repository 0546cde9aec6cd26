"""The texts for which the tools of a conversation are selected, as a function of its messages.

Tools are selected for the first text that has matches. So a conversation that begins with "hello" gets its tools later,
and one that has a selection keeps it: the prompt cache of a provider depends on an unchanged beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from ..ir.request import Message
from .words import split_words

__all__ = ["selection_queries"]

_MAX_QUERY = 4_000  # characters of a user message
_MAX_SYSTEM = 1_000  # characters of the system prompt that are added to a short message
_MAX_QUERIES = 8
_FEW_WORDS = 3


def selection_queries(messages: Sequence[Message]) -> list[str]:
    """Return the texts to search for, in order, until one of them has matches.

    A conversation that begins with an image begins with the system prompt as its query.
    """
    beginning = list(takewhile(lambda message: message.role != "user", messages))
    system = "\n".join(message.text for message in beginning if message.role in ("system", "developer"))
    first = next((message.text for message in messages[len(beginning) :]), "")
    texts = _user_texts(messages, _MAX_QUERIES)
    queries = [_add_system(text, system) for text in (texts if first.strip() else ["", *texts])]
    return [query for query in dict.fromkeys(queries) if query]


def _user_texts(messages: Sequence[Message], count: int) -> list[str]:
    texts = (message.text for message in messages if message.role == "user")
    return list(islice((text for text in texts if text.strip()), count))


def _add_system(text: str, system: str) -> str:
    """Return the query for a text. A message such as "hello" has no meaning without the system prompt."""
    query = text[:_MAX_QUERY]
    if len(split_words(query)) < _FEW_WORDS:
        query = f"{query}\n{system[:_MAX_SYSTEM]}"
    return query.strip()
