"""Calls of Muse Glimmer: messages with a recipient; those to a tool contain invocations.

<|start|>assistant to=f<|message|><atem:function_calls>
<atem:invoke name="f">
<atem:parameter name="a">1</atem:parameter>
</atem:invoke>
</atem:function_calls><|eom|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.channel_calls import ChannelCalls
from ..styles.tag_families import invocations

__all__ = ["MUSE_GLIMMER"]

MUSE_GLIMMER = Format(
    name="muse_glimmer",
    title="<atem:invoke> in messages addressed to tools",
    families=("*muse-glimmer*",),
    calls=ChannelCalls(
        start="<|start|>",
        message="<|message|>",
        ends=("<|eom|>", "<|eot|>"),
        reasoning_channels=("self",),
        user_recipients=("user",),
        body=invocations("<atem:function_calls>", "</atem:function_calls>", prefix="atem:"),
        closed=True,
    ),
    reasoning=(),
    noise=("<|eom|>", "<|eot|>"),
    results=ResultTemplate('<tool_output name="{name}">\n{content}\n</tool_output>', role="tool"),
)
