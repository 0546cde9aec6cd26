"""Calls of Laguna: as `glm45`; a key without a value is left out. Arguments or a whole call as JSON are also read.

<tool_call>f
<arg_key>a</arg_key>
<arg_value>1</arg_value>
</tool_call>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.tag_families import arg_pairs

__all__ = ["POOLSIDE_V1"]

POOLSIDE_V1 = Format(
    name="poolside_v1",
    title="<arg_key> and <arg_value> in <tool_call>",
    families=("*laguna*",),
    calls=arg_pairs(json_body=True),
    noise=("</assistant>",),
    halts=("<tool_response>",),
)
