"""The order of turns that LLaMA-Factory requires: user or results, then assistant or calls, and so on."""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import EncodeError
from ...ir.losses import Losses
from ...ir.parts import Part, Text
from ...ir.request import Message
from ..examples import Example, is_result_message
from .plain_messages import results_in_call_order

__all__ = ["alternate"]


def alternate(example: Example, losses: Losses) -> Example:
    """Return an example whose roles alternate and whose results are in the order of their calls.

    Consecutive user messages are joined. EncodeError for every other order: the trainer would skip the row.
    """
    ordered = [
        Message("user", tuple(results_in_call_order(example, index, losses))) if is_result_message(message) else message
        for index, message in enumerate(example.messages)
    ]
    system = [message for message in ordered if message.role == "system"]
    turns: list[Message] = []
    for index, message in enumerate(ordered[len(system) :], len(system)):
        last = turns[-1] if turns else None
        if message.role == "user" and last is not None and last.role == "user":
            if is_result_message(message) or is_result_message(last):
                raise _order_error(index, "a user message next to results")
            losses.add(f"/messages/{index}", "message boundary", "rewritten", "joined with the message before it")
            joined: tuple[Part, ...] = (Text(f"{last.text}\n\n{message.text}"),)
            turns[-1] = Message("user", joined)
            continue
        if (message.role == "user") == bool(len(turns) % 2):
            kind = "an assistant message" if message.role == "assistant" else "a user message"
            raise _order_error(index, f"{kind} in the place of the other")
        turns.append(message)
    return replace(example, messages=(*system, *turns))


def _order_error(index: int, problem: str) -> EncodeError:
    return EncodeError(
        f"user and assistant turns do not alternate: {problem}",
        pointer=f"/messages/{index}",
        hint="remove this example, or choose another format",
    )
