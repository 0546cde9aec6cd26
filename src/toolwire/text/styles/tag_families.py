"""Tags that several formats share, by their common names."""

from __future__ import annotations

from typing import Any

from .tagged_calls import TaggedCalls

__all__ = ["arg_pairs", "invocations"]


def arg_pairs(
    *, call: str = "tool_call", head_end: str = "\n", line: str = "\n", section: str = "", suffix: str = "", **more: Any
) -> TaggedCalls:
    """`<tool_call>NAME` with `<arg_key>` and `<arg_value>` for each argument, as first used by GLM.

    `suffix` is the end of every tag name: `:opensource` for `<tool_call:opensource>`.
    """
    return TaggedCalls(
        f"<{call}{suffix}>",
        f"</{call}{suffix}>",
        f"<arg_key{suffix}>",
        f"</arg_value{suffix}>",
        value_open=f"<arg_value{suffix}>",
        key_end=f"</arg_key{suffix}>",
        head_end=head_end,
        section_open=f"<{section}{suffix}>" if section else "",
        section_close=f"</{section}{suffix}>" if section else "",
        line=line,
        **more,
    )


def invocations(section_open: str, section_close: str, *, prefix: str = "", **more: Any) -> TaggedCalls:
    """`<invoke name="NAME">` with `<parameter name="KEY">` in a section, as first used by Claude."""
    return TaggedCalls(
        f"<{prefix}invoke",
        f"</{prefix}invoke>",
        f"<{prefix}parameter",
        f"</{prefix}parameter>",
        attribute="name",
        key_attribute="name",
        section_open=section_open,
        section_close=section_close,
        **more,
    )
