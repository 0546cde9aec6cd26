"""The form of a tool search on one wire, most of all of the provider's own search.

Separate because both wires that have one implement it, and the bridge converts between them through it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol, TypeAlias

from ..ir.events import CallStart
from ..ir.losses import Losses
from ..ir.parts import Opaque, ToolCall
from ..ir.pointer import JSON, Object, join
from ..ir.tools import HostedSearchCall, HostedSearchResult, Tool
from ..ir.value import Value

__all__ = ["HostedSearchPart", "SearchCodec", "report_search_call", "unknown_fields"]

HostedSearchPart: TypeAlias = HostedSearchCall | HostedSearchResult


def report_search_call(call: ToolCall | CallStart, path: str, losses: Losses) -> None:
    """Report a call of a search on a wire where it is a call of a function."""
    if call.kind == "search":
        losses.add(path, "call of a search", "rewritten", "sent as a call of a function", "info")


def unknown_fields(value: JSON, known: Collection[str], pointer: str = "") -> Iterator[str]:
    """Yield the pointers of the fields of an object that are not known."""
    if type(value) is dict:
        yield from (pointer + join(field) for field in value if field not in known)


class _WriteCall(Protocol):
    def __call__(self, call: HostedSearchCall, *, is_output: bool) -> Opaque: ...


class _WriteResult(Protocol):
    def __call__(self, result: HostedSearchResult, tools: Sequence[Tool], *, is_output: bool) -> Opaque:
        """Write a result with the declarations of the tools that it found."""
        ...


class SearchCodec(Value, frozen=True, kw_only=True, eq=False):
    """Functions that read and write the declaration, the calls and the results of a provider's tool search.

    `is_output`: the part is written into an answer, not into the history of a request.
    """

    method_of: Callable[[Object], str | None]
    """Return the method of a declaration, empty if it names none; None for any other built-in tool."""
    fields: Collection[str]
    """The fields of a declaration that `method_of` reads."""
    declare: Callable[[str], Tool]
    """Return the declaration that is nearest to a method."""
    read: Callable[[Opaque], HostedSearchPart | None]
    unread: Callable[[Opaque], Iterator[str]]
    """Yield the pointers, relative to the part, of the fields that `read` does not return."""
    write_call: _WriteCall
    write_result: _WriteResult
