"""Calls of Cohere models."""

from __future__ import annotations

from ..engine.envelope import CallFields
from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.json_calls import JsonCalls

__all__ = ["COHERE_ACTION", "COHERE_RPLUS"]

_CITATIONS = (("<co>", ""), ("<co: ", ">"), ("</co: ", ">"), ("</co>", ""))
"""Marks around a cited text: `<co>text</co: 0:[1]>`, or `<co: 0>text</co: 0>` in Command R."""
_DIRECT_ANSWERS = ("directly_answer", "directly-answer")
"""A tool of the prompt by which Command R states that it needs no other one (its model card, tool use)."""

COHERE_ACTION = Format(
    name="cohere_action",
    title="JSON array between <|START_ACTION|> and <|END_ACTION|>",
    families=("*command-r7b*", "*command-a*", "*command-4*", "*north-mini*", "cohere2moe*"),
    calls=JsonCalls(
        ("<|START_ACTION|>",),
        ("<|END_ACTION|>",),
        keys=CallFields(
            name=("tool_name",),
            arguments=("parameters",),
            id=("tool_call_id",),
            id_first=True,
            direct_answers=_DIRECT_ANSWERS,
        ),
        array=True,
        layout=("[\n    ", ",\n    ", "\n]"),
    ),
    reasoning=(("<|START_THINKING|>", "<|END_THINKING|>"),),
    ends_reasoning=("<|START_RESPONSE|>", "<|START_TEXT|>"),
    noise=(
        "<|END_ACTION|>",
        "<|END_RESPONSE|>",
        "<|END_TEXT|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
    ),
    citations=_CITATIONS,
    halts=("<|START_TOOL_RESULT|>",),
    results=ResultTemplate(
        '<|START_TOOL_RESULT|>[{"tool_call_id": "{id}", "results": {"0": {json}}}]<|END_TOOL_RESULT|>', role="tool"
    ),
)
"""Calls of Command R7B, Command A and later: an array of actions, numbered.

<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {}}]<|END_ACTION|>
"""

_OPEN = tuple(f"Action:{space}```json{line}" for line in ("\n", "\r\n") for space in (line, " ", ""))

COHERE_RPLUS = Format(
    name="cohere_rplus",
    title="JSON array in a code block after Action:",
    families=("*command-r-plus*", "*command-r", "*command-r:*", "*command-r-0*", "*command-r-v01*"),
    calls=JsonCalls(
        _OPEN,
        ("```",),
        keys=CallFields(name=("tool_name",), arguments=("parameters",), direct_answers=_DIRECT_ANSWERS),
        array=True,
        pad=("", "\n"),
    ),
    noise=("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
    citations=_CITATIONS,
    results=ResultTemplate("<results>\n{content}</results>"),
)
"""Calls of Command R+: an array in a code block after "Action:".

Action:
```json
[{"tool_name": "f", "parameters": {}}]
```
"""
