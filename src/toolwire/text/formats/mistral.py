"""Calls of Mistral models."""

from __future__ import annotations

from ..engine.envelope import CallFields
from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.json_calls import JsonCalls
from ..styles.mistral_calls import MistralCalls

__all__ = ["MISTRAL_V3_JSON", "MISTRAL_V11", "MISTRAL_V11_CALLID"]

MISTRAL_V3_JSON = Format(
    name="mistral_v3_json",
    title="JSON array after [TOOL_CALLS]",
    families=(
        "mistral:*",
        "*mistral-7b*",
        "*mistral-nemo*",
        "*mixtral-8x22b*",
        "mixtral:8x22b*",
        "*ministral-8b*2410*",
        "*mistral-large*2407*",
        "*mistral-large*2411*",
        "*mistral-small*2409*",
        "*mistral-small*2501*",
        "*mistral-small-3.1*",
        "*pixtral*",
    ),
    calls=JsonCalls(("[TOOL_CALLS]",), keys=CallFields(id_last=True), array=True),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate(
        '[TOOL_RESULTS]{"content": {json}, "call_id": "{id}"}[/TOOL_RESULTS]', role="tool", grouped=False
    ),
)
"""Calls of Mistral 7B v0.3, Nemo and Mixtral 8x22B: an array with ids of nine characters.

[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abcdefghi"}]
"""

MISTRAL_V11 = Format(
    name="mistral_v11",
    title="[TOOL_CALLS] name [ARGS] JSON",
    families=(
        "*mistral-small*",
        "*mistral-medium*",
        "*mistral-large*",
        "*devstral*",
        "*magistral*",
        "*ministral-3*",
        "*voxtral*",
    ),
    calls=MistralCalls(),
    reasoning=(("[THINK]", "[/THINK]"), ("<think>", "</think>")),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate("[TOOL_RESULTS]{content}[/TOOL_RESULTS]", role="tool", grouped=False),
)
"""Calls of Mistral Small since 2506, Devstral, Magistral: the name, then the arguments.

    [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}

The notation of earlier tokenizers, `[TOOL_CALLS][{…}]`, is read as well.
"""

MISTRAL_V11_CALLID = Format(
    name="mistral_v11_callid",
    title="[TOOL_CALLS] name [CALL_ID] id [ARGS] JSON",
    families=("*mistral-small*2506*", "*mistral-small-3.2*", "*mistral-small3.2*", "*magistral-small-2506*"),
    calls=MistralCalls(ids=True),
    reasoning=(("[THINK]", "[/THINK]"), ("<think>", "</think>")),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate("[TOOL_RESULTS]{id}[TOOL_CONTENT]{content}[/TOOL_RESULTS]", role="tool", grouped=False),
)
"""As `mistral_v11`, with an id between name and arguments.

[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}
"""
