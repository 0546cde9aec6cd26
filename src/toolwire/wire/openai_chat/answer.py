"""Encode the message of a Chat answer.

A message has one field for each kind of part: reasoning, content, refusal, calls. It keeps neither their order nor the
boundaries between parts of one kind. The content is a string, or an array if the answer came as one (Mistral).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from ...ir.losses import Losses
from ...ir.parts import Opaque, Part, Reasoning, Refusal, Text, ToolCall, part_label
from ...ir.pointer import Object
from ..fields import write_extra
from .content import NAME, is_in_content, write_part
from .messages import write_call, write_function, write_plain_parts

_FORM = "openai_chat~"
SECOND_FUNCTION_CALL = "the request declares `functions`, whose answers have one call; declare `tools` instead"
_RANKS: dict[type[Part], int] = {Reasoning: 0, Text: 1, Refusal: 2, ToolCall: 3}


def write_answer(parts: tuple[Part, ...], form: Object, losses: Losses, path: str, is_legacy: bool = False) -> Object:
    """Write the parts of an answer as one message.

    `form`: how the message was written, if it came from this wire. `is_legacy`: calls are a `function_call`.
    """
    plain = None if form or is_legacy else write_plain_parts(parts)
    if plain is None:
        return _write_any(parts, form, losses, path, is_legacy)
    text, calls = plain
    out: Object = {"role": "assistant"}
    if text is not None:
        out["content"] = text
    if calls:
        out["tool_calls"] = calls
    return out


def _write_any(parts: tuple[Part, ...], form: Object, losses: Losses, path: str, is_legacy: bool) -> Object:
    """Write an answer of any parts, with the losses that one message causes."""
    out: Object = {"role": "assistant"}
    as_array = form.get(":content") == "list" or any(_needs_array(part) for part in parts)
    content: list[Part] = []
    calls: list[Object] = []
    for number, part in enumerate(parts):
        where = f"{path}/parts/{number}"
        if isinstance(part, ToolCall):
            if is_legacy and "function_call" in out:
                losses.add(where, "call", "dropped", SECOND_FUNCTION_CALL, "error")
            elif is_legacy or ":call" in part.extra.get(_FORM, {}):
                out["function_call"] = write_extra(write_function(part), part.extra, f"{NAME}/function")
            else:
                calls.append(write_call(part, losses, where))
        elif isinstance(part, Text) or (as_array and is_own_part(part)):
            _report_artefacts(part, losses, where)
            if isinstance(part, Text) and not part.text and not as_array:
                losses.add(where, "text", "dropped", "it has no text", "info")
            content.append(part)
        elif isinstance(part, Reasoning):
            _write_reasoning(part, out, losses, where)
        elif isinstance(part, Refusal):
            out["refusal"] = out.get("refusal", "") + part.text
        else:
            losses.add(where, part_label(part), "dropped", "a Chat answer has no field for it", "error")
    _report_order(parts, as_array, losses, path)
    if as_array:
        out["content"] = [write_part(part, losses, path) for part in content]
    elif content:
        out["content"] = "".join([part.text for part in content if isinstance(part, Text)])
    if calls:
        out["tool_calls"] = calls
    return out


def _needs_array(part: Part) -> bool:
    return is_own_part(part) or (isinstance(part, Text) and NAME in part.extra)


def is_own_part(part: Part) -> bool:
    """Return whether a part came as an element of the content array and can only be written as one."""
    return is_in_content(part) or (isinstance(part, Opaque) and part.wire == NAME)


def _write_reasoning(part: Reasoning, out: Object, losses: Losses, path: str) -> None:
    """Append reasoning to the field from which it was read (form `:field`), by default `reasoning_content`."""
    _report_artefacts(part, losses, path)
    if part.summary:
        losses.add(f"{path}/summary", "reasoning summary", "rewritten", "Chat reasoning is plain text", "info")
    text = part.joined_text
    if not text:
        losses.add(path, "reasoning", "dropped", "it has no text", "info")
        return
    field = part.extra.get(_FORM, {}).get(":field", "reasoning_content")
    if not field:  # the details, among the fields of the message, have the text
        return
    out[field] = out.get(field, "") + text


def _report_artefacts(part: Part, losses: Losses, path: str) -> None:
    if getattr(part, "artefacts", ()):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Chat has no field for it")


def _report_order(parts: Sequence[Part], as_array: bool, losses: Losses, path: str) -> None:
    """Report the structure that a message does not keep: the order of the parts, and parts joined into one string."""
    if len(parts) < 2:
        return
    numbered = [
        (number, part, 1 if as_array and is_own_part(part) else _RANKS[type(part)])
        for number, part in enumerate(parts)
        if type(part) in _RANKS or (as_array and is_own_part(part))
    ]
    ranks = [rank for _, _, rank in numbered]
    joined = {rank for rank, count in Counter(ranks).items() if count > 1} - {1 if as_array else 3, 3}
    for (number, part, rank), highest in zip(numbered, accumulate(ranks, max), strict=True):
        where = f"{path}/parts/{number}"
        if highest > rank:
            detail = "a Chat message holds reasoning, text and calls in this order"
            losses.add(where, "order of text and calls", "moved", detail, "info")
        if rank in joined and type(part) in _RANKS:
            losses.add(where, part_label(part), "rewritten", "joined, because a message has one string", "info")
