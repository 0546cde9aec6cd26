"""Calls of IQuest Q1: as `glm47`, with its own tag around a call.

<iquest_tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></iquest_tool_call>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.tag_families import arg_pairs

__all__ = ["IQUEST_Q1"]

IQUEST_Q1 = Format(
    name="iquest_q1",
    title="<arg_key> and <arg_value> in <iquest_tool_call>",
    families=("*iquest-q1*",),
    calls=arg_pairs(call="iquest_tool_call", line=""),
)
