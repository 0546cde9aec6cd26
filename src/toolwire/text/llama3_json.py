"""Calls of Llama 3.1 to 3.3 and of Llama 4 in JSON: a bare object at the start of the message, or after a token.

<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}
"""

from __future__ import annotations

from .engine.envelope import CallFields
from .engine.format import Format
from .engine.json_calls import JsonCalls
from .engine.prompt import ResultTemplate

__all__ = ["FORMAT"]

FORMAT = Format(
    name="llama3_json",
    title="bare JSON object, or after <|python_tag|>",
    families=("*llama-3.1*", "*llama-3.2*", "*llama-3.3*", "*llama3.1*", "*llama3.2*", "*llama3.3*"),
    calls=JsonCalls(
        ("<|python_tag|>",),
        bare=("{",),
        bare_inline=('{"name": "', '{"name":"'),
        keys=CallFields(arguments=("parameters", "arguments")),
        between="; ",
        write_open=False,
    ),
    noise=("<|eot_id|>", "<|eom_id|>"),
    results=ResultTemplate("{content}", role="tool", grouped=False),
)
