"""Remember for which tools the schemas have been converted, because the first time is expensive.

Converting a schema costs up to 0.1 ms for each of its values, and later uses find the result in a cache. Agents send the
same tools with every request, so only their first request needs a thread.

Separate because it is a memory of past requests, unlike the handler of one.
"""

from __future__ import annotations

from typing import TypeAlias

from ...asgi.offload import LARGE
from ...ir.text import finite_to_bytes
from .client_request import ClientRequest

__all__ = ["KnownTools"]

ToolsKey: TypeAlias = tuple[int, str]

_MAX_KNOWN = 4096
_SMALL = 1024  # bytes; the schemas in a smaller request are converted in a moment
_FIELDS = ("tools", "functions", "response_format", "text", "output_config", "generationConfig", "format")


class KnownTools:
    """Hashes of tools and of the targets that they were converted for."""

    def __init__(self) -> None:
        self._known: set[ToolsKey] = set()

    def key(self, client_request: ClientRequest, label: str) -> ToolsKey | None:
        """Return the key of the schemas of a request for a target.

        None if there are none, if they are small, or if the request is large, which always needs a thread.
        """
        document = client_request.document
        if len(client_request.body) <= _SMALL or client_request.work_size > LARGE:
            return None
        schemas = [document[name] for name in _FIELDS if name in document]
        return (hash(finite_to_bytes(schemas)), label) if schemas else None

    def has(self, key: ToolsKey | None) -> bool:
        return key is None or key in self._known

    def add(self, key: ToolsKey | None) -> None:
        """Remember that the schemas are converted. At the maximum number, start again."""
        if key is not None and key not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known.add(key)
