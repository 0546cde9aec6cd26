"""Fit a request to its target, and encode it on the version of the wire that loses least.

    prepared = prepare(request, toolwire.wire.get("gemini"))
    body, more = wire.encode_request(prepared.request)      # the fitted request
    answer = prepared.exchange.restore(response)            # the answer in the terms of the request

`prepare` is a pure function of the request and the target, so any process can rebuild the Exchange. The order of its
steps, with the reasons, is in `fitting/__init__.py`. `encode_best_version` needs no endpoint: a program that sends
requests itself calls it after `prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from msgspec.structs import replace

from ...ir.losses import Loss, Losses
from ...ir.pointer import join, split
from ...ir.request import ReasoningConfig, Request
from ...ir.tools import Tool
from ...wire import get
from ...wire.codec import WireCodec
from ...wire.models.capabilities import ModelCapabilities
from ...wire.models.profiles import match_capabilities
from ...wire.protocol import Encoded, Wire
from ..conversation.fitted_prefix import PrefixReuse, PrefixStore, encode_onto
from ..conversation.history import DraftMessage, location_pointer, message_index, message_locations
from ..conversation.known_settings import KnownSettings
from ..conversation.outline import HistoryOutline, outline_history
from ..conversation.provider_state import find_stored
from ..fitting.cache_marks import has_body_mark, limit_marks, place_marks
from ..fitting.fields import fit_extra
from ..fitting.history import fit_history
from ..fitting.hosted_tools import allow_hosted
from ..fitting.reasoning import fit_reasoning_to_history
from ..fitting.schemas import add_instructions
from ..fitting.tools import ToolChooser
from ..fitting.typed_tools import express_items, has_typed_parts
from .exchange import Exchange
from .settings import FittedSettings, KnownFit, LastSettings, find_known_fit, fit_last, fit_settings, make_key

_message, _cache, _kind = attrgetter("message"), attrgetter("cache"), attrgetter("kind")


class Prepared:
    """A fitted request, the exchange that restores its answer, and the losses."""

    __slots__ = ("_is_marked", "_known", "_reuse", "_tools", "_turns", "exchange", "losses", "request")

    def __init__(
        self,
        request: Request,
        exchange: Exchange,
        losses: Losses,
        turns: list[DraftMessage],
        tools: list[tuple[Tool, int]],
        reuse: PrefixReuse | None = None,
        known: KnownFit | None = None,
        *,
        is_marked: bool = False,
    ) -> None:
        self.request = request
        self.exchange = exchange
        self.losses = losses
        self._turns = turns  # fitted messages, with the locations of their parts in the request
        self._tools = tools  # fitted tools, with their indices in the request
        self._reuse = reuse
        self._known = known  # it has the request's settings
        self._is_marked = is_marked  # it has marks of `place_marks`

    def encode(self, wire: Wire) -> Encoded:
        """Encode the fitted request on a version of its wire.

        With a store, the conversation in the body may begin with JSON text (`to_bytes` writes both).
        """
        settings = None if self._known is None else self._known.write(self.request, wire)
        if self._reuse is not None:
            return self._reuse.encode(self.request, self._turns, wire, settings, text_blocks=self._is_marked)
        return encode_onto(self.request, wire, settings, text_blocks=self._is_marked)

    def origin(self, path: str) -> str:
        """Return the path in the original request of the value at `path` in the fitted one."""
        match split(path):
            case ["messages", index, "parts", number, *rest]:
                return location_pointer(self._turns[int(index)].locations[int(number)]) + join(*rest)
            case ["messages", index, *rest]:
                return join("messages", message_index(self._turns[int(index)].locations[0]), *rest)
            case ["tools", index, *rest] if int(index) < len(self._tools):
                return join("tools", self._tools[int(index)][1], *rest)
        return path

    def destination(self, path: str) -> str | None:
        """Return the path in the fitted request of the value at `path` in the original one, or None."""
        match split(path):
            case ["messages", index, "parts", number, *rest]:
                return self._find_part(int(index), int(number), rest)
            case ["messages", index, *rest]:
                return self._find_message(int(index), rest)
            case ["tools", index, *rest]:
                fitted = next((new for new, (_, old) in enumerate(self._tools) if old == int(index)), None)
                return None if fitted is None else join("tools", fitted, *rest)
        return path

    def _find_part(self, index: int, number: int, rest: list[str]) -> str | None:
        location = message_locations(index, number + 1)[number]
        for new, turn in enumerate(self._turns):
            if location in turn.locations and (fitted := turn.locations.index(location)) < len(turn.message.parts):
                return join("messages", new, "parts", fitted, *rest)
        return self._find_message(index, [])

    def _find_message(self, index: int, rest: list[str]) -> str | None:
        for new, turn in enumerate(self._turns):
            if any(message_index(location) == index for location in turn.locations):
                return join("messages", new, *rest)
        return None


def prepare(
    request: Request,
    wire: Wire | str,
    *,
    history_model: str | None = None,
    capabilities: ModelCapabilities | None = None,
    choose: ToolChooser | None = None,
    runs_search: bool = False,
    store: PrefixStore | None = None,
    mark_prefix: bool = False,
    settings: KnownSettings | None = None,
) -> Prepared:
    """Fit the request to `wire` and its model; raise EncodeError if that is impossible.

    A reference to a conversation that the provider of another wire stores raises StoredStateError. `history_model` is
    the model that produced the history, if it differs from the requested model: signatures of one model are of no use
    to another. `capabilities` describe the model; by default, the built-in rows do. `choose` selects tools if the
    request has more than the target accepts; without it, only tools that the conversation names are kept.
    `runs_search`: the caller runs calls of `search_tools`, which then replaces the search of a provider on a target
    without one. `store` has what earlier requests of the same conversation led to, and `settings` the same for requests
    with the same settings; the result is the same without them. `mark_prefix` marks the stable prefix for a provider that
    caches only marked prefixes, unless the request has marks.
    """
    wire = get(wire) if isinstance(wire, str) else wire
    model = match_capabilities(wire, request.model).capabilities if capabilities is None else capabilities
    outline = outline_history(request.messages) if store is None else store.outline(request.messages)
    if (outline.has_opaque_parts or outline.fields) and has_typed_parts(outline):
        request, outline = _express_history(request, wire, outline, store)
    stored = find_stored(request, wire.name, outline) if request.extra or outline.may_refer else None
    if stored is not None:
        raise stored
    known = None if settings is None else find_known_fit(request, wire, model, outline, settings)
    if known is None:
        fitted = fit_settings(request, wire, model, outline, choose, runs_search=runs_search)
        request, names, losses = fitted.request, fitted.names, fitted.losses
    else:
        fitted, names, losses = known, known.names.copy(), known.losses.copy()
        if known.changes_request:
            request = replace(known.request, messages=request.messages)
    vendor_marks, wire = wire.capabilities.cache, fitted.wire
    reuse = None if store is None else _find_prefix(store, request, history_model, fitted, known)
    turns, marks = fit_history(
        request, wire, names, losses, history_model, fitted.lifts, fitted.plan, fitted.indexed_tools, reuse, outline
    )
    has_marks = marks > 0 or any(map(_cache, fitted.tools))
    if known is None or known.last is None or has_marks:
        known = None  # the conversation changes the rest
        last, tools, reasoning = _fit_rest(fitted, model, turns, losses, vendor_marks, marks if has_marks else None)
    else:
        last, tools, reasoning = known.last, known.tools, None
        if last.losses:
            losses.extend(last.losses)
    output, required = fitted.output, fitted.required
    if output.instructions is not None:
        turns = add_instructions(turns, output.instructions, wire.capabilities)
    if required is not None and required.instructions is not None:
        turns = add_instructions(turns, required.instructions, wire.capabilities)
    sent = Request(
        model=request.model,
        messages=tuple(map(_message, turns)),
        tools=tools,
        choice=fitted.choice,
        parallel=last.parallel if required is None else None,
        params=last.params,
        reasoning=reasoning,
        output=output.output if required is None else required.output,
        stream=request.stream,
        extra=last.extra,
    )
    marked = sent
    if mark_prefix and not has_marks and not has_body_mark(sent.extra, wire.name):
        marked = place_marks(sent, wire, None if store is None else store.mark_once)
    if marked.tools is not tools:
        known = None  # fields with other tools are written
    exchange = Exchange(
        names,
        request,
        wire.capabilities.freeform,
        fitted.lifts,
        wire,
        fitted.indexed_tools,
        output.lowered,
        fitted.plan,
        required,
        None if outline.plain is None else outline.plain.calls,
    )
    return Prepared(marked, exchange, losses, turns, fitted.indexed_tools, reuse, known, is_marked=marked is not sent)


def _express_history(
    request: Request, wire: Wire, outline: HistoryOutline, store: PrefixStore | None
) -> tuple[Request, HistoryOutline]:
    """Return the request with functions in place of the typed tools in its history, and the outline of that."""
    messages = express_items(request.messages, wire.name, store)
    if messages is request.messages:
        return request, outline
    outline = outline_history(messages) if store is None else store.outline(messages)
    return replace(request, messages=messages), outline


def _find_prefix(
    store: PrefixStore, request: Request, history_model: str | None, fitted: FittedSettings, known: KnownFit | None
) -> PrefixReuse | None:
    """Return the reuse of a prefix; None for a search of the target's provider, whose parts depend on each other."""
    if fitted.plan.is_hosted or not store.is_split(request.messages):
        return None
    if known is None:
        key = make_key(request, fitted.wire, history_model, fitted.indexed_tools, fitted.plan)
    else:
        key = known.history_key(request, history_model)
    return None if key is None else PrefixReuse(store, key, request.messages)


def _fit_rest(
    fitted: FittedSettings,
    model: ModelCapabilities,
    turns: list[DraftMessage],
    losses: Losses,
    vendor_marks: frozenset[str],
    marks: int | None,
) -> tuple[LastSettings, tuple[Tool, ...], ReasoningConfig | None]:
    """Fit the settings that depend on the fitted conversation `turns`, which has `marks`; None: no cache marks at all."""
    extra, wire = fitted.request.extra, fitted.wire
    tools, reasoning = fitted.tools, fitted.reasoning
    if extra:
        extra = fit_extra(extra, wire, losses, vendor_marks)
    if "builtin" in map(_kind, tools):
        extra = allow_hosted(extra, wire, tools)
    if marks is not None:
        body_mark = has_body_mark(extra, wire.name)  # only a mark that the target gets counts
        tools = tuple(limit_marks(turns, list(tools), wire, marks, losses, has_body_mark=body_mark))
    if reasoning is not None or model.reasoning_replay == "required":
        reasoning = fit_reasoning_to_history(reasoning, turns, wire, model, losses)
    return fit_last(fitted, extra, reasoning, model, losses), tools, reasoning


def encode_best_version(
    request: Request, wire: Wire, encode: Callable[[Wire], Encoded] | None = None
) -> tuple[Wire, Encoded]:
    """Encode a fitted request on the newest version of `wire`, or on an older one on which less is lost.

    `encode` encodes the request on a version; by default, the version's own `encode_request`. Anthropic's version 2026-10-21 has no sampling parameters; models that accept them do so on 2023-06-01.
    """
    best: tuple[Wire, Encoded] = (wire, wire.encode_request(request) if encode is None else encode(wire))
    lost = _count_lost(best[1].losses) if len(best[1].losses) else 0
    for older in reversed(wire.older) if lost and isinstance(wire, WireCodec) else ():
        encoded = older.encode_request(request) if encode is None else encode(older)
        if (fewer := _count_lost(encoded.losses)) < lost:
            best, lost = (older, encoded), fewer
    return best


def _count_lost(losses: Iterable[Loss]) -> int:
    return sum(loss.severity != "info" for loss in losses)
