"""Error texts of OpenAI and compatible servers for broken limits. Both OpenAI wires use them."""

from __future__ import annotations

from .signatures import FEWER_TOOLS, Signature

__all__ = ["SAMPLING_RANGES", "SIGNATURES"]

SAMPLING_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "top_logprobs": (0, 20),
}
"""The bounds of parameters: openai/openai-openapi f85dbe22 (2026-08-21)."""

_TOOL = r"Invalid schema for function '(?P<tool>[^'\n]{1,256})': "
_ANY = r"Invalid schema for (?:function '(?P<tool>[^'\n]{1,256})'|response_format '[^'\n]{1,256}'): "
_LOCATION = r"Invalid '(?P<path>tools\[\d{1,6}\](?:\.function|\.custom)?\."
_CONTEXT = r"In context=(?P<context>\([^\n]{0,1000}?\)), "  # a bound keeps the cost of repeated beginnings linear
_LOWER = "use toolwire.schema.lower(schema, 'openai_strict'), or declare the tool without strict"
_SMALLER = "declare the tool without strict (prepare() does this), or split it"

SIGNATURES = (
    Signature("tools", "TW010", r"Invalid 'tools': array too long", FEWER_TOOLS),
    Signature("tools", "TW010", r"may not include more than \d{1,6} tools", FEWER_TOOLS),
    Signature(
        "name",
        "TW002",
        _LOCATION + r"name)': string does not match pattern",
        "rename the tool, or let prepare() map it",
    ),
    Signature(
        "name_length", "TW002", _LOCATION + r"name)': string too long", "shorten the name, or let prepare() map it"
    ),
    Signature(
        "name_length", "TW002", r"length of the tool name cannot exceed", "shorten the name, or let prepare() map it"
    ),
    Signature("description", "TW013", _LOCATION + r"description)': string too long", "shorten the description"),
    Signature(
        "id_length",
        "TW060",
        r"Invalid '(?P<path>(?:messages|input)\[\d{1,6}\][\w.\[\]]{0,60}\b(?:id|call_id|tool_call_id))': string too long",
        "let prepare() map the ids",
    ),
    Signature(
        "min_output",
        None,
        r"Invalid '(?P<path>max_(?:output|completion)_tokens)': integer below minimum value",
        "raise the limit, or let prepare() raise it",
    ),
    Signature("stops", None, r"Invalid '(?P<path>stop)': array too long", "send fewer stop sequences"),
    Signature(
        "root_union",
        "TW021",
        _TOOL + r"schema must have type 'object' and not have",
        "put the union under one property, or let prepare() rewrite it",
    ),
    Signature("root", "TW020", _TOOL + r"schema must be a JSON Schema of 'type: ", "add 'type': 'object' at the root"),
    Signature("items", "TW025", _TOOL + _CONTEXT + r"array schema missing items", "add a schema for the items"),
    Signature("closed", None, _ANY + _CONTEXT + r"'additionalProperties' is required to be supplied", _LOWER),
    Signature("optional", "TW030", _ANY + _CONTEXT + r"'required' is required to be supplied", _LOWER),
    Signature("ref_siblings", "TW029", _ANY + _CONTEXT + r"\$ref cannot have keywords", _LOWER),
    Signature("empty_objects", None, _ANY + _CONTEXT + r"object schema missing properties", "add 'properties': {}"),
    Signature("keywords", None, _ANY + _CONTEXT + r"'(?P<keyword>[\w$]{1,64})' is not permitted", _LOWER),
    Signature("properties", "TW034", _ANY + r"\d{1,9} parameters exceed the limit of", _SMALLER),
    Signature("depth", "TW034", _ANY + r"\d{1,9} levels of nesting exceeds limit of", _SMALLER),
    Signature("depth", "TW034", r"schema depth exceeds maximum limit of \d{1,9}", "flatten the schema"),
    Signature("enum_values", "TW034", _ANY + r"Expected at most \d{1,9} enum values in total", _SMALLER),
    # the provider gives no more detail
    Signature("schema", None, _TOOL, "`toolwire audit` finds what is wrong with it"),
    Signature("schema", None, r"\ninvalid_function_parameters\Z", "`toolwire audit` finds what is wrong with it"),
)
