"""Calls of Mistral 7B v0.3, Nemo and Mixtral 8x22B: an array with ids of nine characters.

[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abcdefghi"}]
"""

from __future__ import annotations

from .engine.envelope import CallFields
from .engine.format import Format
from .engine.json_calls import JsonCalls
from .engine.prompt import ResultTemplate, ToolPrompt

__all__ = ["FORMAT"]

FORMAT = Format(
    name="mistral_v3_json",
    title="JSON array after [TOOL_CALLS]",
    families=("*mistral-7b*", "*mistral-nemo*", "*mixtral-8x22b*", "*ministral-8b-2410*"),
    calls=JsonCalls(("[TOOL_CALLS]",), keys=CallFields(id_last=True), array=True),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate(
        '[TOOL_RESULTS]{"content": {json}, "call_id": "{id}"}[/TOOL_RESULTS]', role="tool", grouped=False
    ),
)
