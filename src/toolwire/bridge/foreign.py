"""What belongs to another provider: its fields, and its artefacts."""

from __future__ import annotations

from ..ir.losses import Losses, Severity
from ..ir.parts import Artefact, Extra
from ..ir.pointer import join

__all__ = ["own_artefacts", "report_extra"]

# How a wire keeps its own books; nothing that another one could use.
_BOOKKEEPING = frozenset({"id", "status", "index", "object", "phase"})
# What the provider keeps on its side: without it the model does not know what the talk is about.
_CONVERSATION = frozenset({"previous_response_id", "conversation", "prompt", "cachedContent", "container"})


def report_extra(
    extra: Extra, path: str, wire: str, losses: Losses, *, small: bool = False, scoped: bool = True
) -> None:
    """A loss for each field that only another wire has a word for; `small` ones are information and no more.

    Where the author has set fields for the target, too, they have seen to it themselves. `scoped` puts the object around
    a field into the path (`/output_config/task_budget`).
    """
    if wire in extra:
        return
    for name, fields in extra.items():
        source, _, scope = name.partition("/")
        if name.endswith("~") or source == wire:
            continue
        for field, value in fields.items():
            if field.startswith(":"):
                detail = f"on {source} its absence means: {value}"
                losses.add(path, field[1:], "dropped", detail, "warning")
                continue
            severity = "info" if small else _severity(field)
            detail = f"a field of {source}"
            where = f"{path}/{scope}" if scope and scoped else path
            losses.add(f"{where}{join(field)}", f"{scope} {field}".strip(), "dropped", detail, severity)


def _severity(field: str) -> Severity:
    return "info" if field in _BOOKKEEPING else "error" if field in _CONVERSATION else "warning"


def own_artefacts(
    artefacts: tuple[Artefact, ...], provider: str, model: str, spoken_by: str | None, path: str, losses: Losses
) -> tuple[Artefact, ...]:
    """Those that the target made itself; the others stay here."""
    own = tuple(a for a in artefacts if a.provider == provider and (a.model or spoken_by or model) == model)
    if len(own) != len(artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "it goes back to its own provider and model only")
    return own
