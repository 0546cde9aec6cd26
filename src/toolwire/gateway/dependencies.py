"""The objects that all requests of a gateway share, made anew when settings are applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from ..asgi.offload import Offload
from ..bridge.conversation.reasoning_envelope import ReasoningEnvelopes
from ..bridge.conversation.turns import TurnStore
from ..net.tools.runner import Runner
from .answer_cache import AnswerCache
from .known_tools import KnownTools
from .responses.state import ResponseState
from .retrieval.tool_ranker import ToolRanker
from .routing import Router
from .settings import LimitsRow

__all__ = ["Dependencies"]


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
