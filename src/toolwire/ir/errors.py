"""Everything that toolwire raises.

    ToolwireError                       each has .pointer, .hint and .status
    ├── ProtocolError                   the peer sent something that its wire does not allow
    │   ├── TruncatedStream             … or stopped before the end
    │   └── BrokenJSON                  … or wrote text that has no one meaning as JSON
    ├── EncodeError                     this value cannot be written on that wire; nothing was sent
    │   ├── LossError                   … not without a loss, and strict mode was asked for
    │   └── StoredStateError            it refers to something that only the provider of another wire keeps
    ├── SchemaError                     a schema that cannot be used
    │   └── InvalidArguments            arguments that do not fit their schema
    ├── ConfigError                     wrong usage: an unknown wire, kind or option
    ├── UpstreamError                   the provider answered with an error; .fault is what it said
    ├── StoreError                      a store could not be reached, or did not do what it was asked
    └── MissingExtra                    an optional dependency is not installed

The split follows who has to act: the peer (ProtocolError), the author of the request (EncodeError, SchemaError), the
operator (ConfigError, StoreError, MissingExtra), or time (UpstreamError). `pointer` is a JSON pointer (RFC 6901) into the document
at hand, `hint` the next thing to do, `status` the HTTP status a server would answer with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from .pointer import join

if TYPE_CHECKING:
    from typing import Self

    from .losses import Loss
    from .response import Fault

__all__ = [
    "BrokenJSON",
    "ConfigError",
    "EncodeError",
    "InvalidArguments",
    "LossError",
    "MissingExtra",
    "ProtocolError",
    "SchemaError",
    "StoreError",
    "StoredStateError",
    "ToolwireError",
    "TruncatedStream",
    "UpstreamError",
]


class ToolwireError(Exception):
    """The root of the tree."""

    default_status: ClassVar[int] = 500

    def __init__(self, message: str, *, pointer: str = "", hint: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        self.hint = hint
        self.status = self.default_status if status is None else status

    def within(self, *segments: str | int) -> Self:
        """The same error, seen from further out: `segments` go in front of its pointer."""
        self.pointer = join(*segments) + self.pointer
        return self

    def __str__(self) -> str:
        where = f" at {self.pointer}" if self.pointer else ""
        advice = f" ({self.hint})" if self.hint else ""
        return f"{self.message}{where}{advice}"


class ProtocolError(ToolwireError):
    """The peer sent something that its wire does not allow."""

    default_status = 400


class TruncatedStream(ProtocolError):
    """The stream ended without its wire's terminal mark: what came so far is not an answer."""

    default_status = 502


class BrokenJSON(ProtocolError):
    """Text that has no one meaning as JSON, not even after repair.

    `reason`: it was cut off, it can be read in several ways, or in none. `position` is the character where that shows,
    None where it is the whole.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Literal["truncated", "ambiguous", "invalid"],
        position: int | None = None,
        pointer: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, pointer=pointer, hint=hint)
        self.reason = reason
        self.position = position


class EncodeError(ToolwireError):
    """The value cannot be written on that wire; nothing was sent."""

    default_status = 400


class LossError(EncodeError):
    """Strict mode: something could not be carried over. `losses` lists all of it."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        first = losses[0]
        more = f" and {len(losses) - 1} more" if len(losses) > 1 else ""
        super().__init__(
            f"{first.concept} would be {first.action}: {first.detail}{more}",
            pointer=first.path,
            hint="drop strict mode to accept the listed losses",
        )
        self.losses = tuple(losses)


class StoredStateError(EncodeError):
    """The request refers to a part of the conversation that the provider of another wire keeps: the model would not see it.

    `code` is the name that the other wire's own provider gives to a reference that it cannot resolve, if it has one.
    """

    def __init__(self, message: str, *, pointer: str = "", hint: str = "", code: str | None = None) -> None:
        super().__init__(message, pointer=pointer, hint=hint)
        self.code = code


class SchemaError(ToolwireError):
    """A schema that cannot be used."""

    default_status = 400


class InvalidArguments(SchemaError):
    """Arguments that do not fit their schema."""

    default_status = 422


class ConfigError(ToolwireError):
    """Wrong usage: an unknown wire, kind or option."""

    default_status = 400


class UpstreamError(ToolwireError):
    """The provider answered with an error; `fault` is what it said, `fault.breach` the limit that was broken, if one was."""

    default_status = 502

    def __init__(self, fault: Fault) -> None:
        breach = fault.breach
        pointer = fault.param or "" if breach is None else breach.at + breach.pointer
        hint = "" if breach is None else str(breach)
        super().__init__(fault.message, pointer=pointer, hint=hint, status=fault.status)
        self.fault = fault


class StoreError(ToolwireError):
    """A store could not be reached, or did not do what it was asked."""

    default_status = 503


class MissingExtra(ToolwireError):
    """An optional dependency is not installed."""
