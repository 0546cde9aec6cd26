"""The exceptions that toolwire raises.

    ToolwireError                       each has .pointer, .hint and .status
    ├── ProtocolError                   the peer sent something that its wire does not allow
    │   ├── TruncatedStream             … or stopped early
    │   └── BrokenJSON                  … or sent text that cannot be read unambiguously as JSON
    ├── EncodeError                     this value cannot be written on that wire; nothing was sent
    │   ├── LossError                   … not without a loss, and strict mode is on (defined in `losses`)
    │   └── StoredStateError            it refers to state stored by the provider of another wire
    ├── SchemaError                     a schema is unusable
    │   └── InvalidArguments            arguments do not match their schema
    ├── ConfigError                     wrong usage: an unknown wire, kind or option
    ├── UpstreamError                   the provider answered with an error; see .fault (defined in `response`)
    ├── StoreError                      a store could not be reached, or an operation failed
    ├── KeyCommandError                 a command that prints a key failed (defined in `net.model.key_command`)
    └── MissingExtra                    an optional dependency is not installed

The split follows responsibility: the peer (ProtocolError), the author of the request (EncodeError, SchemaError), the
operator (ConfigError, StoreError, KeyCommandError, MissingExtra), or time (UpstreamError). `pointer` is a JSON pointer (RFC 6901) into
the document in question, `hint` the next thing to do, `status` the HTTP status that a server would return. An error
that carries a canonical value is defined beside that value, because this module is imported by all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from .pointer import join

if TYPE_CHECKING:
    from typing import Self


class ToolwireError(Exception):
    """The root of all toolwire exceptions."""

    default_status: ClassVar[int] = 500

    def __init__(self, message: str, *, pointer: str = "", hint: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        self.hint = hint
        self.status = self.default_status if status is None else status

    def within(self, *segments: str | int) -> Self:
        """Prepend `segments` to the pointer, for an error inside a larger document, and return the error."""
        self.pointer = join(*segments) + self.pointer
        return self

    def __str__(self) -> str:
        location = f" at {self.pointer}" if self.pointer else ""
        advice = f" ({self.hint})" if self.hint else ""
        return f"{self.message}{location}{advice}"


class ProtocolError(ToolwireError):
    """The peer sent something that its wire does not allow."""

    default_status = 400


class TruncatedStream(ProtocolError):
    """The stream ended without its wire's terminal marker; the part received is not a valid answer."""

    default_status = 502


class BrokenJSON(ProtocolError):
    """Text that cannot be read unambiguously as JSON, even after repair.

    `reason`: the text is truncated, can be read in several ways, or in none. `position` is the character where the
    problem shows, None where it concerns the whole text.
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


class StoredStateError(EncodeError):
    """The request refers to conversation state stored by the provider of another wire; the model would not see it.

    `code` is the error code that the other wire's provider uses for an unresolvable reference, if it has one.
    """

    def __init__(self, message: str, *, pointer: str = "", hint: str = "", code: str | None = None) -> None:
        super().__init__(message, pointer=pointer, hint=hint)
        self.code = code


class SchemaError(ToolwireError):
    """A schema is unusable."""

    default_status = 400


class InvalidArguments(SchemaError):
    """Arguments do not match their schema."""

    default_status = 422


class ConfigError(ToolwireError):
    """Wrong usage: an unknown wire, kind or option."""

    default_status = 400


class StoreError(ToolwireError):
    """A store could not be reached, or an operation failed."""

    default_status = 503


class MissingExtra(ToolwireError):
    """An optional dependency is not installed."""
