"""Read documents without decoding them: detect the wire of a document, and summarise an answer.

The `documents` module of each wire has its evidence and its JSON pointers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ..ir.pointer import JSON, Object
from ..ir.response import StopReason, Usage
from ..ir.value import Value

# Detection of documents. A wire lists evidence for itself as (points, test) rows; the highest score wins.
#
# The rows are evidence, not proof: a Chat request and an Anthropic request with one user message do not differ in any
# field that both require.


DetectionRule: TypeAlias = tuple[int, Callable[[JSON], bool]]


def scorer(*rows: DetectionRule) -> Callable[[JSON], int]:
    """Build a scoring function. The first row is a condition: if it fails, the score is 0."""
    (points, condition), *others = rows

    def score(body: JSON) -> int:
        if not _passes(condition, body):
            return 0
        return points + sum(worth for worth, test in others if _passes(test, body))

    return score


def _passes(test: Callable[[JSON], bool], body: JSON) -> bool:
    """Return whether `test` is true; a document without the fields it reads fails this test only."""
    try:
        return test(body)
    except (AttributeError, TypeError, KeyError, IndexError):
        return False


def blocks(body: Object, key: str) -> Iterator[Object]:
    """Yield the messages under `key` and the content blocks in them."""
    for message in body.get(key) or ():
        if type(message) is dict:
            yield message
            content = message.get("content") or message.get("parts")
            yield from (block for block in content if type(block) is dict) if type(content) is list else ()


def declared_tools(body: JSON) -> list[Object]:
    """Return the declarations: a bare list, a list under `tools`, or a single one."""
    tools = body.get("tools", [body]) if type(body) is dict else body
    return [tool for tool in tools if type(tool) is dict] if type(tools) is list else []


# Summaries of whole answers, read from the parsed document.
#
# A gateway that forwards an answer unchanged accounts for it: id, model, stop reason, usage, names of the calls. Reading
# only these takes half the time of `decode_response`, which builds canonical values. Only Chat has summaries, because
# whole answers of the other wires are rarely forwarded: their clients stream. The caller decodes any answer without one.


class AnswerSummary(Value, frozen=True):
    """The facts about an answer that a gateway accounts for; `calls` are the names of the called tools, in order.

    Equal to the same facts of the decoded answer. A finished answer of one choice, without a fault and without signatures.
    """

    id: str
    model: str
    stop: StopReason
    usage: Usage
    calls: tuple[str, ...] = ()


def no_summary(data: bytes) -> AnswerSummary | None:
    """Return None: every answer is decoded in full."""
    del data
    return None
