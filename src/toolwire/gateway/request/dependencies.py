"""The objects that all requests of a gateway share, made anew when settings are applied; and the cache of whole answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256

from msgspec import Struct

from ...asgi.offload import Offload
from ...bridge.conversation.reasoning_envelope import ReasoningEnvelopes
from ...bridge.conversation.turns import TurnStore
from ...ir.text import to_bytes
from ...net.tools.runner import Runner
from ...schema.bounds import BoundedCache
from ..config.settings import LimitsRow
from ..responses.state import ResponseState
from ..retrieval.tool_ranker import ToolRanker
from ..routing.router import Router
from .client_request import KnownTools

# A cache of whole answers for identical requests.


_MAX_CACHED_BYTES = 64 * 1024 * 1024  # thousands of answers; part of the memory figure in docs/gateway.md


class AnswerCache:
    """The newest answers, up to a total number of bytes. Callers do not share entries."""

    def __init__(self, clock: Callable[[], float], max_bytes: int = _MAX_CACHED_BYTES) -> None:
        self._clock = clock
        self._answers: BoundedCache[bytes, bytes] = BoundedCache(max_bytes=max_bytes)

    @staticmethod
    def key(caller: str, wire: str, model: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Hash a request. `wire` is the client's, and `headers` are forwarded to the upstream."""
        identity = to_bytes([caller, wire, model, *(part for header in sorted(headers.items()) for part in header)])
        return sha256(identity + b"\0" + body).digest()

    def get(self, key: bytes) -> bytes | None:
        return self._answers.get(key, self._clock())

    def put(self, key: bytes, answer: bytes, seconds: float) -> None:
        self._answers.put(key, answer, self._clock(), seconds, len(answer))


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
