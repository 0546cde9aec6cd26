"""Calls of Mistral Small since 2506, Devstral, Magistral: the name, then the arguments.

    [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}

The notation of earlier tokenizers, `[TOOL_CALLS][{…}]`, is read as well.
"""

from __future__ import annotations

from .engine.format import Format
from .engine.mistral_calls import MistralCalls
from .engine.prompt import ResultTemplate, ToolPrompt

__all__ = ["FORMAT"]

FORMAT = Format(
    name="mistral_v11",
    title="[TOOL_CALLS] name [ARGS] JSON",
    families=("*mistral-small*", "*mistral-medium*", "*mistral-large*", "*devstral*", "*magistral*", "*ministral-3*"),
    calls=MistralCalls(),
    reasoning=(("[THINK]", "[/THINK]"),),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate("[TOOL_RESULTS]{id}[TOOL_CONTENT]{content}[/TOOL_RESULTS]", role="tool", grouped=False),
)
