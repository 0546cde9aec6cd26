"""Fit the settings of a request to its target: everything besides its conversation.

Most settings do not depend on the conversation. If they are known from an earlier request (`KnownSettings`), so is the
result. `prepare` fits the conversation between the two steps of this module.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...ir.losses import Loss, Losses
from ...ir.parts import Extra
from ...ir.pointer import join
from ...ir.request import Params, ReasoningConfig, Request
from ...ir.text import finite_to_bytes
from ...ir.tools import Tool, ToolChoice
from ...schema.lowering.lowered import Lowered
from ...wire.codec import WireCodec, WrittenSettings
from ...wire.models.capabilities import UNKNOWN_MODEL, ModelCapabilities
from ...wire.models.profiles import fit_codec
from ...wire.params import NO_PARAMS
from ...wire.protocol import Capabilities, Wire
from ..conversation.known_settings import KnownSettings
from ..conversation.names import NameMap
from ..conversation.outline import HistoryOutline
from ..fitting.fields import drop_rejected_fields, fit_extra, fit_params, has_rejected_parts, limit_output, report_extra
from ..fitting.reasoning import fit_reasoning
from ..fitting.schemas import FREE_OUTPUT, FittedOutput, fit_output
from ..fitting.tool_search import NO_SEARCH, SearchPlan, plan_search
from ..fitting.tools import ToolChooser, are_plain_functions, fit_choice, fit_tools
from .required_call import RequiredCall, fit_required_call


class LastSettings(Struct, frozen=True, eq=False):
    """The settings that are fitted after the conversation."""

    extra: Extra
    parallel: bool | None
    params: Params
    losses: tuple[Loss, ...] = ()


class FittedSettings(Struct, eq=False):
    """The settings of a request on one target, as far as they are fitted before the conversation."""

    request: Request
    """The request without the settings that the target rejects."""
    wire: Wire
    """The wire with the limits and capabilities of the model."""
    names: NameMap
    output: FittedOutput
    plan: SearchPlan
    indexed_tools: list[tuple[Tool, int]]
    """The fitted tools, with their indices in the request."""
    tools: tuple[Tool, ...]
    """The tools to send: the fitted ones, without `strict` where the tool choice validates all tools."""
    lifts: dict[str, Lowered]
    choice: ToolChoice | None
    required: RequiredCall | None
    reasoning: ReasoningConfig | None
    losses: Losses


class KnownFit(FittedSettings, eq=False):
    """Fitted settings that several requests share; nothing of them may be changed."""

    target: tuple[Wire, ModelCapabilities] | None = None
    """The objects whose identities are in the key: as long as they exist, no others have the same identity."""
    changes_request: bool = False
    last: LastSettings | None = None
    """The rest of the settings, if no conversation changes them."""
    _written: dict[int, tuple[Wire, WrittenSettings]] = {}  # by the identity of a version of the wire
    _history_keys: dict[str | None, Hashable] = {}

    def write(self, request: Request, wire: Wire) -> WrittenSettings | None:
        """Return the fields of the fitted `request` on a version of its wire; None if it does not separate them."""
        found = self._written.get(id(wire))
        if found is None:
            if not isinstance(wire, WireCodec) or wire.settings is None or wire.encode_onto is None:
                return None
            found = self._written[id(wire)] = wire, wire.settings.encode_settings(request)
        return found[1]

    def history_key(self, request: Request, history_model: str | None) -> Hashable | None:
        """Return `make_key` for a request with these settings."""
        if history_model not in self._history_keys:
            key = make_key(request, self.wire, history_model, self.indexed_tools, self.plan)
            self._history_keys = {history_model: key}
        return self._history_keys[history_model]


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


def find_known_fit(
    request: Request, wire: Wire, model: ModelCapabilities, outline: HistoryOutline, known: KnownSettings
) -> KnownFit | None:
    """Return the fitted settings of a request with known settings; None if they depend on the conversation.

    `outline` describes the conversation. Raise EncodeError as `fit_settings` does.
    """
    can = wire.capabilities
    if not known.are_in(request) or outline.has_found_tools:
        return None
    if can.declared_history and outline.call_names and not request.tools:
        return None  # tools are declared for the calls
    if can.rejected_fields and has_rejected_parts(can.rejected_fields, outline):
        return None
    params: bytes | None = None
    if request.params is not known.request.params:
        params = finite_to_bytes(request.params)
        if b"null" in params:  # it may be NaN
            return None
    key = id(wire), id(model), request.model, request.stream, params
    found = known.remember(key, partial(_fit_known, request, wire, model))
    return found if isinstance(found, KnownFit) else None


def _fit_known(request: Request, wire: Wire, model: ModelCapabilities) -> KnownFit | bool:
    """Fit settings for all requests that have them, or return False if they depend on the conversation."""
    fitted_wire = _wire_of_model(wire, model)
    most, choice, output = fitted_wire.limits.tools, request.choice, request.output
    if (
        not are_plain_functions(request.tools)
        or (most is not None and len(request.tools) > most)
        or (choice is not None and choice.mode == "allowed")
        or (output is not None and output.kind != "text" and type(output.schema) not in (dict, bool))
        or fitted_wire.capabilities.choice_by_schema
    ):
        return False
    settings = replace(request, messages=())
    fitted = fit_settings(settings, wire, model, HistoryOutline())
    last = None
    if fitted.reasoning is None and model.reasoning_replay != "required":
        losses = Losses()
        extra = fit_extra(fitted.request.extra, fitted.wire, losses, wire.capabilities.cache)
        last = replace(fit_last(fitted, extra, None, model, losses), losses=tuple(losses))
    values = {name: getattr(fitted, name) for name in FittedSettings.__struct_fields__}
    return KnownFit(**values, target=(wire, model), changes_request=fitted.request is not settings, last=last)


def fit_settings(
    request: Request,
    wire: Wire,
    model: ModelCapabilities,
    outline: HistoryOutline,
    choose: ToolChooser | None = None,
    *,
    runs_search: bool = False,
) -> FittedSettings:
    """Fit the settings that the conversation needs; `outline` describes it. The other arguments are as for `prepare`."""
    wire = _wire_of_model(wire, model)
    losses = Losses()
    if model.strict is False and any(tool.strict for tool in request.tools):
        request = _without_strict(request, losses)
    can = wire.capabilities
    if wire.limits.max_output is not None:
        request = replace(request, params=limit_output(request.params, wire.limits, losses))
    if can.rejected_fields:
        request = drop_rejected_fields(request, can.rejected_fields, losses, outline)
    names = NameMap(wire.limits, can.namespaces)
    output = FREE_OUTPUT if request.output is None else fit_output(request, wire, losses)
    has_search = outline.has_found_tools or not are_plain_functions(request.tools)
    plan = plan_search(request, wire, runs_search=runs_search, outline=outline) if has_search else NO_SEARCH
    indexed_tools, lifts = fit_tools(request, wire, names, losses, output.costs, choose, plan)
    tools = tuple([tool for tool, _ in indexed_tools])
    choice, required = (
        fit_required_call(request, indexed_tools, can, lifts, losses)
        if can.choice_by_schema
        else (fit_choice(request, indexed_tools, can, losses), None)
    )
    if choice is not None and choice.mode == "validated" and not can.strict:  # the mode validates all tools
        tools = tuple([replace(tool, strict=None) if tool.strict else tool for tool in tools])
    may_reason = request.reasoning is not None or model is not UNKNOWN_MODEL
    reasoning = fit_reasoning(request, wire, model, losses, has_tools=bool(tools)) if may_reason else None
    return FittedSettings(
        request, wire, names, output, plan, indexed_tools, tools, lifts, choice, required, reasoning, losses
    )


def _wire_of_model(wire: Wire, model: ModelCapabilities) -> Wire:
    """Return the wire with the limits and capabilities of the model; an implementation of others declares its own."""
    return fit_codec(wire, model) if model is not UNKNOWN_MODEL and isinstance(wire, WireCodec) else wire


def fit_last(
    fitted: FittedSettings, extra: Extra, reasoning: ReasoningConfig | None, model: ModelCapabilities, losses: Losses
) -> LastSettings:
    """Fit the settings that depend on the fitted `reasoning`, and report those that only another wire has.

    Changes are added to `losses`. `extra` is fitted already.
    """
    request, wire, params = fitted.request, fitted.wire, fitted.request.params
    _report_extras(request, wire.name, losses)
    parallel = _fit_parallel(request, wire.capabilities, model, losses, has_tools=bool(fitted.tools))
    params = params if params is NO_PARAMS else fit_params(params, reasoning, wire, model, losses)
    return LastSettings(extra, parallel, params)


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
