"""Remember for which tools the schemas have been converted, because the first time is expensive.

Converting a schema costs up to 0.1 ms for each of its values, and later uses find the result in a cache. Agents send the
same tools with every request, so only their first request needs a thread.

Separate because it is a memory of past requests, unlike the handler of one.
"""

from __future__ import annotations

from typing import TypeAlias

from ..asgi.offload import LARGE
from .client_request import ClientRequest

__all__ = ["KnownTools"]

ToolsKey: TypeAlias = tuple[int, str]

_MAX_KNOWN = 4096
_MAX_BYTES = 1024 * 1024  # of all their requests; the caches of schemas hold at least as much
_SMALL = 1024  # bytes; the schemas in a smaller request are converted in a moment


class KnownTools:
    """Hashes of tools and of the targets that they were converted for."""

    def __init__(self) -> None:
        self._known: set[ToolsKey] = set()
        self._size = 0  # bytes of requests with new tools, or with tools that are not remembered

    def key(self, client_request: ClientRequest, label: str) -> ToolsKey | None:
        """Return the key of the schemas of a request for a target.

        None if there are none, if they are small, or if the request is large, which always needs a thread.
        """
        if len(client_request.body) <= _SMALL or client_request.work_size > LARGE:
            return None
        schemas = client_request.encode_schemas()
        return (hash(schemas), label) if schemas else None

    def has(self, key: ToolsKey | None) -> bool:
        return key is None or key in self._known

    def add(self, key: ToolsKey | None, client_request: ClientRequest) -> None:
        """Remember that the schemas are converted.

        At the maximum number or size, start again: results of many other schemas have replaced theirs in the caches.
        """
        if key in self._known:
            return
        if key is None and not (client_request.has_tools and client_request.work_size > LARGE):
            return
        self._size += len(client_request.body)
        if len(self._known) >= _MAX_KNOWN or self._size > _MAX_BYTES:
            self._known.clear()
            self._size = len(client_request.body)
        if key is not None:
            self._known.add(key)
