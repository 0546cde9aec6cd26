"""Fields and artefacts that belong to another provider."""

from __future__ import annotations

from ..ir.losses import Losses, Severity
from ..ir.parts import Artefact, Extra
from ..ir.pointer import join
from ..stream.strict import type_label
from ..wire.protocol import Wire

__all__ = ["fit_extra", "own_artefacts", "report_extra"]

# Bookkeeping fields of a wire, without use on another one.
_BOOKKEEPING = frozenset({"id", "status", "index", "object", "phase"})
# State that the provider stores; without it the model lacks the context of the conversation.
_CONVERSATION = frozenset({"previous_response_id", "conversation", "prompt", "cachedContent", "container"})
# Fields of a request with the same name and meaning on two wires, by target and source, each with the kind of cache
# mark that its server must support: most servers of Chat have none, and strict ones reject unknown fields.
_OPENAI_FIELDS = {"prompt_cache_options": "part", "prompt_cache_retention": "part"}
# OpenRouter reads Anthropic's field on Chat (microsoft/vscode#312939)
_BODY_MARK = {"cache_control": "request"}
_SHARED = {
    "anthropic": {"openai_chat": _BODY_MARK},
    "openai_chat": {"openai_responses": _OPENAI_FIELDS, "anthropic": _BODY_MARK},
    "openai_responses": {"openai_chat": _OPENAI_FIELDS},
}


def fit_extra(extra: Extra, wire: Wire, losses: Losses, vendor_marks: frozenset[str]) -> Extra:
    """Return a request's fields, with another wire's under the target's name if it has them; report the others.

    `vendor_marks` are the cache marks of the target's server, whatever its model: OpenAI's older models have these
    fields, but no marks.
    """
    moved: Extra = {}
    for source, shared in _SHARED.get(wire.name, {}).items():
        if source not in extra or shared.keys().isdisjoint(extra[source]):
            continue
        fields = extra[source]
        marks = wire.capabilities.cache | vendor_marks - {"request"}
        found = {name: fields[name] for name in fields if shared.get(name) in marks}
        if found:
            rest = {name: value for name, value in fields.items() if name not in found}
            extra = {**extra, source: rest}
            moved = {**moved, **found}
    report_extra(extra, "", wire.name, losses)
    return {**extra, wire.name: {**moved, **extra.get(wire.name, {})}} if moved else extra


def report_extra(
    extra: Extra, path: str, wire: str, losses: Losses, *, as_info: bool = False, scoped: bool = True
) -> None:
    """Add a loss for each field that only another wire has; with `as_info`, as information only.

    Nothing is reported if the author has also set fields for the target, which is a deliberate choice. `scoped` adds
    the enclosing object to the path (`/output_config/task_budget`).
    """
    if wire in extra:
        return
    for name, fields in extra.items():
        if name.endswith("~"):
            continue
        source, _, scope = name.removesuffix("?").partition("/")
        if source == wire:
            continue
        for field, value in fields.items():
            if name.endswith("?"):
                detail = f"{source} sent {type_label(value)} of another kind than its protocol defines"
                losses.add(f"{path}{join(field)}", f"{scope} {field}".strip(), "rewritten", detail, "info")
                continue
            if field.startswith(":"):
                detail = f"on {source} its absence means {value}"
                losses.add(path, field[1:], "dropped", detail, "warning")
                continue
            severity = "info" if as_info else _severity(field)
            detail = f"specific to {source}"
            where = f"{path}/{scope}" if scope and scoped else path
            losses.add(f"{where}{join(field)}", f"{scope} {field}".strip(), "dropped", detail, severity)


def _severity(field: str) -> Severity:
    return "info" if field in _BOOKKEEPING else "error" if field in _CONVERSATION else "warning"


def own_artefacts(
    artefacts: tuple[Artefact, ...], provider: str, model: str, history_model: str | None, path: str, losses: Losses
) -> tuple[Artefact, ...]:
    """Return the artefacts that the target itself made; report the others."""
    own = tuple(a for a in artefacts if a.provider == provider and (a.model or history_model or model) == model)
    if len(own) != len(artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "it may only be sent back to its own provider and model")
    return own
