"""Calls of MiniMax M2: invocations in a section.

<minimax:tool_call>
<invoke name="f">
<parameter name="a">1</parameter>
</invoke>
</minimax:tool_call>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.prompt import ResultTemplate
from .engine.tag_families import invocations

__all__ = ["FORMAT"]

FORMAT = Format(
    name="minimax_m2",
    title="<invoke> in <minimax:tool_call>",
    families=("*minimax-m2*",),
    calls=invocations("<minimax:tool_call>", "</minimax:tool_call>"),
    noise=("[e~[",),
    results=ResultTemplate("<response>\n{content}\n</response>", role="tool"),
)
