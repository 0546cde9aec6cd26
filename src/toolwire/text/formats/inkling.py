"""Calls of Inkling: messages of typed content; the name in the payload is used.

<|message_model|>f<|content_invoke_tool_json|>{"name": "f", "args": {}}<|end_message|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.message_calls import MessageCalls

__all__ = ["INKLING"]

INKLING = Format(
    name="inkling",
    title="JSON object in a separate message",
    families=("inkling*",),
    calls=MessageCalls(),
    reasoning=(("<|content_thinking|>", "<|end_message|>"),),
    ends_reasoning=(
        "<|content_text|>",
        "<|message_model|>",
        "<|content_invoke_tool_json|>",
        "<|content_invoke_tool_text|>",
    ),
    noise=(
        "<|end_message|>",
        "<|content_model_end_sampling|>",
        "<|content_tool_error|>",
        "<|message_user|>",
        "<|content_audio_input|>",
        "<|audio_end|>",
    ),
)
