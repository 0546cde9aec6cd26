"""TW001 to TW014: names, number and descriptions of tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..ir.tools import Tool
from ..schema.dialects import DIALECTS
from ..schema.lowering.conformance import parameter_counts
from ..schema.lowering.lowered import lower
from .findings import Hit, rule
from .tokens import declaration_tokens

__all__: list[str] = []

_CHAT = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_LONG = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch
_GEMINI = re.compile(r"[a-zA-Z_][\w.:-]{0,127}", re.ASCII).fullmatch
MAX_TOKENS = 8000  # 4 % of a context of 200,000 tokens, in every request; small local models have 8,192 in all


@rule("TW001", "error", "all", "duplicate tool name", "rename one of the tools")
def check_duplicate_names(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    seen: dict[tuple[str | None, str], int] = {}
    for index, tool in enumerate(tools):
        first = seen.setdefault((tool.namespace, tool.name), index)
        if first != index:
            yield index, Hit("/name", f"{tool.name!r} is already the name of tool {first}")


def _check_names(tools: tuple[Tool, ...], legal: object, message: str) -> Iterator[tuple[int, Hit]]:
    assert callable(legal)
    for index, tool in enumerate(tools):
        if tool.kind != "builtin" and not legal(tool.name):
            yield index, Hit("/name", f"{tool.name!r} {message}")


@rule(
    "TW002",
    "error",
    "openai_chat mistral bedrock",
    "tool name rejected by OpenAI",
    "use only letters, digits, _ and -, at most 64 characters",
)
def check_chat_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _check_names(tools, _CHAT, "must be 1 to 64 characters of a-z A-Z 0-9 _ -")


@rule(
    "TW003",
    "error",
    "anthropic openai_responses",
    "tool name rejected by Anthropic and Responses",
    "use only letters, digits, _ and -, at most 128 characters",
)
def check_anthropic_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report the name for Anthropic only: TW002 reports it for the target OpenAI, which includes Responses."""
    for index, hit in _check_names(tools, _LONG, "must be 1 to 128 characters of a-z A-Z 0-9 _ -"):
        yield index, hit._replace(providers=("anthropic",))


@rule(
    "TW004",
    "error",
    "gemini",
    "tool name rejected by Gemini",
    "start with a letter or _, use at most 128 characters",
)
def check_gemini_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _check_names(tools, _GEMINI, "must start with a letter or _ and contain only letters, digits and . : - _")


@rule("TW005", "warning", "mcp", "tool name too long with a client's prefix", "use at most 45 characters")
def check_long_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _check_names(tools, lambda name: len(name) <= 45, "exceeds 64 characters with a prefix like mcp__server__")


@rule("TW006", "warning", "all", "tool names differ only in case or punctuation", "use clearly different names")
def check_similar_names(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Compare the names by their lower-case letters and digits only."""
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        plain = re.sub(r"[^a-z0-9]", "", tool.name.lower())
        first = seen.setdefault(plain, index)
        if first != index and tools[first].name != tool.name:
            yield index, Hit("/name", f"{tool.name!r} is easily confused with {tools[first].name!r}")


@rule("TW007", "info", "cohere", "tool name is not an identifier", "use snake_case")
def check_identifier(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _check_names(
        tools, str.isidentifier, "is not a valid Python function name, and some models write calls as Python"
    )


@rule("TW010", "error", "openai_chat gemini", "too many tools for one request", "defer, retrieve or split the tools")
def check_tool_count(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for maximum, who in ((128, "openai_chat"), (512, "gemini")):
        if len(tools) > maximum:
            yield -1, Hit("", f"{len(tools)} tools; {who} accepts at most {maximum}", (who,))


@rule("TW011", "warning", "all", "declarations use too many tokens", "shorten descriptions, defer or retrieve tools")
def check_token_count(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    total = sum(declaration_tokens(tool, "openai_chat") for tool in tools)
    if total > MAX_TOKENS:
        yield -1, Hit("", f"about {total:,} tokens in every request")


@rule(
    "TW012",
    "error",
    "anthropic_strict",
    "too many strict tools or options for one request",
    "declare fewer strict tools",
)
def check_strict_budget(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Add up the strict tools, and the optional parameters and unions of their lowered schemas.

    The limits apply to a whole request, so the findings belong to the list and not to a tool.
    """
    strict = [tool for tool in tools if tool.strict and tool.input_schema is not None]
    costs = [parameter_counts(lower(tool.input_schema, "anthropic_strict").schema) for tool in strict]
    bounds = DIALECTS["anthropic_strict"]
    for count, maximum, what in (
        (len(strict), bounds.strict_tools, "strict tools"),
        (sum(one for one, _ in costs), bounds.optional_parameters, "optional parameters in strict tools"),
        (sum(one for _, one in costs), bounds.union_parameters, "unions in strict tools"),
    ):
        if maximum is not None and count > maximum:
            yield -1, Hit("", f"{count} {what}; a request may have at most {maximum}")


@rule("TW013", "warning", "openai_chat bedrock", "description missing or too long", "write one to three sentences")
def check_description_length(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        if tool.kind == "builtin":
            continue
        if not (tool.description or "").strip():
            yield index, Hit("/description", "the tool has no description")
        elif len(tool.description or "") > 1024:
            yield index, Hit("/description", f"{len(tool.description or '')} characters; 1,024 is the usual limit")


@rule("TW015", "warning", "all", "several tools share a description", "describe how they differ")
def check_same_description(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    counts = Counter(tool.description for tool in tools if tool.description)
    for index, tool in enumerate(tools):
        if tool.description and counts[tool.description] > 1:
            yield index, Hit("/description", f"{counts[tool.description]} tools have this description")
