"""What a generator gives, as a list. A tool may never come to an end, so there is one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

__all__ = ["TooMuch", "collected", "collected_as_it_comes"]

_ITEMS = 100_000
_CHARACTERS = 64 * 1024 * 1024


class TooMuch(Exception):
    """More than anybody would read."""


class _Basket:
    __slots__ = ("_room", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._room = _CHARACTERS

    def add(self, item: Any) -> None:
        self.items.append(item)
        if isinstance(item, (str, bytes)):
            self._room -= len(item)
        if len(self.items) > _ITEMS:
            raise TooMuch(f"it gave more than {_ITEMS:,} items, and was stopped")
        if self._room < 0:
            raise TooMuch(f"it gave more than {_CHARACTERS:,} characters, and was stopped")


def collected(items: Generator[Any, Any, Any], is_given_up: Callable[[], bool] = lambda: False) -> list[Any]:
    """All of them; TooMuch where they do not end, or end too late for anybody to wait."""
    basket = _Basket()
    try:
        for item in items:
            basket.add(item)
            if is_given_up():
                raise TooMuch("nobody waits for it any more")
    finally:
        items.close()
    return basket.items


async def collected_as_it_comes(items: AsyncGenerator[Any, Any]) -> list[Any]:
    basket = _Basket()
    try:
        async for item in items:
            basket.add(item)
    finally:
        await items.aclose()
    return basket.items
