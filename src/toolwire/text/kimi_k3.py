"""Calls of Kimi K3: every delimiter is a special token, every argument has a type.

<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="number"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
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
        line="",
    ),
    reasoning=(("<|open|>think<|sep|>", "<|close|>think<|sep|>"),),
    noise=(
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|open|>message<|sep|>",
        "<|close|>message<|sep|>",
        "<|close|>tools<|sep|>",
    ),
)
