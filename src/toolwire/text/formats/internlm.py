"""Calls of InternLM 2: a plugin action.

<|action_start|><|plugin|>{"name": "f", "parameters": {}}<|action_end|>
"""

from __future__ import annotations

from ..engine.envelope import CallFields
from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["INTERNLM2"]

INTERNLM2 = Format(
    name="internlm2",
    title="JSON object between <|action_start|> and <|action_end|>",
    families=("internlm2*", "internlm3*", "intern-s1*"),
    calls=JsonCalls(
        ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
        ("<|action_end|>",),
        keys=CallFields(arguments=("parameters", "arguments")),
        pad=("\n", "\n"),
    ),
    noise=("<|action_end|>", "<|im_end|>", "</s>"),
)
