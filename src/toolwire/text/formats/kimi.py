"""Calls of Kimi models."""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.header_calls import HeaderCalls
from ..styles.tagged_calls import TaggedCalls

__all__ = ["KIMI_K2", "KIMI_K3"]

KIMI_K2 = Format(
    name="kimi_k2",
    title="functions.name:index and JSON between special tokens",
    families=("*kimi-k2*", "*kimi-vl*"),
    calls=HeaderCalls(
        ("<|tool_call_begin|>",),
        ("<|tool_call_argument_begin|>",),
        ("<|tool_call_end|>",),
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        header=r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.\-/]+?):\d+|\d+)\s*",
        write_header="functions.{name}:{number}",
    ),
    reasoning=(("<think>", "</think>"), ("◁think▷", "◁/think▷")),  # the second pair is of Kimi-VL
    ends_reasoning=("<|tool_calls_section_begin|>",),
    noise=(
        "<|tool_calls_section_end|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|im_end|>",
    ),
    declare=ToolPrompt("<|im_system|>tool_declare<|im_middle|>[", "]<|im_end|>", join=",", explain=False),
    results=ResultTemplate("## Return of {id}\n{content}", role="tool", grouped=False),
)
"""Calls of Kimi K2 to K2.5: a header that is both name and id, counted over the conversation.

<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>
"""

KIMI_K3 = Format(
    name="kimi_k3",
    title="typed arguments between special tokens",
    families=("*kimi-k3*",),
    calls=TaggedCalls(
        "<|open|>call",
        "<|close|>call<|sep|>",
        "<|open|>argument",
        "<|close|>argument<|sep|>",
        section_open="<|open|>tools<|sep|>",
        section_close="<|close|>tools<|sep|>",
        head_end="<|sep|>",
        key_end="<|sep|>",
        attribute="tool",
        key_attribute="key",
        type_attribute="type",
        index_attribute="index",
        json_tags=("<|open|>json", "<|close|>json<|sep|>"),
        bare=True,
        line="",
    ),
    reasoning=(
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ("<|open|>think<|sep|>", "<|close|>think"),  # the last token may be missing
    ),
    ends_reasoning=("<|open|>response<|sep|>", "<|open|>tools<|sep|>"),
    noise=(
        "<|close|>response<|sep|>",
        *("<|open|>response", "<|close|>response", "<|close|>message", "<|open|>", "<|close|>", "<|sep|>"),
        "<|open|>message<|sep|>",
        "<|close|>message<|sep|>",
        "<|close|>tools<|sep|>",
        "<|end_of_msg|>",
    ),
    heads=(("<|open|>", "<|sep|>"), ("<|close|>", "<|sep|>")),
)
"""Calls of Kimi K3: every delimiter is a special token, every argument has a type.

<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="number"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""
