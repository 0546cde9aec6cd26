"""Rewrite the calls and results of a conversation as plain text, because a small model copies calls that it sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Part, Text, ToolCall, ToolResult
from ..ir.pointer import join
from ..ir.request import Message

__all__ = ["rewrite_history", "shorten_results"]

_SYSTEM = "Tell the user the result in one sentence."
_LAST = "\nTell me the result."
_MAX_RESULT = 2000  # characters; the context has 4,096 tokens, and a token can be one character


def rewrite_history(messages: Sequence[Message], losses: Losses) -> tuple[Message, ...]:
    """Rewrite calls and results as plain text; if the last message is a result, ask the model to report it."""
    names: dict[str, str] = {}
    told = [
        replace(message, parts=_render_parts(message.parts, names, losses, join("messages", index)))
        for index, message in enumerate(messages)
    ]
    if not messages or not any(isinstance(part, ToolResult) for part in messages[-1].parts):
        return tuple(told)
    asked, start = told[-1], len(told) - 1
    if _is_question_and_call(messages[-3:-1]):
        asked, start = replace(asked, parts=(*told[-3].parts, Text("\n"), *asked.parts)), len(told) - 3
    wish = replace(asked, parts=(*asked.parts, Text(_LAST)))
    return _add_system((*told[:start], wish))


def shorten_results(messages: Sequence[Message], losses: Losses) -> tuple[Message, ...]:
    """Shorten long results of tools, and report it: one of them could exceed the context of a small model."""
    return tuple(
        replace(message, parts=tuple(_shorten(part, losses, join("messages", index)) for part in message.parts))
        for index, message in enumerate(messages)
    )


def _shorten(part: Part, losses: Losses, path: str) -> Part:
    if not isinstance(part, ToolResult) or len(part.text) <= _MAX_RESULT:
        return part
    losses.add(path, "result", "weakened", f"the model reads {_MAX_RESULT:,} of its {len(part.text):,} characters")
    others = [one for one in part.parts if not isinstance(one, Text)]
    return replace(part, parts=(Text(f"{part.text[:_MAX_RESULT]}… (shortened)"), *others))


def _is_question_and_call(messages: Sequence[Message]) -> bool:
    """Return True for a prompt and a message of calls only: with the result they become one prompt.

    The model would repeat the sentence that stands for the call instead of the result.
    """
    if [message.role for message in messages] != ["user", "assistant"]:
        return False
    return all(isinstance(part, ToolCall) for part in messages[1].parts)


def _render_parts(parts: Iterable[Part], names: dict[str, str], losses: Losses, path: str) -> tuple[Part, ...]:
    """Rewrite calls and results as sentences. `names` maps call ids to tool names, for results without a name."""
    plain: list[Part] = []
    for number, part in enumerate(parts):
        at = f"{path}/parts/{number}"
        if isinstance(part, ToolCall):
            names[part.id] = part.name
            if part.arguments or part.raw:
                losses.add(
                    at,
                    "arguments",
                    "dropped",
                    "the model sees only that the call was made, because it would copy the arguments",
                )
            plain.append(Text(f"I will use {part.name}."))
        elif isinstance(part, ToolResult):
            name = part.name or names.get(part.call_id, "it")
            what = "error" if part.is_error else "result"
            plain.append(Text(f"The {what} of {name} is: {part.text}"))
            if any(not isinstance(one, Text) for one in part.parts):
                losses.add(at, "media in a result", "dropped", "this model reads text", "error")
        else:
            plain.append(part)
    return tuple(plain)


def _add_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    first = messages[0]
    if first.role in ("system", "developer"):
        return (replace(first, parts=(*first.parts, Text(f"\n\n{_SYSTEM}"))), *messages[1:])
    return (Message("system", (Text(_SYSTEM),)), *messages)
