"""Convert the parts of a tool search that a provider ran between the wires that have one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.losses import Losses
from ..ir.parts import Opaque
from ..ir.tools import HostedSearchCall, HostedSearchResult, Tool
from ..wire import get
from ..wire.codec import HostedSearchPart, SearchCodec, WireCodec

__all__ = ["HostedSearchConverter", "hosted_method", "read_hosted", "unread_fields"]


def hosted_method(tool: Tool) -> str | None:
    """Return the method of a provider's search tool, empty if it names none; None for any other tool."""
    if tool.kind != "builtin":
        return None
    for wire, declaration in tool.extra.items():
        codec = _search_codec(wire)
        method = None if codec is None else codec.method_of(declaration)
        if method is not None:
            return method
    return None


def unread_fields(tool: Tool) -> list[str]:
    """Return the fields of a provider's search tool that no other provider has."""
    return [
        field
        for wire, declaration in tool.extra.items()
        if (codec := _search_codec(wire)) is not None
        for field in declaration
        if field not in codec.fields
    ]


def read_hosted(part: Opaque) -> HostedSearchPart | None:
    """Read a part of a search that a provider ran; None for any other part."""
    codec = _search_codec(part.wire)
    return None if codec is None else codec.read(part)


def _search_codec(wire: str) -> SearchCodec | None:
    try:
        codec = get(wire)
    except ConfigError:
        return None  # a key of `extra` that is no wire
    return codec.search if isinstance(codec, WireCodec) else None


class HostedSearchConverter:
    """Convert the searches of one conversation or answer for `wire`; `find` returns a tool by its name in the source."""

    __slots__ = ("_count", "_find", "_is_output", "_pending", "_target", "_wire")

    def __init__(self, wire: str, find: Callable[[str], Tool | None], *, is_output: bool) -> None:
        self._wire = wire
        self._target = _search_codec(wire) if wire else None
        self._find = find
        self._is_output = is_output
        self._pending: deque[str] = deque()  # ids of calls without a result
        self._count = 0

    def convert(self, part: Opaque, path: str, losses: Losses) -> Opaque | None:
        """Return the part on the target, and None for a result without a call.

        A part that is no search, or that is the target's own, is returned unchanged.
        """
        if self._target is None or part.wire == self._wire:
            return part
        source = _search_codec(part.wire)
        search = None if source is None else source.read(part)
        if source is None or search is None:
            return part
        for pointer in source.unread(part):
            losses.add(path + pointer, pointer.rpartition("/")[2], "dropped", f"specific to {part.wire}")
        if isinstance(search, HostedSearchCall):
            return self._convert_call(search, self._target, path, losses)
        return self._convert_result(search, self._target, path, losses)

    def _convert_call(self, call: HostedSearchCall, target: SearchCodec, path: str, losses: Losses) -> Opaque:
        self._count += 1
        if not call.id:
            call = replace(call, id=f"search_{self._count}")
        self._pending.append(call.id)
        losses.add(path, "tool search", "rewritten", "sent as a search of the target's provider", "info")
        return target.write_call(call, is_output=self._is_output)

    def _convert_result(
        self, result: HostedSearchResult, target: SearchCodec, path: str, losses: Losses
    ) -> Opaque | None:
        """Convert a result; one without a call id belongs to the first call without a result."""
        if not result.call_id and self._pending:
            result = replace(result, call_id=self._pending[0])
        if result.call_id not in self._pending:
            losses.add(path, "result of a tool search", "dropped", "its call is not in the conversation")
            return None
        self._pending.remove(result.call_id)
        tools = [(name, self._find(name)) for name in result.found]
        for name, tool in tools:
            if tool is None:
                losses.add(path, "found tool", "dropped", f"{name!r} is not declared in the request")
        if result.error is not None:
            losses.add(path, "error of a tool search", "weakened", f"the code {result.error!r} may differ", "info")
        losses.add(path, "tool search", "rewritten", "sent as a search of the target's provider", "info")
        declared = [tool for _, tool in tools if tool is not None]
        return target.write_result(result, declared, is_output=self._is_output)
