"""Calls of MiniCPM 5: functions and parameters in tags, CDATA allowed.

<function name="f"><param name="a">1</param></function>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.tagged_calls import TaggedCalls

__all__ = ["MINICPM5"]

MINICPM5 = Format(
    name="minicpm5",
    title="<function name> and <param name>",
    families=("*minicpm5*", "*minicpm-5*"),
    calls=TaggedCalls(
        "<function",
        "</function>",
        "<param",
        "</param>",
        attribute="name",
        key_attribute="name",
        cdata=True,
        line="",
        between="\n",
    ),
    noise=("<|im_end|>", "</s>"),
)
