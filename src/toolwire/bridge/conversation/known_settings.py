"""The settings of a request: everything besides its conversation. Those of an earlier request need not be read again.

Agents send the same tools and parameters with every request. They are found by their JSON text, which is compared in full,
so the result is the same as without the cache:

    request, settings = read_request(wire, document)      # request == wire.decode_request(document)
    prepared = prepare(request, target, settings=settings)

Tools are stored once for all settings that have them: users of one agent have the same tools, and other settings, such as
their names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from msgspec.structs import replace

from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.text import finite_to_bytes
from ...ir.tools import Tool
from ...schema.bounds import content_cache
from ...wire.codec import WireCodec
from ...wire.protocol import Wire

Derived = TypeVar("Derived")
_MAX_SETTINGS = 4  # with the same tools; then the oldest ones are dropped
_MAX_SETTINGS_BYTES = 2048  # of settings besides the tools; larger ones have a schema of the answer
_MAX_RESULTS = 4  # of one function or another for the targets of one request: it and its fallbacks
# An entry of tools counts as its text and its settings, and as a result for each of them, which has about as many bytes
# as the text (80 kB for 66 kB). Most clients have one of each; with the most of both, an entry has five times as much.
_ENTRY_BYTES = 64 * 1024
_CACHE_BYTES = 8 * 1024 * 1024  # the tools of thirty clients; a coding agent has up to 100 kB


class KnownSettings:
    """The settings of a request, and results that depend on nothing else."""

    __slots__ = ("_results", "request")

    def __init__(self, request: Request) -> None:
        self.request = request  # without messages
        self._results: dict[Hashable, Any] = {}

    def are_in(self, request: Request) -> bool:
        """Return whether a request has these settings, but for its model, parameters and `stream`.

        The same objects are compared, because equal values may differ: 1 and 1.0 are equal, and not the same in JSON.
        """
        known = self.request
        return (
            request.tools is known.tools
            and request.extra is known.extra
            and request.choice is known.choice
            and request.parallel is known.parallel
            and request.reasoning is known.reasoning
            and request.output is known.output
        )

    def remember(self, key: Hashable, make: Callable[[], Derived]) -> Derived:
        """Return the result of `make`, or its earlier result under this key."""
        found: Derived | None = self._results.get(key)
        if found is None:
            found = make()
            if len(self._results) >= _MAX_RESULTS:
                self._results = {}
            self._results[key] = found
        return found


class _ToolsEntry:
    """The tools of a request, and the settings that requests with these tools had, by their JSON."""

    __slots__ = ("_settings", "tools")

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self.tools = tools
        self._settings: dict[bytes, KnownSettings] = {}

    def find(self, content: bytes) -> KnownSettings | None:
        return self._settings.get(content)

    def add(self, content: bytes, settings: KnownSettings) -> None:
        if len(content) > _MAX_SETTINGS_BYTES:
            return
        if len(self._settings) >= _MAX_SETTINGS:
            self._settings = dict(list(self._settings.items())[_MAX_SETTINGS // 2 :])
        self._settings[content] = settings


@content_cache(_CACHE_BYTES, lambda content: _ENTRY_BYTES + 3 * len(content))
def _read_tools(content: bytes, wire: WireCodec, *, document: Object) -> _ToolsEntry:
    """Read the tools of a document; `content` identifies them."""
    del content
    assert wire.settings is not None
    return _ToolsEntry(wire.settings.decode_tools(document))


def read_request(wire: Wire, document: Object) -> tuple[Request, KnownSettings | None]:
    """Decode a document that was parsed from JSON, and return its settings; None if the wire does not separate them.

    Raise ProtocolError as `decode_request` does.
    """
    declared = document.get("tools")
    if not isinstance(wire, WireCodec) or wire.settings is None or not (declared is None or type(declared) is list):
        return wire.decode_request(document), None
    codec = wire.settings
    messages, apart = codec.decode_messages(document), codec.apart
    if messages is None:
        return wire.decode_request(document), None
    # the form of a request records empty fields, also of the conversation
    others = {name: value for name, value in document.items() if name not in apart or not value}
    known_tools = _read_tools(finite_to_bytes(declared) if declared else b"", wire, document=document)
    content = finite_to_bytes(others)
    settings = known_tools.find(content)
    if settings is None:
        settings = KnownSettings(codec.decode_settings(document, (), known_tools.tools))
        known_tools.add(content, settings)
    return replace(settings.request, messages=messages), settings
