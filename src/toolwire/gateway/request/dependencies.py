"""The objects that all requests of a gateway share, made anew when settings are applied.

Two of them are defined here: the cache of whole answers, and the tools whose schemas have been converted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TypeAlias

from msgspec import Struct

from ...asgi.offload import LARGE, Offload
from ...bridge.conversation.reasoning_envelope import ReasoningEnvelopes
from ...bridge.conversation.turns import TurnStore
from ...ir.text import to_bytes
from ...net.tools.runner import Runner
from ..config.settings import LimitsRow
from ..responses.state import ResponseState
from ..retrieval.tool_ranker import ToolRanker
from ..routing.router import Router
from .client_request import ClientRequest

# A cache of whole answers for identical requests.


_MAX_CACHED_BYTES = 64 * 1024 * 1024


class AnswerCache:
    """The newest answers, up to a total number of bytes. Callers do not share entries."""

    def __init__(self, clock: Callable[[], float], max_bytes: int = _MAX_CACHED_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()  # (expiry, answer), oldest first

    @staticmethod
    def key(caller: str, front: str, model: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Hash a request. `headers` are those forwarded to the upstream."""
        identity = to_bytes([caller, front, model, *(part for header in sorted(headers.items()) for part in header)])
        return sha256(identity + b"\0" + body).digest()

    def get(self, key: bytes) -> bytes | None:
        expires_at, answer = self._entries.get(key, (0.0, b""))
        return answer if expires_at > self._clock() else None

    def put(self, key: bytes, answer: bytes, seconds: float) -> None:
        """Store an answer for `seconds`, and evict the oldest ones while the total exceeds the limit."""
        if len(answer) > self._max_bytes:
            return
        self._size -= len(self._entries.pop(key, (0.0, b""))[1])
        self._entries[key] = (self._clock() + seconds, answer)
        self._size += len(answer)
        while self._size > self._max_bytes:
            self._size -= len(self._entries.popitem(last=False)[1][1])


# Remember for which tools the schemas have been converted, because the first time is expensive.
#
# Converting a schema costs up to 0.1 ms for each of its values, and later uses find the result in a cache. Agents
# send the same tools with every request, so only their first request needs a thread.


ToolsKey: TypeAlias = tuple[int, str]

_MAX_KNOWN = 4096
_MAX_KNOWN_BYTES = 1024 * 1024  # of all their requests; the caches of schemas hold at least as much
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
        if len(self._known) >= _MAX_KNOWN or self._size > _MAX_KNOWN_BYTES:
            self._known.clear()
            self._size = len(client_request.body)
        if key is not None:
            self._known.add(key)


class Dependencies(Struct, frozen=True):
    """Dependencies shared by all requests."""

    router: Router
    turn_store: TurnStore
    limits: LimitsRow
    clock: Callable[[], float]
    cache: AnswerCache
    responses: ResponseState
    offload: Offload
    known_tools: KnownTools
    ranker: ToolRanker
    envelopes: ReasoningEnvelopes
    runners: Mapping[str, Runner] = {}  # tools run by the gateway, by model pattern

    def runner_for(self, model: str) -> Runner | None:
        for pattern, runner in self.runners.items():
            if fnmatchcase(model, pattern):
                return runner
        return None
