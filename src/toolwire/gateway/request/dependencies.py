"""The objects that all requests of a gateway share, made anew when settings are applied; and the cache of whole answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256

from msgspec import Struct

from ...asgi.offload import ClientOffload, Offload
from ...bridge.conversation.reasoning_envelope import ReasoningEnvelopes
from ...bridge.conversation.turns import TurnStore
from ...ir.text import to_bytes
from ...net.tools.runner import Runner
from ...schema.bounds import BoundedCache
from ..config.settings import LimitsRow
from ..hosted_tools import HostedService
from ..keys import Caller
from ..memory import MemoryReservation
from ..responses.state import ResponseState
from ..retrieval.tool_ranker import ToolRanker
from ..routing.media_descriptions import MediaDescriptions
from ..routing.router import Router
from .client_request import ClientRequest, KnownTools

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
    descriptions: MediaDescriptions
    runners: Mapping[str, Runner] = {}  # tools run by the gateway, by model pattern
    hosted: Mapping[str, HostedService] = {}  # that replace hosted tools, by kind

    def runner_for(self, model: str) -> Runner | None:
        for pattern, runner in self.runners.items():
            if fnmatchcase(model, pattern):
                return runner
        return None


async def open_response(
    client_request: ClientRequest,
    caller: Caller,
    memory: MemoryReservation,
    dependencies: Dependencies,
    offload: ClientOffload,
    background_id: str = "",
) -> None:
    """Load the stored conversation of an OpenAI Responses request, and continue the request from it.

    The pending response is closed if that fails. `background_id`: of a background response.
    """

    def may_keep() -> bool:
        plan = dependencies.router.plan(client_request.model, tools=client_request.has_tools)
        return any(target.upstream.keeps_responses for target in plan)

    state = dependencies.responses
    document = await offload.run(len(client_request.body), lambda: client_request.document)
    pending = await state.open_response(
        state.access(caller.name, memory, offload),
        document,
        len(client_request.body),
        lambda: client_request.request,
        may_keep,
        background_id,
    )
    try:
        await offload.run(pending.size, client_request.continue_conversation, pending)
    except BaseException:
        await state.close_response(pending)
        raise
