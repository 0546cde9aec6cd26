"""Log probabilities of the tokens of an answer: the position and the form that each wire gives them.

They are no part of the canonical values, because nothing but their client reads them. A codec keeps them in an `extra`,
and its `LogprobForm` converts them from and to OpenAI's list of tokens, in which they travel between wires:

    [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": [{"token", "logprob", "bytes"}, …]}, …]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..ir.pointer import JSON, Object
from ..ir.value import Value

__all__ = ["LogprobForm", "read_tokens"]


class LogprobForm(Value, frozen=True):
    """The log probabilities of one wire: the field `field` of the extra named `scope`.

    `position`: that extra belongs to the stop of each choice, to the whole response, or to its texts. `read` returns the
    tokens, or None if there are none, or if their form is unknown. `omitted` is a field of every token that no other
    wire has.
    """

    scope: str
    position: Literal["stop", "response", "text"]
    read: Callable[[JSON], list[Object] | None]
    write: Callable[[list[Object]], JSON]
    field: str = "logprobs"
    omitted: str | None = None


def read_tokens(value: JSON) -> list[Object] | None:
    """Read OpenAI's list of tokens. Ollama omits `bytes` and `top_logprobs` where they are empty."""
    if type(value) is not list or not value:
        return None
    tokens: list[Object] = []
    for entry in value:
        token = _read_token(entry)
        top = entry.get("top_logprobs") or [] if type(entry) is dict else None
        others = [_read_token(other) for other in top] if type(top) is list else [None]
        if token is None or None in others:
            return None
        tokens.append({**token, "top_logprobs": [other for other in others if other is not None]})
    return tokens


def _read_token(entry: JSON) -> Object | None:
    """Return a token with its bytes, which are those of its text if the provider gives none; None if it is invalid."""
    if type(entry) is not dict or type(entry.get("token")) is not str or type(entry.get("logprob")) not in (int, float):
        return None
    token: str = entry["token"]
    return {"bytes": [*token.encode("utf-8", "surrogatepass")], **entry}
