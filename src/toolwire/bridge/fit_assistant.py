"""Rules of providers for a whole assistant turn: reasoning with its output, and signatures of calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Artefact, Extra, Opaque, Part, Reasoning, ToolCall
from ..wire.protocol import Wire
from .history import DraftMessage
from .locations import PartLocation, location_pointer

__all__ = ["drop_unlinked", "may_round_numbers", "sign_first_call", "without_id"]


# JSON numbers that a reader with doubles may round: sixteen digits, with or without a decimal point
_LONG_NUMBER = re.compile(r"[0-9.]{16}").search


def may_round_numbers(arguments: str) -> bool:
    """Return whether the text of arguments may have numbers with more digits than a double can hold."""
    return len(arguments) > 15 and _LONG_NUMBER(arguments) is not None


def drop_unlinked(
    parts: list[Part], locations: Sequence[PartLocation], wire: Wire, losses: Losses
) -> list[PartLocation]:
    """Drop reasoning without the output that it led to, in place; return the locations of the other parts.

    The provider links both by their ids. Recorded: "Item 'rs_…' of type 'reasoning' was provided without its required
    following item."
    """
    kept: list[tuple[Part, PartLocation]] = []
    following: Part | None = None
    for part, location in reversed(list(zip(parts, locations, strict=True))):
        if isinstance(part, Reasoning) and _is_unlinked(part, following, wire.name):
            detail = "the target accepts reasoning only together with the output that it led to"
            losses.add(location_pointer(location), "reasoning", "dropped", detail)
            continue
        kept.append((part, location))
        following = part
    kept.reverse()
    parts[:] = [part for part, _ in kept]
    return [location for _, location in kept]


def _is_unlinked(part: Reasoning, following: Part | None, wire: str) -> bool:
    if following is None:
        return True
    if isinstance(following, (Opaque, Reasoning)):
        return False
    return bool(_item_id(part, wire)) and not _item_id(following, wire)


def sign_first_call(turn: DraftMessage, parts: list[Part], wire: Wire, losses: Losses) -> bool:
    """Add the provider's placeholder signature to a turn whose first call is not signed; return whether it was added.

    The model requires a signature with its calls, and calls of another provider have none.
    """
    if wire.capabilities.unsigned_call is None:
        return False
    number, call = next(((n, part) for n, part in enumerate(parts) if isinstance(part, ToolCall)), (0, None))
    if call is None or call.artefacts:
        return False
    placeholder = Artefact(wire.provider, "thought_signature", wire.capabilities.unsigned_call)
    first = next(location for part, location in zip(turn.parts, turn.locations, strict=True) if type(part) is ToolCall)
    detail = "the call is not signed by its model; sent with the documented placeholder"
    losses.add(f"{location_pointer(first)}/artefacts", "signature", "rewritten", detail, "info")
    parts[number] = replace(call, artefacts=(placeholder,))
    return True


def _item_id(part: Part, wire: str) -> str | None:
    extra: Extra = getattr(part, "extra", {})
    found = extra.get(wire, {}).get("id") or extra.get(f"{wire}/item", {}).get("id")
    return found if isinstance(found, str) else None


def without_id(part: Part, wire: str) -> Part:
    """Remove the id of an item whose reasoning was dropped, because the provider would expect the reasoning too."""
    for scope in (wire, f"{wire}/item"):
        fields = getattr(part, "extra", {}).get(scope)
        if fields and "id" in fields:
            kept = {key: value for key, value in fields.items() if key != "id"}
            part = replace(part, extra={**part.extra, scope: kept})  # type: ignore[union-attr]
    return part
