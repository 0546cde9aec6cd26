"""A choice among tools: the function that a model calls if none fits, and the mark of ranked tools."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import Extra
from ...ir.tools import Tool

NOTHING_FITS = "nothing_fits"
NOTHING = Tool(
    NOTHING_FITS,
    "None of these functions does what the user asks for.",
    {"type": "object", "properties": {}, "additionalProperties": False},
    effect="pure",
)
"""The local model is trained on this declaration (`bench/tool_calls`)."""


RANKED = "ranked_tools"
"""A field of a request to the local model."""


def ranked(counts: Sequence[int]) -> Extra:
    """Return the extra fields of a request to the local model whose tools are in the order of a search, the best first.

    `counts`: the entries of the searched catalogue that each tool stands for; `nothing_fits` may follow without one.
    """
    return {"openai_chat": {RANKED: list(counts)}}
