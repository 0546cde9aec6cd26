"""The names of repair steps, lossless or guessed. They are stable: reports and policies rely on them."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ..ir.value import Value
from ..stream.repair_attempt import GUESSES as _LEXICAL_GUESSES
from ..stream.repair_attempt import LexicalStep

__all__ = ["RepairStep", "SchemaStep"]

_Unwrapping: TypeAlias = Literal[
    "unwrapped_text", "unwrapped_alias", "unwrapped_list", "unwrapped_call", "named_list", "key_spelling"
]
_Coercing: TypeAlias = Literal[
    "text_to_number",
    "text_to_boolean",
    "number_to_text",
    "wrapped_in_list",
    "enum_case",
    "key_case",
    "null_dropped",
    "text_to_null",
]
SchemaStep: TypeAlias = _Unwrapping | _Coercing
_GUESSES = _LEXICAL_GUESSES | frozenset(get_args(_Coercing))


class RepairStep(Value, frozen=True):
    """One step of a repair. `path` is its location; empty for the text as a whole."""

    name: LexicalStep | SchemaStep
    path: str = ""

    @property
    def lossless(self) -> bool:
        """True if the text had no other meaning; False for a guess."""
        return self.name not in _GUESSES

    def __str__(self) -> str:
        return f"{self.name} at {self.path}" if self.path else self.name
