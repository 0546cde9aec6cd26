"""Formats that no single model family owns: prompts and fine-tuned models of many kinds use them."""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.json_calls import JsonCalls
from ..styles.pythonic_calls import PythonicCalls
from ..styles.react_calls import ReactCalls
from ..styles.tagged_calls import TaggedCalls

__all__ = ["FUNCTION_XML", "GENERIC_JSON", "JSON_ARRAY", "PYTHONIC", "REACT"]

GENERIC_JSON = Format(
    name="generic_json",
    title="bare JSON object",
    families=(),
    calls=JsonCalls(("```json\n",), ("```",), bare=("{", "["), write_open=False),
)
"""One call as a bare object, wrapped or not: for models that are only prompted for it.

{"tool_call": {"name": "f", "arguments": {}}}
"""

JSON_ARRAY = Format(
    name="json_array",
    title="bare JSON array",
    families=(),
    calls=JsonCalls((), (), array=True, bare=("[",)),
)
"""Calls as a bare array: the result of constrained decoding with any model.

[{"name": "f", "parameters": {}}]
"""

FUNCTION_XML = Format(
    name="function_xml",
    title="arguments in <parameter=key> tags, one call per turn",
    families=(),
    calls=TaggedCalls("<function=", "</function>", "<parameter=", "</parameter>", one=True),
    stops=("</function",),
    one_call=True,
    declare=ToolPrompt("You have access to the following functions:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("EXECUTION RESULT of [{name}]:\n{content}"),
)
"""Calls for any model that is prompted for them: one per turn; generation stops at the closer.

    <function=f>
    <parameter=a>1</parameter>
    </function>

The format of OpenHands, which is used for most models without native calls.
"""

PYTHONIC = Format(
    name="pythonic",
    title="list of Python calls",
    families=("*toolace*", "*toolace*llama*", "watt-tool*"),  # watt-tool: the prompt of BFCL (its model card)
    calls=PythonicCalls(bare=True, open=("<|python_start|>",), close=("<|python_end|>",), write_open=False),
    noise=("<|eot_id|>", "<|eom_id|>", "<|python_end|>", "<|end_of_text|>", "<end_of_turn>"),
)
"""Calls of Llama 3.2 and ToolACE: a list of Python calls.

[f(a='x', b=[1]), g()]
"""

REACT = Format(
    name="react",
    title="Thought / Action / Action Input",
    families=(),
    calls=ReactCalls(),
    halts=("\nObservation:",),
    stops=("\nObservation:",),
    one_call=True,
    declare=ToolPrompt("You can use these tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("Observation: {content}", grouped=False),
)
"""Calls in the style of ReAct: thoughts, an action, its input.

Thought: I need the weather.
Action: f
Action Input: {"a": 1}
"""
