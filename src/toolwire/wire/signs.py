"""Telling documents apart. A wire lists what speaks for it, as (points, test) rows; the most points win.

The rows are evidence, not proof: a Chat request and an Anthropic request with one user message differ in nothing that
both must have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ..ir.pointer import JSON, Object

__all__ = ["Row", "blocks", "score", "tools_of"]

Row: TypeAlias = tuple[int, Callable[[JSON], bool]]


def score(*rows: Row) -> Callable[[JSON], int]:
    """The first row is the condition: without it there are no points at all."""
    (points, condition), *others = rows

    def judge(body: JSON) -> int:
        if not _holds(condition, body):
            return 0
        return points + sum(worth for worth, test in others if _holds(test, body))

    return judge


def _holds(test: Callable[[JSON], bool], body: JSON) -> bool:
    """Whether `test` is true; a document that lacks what it looks at fails this test only."""
    try:
        return test(body)
    except (AttributeError, TypeError, KeyError, IndexError):
        return False


def blocks(body: Object, key: str) -> Iterator[Object]:
    """The messages under `key` and the content blocks in them."""
    for message in body.get(key) or ():
        if type(message) is dict:
            yield message
            content = message.get("content") or message.get("parts")
            yield from (block for block in content if type(block) is dict) if type(content) is list else ()


def tools_of(body: JSON) -> list[Object]:
    """Declarations: a bare list, under `tools`, or one alone."""
    tools = body.get("tools", [body]) if type(body) is dict else body
    return [tool for tool in tools if type(tool) is dict] if type(tools) is list else []
