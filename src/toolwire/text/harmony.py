"""Calls of gpt-oss: messages on channels, addressed to a function.

<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
"""

from __future__ import annotations

from .engine.channel_calls import ChannelCalls
from .engine.declare import Declare, Results
from .engine.format import Format

__all__ = ["FORMAT"]

FORMAT = Format(
    name="harmony",
    title="messages on channels, addressed to functions",
    families=("*gpt-oss*",),
    calls=ChannelCalls(
        start="<|start|>",
        message="<|message|>",
        ends=("<|call|>", "<|end|>", "<|return|>"),
        channel="<|channel|>",
        constrain="<|constrain|>",
        tool_prefix="functions.",
        thinks=("analysis",),
        people=("user", "assistant"),
    ),
    reasoning=(),
    noise=("<|call|>", "<|end|>", "<|return|>", "<|message|>", "<|constrain|>"),
    stops=("<|call|>",),
    declare=Declare(
        "# Tools\n\n## functions\n\nnamespace functions {\n\n",
        "\n\n} // namespace functions",
        entry="typescript",
        join="\n\n",
        explain=False,
    ),
    results=Results(
        "<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{content}<|end|>", role="tool"
    ),
)
