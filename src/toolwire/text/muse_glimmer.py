"""Calls of Muse Glimmer: messages with a recipient; those to a tool contain invocations.

<|start|>assistant to=f<|message|><atem:function_calls>
<atem:invoke name="f">
<atem:parameter name="a">1</atem:parameter>
</atem:invoke>
</atem:function_calls><|eom|>
"""

from __future__ import annotations

from .engine.channel_calls import ChannelCalls
from .engine.format import Format
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="muse_glimmer",
    title="<atem:invoke> in messages addressed to tools",
    families=("*muse-glimmer*",),
    calls=ChannelCalls(
        start="<|start|>",
        message="<|message|>",
        ends=("<|eom|>",),
        thinks=("self",),
        people=("user",),
        body=TaggedCalls(
            "<atem:invoke",
            "</atem:invoke>",
            "<atem:parameter",
            "</atem:parameter>",
            attribute="name",
            key_attribute="name",
            section_open="<atem:function_calls>",
            section_close="</atem:function_calls>",
        ),
        closed=True,
    ),
    reasoning=(),
    noise=("<|eom|>",),
)
