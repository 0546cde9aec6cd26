"""Calls of Kimi K2 to K2.5: a header that is both name and id, counted over the conversation.

<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.header_calls import HeaderCalls
from .engine.prompt import ResultTemplate, ToolPrompt

__all__ = ["FORMAT"]

FORMAT = Format(
    name="kimi_k2",
    title="functions.name:index and JSON between special tokens",
    families=("*kimi-k2*",),
    calls=HeaderCalls(
        ("<|tool_call_begin|>",),
        ("<|tool_call_argument_begin|>",),
        ("<|tool_call_end|>",),
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        header=r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.\-/]+?):\d+|\d+)\s*",
        write_header="functions.{name}:{number}",
    ),
    noise=(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|im_end|>",
    ),
    declare=ToolPrompt("<|im_system|>tool_declare<|im_middle|>[", "]<|im_end|>", join=",", explain=False),
    results=ResultTemplate("## Return of {id}\n{content}", role="tool", grouped=False),
)
