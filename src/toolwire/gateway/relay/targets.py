"""The targets of a relayed request: by its model, by the owner of the ids in it, or the only upstream with its API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...asgi.http_exchange import HttpExchange
from ...asgi.request import Scope
from ...ir.pointer import Object
from ...wire.embeddings import EMBEDDING_WIRES
from ..config.settings import ModelRow, RelayRow
from ..keys import Caller
from ..memory import MemoryReservation
from ..observe.request_log import RequestLogWriter
from ..request.client_request import ModelMissing
from ..request.reader import RequestReader
from ..routing.health import HealthTable
from ..routing.router import NoTarget, Router, Target, make_target
from .bodies import RelayBody
from .objects import ObjectOwners, referred_ids
from .paths import RelayRoute

_NO_MODEL = "any"  # the name for targets of requests without one; it is not sent
_MAX_REMEMBERED = 256  # targets; only models for fine-tuning are named by clients

_STREAMED_ENDS = ("/content", "/results")  # of paths: files, and results of batches


class RelayRequest(NamedTuple):
    """One request of a client."""

    http_exchange: HttpExchange
    route: RelayRoute
    caller: Caller
    memory: MemoryReservation
    log_writer: RequestLogWriter
    scope: Scope
    body: RelayBody

    @property
    def model(self) -> str | None:
        return self.route.model or self.body.model

    def is_translated_at(self, target: Target) -> bool:
        """Return whether a request for embeddings has to be translated for a target, which is on another wire."""
        return self.route.relay.is_embedding and target.endpoint.wire.name not in self.route.relay.wires

    @property
    def is_document(self) -> bool:
        """True if the answer is a document about objects."""
        return bool(self.route.collection) and not self.route.path.endswith(_STREAMED_ENDS)

    @property
    def changes_objects(self) -> bool:
        """True for a POST that creates or changes an object, or starts work on it: a repetition could do it twice."""
        return bool(self.route.collection) and self.http_exchange.method == "POST"

    def has_own_ids(self, document: Object) -> bool:
        """Return whether an answer is about objects of the client, so that its ids get an owner.

        It creates an object, is about the object of the path, or is made below it by a POST: a part of an upload, a
        remixed video. Answers about members, such as `/vector_stores/V/files/F`, may have the ids of other clients.
        """
        route = self.route
        if route.collection == "create" or document.get("id") == route.entry_id:
            return True
        below = route.path.partition(f"/{route.entry_id}/")[2]
        return self.changes_objects and bool(below) and "/" not in below


class RelayTargets:
    """The choice of targets on one version of the settings."""

    def __init__(
        self,
        router: Router,
        health: HealthTable,
        row: RelayRow,
        owners: ObjectOwners | None,
        reader: RequestReader,
    ) -> None:
        self._router = router
        self._reader = reader
        self._health = health
        self._row = row
        self._owners = owners
        self._by_upstream: dict[tuple[str, str], Target] = {}

    async def find(self, request: RelayRequest) -> Sequence[Target]:
        """Return the targets that may answer. Raise UnknownModel, UnknownObject, ModelMissing, NoTarget or RequestRefused."""
        route, caller = request.route, request.caller
        pinned = await self._find_upstream(request)
        if not request.model:
            if route.relay.model == "required" or (route.relay.model == "optional" and not caller.has_all_models):
                raise ModelMissing("the request names no model", pointer=route.model_pointer)
            return [self._at(pinned or self._choose_upstream(route))]
        caller.check(request.model)
        if pinned is not None and (route.relay.runs_models or route.entry_id):
            # A model for fine-tuning may be served by no row of the settings.
            return [self._at(pinned, request.model)]
        plan = self._router.plan(request.model, tools=False)
        targets = [target for target in plan if _has_path(target, route)]
        if targets and pinned is not None:
            targets = [target for target in targets if target.upstream.name == pinned]
            if not targets:
                message = f"{request.model[:200]!r} is not served by {pinned}, which has the objects of the request"
                raise NoTarget(message, hint=f"use a model of {pinned}")
        if not targets:
            message = (
                f"{request.model[:200]!r} is served by {plan[0].endpoint.wire.name}, which has no {route.path[:200]}"
            )
            raise NoTarget(message, hint=f"use a model of {' or '.join(route.relay.wires)}")
        return targets

    async def _find_upstream(self, request: RelayRequest) -> str | None:
        """Return the upstream that has the objects of a request, or None if it refers to none.

        Without a store of owners, ids in bodies are not checked: no client has created objects through this gateway.
        """
        if self._owners is None:
            return None
        ids, document = {}, request.body.document
        if document:
            data = request.body.for_model(None)  # the held bytes
            size = len(data) if isinstance(data, bytes) else 0
            ids = await self._reader.open_offload(request.caller.name).run(size, referred_ids, document)
        if request.route.entry_id:
            ids[request.route.entry_id] = ""
        if not ids:
            return None
        return await self._owners.require(request.caller.name, ids)

    def _choose_upstream(self, route: RelayRoute) -> str:
        """Return the upstream for a request without a model. Raise NoTarget if there is none, or no reason to choose."""
        names = [name for name in self._router.upstreams if _has_path(self._at(name), route)]
        preferred = next((name for name in self._row.upstreams if name in names), None)
        if preferred is not None or len(names) == 1:
            return preferred or names[0]
        if not names:
            raise NoTarget(f"no upstream has {route.path[:200]}", hint=f"it needs {' or '.join(route.relay.wires)}")
        hint = f'the gateway\'s operator can set upstreams in [relay], as in upstreams = ["{names[0]}"]'
        raise NoTarget(f"several upstreams have {route.path[:200]}: {', '.join(names)}", hint=hint)

    def _at(self, upstream: str, model: str = _NO_MODEL) -> Target:
        """Return the target of a model at an upstream, also if no row of the settings has it."""
        key = upstream, model
        if key not in self._by_upstream:
            configured = self._router.find_upstream(upstream)
            if configured is None:
                raise NoTarget(f"the upstream {upstream!r} was removed from the settings")
            if len(self._by_upstream) >= _MAX_REMEMBERED:
                self._by_upstream.clear()
            self._by_upstream[key] = make_target(configured, model, ModelRow(upstream=upstream), self._health)
        return self._by_upstream[key]


def _has_path(target: Target, route: RelayRoute) -> bool:
    endpoint = target.endpoint
    wires = EMBEDDING_WIRES if route.relay.is_embedding else route.relay.wires
    return endpoint.wire.name in wires and endpoint.vendor.transport is None
