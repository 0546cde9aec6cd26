"""Collect a generator into a list, capped at 100,000 items, because a tool may yield forever."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

__all__ = ["TooManyItems", "collect_async_items", "collect_items"]

_MAX_ITEMS = 100_000
_MAX_CHARACTERS = 64 * 1024 * 1024


class TooManyItems(Exception):
    """The generator exceeded a limit, or its call was given up."""


class _Collector:
    """The items so far, limited in number and in characters of text."""

    __slots__ = ("_remaining_characters", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._remaining_characters = _MAX_CHARACTERS

    def add(self, item: Any) -> None:
        """Add an item. Raise TooManyItems beyond a limit."""
        self.items.append(item)
        if isinstance(item, (str, bytes)):
            self._remaining_characters -= len(item)
        if len(self.items) > _MAX_ITEMS:
            raise TooManyItems(f"stopped after more than {_MAX_ITEMS:,} items")
        if self._remaining_characters < 0:
            raise TooManyItems(f"stopped after more than {_MAX_CHARACTERS:,} characters")


def collect_items(items: Generator[Any, Any, Any], is_abandoned: Callable[[], bool] = lambda: False) -> list[Any]:
    """Collect all items. Raise TooManyItems if there are too many, or if the call has been given up."""
    collector = _Collector()
    try:
        for item in items:
            collector.add(item)
            if is_abandoned():
                raise TooManyItems("stopped because the call was given up")
    finally:
        items.close()
    return collector.items


async def collect_async_items(items: AsyncGenerator[Any, Any]) -> list[Any]:
    """Collect all items of an asynchronous generator, like `collect_items`."""
    collector = _Collector()
    try:
        async for item in items:
            collector.add(item)
    finally:
        await items.aclose()
    return collector.items
