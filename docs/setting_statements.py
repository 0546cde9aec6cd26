"""Statements about settings: parameters, reasoning, the form of the answer, fields of one wire."""

from msgspec.structs import replace
from statements import (
    ANSWER,
    ASKS_JSON,
    MARK,
    NO_STORE,
    NO_TOOLS,
    Statement,
    read_extra,
    read_output,
    read_reasoning,
    with_extra,
    with_params,
)

from toolwire.ir import OutputFormat, ReasoningConfig
from toolwire.wire import names

__all__ = ["SETTINGS"]

SETTINGS = [
    Statement(
        "params.max_tokens",
        with_params(max_tokens=31_000),
        with_params(max_tokens=1_000),
        lambda r: r.params.max_tokens,
    ),
    *(
        Statement(
            f"params.{name}", NO_TOOLS, with_params(**{name: value}), lambda r, name=name: getattr(r.params, name)
        )
        for name, value in (
            ("temperature", 0.5),
            ("top_p", 0.5),
            ("top_k", 5),
            ("stop", ("END",)),
            ("seed", 7),
            ("n", 2),
            ("presence_penalty", 0.1),
            ("frequency_penalty", 0.1),
            ("logprobs", True),
            ("top_logprobs", 3),
            ("user", "u"),
            ("metadata", {"k": "v"}),
            ("service_tier", "flex"),
            ("cache_key", "k"),
            ("safety_identifier", "s"),
            ("verbosity", "low"),
        )
    ),
    Statement(
        "five stop sequences",
        NO_TOOLS,
        with_params(stop=("END", "A", "B", "C", "D")),
        lambda r: r.params.stop,
    ),
    Statement(
        "params.store",
        replace(NO_TOOLS, extra=NO_STORE),
        replace(with_params(store=True), extra=NO_STORE),
        lambda r: r.params.store,
    ),
    Statement(
        "params.include_usage",
        replace(NO_TOOLS, stream=True),
        replace(with_params(include_usage=True), stream=True),
        lambda r: r.params.include_usage,
        ("anthropic", "bedrock", "cohere", "gemini", "gemini_interactions", "ollama", "openai_responses"),
    ),
    Statement(
        "reasoning.effort",
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto", "low")),
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto", "high")),
        read_reasoning("effort"),
    ),
    *(
        Statement(
            f"reasoning.effort {effort}",
            replace(NO_TOOLS, reasoning=ReasoningConfig("auto", "medium")),
            replace(NO_TOOLS, reasoning=ReasoningConfig("auto", effort)),
            read_reasoning("effort"),
        )
        for effort in ("minimal", "xhigh", "max")
    ),
    Statement(
        "reasoning.budget",
        NO_TOOLS,
        replace(NO_TOOLS, reasoning=ReasoningConfig("budget", budget=2048)),
        read_reasoning("budget"),
    ),
    Statement("reasoning off", NO_TOOLS, replace(NO_TOOLS, reasoning=ReasoningConfig("off")), read_reasoning("mode")),
    Statement(
        "reasoning.visible",
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto")),
        replace(NO_TOOLS, reasoning=ReasoningConfig("auto", visible=True)),
        read_reasoning("visible"),
        ("cohere", "ollama"),
    ),
    Statement("answer as JSON", ASKS_JSON, replace(ASKS_JSON, output=OutputFormat("json")), read_output),
    Statement(
        "answer by a schema",
        NO_TOOLS,
        replace(NO_TOOLS, output=OutputFormat("json_schema", ANSWER, strict=True)),
        read_output,
    ),
    Statement(
        "answer by a schema: description",
        replace(NO_TOOLS, output=OutputFormat("json_schema", ANSWER, strict=True)),
        replace(NO_TOOLS, output=OutputFormat("json_schema", ANSWER, description=f"{MARK}2", strict=True)),
        lambda r: None if r.output is None else r.output.description,
    ),
    Statement("stream", NO_TOOLS, replace(NO_TOOLS, stream=True), lambda r: r.stream),
    Statement(
        "field that only one wire has",
        NO_TOOLS,
        {wire: with_extra(**{wire: {"x_new": MARK}}) for wire in names()},
        read_extra,
    ),
    Statement(
        "reference to a stored conversation",
        NO_TOOLS,
        {
            "openai_responses": with_extra(openai_responses={"previous_response_id": MARK}),
            "gemini": with_extra(gemini={"cachedContent": f"cachedContents/{MARK}"}),
            "gemini_interactions": with_extra(gemini_interactions={"previous_interaction_id": MARK}),
        },
        read_extra,
    ),
]
