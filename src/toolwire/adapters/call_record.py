"""The record of streamed calls that vLLM and SGLang keep in their parsers, in the same attributes.

At the end of a stream the servers send arguments that are in `prev_tool_call_arr` and not in `streamed_args_for_tool`. These
parsers send everything themselves, so both are equal at any time: empty during the turn, because growing them would cost a
copy of all arguments per token, and complete at its end.
"""

from __future__ import annotations

from typing import Any, Protocol

from .turn_reader import TurnDelta, TurnReader

__all__ = ["record_calls"]


class CallRecord(Protocol):
    """The attributes of the servers' base classes."""

    prev_tool_call_arr: list[dict[str, Any]]
    streamed_args_for_tool: list[str]
    current_tool_id: int
    current_tool_name_sent: bool


def record_calls(record: CallRecord, turn: TurnReader, delta: TurnDelta) -> None:
    """Add the calls that the delta starts; fill in the arguments at the end of the turn."""
    for piece in delta.calls:
        if piece.name is not None:
            record.prev_tool_call_arr.append({"name": piece.name, "arguments": ""})
            record.streamed_args_for_tool.append("")
            record.current_tool_id = piece.index
            record.current_tool_name_sent = True
    if turn.closed:
        for call, known in zip(turn.calls, record.prev_tool_call_arr, strict=True):
            known["arguments"] = call.arguments
        record.streamed_args_for_tool[:] = [call.arguments for call in turn.calls]
