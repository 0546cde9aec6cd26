"""Calls of dots: invocations, or a JSON object, in a section.

<dots_function_call><invoke name="f"><parameter name="a">1</parameter></invoke></dots_function_call>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.tag_families import invocations

__all__ = ["DOTS"]

DOTS = Format(
    name="dots",
    title="<invoke> in <dots_function_call>",
    families=("*dots.llm*", "dots*"),
    calls=invocations("<dots_function_call>", "</dots_function_call>", json_body=True, line=""),
    noise=("<dots_function_call>", "</dots_function_call>", "<|endofresponse|>", "<|endoftext|>"),
)
