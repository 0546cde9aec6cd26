"""Prepare a client's request for a target: restored turns, selected tools, and the gateway's own tools.

`PassThroughRequest` if client and upstream use the same wire and the answer needs no change. `TranslatedRequest` for
everything else. Between equal wires both keep the client's headers, API version and unknown fields; only the
conversation changes, if a stored turn is restored in it.

The turns of a request (`TurnMemory`):

    load       before the first attempt, once for all targets: one access to the store, by the keys of the history
    restore    for each target: in full for the model that made a turn, because signatures hold for that model only
    save       after the answer, before its end is sent, and only if the client cannot return the turn in full

Reasoning may also be in an envelope that the client returns. Then the store is not needed, and a turn survives its loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import TypeAlias

from msgspec.structs import replace

from ...bridge.conversation.fitted_prefix import PrefixStore
from ...bridge.conversation.reasoning_envelope import EnvelopeReader, ReasoningEnvelopes
from ...bridge.conversation.restored_turns import find_turn_keys, restore_known_turns, restore_turns, turn_keys
from ...bridge.conversation.turns import StoredTurn
from ...bridge.fitting.typed_tools import express_items
from ...ir.request import Request
from ...ir.text import to_bytes
from ...net.model.endpoint import Endpoint
from ...net.model.endpoint_settings import NO_DEFAULTS, RequestDefaults
from ...net.model.pass_through import accepts_request, has_valid_ids, replace_leading_model, replace_model
from ...net.model.server_facts import SizedBody
from ...net.tools.runner import Runner
from ...stream.strict import parse_object
from ...wire.protocol import Limits
from ..gateway_tools import GatewayTools
from ..hosted_tools import HostedRuns, find_services, hosted_kinds, may_declare_hosted
from ..observe.request_log import OfferCounts
from ..request.client_request import ClientRequest
from ..request.dependencies import Dependencies
from ..retrieval.offered_tools import OfferedClientTools
from ..routing.router import Target
from .pass_through import PassThroughRequest, PassThroughStream
from .translated import TranslatedRequest, TranslatedStream


class TurnMemory:
    """The stored turns of one request's history, and the envelopes in it."""

    __slots__ = ("_client_request", "_envelopes", "removes_envelopes", "turns")

    def __init__(self, client_request: ClientRequest, envelopes: ReasoningEnvelopes) -> None:
        self._envelopes = envelopes if client_request.has_envelopes else None
        self._client_request = client_request
        self.turns: Mapping[str, StoredTurn] = {}  # of the history, by key
        self.removes_envelopes = False  # in the last request, because its provider would refuse them

    @property
    def found_any(self) -> bool:
        """True if a turn of the history is stored, or may contain an envelope."""
        return bool(self.turns) or self.has_envelopes

    @property
    def has_envelopes(self) -> bool:
        """True if reasoning of the history may be in an envelope."""
        return self._envelopes is not None

    def find_keys(self, plan: Sequence[Target]) -> list[str]:
        """List the keys of turns that may be stored. Turns without calls matter only to a target of another wire."""
        client_request = self._client_request
        crosses_wires = any(target.endpoint.wire.name != client_request.wire.name for target in plan)
        if crosses_wires or client_request.may_have_calls():
            request, store = client_request.request, client_request.translations
            if crosses_wires:
                request = _with_functions(request, "", store)
            return find_turn_keys(request, by_text=crosses_wires, store=store)
        return []

    def restore(self, request: Request, endpoint: Endpoint) -> tuple[Request, PrefixStore | None]:
        """Return the request with its stored turns, and the translations of its first messages.

        On the client's own wire, it is the same object if nothing changes, and `removes_envelopes` is set if one is
        found.
        """
        client_request = self._client_request
        translations = client_request.translations
        envelopes = (
            None
            if self._envelopes is None
            else self._envelopes.for_model(endpoint.wire.name, endpoint.origin, endpoint.model)
        )
        self.removes_envelopes = False
        if endpoint.wire.name == client_request.wire.name:
            reader = None if envelopes is None else EnvelopeReader(envelopes)
            restored = restore_turns(request, self.turns, endpoint.turn_origin, reader)
            if reader is None or not reader.found:
                return restored, translations
            self.removes_envelopes = True
        else:
            request = _with_functions(request, endpoint.wire.name, translations)
        return restore_known_turns(request, self.turns, endpoint.turn_origin, translations, envelopes)


def _with_functions(request: Request, wire: str, store: PrefixStore | None) -> Request:
    """Return the request with functions in place of the typed tools in its history, as the stored turns have them."""
    messages = express_items(request.messages, wire, store)
    return request if messages is request.messages else replace(request, messages=messages)


def encode_turn(turn: StoredTurn, endpoint: Endpoint) -> tuple[StoredTurn, list[str], bytes]:
    """Return the turn of an endpoint with its keys and its JSON."""
    bound = turn.bind(endpoint.model, endpoint.turn_origin)
    return bound, turn_keys(bound), bound.to_json()


OutboundRequest: TypeAlias = PassThroughRequest | TranslatedRequest
Stream: TypeAlias = PassThroughStream | TranslatedStream
"""A stream in transit: the upstream's bytes in, the client's bytes out, as whole events."""
RestoredRequest: TypeAlias = tuple[Request, PrefixStore | None]
"""A request with its stored turns, and the translations of its first messages."""

# One of them is in each request with deferred tools. They are found faster than by decoding.
_DEFER_LOADING = b"defer_loading"
_TOOL_SEARCH = b"tool_search"


class RequestPreparation:
    """The preparation of one client's request. `gateway_tools` runs the tools of the last prepared one."""

    gateway_tools: GatewayTools | None = None
    turns: TurnMemory | None = None  # if a turn of the history is stored, or has an envelope
    tool_count: int | None = None  # of a request whose conversation is stored elsewhere
    _unchanged_ids: frozenset[int] = frozenset()  # of targets that get the client's bytes

    def __init__(self, client_request: ClientRequest, caller: str, dependencies: Dependencies) -> None:
        self._client_request = client_request
        self._caller = caller
        self._dependencies = dependencies

    @property
    def tool_counts(self) -> OfferCounts | None:
        """The tools of the last prepared request, if they are selected, or cannot be for this conversation."""
        if self.gateway_tools is not None and self.gateway_tools.offer is not None:
            offer = self.gateway_tools.offer
            return OfferCounts(offer.declared, offer.offered, offer.searches)
        return None if self.tool_count is None else OfferCounts(self.tool_count, self.tool_count, 0)

    def forward(self, target: Target) -> PassThroughRequest | None:
        """Return the request for a target that gets the client's bytes, or None if it has to be prepared.

        `needs_no_change` has found these targets. The gateway's tools of an earlier target are reset.
        """
        if self.turns is not None or id(target) not in self._unchanged_ids:
            return None
        self.gateway_tools = self.tool_count = None
        client_request, endpoint = self._client_request, target.endpoint
        if client_request.upload is not None:
            return PassThroughRequest(client_request, endpoint, b"", client_request.upload.for_model(endpoint.model))
        body = replace_leading(client_request, endpoint)
        return None if body is None else PassThroughRequest(client_request, endpoint, body)

    def needs_no_change(self, target: Target) -> bool:
        """Return whether the client's bytes can be sent as they are, and remember such a target for `forward`.

        The bytes are not decoded for this.
        """
        client_request = self._client_request
        if target.kept_wire != client_request.wire.name or not takes_bytes(target, client_request, self._dependencies):
            return False
        self._unchanged_ids |= {id(target)}
        return True

    def may_select_tools(self, target: Target, runner: Runner | None) -> bool:
        """Check whether some of the tools may be left out of the request for a target."""
        if not self._client_request.has_tools and runner is None:
            return False
        return bool(target.row.retrieve) or self.may_defer(target)

    def may_defer(self, target: Target) -> bool:
        """Check whether the client may rely on the tool search of a provider that the target does not have."""
        client_request = self._client_request
        if target.endpoint.wire.name == client_request.wire.name or target.row.emulate is not None:
            return False
        return _DEFER_LOADING in client_request.body or _TOOL_SEARCH in client_request.body

    def runner_for(self, target: Target) -> Runner | None:
        dependencies = self._dependencies
        has_tools = target.row.tools and dependencies.runners
        return dependencies.runner_for(self._client_request.model) if has_tools else None

    def _find_hosted(self, target: Target) -> HostedRuns | None:
        """Return the hosted tools of the client that the gateway runs for a target that does not, or None."""
        services, client_request = self._dependencies.hosted, self._client_request
        if not services or not target.row.tools or not may_declare_hosted(client_request.body):
            return None
        runs = hosted_kinds(target.endpoint.wire, target.capabilities)
        found = find_services(client_request.request, services, runs)
        return HostedRuns(found, client_request.wire.name) if found else None

    def restore(self, target: Target) -> RestoredRequest:
        """Return the client's request for a target, with its stored turns."""
        client_request = self._client_request
        request = client_request.request_for(target.endpoint)
        if self.turns is None:
            return request, client_request.translations
        return self.turns.restore(request, target.endpoint)

    def make_outbound(
        self,
        target: Target,
        runner: Runner | None,
        restored: RestoredRequest | None,
        offer: OfferedClientTools | None,
    ) -> OutboundRequest:
        """Return the request for a target, and set `gateway_tools` to its tools of the gateway and its selection.

        `restored` is the client's request with its stored turns, if these are restored already, or its media described.
        """
        client_request = self._client_request
        self.gateway_tools = None
        hosted = self._find_hosted(target)
        if runner is None and offer is None and hosted is None:
            restored_request, translations = self._find_restored(target) if restored is None else restored
            keeps_conversation = self.turns is None or not self.turns.removes_envelopes
            return _adapt(
                client_request,
                restored_request,
                translations,
                target,
                self._dependencies.envelopes,
                keeps_conversation=keeps_conversation,
            )
        run_id = token_hex(16)  # not the request id, which a client may choose
        request, translations = self.restore(target) if restored is None else restored
        request = request if hosted is None else hosted.declare(request)
        self.gateway_tools = tools = GatewayTools(runner, request, run_id, self._caller, offer, hosted)
        return TranslatedRequest(
            client_request,
            tools.request,
            target,
            tools,
            translations=translations,
            envelopes=self._dependencies.envelopes,
        )

    def _find_restored(self, target: Target) -> tuple[Request | None, PrefixStore | None]:
        """Return the request with its stored turns and its translations.

        The request is None if the gateway has nothing to add to the client's bytes.
        """
        client_request = self._client_request
        if self.turns is None:
            request = client_request.request_for(target.endpoint) if client_request.is_rebuilt else None
            return request, client_request.translations
        client_copy = client_request.request_for(target.endpoint)
        restored, translations = self.turns.restore(client_copy, target.endpoint)
        return None if restored is client_copy and not client_request.is_rebuilt else restored, translations


def takes_bytes(target: Target, client_request: ClientRequest, dependencies: Dependencies) -> bool:
    """Return whether the client's bytes can be sent to a target whose `kept_wire` is the client's."""
    return (
        not leaves_context(client_request, target)
        and client_request.pending_response is None
        and not (
            dependencies.runners and target.row.tools and dependencies.runner_for(client_request.model) is not None
        )
        and not (target.renamed_fields and any(map(client_request.may_have_field, target.renamed_fields)))
        and (target.max_tools is None or not client_request.may_have_more_tools(target.max_tools))
        and not (target.refused_media and client_request.may_have_media())
        and not client_request.has_summary
        and not (dependencies.hosted and may_declare_hosted(client_request.body))
    )


def _adapt(
    client_request: ClientRequest,
    restored: Request | None,
    translations: PrefixStore | None,
    target: Target,
    envelopes: ReasoningEnvelopes,
    *,
    keeps_conversation: bool,
) -> OutboundRequest:
    """Adapt a request without tools of the gateway; `restored` is the request with its stored turns, if there are any.

    Without `keeps_conversation`, reasoning was removed, and the rest must be fitted to that.
    """
    endpoint, body = target.endpoint, None
    if keeps_conversation and endpoint.wire.name == client_request.wire.name and _keeps_body(client_request, target):
        body = _same_wire_body(client_request, restored, endpoint)
        sized_body = _size_context(body, target) if leaves_context(client_request, target) else None
        body = body if sized_body is None else sized_body.data
        if target.row.repair is None and not client_request.records_at(target.upstream):
            # The body is not decoded here, so it need not be decodable.
            return PassThroughRequest(client_request, endpoint, body, _sized_body=sized_body)
    request = client_request.request if restored is None else restored
    # `client_request.request` above may have decoded the request, which sets its translations.
    translations = client_request.translations if translations is None else translations
    return TranslatedRequest(
        client_request, request, target, same_wire_body=body, translations=translations, envelopes=envelopes
    )


def leaves_context(client_request: ClientRequest, target: Target) -> bool:
    """Check whether an Ollama model is requested without a size of its context. A streamed body is not searched."""
    if target.upstream.context_sizes is None or client_request.upload is not None:
        return False
    return b'"num_ctx"' not in client_request.body


def _size_context(body: bytes, target: Target) -> SizedBody | None:
    """Choose the context for a request of an Ollama client, or return None for a model at ollama.com.

    Without it, the server would cut the prompt to its default, and load the model again after each translated request.
    """
    sizes = target.upstream.context_sizes
    size = None if sizes is None else sizes.of(target.endpoint)
    if size is None or size.facts.is_remote:
        return None
    return SizedBody(size, parse_object(body))


def replace_leading(client_request: ClientRequest, endpoint: Endpoint) -> bytes | None:
    """Return the client's body for the target's model, or None if it must be parsed for that."""
    if client_request.body_model in (None, endpoint.model):
        return client_request.body
    return replace_leading_model(client_request.body, endpoint.model)


def _replace_model(client_request: ClientRequest, endpoint: Endpoint) -> bytes:
    """Return the client's body for the target's model."""
    replaced = replace_leading(client_request, endpoint)
    return replace_model(client_request.body, client_request.document, endpoint.model) if replaced is None else replaced


def _same_wire_body(client_request: ClientRequest, restored: Request | None, endpoint: Endpoint) -> bytes:
    """Return the client's body for the target's model, with the conversation of `restored` if it is given."""
    if restored is None and not endpoint.changes_body:
        return _replace_model(client_request, endpoint)
    document = client_request.document
    if restored is not None:
        conversation = client_request.wire.conversation
        encoded, _ = client_request.wire.encode_request(restored)
        document = {**document, conversation: encoded[conversation]}
        if client_request.pending_response is not None and client_request.is_rebuilt:
            document = client_request.pending_response.without_references(document, encoded)
    if "model" in document:
        document = {**document, "model": endpoint.model}
    return to_bytes(endpoint.finish_body(document, client_request.headers.get("anthropic-version")))


def _keeps_body(client_request: ClientRequest, target: Target) -> bool:
    """Check that neither the settings nor the vendor change a request on their own wire."""
    endpoint = target.endpoint
    return (
        target.row.emulate is None
        and not client_request.has_media(target.refused_media)
        and not client_request.has_summary
        and accepts_request(
            endpoint,
            client_request.wire.name,
            client_request.has_field,
            lambda: client_request.document.get("tool_choice"),
            client_request.has_more_tools,
            target.capabilities,
        )
        and (endpoint.vendor.id is None or _has_valid_ids(client_request, endpoint.wire.limits))
        and (endpoint.defaults is NO_DEFAULTS or _has_every_default(client_request, endpoint.defaults))
    )


def _has_valid_ids(client_request: ClientRequest, limits: Limits) -> bool:
    """Check that the vendor accepts the ids of the calls in the history."""
    request = client_request.request_or_none if client_request.may_have_calls() else None
    return request is None or has_valid_ids(request, limits)


def _has_every_default(client_request: ClientRequest, defaults: RequestDefaults) -> bool:
    request = client_request.request
    return defaults.apply(request) is request
