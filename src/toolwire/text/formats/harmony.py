"""Calls of gpt-oss: messages on channels, addressed to a function.

<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.channel_calls import ChannelCalls

__all__ = ["HARMONY"]

HARMONY = Format(
    name="harmony",
    title="messages on channels, addressed to functions",
    families=("*gpt-oss*", "*llm-jp-4*"),
    calls=ChannelCalls(
        start="<|start|>",
        message="<|message|>",
        ends=("<|call|>", "<|end|>", "<|return|>"),
        channel="<|channel|>",
        constrain="<|constrain|>",
        tool_prefix="functions.",
        reasoning_channels=("analysis",),
        user_recipients=("user", "assistant"),
    ),
    reasoning=(),
    noise=("<|call|>", "<|end|>", "<|return|>", "<|message|>", "<|constrain|>"),
    stops=("<|call|>",),
    declare=ToolPrompt(
        "# Tools\n\n## functions\n\nnamespace functions {\n\n",
        "\n\n} // namespace functions",
        entry="typescript",
        join="\n\n",
        explain=False,
    ),
    results=ResultTemplate(
        "<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{content}<|end|>", role="tool"
    ),
)
