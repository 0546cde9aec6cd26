"""Calls of Step-3: invocations between special tokens.

<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="a">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.tag_families import invocations

__all__ = ["STEP3"]

STEP3 = Format(
    name="step3",
    title="<steptml:invoke> between special tokens",
    families=("*step-3", "*step3"),
    calls=invocations(
        "<｜tool_call_begin｜>function<｜tool_sep｜>",
        "<｜tool_call_end｜>",
        prefix="steptml:",
        bare=True,
        own_section=True,
        line="",
    ),
    noise=(
        "<｜tool_calls_begin｜>",
        "<｜tool_call_end｜>",
        "<｜tool_calls_end｜>",
        "<｜tool_call_begin｜>",
        "<｜end▁of▁sentence｜>",
        "<|EOT|>",
    ),
)
