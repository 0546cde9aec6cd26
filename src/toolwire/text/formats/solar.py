"""Calls of Solar Open: id, name and JSON between special tokens, in a message of its own.

<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>f<|tool_call:args|>{"a": 1}<|tool_call:end|><|calls|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.header_calls import HeaderCalls

__all__ = ["SOLAR_OPEN"]

SOLAR_OPEN = Format(
    name="solar_open",
    title="id, name and JSON between special tokens",
    families=("*solar-open*",),
    calls=HeaderCalls(
        ("<|tool_call:begin|>",),
        ("<|tool_call:args|>",),
        ("<|tool_call:end|>",),
        "<|tool_calls|>",
        "<|calls|>",
        header=r"\s*+(?:(?P<id>[a-z0-9_]{6,64})\s*+(?=<)|[^<>]*+)<\|tool_call:name\|>\s*(?P<name>[^\s<>{}]+)\s*",
        write_header="{id}<|tool_call:name|>{name}",
    ),
    reasoning=(("<|think|>", "<|end|>"),),
    ends_reasoning=("<|content|>", "<|tool_calls|>", "<|tool_call:begin|>"),
    noise=(
        "<|begin|>assistant",
        "<|begin|>",
        "<|end|>",
        "<|flush|>",
        "<|tool_call:end|>",
        "<|calls|>",
        "<|endoftext|>",
    ),
    halts=("<|begin|>tool", "<|begin|>user", "<|tool_response|>", "<|tool_response:begin|>"),
    stops=("<|calls|>",),
    declare=ToolPrompt(
        "## Tools\n\n<|tools:begin|><|tool:begin|>",
        "<|tool:end|><|tools:end|>",
        entry="function",
        join="<|tool:end|><|tool:begin|>",
    ),
    results=ResultTemplate(
        "<|tool_response:begin|>{id}<|tool_response:name|>{name}<|tool_response:result|>{content}<|tool_response:end|>",
        role="tool",
    ),
)
