"""Signatures of the errors by which Gemini reports an exceeded limit.

Gemini identifies a property by its name, or by its position among its siblings.
"""

from __future__ import annotations

from ..signatures import FEWER_TOOLS, Signature

__all__ = ["SIGNATURES"]

_TOOL = r"(?P<path>tools(?:\[\d{1,6}\])?\.function_declarations\[\d{1,6}\]"
_PATH = _TOOL + r"[^\s':]{0,1000}?"
_LOWER = "lower the schema with toolwire.schema.lower(schema, 'gemini'), or send it as parametersJsonSchema"
_SIMPLER = "flatten the schema, shorten names and enums, bound fewer lists; the limit is not documented"

SIGNATURES = (
    Signature(
        "tools",
        "TW010",
        r"At most \d{1,6} function declarations can be specified",
        FEWER_TOOLS,
    ),
    Signature(
        "name",
        "TW004",
        _TOOL + r"\.name): (?:\[\w{1,40}\] )?Invalid function name",
        "rename the tool, or let prepare() map it",
    ),
    Signature(
        "unique_names",
        "TW001",
        r"Duplicate function declaration found(?:: (?P<tool>[\w.:-]{1,128}))?",
        "rename one of the tools",
    ),
    Signature(
        "null", "TW024", r"Unknown name \"(?P<keyword>type)\" at '(?:request\.)?" + _PATH + r")': Proto field", _LOWER
    ),
    Signature(
        "keywords",
        "TW023",
        r"Unknown name \"(?P<keyword>[^\"\n]{1,64})\" at '(?:request\.)?" + _PATH + r")': Cannot find field",
        _LOWER,
    ),
    Signature(
        "enum", "TW024", r"Invalid value at '(?:request\.)?" + _PATH + r"\.enum\[\d{1,6}\])' \(TYPE_STRING\)", _LOWER
    ),
    Signature("type", "TW024", r"Invalid value at '(?:request\.)?" + _PATH + r"\.type)' ", _LOWER),
    Signature("enum", "TW024", _PATH + r"\.enum): only allowed for STRING type", _LOWER),
    Signature("formats", "TW024", _PATH + r"\.format): only ", _LOWER),
    Signature("items", "TW025", _PATH + r")\.items: missing field", "declare the schema of the items"),
    Signature(
        "declared_required",
        "TW026",
        _PATH + r"\.required\[\d{1,6}\]): property is not defined",
        "declare the required property",
    ),
    Signature("empty_objects", "TW031", _PATH + r")\.properties: should be non-empty", _LOWER),
    Signature(
        "likely_depth",
        "TW035",
        r"(?:FunctionDeclaration(?: '(?P<tool>[^'\n]{1,128})')?|schema in GenerationConfig) in the request exceeds the maximum",
        _SIMPLER,
    ),
    Signature("likely_states", "TW035", r"too many states for serving", _SIMPLER),
    Signature(
        "ref_siblings", "TW029", r"ref '[^'\n]{1,256}' was set alongside unsupported fields", "wrap the reference"
    ),
    Signature(
        "refs",
        "TW027",
        r"reference to undefined schema at (?P<path>[\w.$]{1,400})",
        "define the reference under $defs, or inline it",
    ),
)
