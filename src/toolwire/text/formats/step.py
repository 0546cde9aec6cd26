"""Calls of Step-3: invocations between special tokens.

<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="a">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.alternative_calls import AlternativeCalls
from ..styles.tag_families import invocations
from ..styles.tagged_calls import TaggedCalls

__all__ = ["STEP3"]

_OPENERS = ("<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_begin｜>")  # a model may leave out the type


def _invocations(section: str) -> TaggedCalls:
    return invocations(section, "<｜tool_call_end｜>", prefix="steptml:", own_section=True, line="")


STEP3 = Format(
    name="step3",
    title="<steptml:invoke> between special tokens",
    families=("step-3", "step3", "step-3-*", "step3-*"),
    calls=AlternativeCalls(tuple(_invocations(opener) for opener in _OPENERS)),
    ends_reasoning=("<｜tool_calls_begin｜>",),
    noise=("<｜tool_call_end｜>", "<｜tool_calls_end｜>", "<｜end▁of▁sentence｜>", "<|EOT|>"),
)
