"""The interface of a training format: rows of a file to examples, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...ir.losses import Losses
from ...ir.pointer import Object
from ...ir.value import Value
from ..examples import Example

__all__ = ["EncodedRow", "TrainingFormat"]


class EncodedRow(NamedTuple):
    """A row, and the parts of the example that it does not contain."""

    row: Object
    losses: Losses


class TrainingFormat(Value, frozen=True, kw_only=True, eq=False):
    """One training format.

    `decode` raises ProtocolError with a pointer into the row. `encode` raises EncodeError for an example that the format
    cannot express without changing its calls; every other difference is a loss. It is None for a format that is only
    read. `matches` returns how well a row matches (0: not at all).
    """

    name: str
    title: str
    decode: Callable[[Object], Example]
    encode: Callable[[Example], EncodedRow] | None
    matches: Callable[[Object], int]
    settings: str = ""  # how the trainer is configured for these files
