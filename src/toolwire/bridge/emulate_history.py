"""Write a history of calls and results as text, for models without tool-calling support."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Media, Part, Text, ToolCall, ToolResult
from ..ir.pointer import Object, join
from ..ir.request import Message
from ..ir.tools import Tool
from ..text.engine.format import Format
from .history import normalise
from .locations import message_index

__all__ = ["FREEFORM", "render_history", "render_results", "write_calls"]

FREEFORM: Object = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def render_history(messages: tuple[Message, ...], form: Format, tools: Sequence[Tool], losses: Losses) -> list[Message]:
    """Write calls as the model would write them, and results as it expects them.

    Most formats have no ids: only its position assigns a result to its call, so results follow the order of the calls.
    """
    names: dict[str, str] = {}
    rendered = []
    for turn in normalise(messages, losses):
        message = replace(turn.message, parts=tuple(turn.parts))
        index = message_index(turn.locations[0]) if turn.locations else 0
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        names.update({call.id: call.name for call in calls})
        parts = (
            _render_assistant(message, calls, form, tools, losses, index)
            if calls
            else render_results(message, form, names, losses, index)
        )
        rendered.append(replace(message, parts=parts))
    return rendered


def _render_assistant(
    message: Message, calls: list[ToolCall], form: Format, tools: Sequence[Tool], losses: Losses, index: int
) -> tuple[Part, ...]:
    """Combine the text of the message and its calls into one text part."""
    other_parts = tuple(part for part in message.parts if not isinstance(part, (ToolCall, Text)))
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    written = write_calls(calls, form, tools, losses, index)
    separator = "\n" if text and not text.endswith("\n") else ""
    return (*other_parts, Text(f"{text}{separator}{written}"))


def write_calls(calls: Sequence[ToolCall], form: Format, tools: Sequence[Tool], losses: Losses, index: int) -> str:
    """Write the calls of message number `index` as the model would write them."""
    if form.one_call and len(calls) > 1:
        losses.add(
            join("messages", index), "parallel calls", "rewritten", "the format allows one call per turn", "info"
        )
    written = form.render_calls([_as_function(call) for call in calls], tools)
    for loss in written.losses:
        losses.add(join("messages", index) + loss.path, loss.concept, loss.action, loss.detail, "warning")
    return written.text


def _as_function(call: ToolCall) -> ToolCall:
    if call.kind == "freeform":
        return replace(call, kind="function", arguments={"input": call.raw or ""}, raw=None)
    return call


def render_results(
    message: Message,
    form: Format,
    names: dict[str, str],
    losses: Losses,
    index: int,
    join_pieces: Callable[[Sequence[str]], str] = "".join,
) -> tuple[Part, ...]:
    """Replace each result by text in the format. Its media follow it, because text cannot hold them."""
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            parts.append(part)
            continue
        named_result = part if part.name else replace(part, name=names.get(part.call_id))
        if any(token in part.text for token in _special_tokens(form)):
            detail = "it contains special tokens of the format, which the model may mistake for its own"
            losses.add(join("messages", index), "tool result", "weakened", detail)
        before = "\n" if parts and isinstance(parts[-1], Text) else ""
        parts.append(Text(before + form.results.render(named_result, join_pieces)))
        parts += [piece for piece in part.parts if isinstance(piece, Media)]
    return tuple(parts)


def _special_tokens(form: Format) -> tuple[str, ...]:
    """Return the tokens that no result should contain: the format's own tokens, and those that begin a turn."""
    template = form.results.template.partition("{content}")[2].strip()
    return tuple(filter(None, (*form.noise, *form.halts, template, "<|im_start|>", "<|start|>", "[INST]")))
