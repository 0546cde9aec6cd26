"""Calls of MiniMax M2: invocations in a section.

<minimax:tool_call>
<invoke name="f">
<parameter name="a">1</parameter>
</invoke>
</minimax:tool_call>
"""

from __future__ import annotations

from .engine.declare import Results
from .engine.format import Format
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="minimax_m2",
    title="<invoke> in <minimax:tool_call>",
    families=("*minimax-m2*",),
    calls=TaggedCalls(
        "<invoke",
        "</invoke>",
        "<parameter",
        "</parameter>",
        attribute="name",
        key_attribute="name",
        section_open="<minimax:tool_call>",
        section_close="</minimax:tool_call>",
    ),
    noise=("[e~[",),
    results=Results("<response>\n{content}\n</response>", role="tool"),
)
