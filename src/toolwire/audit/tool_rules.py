"""TW001 to TW014: names, numbers and descriptions of tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..ir.tools import Tool
from ..schema.conform import cost
from ..schema.dialects import DIALECTS
from ..schema.lowering import lower
from .findings import Hit, rule
from .tokens import tokens_of

__all__: list[str] = []

_CHAT = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_LONG = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch
_GEMINI = re.compile(r"[a-zA-Z_][\w.:-]{0,127}", re.ASCII).fullmatch
MOST_TOKENS = 8000


@rule("TW001", "error", "all", "two tools have one name", "rename one of them")
def duplicate_names(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    seen: dict[tuple[str | None, str], int] = {}
    for index, tool in enumerate(tools):
        first = seen.setdefault((tool.namespace, tool.name), index)
        if first != index:
            yield index, Hit("/name", f"{tool.name!r} is also the name of tool {first}")


def _by_name(tools: tuple[Tool, ...], legal: object, words: str) -> Iterator[tuple[int, Hit]]:
    assert callable(legal)
    for index, tool in enumerate(tools):
        if tool.kind != "builtin" and not legal(tool.name):
            yield index, Hit("/name", f"{tool.name!r} {words}")


@rule("TW002", "error", "openai_chat mistral bedrock", "a name that Chat refuses", "letters, digits, _ and -, up to 64")
def chat_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _by_name(tools, _CHAT, "is not 1 to 64 of a-z A-Z 0-9 _ -")


@rule(
    "TW003",
    "error",
    "anthropic openai_responses",
    "a name that Anthropic refuses",
    "letters, digits, _ and -, up to 128",
)
def anthropic_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _by_name(tools, _LONG, "is not 1 to 128 of a-z A-Z 0-9 _ -")


@rule("TW004", "error", "gemini", "a name that Gemini refuses", "begin with a letter or _, up to 128")
def gemini_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _by_name(tools, _GEMINI, "does not begin with a letter or _, or has other characters than . : - _")


@rule("TW005", "warning", "mcp", "a name that a client's prefix makes too long", "stay below 45 characters")
def long_name(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _by_name(tools, lambda name: len(name) <= 45, "with a prefix like mcp__server__ exceeds 64 characters")


@rule("TW006", "warning", "all", "names that differ only in case or punctuation", "make them differ in words")
def similar_names(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        plain = re.sub(r"[^a-z0-9]", "", tool.name.lower())
        first = seen.setdefault(plain, index)
        if first != index and tools[first].name != tool.name:
            yield index, Hit("/name", f"{tool.name!r} reads like {tools[first].name!r}")


@rule("TW007", "info", "cohere", "a name that is no identifier", "snake_case")
def no_identifier(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _by_name(tools, str.isidentifier, "cannot be called like a Python function, as some models do")


@rule("TW010", "error", "openai_chat gemini", "more tools than a request may have", "defer, retrieve or split them")
def too_many(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for most, who in ((128, "openai_chat"), (512, "gemini")):
        if len(tools) > most:
            yield -1, Hit("", f"{len(tools)} tools; {who} takes {most}")


@rule("TW011", "warning", "all", "declarations that fill the prompt", "shorten descriptions, defer or retrieve tools")
def too_many_tokens(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    total = sum(tokens_of(tool, "openai_chat") for tool in tools)
    if total > MOST_TOKENS:
        yield -1, Hit("", f"about {total:,} tokens in every request")


@rule(
    "TW012", "error", "anthropic_strict", "more strict tools or options than a request may have", "fewer strict tools"
)
def strict_budget(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    strict = [tool for tool in tools if tool.strict and tool.input_schema is not None]
    costs = [cost(lower(tool.input_schema, "anthropic_strict").schema) for tool in strict]
    bounds = DIALECTS["anthropic_strict"]
    for count, most, what in (
        (len(strict), bounds.strict_tools, "strict tools"),
        (sum(one for one, _ in costs), bounds.optional_parameters, "optional parameters in strict tools"),
        (sum(one for _, one in costs), bounds.union_parameters, "unions in strict tools"),
    ):
        if most is not None and count > most:
            yield -1, Hit("", f"{count} {what}; a request may have {most}")


@rule("TW013", "warning", "openai_chat bedrock", "a description that is missing or very long", "one to three sentences")
def description_length(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        if tool.kind == "builtin":
            continue
        if not (tool.description or "").strip():
            yield index, Hit("/description", "there is none")
        elif len(tool.description or "") > 1024:
            yield index, Hit("/description", f"{len(tool.description or '')} characters; 1,024 is the usual limit")


@rule("TW015", "warning", "all", "one description for several tools", "say what tells them apart")
def same_description(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    counts = Counter(tool.description for tool in tools if tool.description)
    for index, tool in enumerate(tools):
        if tool.description and counts[tool.description] > 1:
            yield index, Hit("/description", f"{counts[tool.description]} tools have this description")
