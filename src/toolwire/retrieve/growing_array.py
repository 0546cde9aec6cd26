"""A numpy array that grows by appending, in amortised constant time per row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["GrowingArray"]

_FIRST_CAPACITY = 64


class GrowingArray:
    """Rows of numbers. A row that is set beyond the end extends the array; the rows between are zero."""

    __slots__ = ("_length", "_rows")

    def __init__(self, dtype: Any, columns: int = 0, rows: NDArray[Any] | None = None) -> None:
        """Make an array of numbers, or of rows if `columns` is given. `rows` may be a read-only memory map."""
        empty = np.zeros((0, columns) if columns else 0, dtype)
        self._rows = empty if rows is None else rows
        self._length = len(self._rows)

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """A view of the rows."""
        return self._rows[: self._length]

    def set(self, number: int, value: Any) -> None:
        """Set one row."""
        self.reserve(number + 1)
        self._rows[number] = value

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        start = self._length
        self.reserve(start + len(rows))
        self._rows[start : self._length] = rows

    def reserve(self, length: int) -> None:
        """Make the array at least `length` long and writable."""
        if length > len(self._rows) or not self._rows.flags.writeable:
            capacity = max(length, _FIRST_CAPACITY, len(self._rows) * 3 // 2 if length > len(self._rows) else 0)
            grown = np.zeros((max(capacity, len(self._rows)), *self._rows.shape[1:]), self._rows.dtype)
            grown[: self._length] = self._rows[: self._length]
            self._rows = grown
        self._length = max(self._length, length)
