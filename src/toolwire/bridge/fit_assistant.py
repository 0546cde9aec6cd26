"""Rules of providers for a whole assistant turn: reasoning with its output, and signatures of calls."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Artefact, Extra, Opaque, Part, Reasoning, ToolCall
from ..wire.protocol import Wire
from .history import DraftMessage
from .locations import location_pointer

__all__ = ["finish_assistant", "is_unlinked"]


def finish_assistant(turn: DraftMessage, parts: list[Part], wire: Wire, losses: Losses) -> bool:
    """Apply the rules to `parts`, the fitted parts of `turn`; return whether anything changed."""
    can = wire.capabilities
    changed = can.unsigned_call is not None and _sign_first_call(turn, parts, wire, losses)
    while parts and not can.lone_reasoning and isinstance(parts[-1], Reasoning):
        detail = "the target accepts reasoning only together with the output that it led to"
        losses.add(location_pointer(turn.locations[0]), "reasoning", "dropped", detail)
        parts.pop()
        changed = True
    if len(parts) < len(turn.parts) and _count_reasoning(parts) < _count_reasoning(turn.parts):
        # the provider would expect the dropped reasoning with the ids of the items that followed it
        parts[:] = [part if type(part) is Reasoning else _without_id(part, wire.name) for part in parts]
        changed = True
    return changed


def is_unlinked(part: Reasoning, following: Part | None, wire: str) -> bool:
    """Return whether reasoning has an id and the item after it has none.

    Recorded: "Item 'rs_…' of type 'reasoning' was provided without its required following item."
    """
    if following is None or isinstance(following, (Opaque, Reasoning)):
        return False
    return bool(_item_id(part, wire)) and not _item_id(following, wire)


def _sign_first_call(turn: DraftMessage, parts: list[Part], wire: Wire, losses: Losses) -> bool:
    """Add the provider's placeholder signature to a turn whose first call is not signed; return whether it was added.

    The model requires a signature with its calls, and calls of another provider have none.
    """
    number, call = next(((n, part) for n, part in enumerate(parts) if isinstance(part, ToolCall)), (0, None))
    if call is None or call.artefacts:
        return False
    placeholder = Artefact(wire.provider, "thought_signature", wire.capabilities.unsigned_call or "")
    first = next(location for part, location in zip(turn.parts, turn.locations, strict=True) if type(part) is ToolCall)
    detail = "the call is not signed by its model; sent with the documented placeholder"
    losses.add(f"{location_pointer(first)}/artefacts", "signature", "rewritten", detail, "info")
    parts[number] = replace(call, artefacts=(placeholder,))
    return True


def _count_reasoning(parts: Sequence[Part]) -> int:
    return sum(1 for part in parts if type(part) is Reasoning)


def _item_id(part: Part, wire: str) -> str | None:
    extra: Extra = getattr(part, "extra", {})
    found = extra.get(wire, {}).get("id") or extra.get(f"{wire}/item", {}).get("id")
    return found if isinstance(found, str) else None


def _without_id(part: Part, wire: str) -> Part:
    for scope in (wire, f"{wire}/item"):
        fields = getattr(part, "extra", {}).get(scope)
        if fields and "id" in fields:
            kept = {key: value for key, value in fields.items() if key != "id"}
            part = replace(part, extra={**part.extra, scope: kept})  # type: ignore[union-attr]
    return part
