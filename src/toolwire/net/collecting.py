"""Collect a generator into a list, capped at 100,000 items, because a tool may yield forever."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

__all__ = ["TooManyItems", "collect_async_items", "collect_items"]

_ITEMS = 100_000
_CHARACTERS = 64 * 1024 * 1024


class TooManyItems(Exception):
    """The generator exceeded a limit, or its call was given up."""


class _Collector:
    __slots__ = ("_room", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._room = _CHARACTERS

    def add(self, item: Any) -> None:
        self.items.append(item)
        if isinstance(item, (str, bytes)):
            self._room -= len(item)
        if len(self.items) > _ITEMS:
            raise TooManyItems(f"stopped after more than {_ITEMS:,} items")
        if self._room < 0:
            raise TooManyItems(f"stopped after more than {_CHARACTERS:,} characters")


def collect_items(items: Generator[Any, Any, Any], is_given_up: Callable[[], bool] = lambda: False) -> list[Any]:
    """Collect all items. Raise TooMuch if there are too many, or if the call has been given up."""
    basket = _Collector()
    try:
        for item in items:
            basket.add(item)
            if is_given_up():
                raise TooManyItems("stopped because the call was given up")
    finally:
        items.close()
    return basket.items


async def collect_async_items(items: AsyncGenerator[Any, Any]) -> list[Any]:
    basket = _Collector()
    try:
        async for item in items:
            basket.add(item)
    finally:
        await items.aclose()
    return basket.items
