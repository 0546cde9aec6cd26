"""Calls of PLaMo 3: name and JSON, each between markers of its own.

<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"a": 1}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.header_calls import HeaderCalls

__all__ = ["PLAMO3"]

_REQUEST, _REQUEST_END = "<|plamo:begin_tool_request:plamo|>", "<|plamo:end_tool_request:plamo|>"
_NAME, _NAME_END = "<|plamo:begin_tool_name:plamo|>", "<|plamo:end_tool_name:plamo|>"
_ARGUMENTS, _ARGUMENTS_END = "<|plamo:begin_tool_arguments:plamo|>", "<|plamo:end_tool_arguments:plamo|>"
_REQUESTS, _REQUESTS_END = "<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"
_JSON = "<|plamo:constrain|>json<|plamo:msg|>"

PLAMO3 = Format(
    name="plamo3",
    title="name and JSON between <|plamo:…|> markers",
    families=("*plamo-3*", "*plamo3*"),
    calls=HeaderCalls(
        (_REQUEST + _NAME, _NAME),
        (_NAME_END + _ARGUMENTS + _JSON, _NAME_END + _ARGUMENTS, _NAME_END),
        (_ARGUMENTS_END + _REQUEST_END, _ARGUMENTS_END),
        _REQUESTS,
        _REQUESTS_END,
    ),
    reasoning=(("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),),
    noise=(_REQUESTS, _REQUESTS_END, _REQUEST, _REQUEST_END, _ARGUMENTS_END, "<|plamo:tag|>"),
)
