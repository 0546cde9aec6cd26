"""Fit a request to its target, and encode it on the version of the wire that loses least.

    prepared = prepare(request, toolwire.wire.get("gemini"))
    body, more = wire.encode_request(prepared.request)      # the fitted request
    answer = prepared.exchange.restore(response)            # the answer in the terms of the request

`prepare` is a pure function of the request and the target, so any process can rebuild the Exchange. The order of its
steps, with the reasons, is in `fitting/__init__.py`. `encode_best_version` needs no endpoint: a program that sends
requests itself calls it after `prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from ...ir.losses import Loss, Losses
from ...ir.pointer import join, split
from ...ir.request import Request
from ...ir.tools import Tool
from ...wire import get
from ...wire.codec import WireCodec
from ...wire.models.capabilities import UNKNOWN_MODEL, ModelCapabilities
from ...wire.models.profiles import fit_codec, match_capabilities
from ...wire.params import NO_PARAMS
from ...wire.protocol import Capabilities, Encoded, Wire
from ..conversation.fitted_prefix import PrefixReuse, PrefixStore, encode_marked
from ..conversation.history import DraftMessage, location_pointer, message_index, message_locations
from ..conversation.names import NameMap
from ..conversation.outline import outline_history
from ..conversation.provider_state import find_stored
from ..fitting.cache_marks import has_body_mark, limit_marks, place_marks
from ..fitting.fields import drop_rejected_fields, fit_extra, fit_params, limit_output, report_extra
from ..fitting.history import fit_history
from ..fitting.reasoning import fit_reasoning, fit_reasoning_to_history
from ..fitting.schemas import FREE_OUTPUT, add_instructions, fit_output
from ..fitting.tool_search import NO_SEARCH, SearchPlan, plan_search
from ..fitting.tools import ToolChooser, are_plain_functions, fit_choice, fit_tools
from .exchange import Exchange
from .required_call import fit_required_call


def make_key(
    request: Request, wire: Wire, history_model: str | None, tools: list[tuple[Tool, int]], plan: SearchPlan
) -> Hashable | None:
    """Return everything besides the messages that fitting a history depends on; None if it has no JSON form.

    `tools` are the fitted ones. The JSON text is compared, because values that are equal may differ.
    """
    try:
        return wire, msgspec.json.encode((request.model, history_model, request.tools, tools, plan))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError):
        return None


_message = attrgetter("message")


class Prepared:
    """A fitted request, the exchange that restores its answer, and the losses."""

    __slots__ = ("_is_marked", "_reuse", "_tools", "_turns", "exchange", "losses", "request")

    def __init__(
        self,
        request: Request,
        exchange: Exchange,
        losses: Losses,
        turns: list[DraftMessage],
        tools: list[tuple[Tool, int]],
        reuse: PrefixReuse | None = None,
        *,
        is_marked: bool = False,
    ) -> None:
        self.request = request
        self.exchange = exchange
        self.losses = losses
        self._turns = turns  # fitted messages, with the locations of their parts in the request
        self._tools = tools  # fitted tools, with their indices in the request
        self._reuse = reuse
        self._is_marked = is_marked  # it has marks of `place_marks`

    def encode(self, wire: Wire) -> Encoded:
        """Encode the fitted request on a version of its wire.

        With a store, the conversation in the body may begin with JSON text (`body_to_bytes` writes both).
        """
        if self._reuse is not None:
            return self._reuse.encode(self.request, self._turns, wire, text_blocks=self._is_marked)
        return encode_marked(self.request, wire) if self._is_marked else wire.encode_request(self.request)

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
) -> Prepared:
    """Fit the request to `wire` and its model; raise EncodeError if that is impossible.

    A reference to a conversation that the provider of another wire stores raises StoredStateError. `history_model` is
    the model that produced the history, if it differs from the requested model: signatures of one model are of no use
    to another. `capabilities` describe the model; by default, the built-in rows do. `choose` selects tools if the
    request has more than the target accepts; without it, only tools that the conversation names are kept.
    `runs_search`: the caller runs calls of `search_tools`, which then replaces the search of a provider on a target
    without one. `store` has what earlier requests of the same conversation led to; the result is the same without it.
    `mark_prefix` marks the stable prefix for a provider that caches only marked prefixes, unless the request has marks.
    """
    wire = get(wire) if isinstance(wire, str) else wire
    model = match_capabilities(wire, request.model).capabilities if capabilities is None else capabilities
    vendor_marks = wire.capabilities.cache
    if model is not UNKNOWN_MODEL and isinstance(wire, WireCodec):
        wire = fit_codec(wire, model)  # a third party's implementation declares its own capabilities
    outline = outline_history(request.messages) if store is None else store.outline(request.messages)
    stored = find_stored(request, wire.name, outline) if request.extra or outline.may_refer else None
    if stored is not None:
        raise stored
    losses = Losses()
    if model.strict is False and any(tool.strict for tool in request.tools):
        request = _without_strict(request, losses)
    can = wire.capabilities
    if wire.limits.max_output is not None:
        request = replace(request, params=limit_output(request.params, wire.limits, losses))
    if can.rejected_fields:
        request = drop_rejected_fields(request, can.rejected_fields, losses, outline)
    names = NameMap(wire.limits, can.namespaces)
    answer = FREE_OUTPUT if request.output is None else fit_output(request, wire, losses)
    has_search = outline.has_found_tools or not are_plain_functions(request.tools)
    plan = plan_search(request, wire, runs_search=runs_search, outline=outline) if has_search else NO_SEARCH
    indexed_tools, lifts = fit_tools(request, wire, names, losses, answer.costs, choose, plan)
    tools = [tool for tool, _ in indexed_tools]
    choice, required = (
        fit_required_call(request, indexed_tools, can, lifts, losses)
        if can.choice_by_schema
        else (fit_choice(request, indexed_tools, can, losses), None)
    )
    if choice is not None and choice.mode == "validated" and not can.strict:
        tools = [replace(tool, strict=None) if tool.strict else tool for tool in tools]  # the mode validates all tools
    may_reason = request.reasoning is not None or model is not UNKNOWN_MODEL
    reasoning = fit_reasoning(request, wire, model, losses, has_tools=bool(tools)) if may_reason else None
    reuse = None if store is None else _find_prefix(store, request, wire, history_model, indexed_tools, plan)
    turns, marks = fit_history(request, wire, names, losses, history_model, lifts, plan, indexed_tools, reuse, outline)
    has_marks = marks > 0 or any(tool.cache is not None for tool in tools)
    extra = fit_extra(request.extra, wire, losses, vendor_marks) if request.extra else request.extra
    body_mark = wire.name in extra and has_body_mark(extra, wire.name)  # only a mark that the target gets counts
    if has_marks:
        tools = limit_marks(turns, tools, wire, marks, losses, has_body_mark=body_mark)
    if reasoning is not None or model.reasoning_replay == "required":
        reasoning = fit_reasoning_to_history(reasoning, turns, wire, model, losses)
    if answer.instructions is not None:
        turns = add_instructions(turns, answer.instructions, can)
    if required is not None and required.instructions is not None:
        turns = add_instructions(turns, required.instructions, can)
    _report_extras(request, wire.name, losses)
    parallel = _fit_parallel(request, can, model, losses, has_tools=bool(tools))
    params = request.params
    fitted = Request(
        model=request.model,
        messages=tuple(map(_message, turns)),
        tools=tuple(tools),
        choice=choice,
        parallel=parallel if required is None else None,
        params=params if params is NO_PARAMS else fit_params(params, reasoning, wire, model, losses),
        reasoning=reasoning,
        output=answer.output if required is None else required.output,
        stream=request.stream,
        extra=extra,
    )
    remember = None if store is None else store.mark_once
    marked = place_marks(fitted, wire, remember) if mark_prefix and not (has_marks or body_mark) else fitted
    calls = None if outline.plain is None else outline.plain.calls
    exchange = Exchange(names, request, can.freeform, lifts, wire, indexed_tools, answer.lowered, plan, required, calls)
    return Prepared(marked, exchange, losses, turns, indexed_tools, reuse, is_marked=marked is not fitted)


def _find_prefix(
    store: PrefixStore,
    request: Request,
    wire: Wire,
    history_model: str | None,
    tools: list[tuple[Tool, int]],
    plan: SearchPlan,
) -> PrefixReuse | None:
    """Return the reuse of a prefix; None for a search of the target's provider, whose parts depend on each other."""
    if plan.is_hosted or not store.is_split(request.messages):
        return None
    key = make_key(request, wire, history_model, tools, plan)
    return None if key is None else PrefixReuse(store, key, request.messages)


def _fit_parallel(
    request: Request, can: Capabilities, model: ModelCapabilities, losses: Losses, *, has_tools: bool
) -> bool | None:
    """Return the switch for parallel calls, or None to send none. It is off for a model that makes one call at a time.

    A wish that is dropped is added to `losses`.
    """
    if not has_tools:
        if request.parallel is False:
            losses.add(join("parallel"), "one call at a time", "dropped", "no tools are declared", "info")
        return None
    if model.parallel_calls is not False:
        return request.parallel
    if request.parallel:
        losses.add(join("parallel"), "parallel calls", "dropped", "this model makes one call at a time")
    # Servers reject the history of an answer with two calls, and some default to parallel calls:
    # "This model only supports single tool-calls at once!" (the chat template of Llama 3.1).
    return False if can.parallel else None


def _without_strict(request: Request, losses: Losses) -> Request:
    for index, tool in enumerate(request.tools):
        if tool.strict:
            losses.add(join("tools", index, "strict"), "strict", "dropped", "this model has no strict tools")
    return replace(request, tools=tuple([replace(tool, strict=None) for tool in request.tools]))


def _report_extras(request: Request, wire: str, losses: Losses) -> None:
    if request.choice is not None and request.choice.extra:
        report_extra(request.choice.extra, "/choice", wire, losses)
    if request.reasoning is not None and request.reasoning.extra:
        report_extra(request.reasoning.extra, "/reasoning", wire, losses)
    if request.output is not None and request.output.extra:
        report_extra(request.output.extra, "/output", wire, losses)


def encode_best_version(
    request: Request, wire: Wire, encode: Callable[[Wire], Encoded] | None = None
) -> tuple[Wire, Encoded]:
    """Encode a fitted request on the newest version of `wire`, or on an older one on which less is lost.

    `encode` encodes the request on a version; by default, the version's own `encode_request`. Anthropic's version 2026-10-21 has no sampling parameters; models that accept them do so on 2023-06-01.
    """
    best: tuple[Wire, Encoded] = (wire, wire.encode_request(request) if encode is None else encode(wire))
    lost = _count_lost(best[1].losses)
    for older in reversed(wire.older) if lost and isinstance(wire, WireCodec) else ():
        encoded = older.encode_request(request) if encode is None else encode(older)
        if (fewer := _count_lost(encoded.losses)) < lost:
            best, lost = (older, encoded), fewer
    return best


def _count_lost(losses: Iterable[Loss]) -> int:
    return sum(loss.severity != "info" for loss in losses)
