"""Write docs/limits.md: the limits of the providers, from the constraints of the audit, the wires and the schema dialects.

The constraints of `toolwire.audit` are code. A limit is found by asking them: the largest number that they accept, with the
provider's error and the source of the first number that they refuse.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from toolwire.audit import Violation, check_body
from toolwire.schema import DIALECTS
from toolwire.wire import get, names

__all__ = ["LIMITS_PAGE", "largest_accepted", "limits_page"]

LIMITS_PAGE = Path(__file__).with_name("limits.md")
_MOST = 1 << 17  # no limit that is probed is larger


class Probe(NamedTuple):
    """A body of a request with `n` of something."""

    what: str
    provider: str
    rule: str
    body: Callable[[int], Any]
    reported: tuple[str, str] | None = None
    """The provider's error and its source, if the error of the constraint belongs to another of its limits; "" if unknown."""


def _function(name: str = "f", parameters: Any = None, **options: Any) -> Any:
    return {"name": name, "parameters": parameters or {"type": "object", "properties": {}}, **options}


def _chat(**fields: Any) -> Any:
    return {"model": "gpt-4.1", "messages": [{"role": "user", "content": "a"}], **fields}


def _chat_tools(*functions: Any) -> Any:
    return _chat(tools=[{"type": "function", "function": function} for function in functions])


def _responses(**fields: Any) -> Any:
    return {"model": "gpt-4.1", "input": "a", **fields}


def _messages(**fields: Any) -> Any:
    return {"model": "claude-sonnet-5", "max_tokens": 4096, "messages": [{"role": "user", "content": "a"}], **fields}


def _strict(properties: Any, required: list[str]) -> Any:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return _messages(tools=[{"name": "f", "strict": True, "input_schema": schema}])


def _gemini(**fields: Any) -> Any:
    return {"contents": [{"role": "user", "parts": [{"text": "a"}]}], **fields}


def _named(count: int, value: Any) -> Any:
    return {f"p{number}": value for number in range(count)}


_UNION = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
_MARKED = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
PROBES = [
    Probe("tools in a request", "openai_chat", "TW010", lambda n: _chat_tools(*(_function(f"f{i}") for i in range(n)))),
    Probe("characters of a tool name", "openai_chat", "TW002", lambda n: _chat_tools(_function("f" * n))),
    Probe("stop sequences", "openai_chat", "TW108", lambda n: _chat(stop=[f"s{i}" for i in range(n)])),
    Probe("entries of `metadata`", "openai_chat", "TW105", lambda n: _chat(metadata=_named(n, "a")), reported=("Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got an object with 24 properties instead.", "https://github.com/thiswillbeyourgithub/openwebui_custom_pipes_filters/issues/3 (Azure, 2025-03)")),
    Probe("characters of a key of `metadata`", "openai_chat", "TW105", lambda n: _chat(metadata={"k" * n: "a"}), reported=("", "")),
    Probe("characters of a value of `metadata`", "openai_chat", "TW105", lambda n: _chat(metadata={"k": "a" * n}), reported=("Expected a string with maximum length 512, but got a string with length 695 instead.", "https://github.com/spiceai/docs/issues/928 (2025-04)")),
    Probe(
        "properties of a strict schema",
        "openai_chat",
        "TW109",
        lambda n: _chat_tools(
            _function(
                strict=True,
                parameters={
                    "type": "object",
                    "properties": _named(n, {"type": "string"}),
                    "required": [f"p{i}" for i in range(n)],
                    "additionalProperties": False,
                },
            )
        ),
        reported=("Invalid schema for response_format 'accounts_payable_invoice': 144 parameters exceed the limit of 100.", "https://github.com/openai/openai-node/issues/1176 (2024-11, when the limit was 100)"),
    ),
    Probe(
        "tools in a request",
        "azure",
        "TW010",
        lambda n: _responses(tools=[{"type": "function", "strict": False, **_function(f"f{i}")} for i in range(n)]),
    ),
    Probe(
        "characters of a tool name",
        "openai_responses",
        "TW003",
        lambda n: _responses(tools=[{"type": "function", "strict": False, **_function("f" * n)}]),
    ),
    Probe(
        "characters of a tool name",
        "anthropic",
        "TW003",
        lambda n: _messages(tools=[{"name": "f" * n, "input_schema": {"type": "object"}}]),
    ),
    Probe(
        "characters of a property name",
        "anthropic",
        "TW022",
        lambda n: _messages(
            tools=[{"name": "f", "input_schema": {"type": "object", "properties": {"p" * n: {"type": "string"}}}}]
        ),
    ),
    Probe(
        "strict tools in a request",
        "anthropic",
        "TW012",
        lambda n: _messages(
            tools=[
                {"name": f"f{i}", "strict": True, "input_schema": {"type": "object", "additionalProperties": False}}
                for i in range(n)
            ]
        ),
        reported=("Too many strict tools (48). The maximum number of strict tools supported is 20. Try reducing the number of tools marked as strict.", "https://github.com/eigent-ai/eigent/issues/1711 (2026-06)"),
    ),
    Probe(
        "optional parameters of all strict tools", "anthropic", "TW012", lambda n: _strict(_named(n, {"type": "string"}), []),
        reported=("Schemas contains too many optional parameters (87), which would make grammar compilation inefficient. Reduce the number of optional parameters in your tool schemas (limit: 24).", "https://github.com/elie222/inbox-zero/issues/2323 (2026-04)"),
    ),
    Probe(
        "parameters with union types of all strict tools",
        "anthropic",
        "TW012",
        lambda n: _strict(_named(n, _UNION), [f"p{i}" for i in range(n)]),
    ),
    Probe(
        "blocks with `cache_control`",
        "anthropic",
        "TW125",
        lambda n: _messages(messages=[{"role": "user", "content": [_MARKED] * n}]),
    ),
    Probe("characters of `metadata.user_id`", "anthropic", "TW105", lambda n: _messages(metadata={"user_id": "u" * n}), reported=("", "")),
    Probe(
        "functions in a request",
        "gemini",
        "TW010",
        lambda n: _gemini(tools=[{"functionDeclarations": [{"name": f"f{i}"} for i in range(n)]}]),
    ),
    Probe(
        "characters of a function name",
        "gemini",
        "TW004",
        lambda n: _gemini(tools=[{"functionDeclarations": [{"name": "f" * n}]}]),
    ),
    Probe(
        "stop sequences", "gemini", "TW108", lambda n: _gemini(generationConfig={"stopSequences": ["s"] * n}),
        reported=("the number of stop_sequences must not exceed 5", "https://github.com/continuedev/continue/issues/2702 (2024-10)"),
    ),
]  # fmt: skip

# Numbers of other guides and model cards, which toolwire's first specification repeated.
WRONG = [
    ("OpenAI: the arguments of a call have at most 8,192 bytes", "no limit of `arguments` is documented; a result has at most 10,485,760 characters",
     "[openai-openapi](https://github.com/openai/openai-openapi) f85dbe22", "2026-08-21"),
    ("OpenAI: a strict schema has at most 5 levels and 100 properties", "10 levels and 5,000 properties. 5 and 100 were the first limits (`6 levels of nesting exceeds limit of 5`), and are Azure's",
     "[Structured Outputs](https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas), [ellmer #671](https://github.com/tidyverse/ellmer/issues/671), [Azure](https://learn.microsoft.com/azure/ai-foundry/openai/how-to/structured-outputs)", "2026-08"),
    ("OpenAI: strict schemas have no `$ref`", "`$ref`, `$defs` and recursion are supported; `$ref` has no other keyword beside it",
     "[Structured Outputs](https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas)", "2026-08"),
    ("OpenAI: at most 128 tools, on all APIs", "128 on Chat Completions and on Azure (errors until 2025-11); the Responses API names no limit, and has tool search",
     "[zed #42393](https://github.com/zed-industries/zed/issues/42393), openai 3.49.0", "2026-11"),
    ("Anthropic: at most 64 tools in a request", "no such limit: reported errors name the 296th tool of a request (`tools.295.custom.name`). 20 is the limit of *strict* tools",
     "[tool search](https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool) is documented for thousands of tools", "2026-07"),
    ("Anthropic: the schema of a tool is always enforced", "only with `strict: true`; otherwise it guides the model, and `toolwire` checks the arguments",
     "anthropic 2.8.0: `ToolParam.strict`", "2026-11"),
    ("Gemini: at most 64 functions in a request", "512", "[gemini-cli #19083](https://github.com/google-gemini/gemini-cli/issues/19083)", "2026-02-14"),
    ("Gemini: a function name has at most 64 characters", "128 by the documentation of the SDK; an error of 2025-11-30 still gives 64, so shorter names are safer",
     "google-genai 3.1.0: `FunctionDeclaration.name`, [ccs #25](https://github.com/kaitranntt/ccs/issues/25)", "2026-11"),
]  # fmt: skip


def _violation(probe: Probe, number: int) -> Violation | None:
    found = check_body(probe.body(number), probe.provider)
    return next((violation for violation in found if violation.rule == probe.rule), None)


def largest_accepted(probe: Probe) -> tuple[int, Violation]:
    """Return the largest number that no constraint refuses, and the violation of the next one."""
    low, high = 0, 2
    while (found := _violation(probe, high)) is None:
        low, high = high, 2 * high
        if high > _MOST:
            raise LookupError(f"{probe.rule} limits no {probe.what} on {probe.provider}")
    while high - low > 1:
        middle = (low + high) // 2
        violation = _violation(probe, middle)
        low, high, found = (middle, high, found) if violation is None else (low, middle, violation)
    return low, found


def limits_page() -> str:
    return "\n".join(
        [
            "# Provider limits",
            "",
            "Generated by `make docs`. The first table is found by asking the constraints of the [audit](audit.md): the maximum number that",
            "they accept, with the provider's error and the source of the limit. `toolwire` fits requests to these limits: it renames tools, lowers",
            "schemas, makes tools non-strict or [selects the tools](retrieval.md) that a request needs, and reports each change as a [loss](losses.md).",
            "– is an error whose text no public source gives.",
            "",
            "## Maximum numbers in a request: tools, names, stop sequences",
            "",
            "| provider | maximum of | limit | error | source | rule |",
            "|---|---|---|---|---|---|",
            *map(_probe_row, PROBES),
            "",
            "## Names and ids",
            "",
            "The forms that toolwire writes. Where a vendor is stricter than the protocol, its [rows](capabilities.md) decide.",
            "",
            "| wire | tool names | call ids | maximum of cache marks | smallest thinking budget |",
            "|---|---|---|---|---|",
            *(_wire_row(name) for name in names()),
            "",
            "## Schemas",
            "",
            "The limits of one schema, by [dialect](schemas.md). *Likely*: undocumented; a schema above it is sometimes refused, so it is reported and sent.",
            "",
            "| dialect | levels | properties | enum values | characters of names, enums and constants | property names |",
            "|---|---|---|---|---|---|",
            *(_dialect_row(name) for name in DIALECTS if _has_limits(name)),
            "",
            "## Numbers that are often quoted, and wrong",
            "",
            "| claim | today | source | date |",
            "|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in WRONG),
            "",
        ]
    )


def _probe_row(probe: Probe) -> str:
    number, violation = largest_accepted(probe)
    text, source = probe.reported or (violation.error or "", "")
    error = f"`{text}`".replace("|", "\\|") if text else "–"
    sources = ", ".join(_linked(place) for place in (violation.source, source) if place)
    cells = (probe.provider, probe.what, f"{number:,}", error, sources)
    return f"| {' | '.join(cells)} | [{probe.rule}](rules/{probe.rule}.md) |"


def _linked(source: str) -> str:
    """Return a source with its address as a link: an issue is named by its repository, a page by its last part."""
    issue = re.sub(r"(https://github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+))", r"[\2 #\3](\1)", source)
    return issue if issue != source else re.sub(r"(https://\S+/(\S+))", r"[\2](\1)", source)


def _wire_row(name: str) -> str:
    limits = get(name).limits
    cells = (
        name,
        f"`{limits.name}`, at most {limits.name_length}",
        f"`{limits.id}`, at most {limits.id_length}",
        str(limits.cache_marks or "–"),
        f"{limits.min_budget:,} tokens" if limits.min_budget else "–",
    )
    return f"| {' | '.join(cells)} |"


def _has_limits(name: str) -> bool:
    row = DIALECTS[name]
    return name != "portable" and any((row.depth, row.properties, row.likely_depth, row.property_name))


def _dialect_row(name: str) -> str:
    row = DIALECTS[name]
    long = f"; above {row.long_enum[0]:,} strings: {row.long_enum[1]:,} characters" if row.long_enum else ""
    cells = (
        f"`{row.id}`",
        str(row.depth or (f"likely {row.likely_depth}" if row.likely_depth else "–")),
        f"{row.properties:,}" if row.properties else "–",
        f"{row.enum_values:,}{long}" if row.enum_values else "–",
        f"{row.characters:,}" if row.characters else "–",
        f"`{row.property_name}`" if row.property_name else "–",
    )
    return f"| {' | '.join(cells)} |"
