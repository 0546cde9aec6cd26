"""As `mistral_v11`, with an id between name and arguments.

[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}
"""

from __future__ import annotations

from .engine.format import Format
from .engine.mistral_calls import MistralCalls
from .engine.prompt import ResultTemplate, ToolPrompt

__all__ = ["FORMAT"]

FORMAT = Format(
    name="mistral_v11_callid",
    title="[TOOL_CALLS] name [CALL_ID] id [ARGS] JSON",
    families=("*mistral-small-2506*", "*mistral-small-3.2*"),
    calls=MistralCalls(ids=True),
    reasoning=(("[THINK]", "[/THINK]"),),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate("[TOOL_RESULTS]{id}[TOOL_CONTENT]{content}[/TOOL_RESULTS]", role="tool", grouped=False),
)
