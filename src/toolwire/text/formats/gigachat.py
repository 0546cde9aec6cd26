"""Calls of GigaChat 3: a JSON object up to the end of the turn.

<|function_call|>{"name": "f", "arguments": {}}
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls
from ..styles.tag_families import invocations

__all__ = ["GIGACHAT3", "GIGACHAT35"]

GIGACHAT3 = Format(
    name="gigachat3",
    title="JSON object after <|function_call|>",
    families=("gigachat3*", "gigachat-3*"),
    calls=JsonCalls(("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n")),
    noise=("</s>", "<|message_sep|>", "<|role_sep|>"),
)

GIGACHAT35 = Format(
    name="gigachat35",
    title="<｜GCML｜invoke> in <｜GCML｜tool_calls>",
    families=("*gigachat3.5*", "*gigachat-3.5*"),
    calls=invocations(
        "<｜GCML｜tool_calls>", "</｜GCML｜tool_calls>", prefix="｜GCML｜", bare=True, type_attribute="string"
    ),
    noise=("<|message_sep|>", "</s>"),
)
"""Calls of GigaChat 3.5: invocations whose arguments state whether they are strings.

<｜GCML｜tool_calls>
<｜GCML｜invoke name="f">
<｜GCML｜parameter name="a" string="false">1</｜GCML｜parameter>
</｜GCML｜invoke>
</｜GCML｜tool_calls>
"""
