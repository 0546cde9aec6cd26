"""Calls of MiniMax M3: nested tags named after their keys, each after its own token.

]<]minimax[>[<tool_call>]<]minimax[>[<invoke
name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.nested_calls import NestedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="minimax_m3",
    title="nested tags named after their keys",
    families=("*minimax-m3*",),
    calls=NestedCalls("]<]minimax[>["),
    noise=("[e~[",),
)
