"""Calls of Llama models."""

from __future__ import annotations

from ..engine.envelope import CallFields
from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.json_calls import JsonCalls
from ..styles.pythonic_calls import PythonicCalls

__all__ = ["LLAMA3_JSON", "LLAMA4_PYTHONIC"]

LLAMA3_JSON = Format(
    name="llama3_json",
    title="bare JSON object, or after <|python_tag|>",
    families=("*llama-3.1*", "*llama-3.2*", "*llama-3.3*", "*llama3.1*", "*llama3.2*", "*llama3.3*"),
    calls=JsonCalls(
        ("<|python_tag|>",),
        bare=("{", "["),
        bare_inline=('{"name": "', '{"name":"', '[{"name": "', '[{"name":"'),
        keys=CallFields(arguments=("parameters", "arguments")),
        between="; ",
        write_open=False,
    ),
    noise=("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>"),
    results=ResultTemplate("{content}", role="tool", grouped=False),
)
"""Calls of Llama 3.1 to 3.3 and of Llama 4 in JSON: a bare object at the start of the message, or after a token.

<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}
"""

LLAMA4_PYTHONIC = Format(
    name="llama4_pythonic",
    title="list of Python calls between <|python_start|> and <|python_end|>",
    families=("*llama-4*", "*llama4*"),
    calls=PythonicCalls(bare=True, open=("<|python_start|>",), close=("<|python_end|>",)),
    noise=("<|eot|>", "<|eom|>", "<|python_end|>", "<|end_of_text|>"),
)
"""Calls of Llama 4: a list of Python calls, optionally between tokens.

<|python_start|>[f(a='x')]<|python_end|>
"""
