"""Constraints that Chat and Responses share: limits, models, tools, formats of the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ...ir.pointer import JSON, Object
from ..findings import Hit
from .constraints import CheckedBody, constraint
from .documents import hits_below, objects_of, out_of_range, short_repr
from .schema_subsets import openai_strict, root_combinators, root_type

NATIVE = "openai azure openai_chat openai_responses"
"""The providers with OpenAI's own servers. Others accept more, or document less."""
CALL_ID_LENGTHS = {"openai_chat": 40, "openai_responses": 64}
"""The most characters that a call id may have, by wire."""
_BOTH = "openai_chat openai_responses"
_OPENAPI = "openai/openai-openapi f85dbe22 (2026-08-21)"
_ROOT = ("anyOf", "oneOf", "allOf", "not", "enum", "const")


@constraint(
    "TW105", _BOTH, _OPENAPI, vendors=NATIVE,
    error="Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -1 instead.",
)  # fmt: skip
def check_ranges(checked: CheckedBody) -> Iterator[Hit]:
    """Report numbers outside their ranges, and too much metadata."""
    limits = (
        ("temperature", 0, 2),
        ("top_p", 0, 1),
        ("frequency_penalty", -2, 2),
        ("presence_penalty", -2, 2),
        ("top_logprobs", 0, 20),
        ("n", 1, 128),
        ("max_tokens", 1, float("inf")),
        ("max_completion_tokens", 1, float("inf")),
        ("max_output_tokens", 16, float("inf")),
    )
    yield from out_of_range(checked.body, limits)
    yield from _check_metadata(checked.body)


def _check_metadata(body: Object) -> Iterator[Hit]:
    """Report more than 16 entries, and keys or values that are too long or not text."""
    metadata = body.get("metadata")
    if type(metadata) is not dict:
        return
    if len(metadata) > 16:
        yield Hit("/metadata", f"metadata may have at most 16 entries, got {len(metadata)}")
    for key, value in metadata.items():
        if len(key) > 64 or type(value) is not str or len(value) > 512:
            yield Hit(
                "/metadata", f"keys have at most 64 and values at most 512 characters of text, see {short_repr(key)}"
            )


@constraint(
    "TW107", _BOTH, "https://github.com/openai/swarm/issues/30 (2024-07)", vendors=NATIVE,
    error="'parallel_tool_calls' is only allowed when 'tools' are specified.",
)  # fmt: skip
def check_dependent_fields(checked: CheckedBody) -> Iterator[Hit]:
    """Report fields that are only allowed together with another field."""
    body = checked.body
    if body.get("stream_options") is not None and body.get("stream") is not True:
        yield Hit("/stream_options", 'stream_options needs "stream": true')
    if checked.wire == "openai_chat":
        if body.get("top_logprobs") is not None and body.get("logprobs") is not True:
            yield Hit("/top_logprobs", 'top_logprobs needs "logprobs": true')
        if body.get("parallel_tool_calls") is not None and not body.get("tools"):
            yield Hit("/parallel_tool_calls", "parallel_tool_calls is only allowed together with tools")


@constraint("TW106", _BOTH, "openai 3.49.0 (2026-11): tool_choice", vendors=NATIVE,
            error="'tool_choice' is only allowed when 'tools' are specified.")  # fmt: skip
def check_choice_without_tools(checked: CheckedBody) -> Iterator[Hit]:
    choice = checked.body.get("tool_choice")
    stored = any(checked.body.get(key) for key in ("prompt", "functions"))
    if choice is None or checked.body.get("tools") or stored:
        return
    if checked.wire == "openai_chat" or choice not in ("none", "auto"):
        yield Hit("/tool_choice", f"{short_repr(choice)} needs tools, and the request declares none")


def tool_name(path: str, name: JSON, limit: int) -> Iterator[Hit]:
    if type(name) is str and not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{limit}}}", name):
        yield Hit(path, f"{short_repr(name)} must match ^[a-zA-Z0-9_-]{{1,{limit}}}$")


def declare_schema_rules(wire: str, schemas: Callable[[CheckedBody], Iterator[tuple[str, JSON, bool]]]) -> None:
    """Register the rules for schemas of tools on `wire`; `schemas` yields the (path, schema, strict) of each tool."""

    @constraint(
        "TW020",
        wire,
        "https://github.com/chatanywhere/GPT_API_free/issues/403 (2025-06)",
        vendors=NATIVE,
        error="schema must be a JSON Schema of 'type: \"object\"'",
    )
    def check_root_types(checked: CheckedBody) -> Iterator[Hit]:
        for path, schema, _ in schemas(checked):
            yield from hits_below(path, root_type(schema) if schema is not None else iter(()))

    @constraint("TW021", wire, "https://github.com/nspady/google-calendar-mcp/issues/39 (2025-06)", vendors=NATIVE,
                error="schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level")  # fmt: skip
    def check_roots(checked: CheckedBody) -> Iterator[Hit]:
        for path, schema, _ in schemas(checked):
            yield from hits_below(path, root_combinators(schema, _ROOT))

    @constraint("TW109", wire, "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas (2026)",
                vendors=NATIVE, error="Invalid schema for function")  # fmt: skip
    def check_strict(checked: CheckedBody) -> Iterator[Hit]:
        for path, schema, strict in schemas(checked):
            yield from hits_below(path, openai_strict(schema) if strict else iter(()))


def check_format(path: str, declared: Object) -> Iterator[Hit]:
    """Report an invalid name and a missing schema in the answer's `json_schema` format.

    A strict schema is also checked against the subset of structured outputs. Its root must be an object without `anyOf`
    (the guide names only this keyword; tools have more: TW021). Schemas that are not strict are not enforced, so all are
    accepted. A missing name is reported with the shape of the body.
    """
    name = declared.get("name")
    if type(name) is str and not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        yield Hit(f"{path}/name", f"{short_repr(name)} must match ^[a-zA-Z0-9_-]{{1,64}}$")
    schema = declared.get("schema")
    if type(schema) is not dict:
        yield Hit(path, "a json_schema format needs a schema")
        return
    if declared.get("strict") is True:
        hits = (*root_type(schema), *root_combinators(schema, ("anyOf",)), *openai_strict(schema))
        yield from hits_below(f"{path}/schema", hits)


def check_sampling(checked: CheckedBody, effort: JSON, path: str = "") -> Iterator[Hit]:
    """Report sampling parameters that a reasoning model rejects while it reasons.

    From 5.1 to 5.4, models do not reason unless an effort is given.
    """
    model = checked.model
    if not model.reasons or effort == "none" or (effort is None and (5, 1) <= model.version < (5, 5)):
        return
    for name, default in (("temperature", 1), ("top_p", 1), ("presence_penalty", 0), ("frequency_penalty", 0)):
        value = checked.body.get(name)
        if value is not None and value != default:
            yield Hit(f"{path}/{name}", f"{model.name} accepts only the default {default} for {name}, got {value!r}")
    for name in ("logprobs", "top_logprobs", "logit_bias"):
        if checked.body.get(name):
            yield Hit(f"{path}/{name}", f"{model.name} does not support {name}")


def check_effort(checked: CheckedBody, effort: JSON, path: str) -> Iterator[Hit]:
    """Report an effort for a model that does not reason, or that does not have the level."""
    model = checked.model
    if effort is None or not model.openai:
        return
    if not model.reasons:
        yield Hit(path, f"{model.name} does not reason, so it has no effort")
    elif effort == "none" and (model.family == "o" or model.version == (5, 0)):
        yield Hit(path, f"{model.name} has no effort 'none'")
    elif effort == "minimal" and (model.family == "o" or model.version >= (5, 6)):
        yield Hit(path, f"{model.name} has no effort 'minimal'")
    elif effort in ("xhigh", "max") and (model.family == "o" or model.version <= (5, 0)):
        yield Hit(path, f"{model.name} has no effort {effort!r}")


_FILE_TYPES = re.compile(r"data:(?:application/|text/|image/)")


def check_media_type(path: str, data: JSON) -> Iterator[Hit]:
    """Report files whose data URL names a type that OpenAI does not read."""
    if type(data) is str and data.startswith("data:") and not _FILE_TYPES.match(data):
        yield Hit(path, f"files of type {data[5:].partition(';')[0]!r} are not supported")


@constraint(
    "TW104",
    _BOTH,
    _OPENAPI,
    vendors=NATIVE,
)
def check_empty_lists(checked: CheckedBody) -> Iterator[Hit]:
    """Report empty lists of tools, functions, content and calls in Chat Completions."""
    if checked.wire == "openai_chat":
        for key in ("tools", "functions"):
            if checked.body.get(key) == []:
                yield Hit(f"/{key}", f"{key} must not be empty")
        for at, message in objects_of(checked.body.get("messages"), "/messages"):
            for key in ("content", "tool_calls"):
                if message.get(key) == []:
                    yield Hit(f"{at}/{key}", f"{key} must have at least one element")


@constraint(
    "TW112", _BOTH, "https://platform.openai.com/docs/guides/structured-outputs#json-mode (2026)", vendors=NATIVE,
    error="'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
)  # fmt: skip
def check_json_mode(checked: CheckedBody) -> Iterator[Hit]:
    """Report JSON mode without a message that mentions JSON.

    Not with a stored conversation or prompt, whose text is unknown here.
    """
    body = checked.body
    path = "/response_format" if checked.wire == "openai_chat" else "/text/format"
    declared = body.get("response_format") if checked.wire == "openai_chat" else (body.get("text") or {})
    if checked.wire == "openai_responses" and type(declared) is dict:
        declared = declared.get("format")
    if type(declared) is not dict or declared.get("type") != "json_object":
        return
    if any(body.get(key) for key in ("previous_response_id", "conversation", "prompt")):
        return
    if not any("json" in text.lower() for text in _texts([body.get("messages"), body.get("input")])):
        yield Hit(path, "JSON mode needs a message that mentions JSON")


def _texts(value: JSON) -> Iterator[str]:
    """Yield every string of a document."""
    queue = [value]
    while queue:
        item = queue.pop()
        if type(item) is str:
            yield item
        elif type(item) is list:
            queue += item
        elif type(item) is dict:
            queue += item.values()


def check_image(path: str, url: JSON) -> Iterator[Hit]:
    if type(url) is str and not re.match(r"https?://|data:image/", url):
        yield Hit(path, f"an image needs an http(s) address or a data URL of an image, got {short_repr(url)}")
