"""Calls of GigaChat 3: a JSON object up to the end of the turn.

<|function_call|>{"name": "f", "arguments": {}}
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["GIGACHAT3"]

GIGACHAT3 = Format(
    name="gigachat3",
    title="JSON object after <|function_call|>",
    families=("gigachat3*", "gigachat-3*"),
    calls=JsonCalls(("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n")),
    noise=("</s>", "<|message_sep|>", "<|role_sep|>"),
)
