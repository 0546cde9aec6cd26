"""Calls of Step-3: invocations between special tokens.

<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="a">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="step3",
    title="<steptml:invoke> between special tokens",
    families=("*step-3", "*step3"),
    calls=TaggedCalls(
        "<steptml:invoke",
        "</steptml:invoke>",
        "<steptml:parameter",
        "</steptml:parameter>",
        attribute="name",
        key_attribute="name",
        section_open="<｜tool_call_begin｜>function<｜tool_sep｜>",
        section_close="<｜tool_call_end｜>",
        own_section=True,
        line="",
    ),
    noise=("<｜tool_calls_begin｜>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
)
