"""Signatures of the errors by which Anthropic reports an exceeded limit."""

from __future__ import annotations

from ..signatures import Signature

__all__ = ["SIGNATURES"]

_TOOL = r"(?P<path>tools\.\d{1,6}(?:\.\w{1,64})?"
_FEWER = "let prepare() remove `strict` from as few tools as possible, or send fewer strict tools"
_LOWER = "lower the schema with toolwire.schema.lower(schema, 'anthropic_strict'), or declare the tool without strict"

SIGNATURES = (
    Signature("name", "TW003", _TOOL + r"\.name): String should", "rename the tool, or let prepare() map it"),
    Signature("unique_names", "TW001", r"tools: Tool names must be unique", "rename one of the tools"),
    Signature(
        "cache_marks",
        None,
        r"A maximum of \d{1,3} blocks with cache_control",
        "mark fewer blocks, or let prepare() keep the last ones",
    ),
    Signature("tools", "TW010", r"\navailable_tools_limit_exceeded\Z", "send fewer tools, or defer them"),
    Signature(
        "property_name",
        "TW022",
        _TOOL + r"\.input_schema\.properties): Property keys should match pattern",
        "rename the properties, or let prepare() map them",
    ),
    Signature(
        "root_union",
        "TW021",
        _TOOL + r"\.input_schema): input_schema does not support oneOf, allOf, or anyOf",
        "put the union under one property, or let prepare() rewrite it",
    ),
    Signature("root", "TW020", _TOOL + r"\.input_schema)\.type: ", "set 'type': 'object' at the root"),
    Signature(
        "schema",
        "TW040",
        _TOOL + r"\.input_schema): JSON schema is invalid",
        "write JSON Schema 2020-12, or let prepare() rewrite it",
    ),
    Signature("strict_tools", "TW012", r"Too many strict tools", _FEWER),
    Signature("optional_parameters", "TW012", r"too many optional parameters", _FEWER),
    Signature("union_parameters", "TW012", r"too many parameters with union types", _FEWER),
    Signature(
        "grammar",
        "TW012",
        r"compiled grammar is too large|Schema is too complex for compilation",
        "send fewer or simpler strict tools: the limit applies to all of them together",
    ),
    Signature(
        "strict",
        None,
        r"does not support strict tools",
        "declare the tools without strict: this model does not support it",
    ),
    Signature(
        "strict",
        None,
        _TOOL + r"\.strict): Extra inputs",
        "declare the tools without strict: this model does not support it",
    ),
    Signature(
        "closed",
        None,
        r"(?:" + _TOOL + r")|output_\w{1,20}[\w.]{0,40}): For 'object' type, 'additionalProperties' must be",
        _LOWER,
    ),
    Signature("keywords", "TW032", _TOOL + r"): For '\w{1,20}' type, propert", _LOWER),
)
