"""The subset of JSON Schema that each provider accepts, as data.

A dialect is a row: its keywords, and the replacements for the others. `lowering/emitter.py` reads the rows and has no code for
a provider. Names have a version, because limits change; the bare name is the newest. `portable` is not a provider's
row but the intersection of all the others.

`DIALECTS` are for the arguments of tools, `OUTPUT_DIALECTS` for structured outputs: the schemas of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.value import Value

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_LENGTHS = frozenset({"minLength", "maxLength"})
_SHAPE = frozenset({"type", "properties", "required", "items", "enum", "anyOf", "additionalProperties"})
_REFS = frozenset({"$ref", "$defs"})
_OTHER_KEYWORDS = frozenset(
    "const oneOf allOf not if then else dependentRequired dependentSchemas contains minContains maxContains uniqueItems "
    "propertyNames patternProperties minProperties maxProperties prefixItems unevaluatedProperties unevaluatedItems "
    "pattern format minItems maxItems".split()
)
_ALL = _ANNOTATIONS | _BOUNDS | _LENGTHS | _SHAPE | _REFS | _OTHER_KEYWORDS
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


class Dialect(Value, frozen=True):
    """One provider's subset. Limits are None where none is known."""

    name: str
    version: str
    keywords: frozenset[str]
    whole: bool = False
    """A schema that breaks no rule is sent unchanged, including keywords that are not listed."""
    ignored: frozenset[str] = frozenset()
    """Keywords that are accepted and sent, but not enforced. Each one is reported."""
    enforced: bool = False
    """The provider compiles the schema into a grammar, so that the model cannot write anything else."""
    output: bool = False
    """For answers, not for arguments: an object without properties at the root is any object, not an empty one."""
    any_root: bool = False
    """The root may be of any type. If not, another value than an object is wrapped in one."""
    closed: bool = False
    """Every object needs `additionalProperties: false`."""
    optional: Literal["keep", "nullable"] = "keep"
    maps: Literal["keep", "entries"] = "keep"
    anything: Literal["keep", "string"] = "keep"
    """A value of any type: unchanged, or as JSON in a string."""
    tuples: Literal["keep", "object"] = "keep"
    null: Literal["type", "nullable", "word"] = "type"
    """Null as a type, as a flag, or as the string "null"."""
    type_lists: bool = True
    """`type` may list several types. If not, only a type and null."""
    enum: Literal["any", "primitive", "string"] = "any"
    refs: Literal["keep", "inline"] = "keep"
    ref_siblings: bool = True
    """Keywords are allowed beside `$ref`. If not, a reference with a description is wrapped, too."""
    recursion: bool = True
    empty_objects: bool = True
    """An object without properties is safe to send, except at the root."""
    declared_required: bool = False
    """Every name in `required` must be declared in `properties`."""
    root_description: bool = True
    """A description at the root reaches the model."""
    lone_any_of: bool = False
    """No keyword is allowed beside `anyOf`."""
    formats: frozenset[str] | None = None
    number_formats: frozenset[str] = frozenset()
    """The formats of numbers, where `formats` restricts the formats of strings."""
    patterns: Literal["any", "linear", "simple", "anchored"] = "any"
    """Linear: no lookaround, no backreferences. Simple: also no `\\b`. Anchored: ^…$ only."""
    most_min_items: int | None = None
    property_name: str | None = None
    # limits of one schema
    depth: int | None = None
    properties: int | None = None
    enum_values: int | None = None
    characters: int | None = None
    """In names of properties and definitions, in enums and in constants."""
    long_enum: tuple[int, int] | None = None
    """(values, characters): an enum of more than `values` strings may have at most `characters` characters."""
    likely_depth: int | None = None
    """An undocumented limit beyond which schemas are sometimes rejected. An excess is reported, and sent."""
    likely_states: int | None = None
    # limits of all strict schemas of a request together
    strict_tools: int | None = None
    optional_parameters: int | None = None
    union_parameters: int | None = None

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"


_OPENAI = Dialect("openai", "2026-08", _ALL, whole=True)
_OPENAI_STRICT = Dialect(
    "openai_strict",
    "2026-08",
    (
        _SHAPE
        | _REFS
        | _BOUNDS
        | _LENGTHS
        | {"const", "pattern", "format", "minItems", "maxItems", "title", "description"}
    ),
    enforced=True,
    closed=True,
    optional="nullable",
    maps="entries",
    anything="string",
    tuples="object",
    type_lists=False,
    enum="primitive",
    ref_siblings=False,
    declared_required=True,
    formats=_FORMATS,
    patterns="linear",
    depth=10,
    properties=5000,
    enum_values=1000,
    characters=120_000,
    long_enum=(250, 15_000),
)
_ANTHROPIC = Dialect("anthropic", "2026-10", _ALL, whole=True, property_name=r"[a-zA-Z0-9_.-]{1,64}")
_ANTHROPIC_STRICT = Dialect(
    "anthropic_strict",
    "2026-10",
    _SHAPE | _REFS | {"pattern", "format", "minItems", "title", "description", "default"},
    enforced=True,
    closed=True,
    maps="entries",
    anything="string",
    tuples="object",
    enum="primitive",
    ref_siblings=False,
    recursion=False,
    declared_required=True,
    formats=_FORMATS | {"uri"},
    patterns="simple",
    most_min_items=1,
    property_name=r"[a-zA-Z0-9_.-]{1,64}",
    strict_tools=20,
    optional_parameters=24,
    union_parameters=16,
)
# Users report that 42 properties with names of 34 characters are accepted and 43 rejected
# (googleapis/python-aiplatform#4301), and also arrays whose maxItems add up to more than about 960
# (googleapis/python-genai#2170).
_GEMINI_STATES = 1530
_GEMINI = Dialect(
    "gemini",
    "2026-10",
    (_SHAPE - {"additionalProperties"})
    | _LENGTHS
    | {"title", "description", "default", "nullable", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"pattern", "format", "minimum", "maximum", "example", "propertyOrdering"},
    optional="keep",
    maps="entries",
    anything="string",
    tuples="object",
    null="nullable",
    enum="string",
    refs="inline",
    recursion=False,
    empty_objects=False,
    declared_required=True,
    lone_any_of=True,
    formats=frozenset({"date-time"}),
    number_formats=frozenset({"int32", "int64", "float", "double"}),
    property_name=r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
    likely_depth=5,
    likely_states=_GEMINI_STATES,
)
_GEMINI_JSON = Dialect(
    "gemini_json_schema",
    "2026-10",
    _ALL,
    whole=True,
    ref_siblings=False,
    declared_required=True,
    likely_depth=5,
    likely_states=_GEMINI_STATES,
)
# docs.cohere.com/v2/docs/structured-outputs, "Parameter types support" (2025-11): the grammar for answers and for strict
# tools. Patterns without `^`, `$` and lookahead are supported; nearly all patterns have them, so they are moved to the
# description.
_COHERE_STRICT = Dialect(
    "cohere_strict",
    "2026-11",
    _SHAPE | _REFS | {"const", "format", "title", "description"},
    enforced=True,
    tuples="object",
    enum="primitive",
    recursion=False,
    declared_required=True,
    formats=frozenset({"date-time", "uuid", "date", "time"}),
)
_GRAMMAR = Dialect("llguidance", "1.9", _ALL - {"not", "if", "then", "else"}, enforced=True, declared_required=True)

DIALECTS: dict[str, Dialect] = {
    row.name: row
    for row in (
        _OPENAI,
        _OPENAI_STRICT,
        _ANTHROPIC,
        _ANTHROPIC_STRICT,
        _GEMINI,
        _GEMINI_JSON,
        replace(_ANTHROPIC, name="bedrock", version="2026-09", property_name=None),
        # Claude's strict tools have the same grammar there; PydanticAI's profile for Converse removes the same keywords
        replace(_ANTHROPIC_STRICT, name="bedrock_strict", version="2026-09"),
        # the server reads declarations into structs with these fields and silently drops the others
        Dialect(
            "ollama",
            "2026-10",
            frozenset({"type", "properties", "required", "items", "enum", "anyOf", "description"}),
            maps="keep",
            anything="string",
            tuples="object",
            refs="inline",
            recursion=False,
            declared_required=True,
            root_description=False,
        ),
        replace(_OPENAI, name="mistral", version="2026-10"),
        replace(_OPENAI, name="cohere", version="2026-10"),
        _COHERE_STRICT,
        # the keywords that the engines for open models can enforce
        replace(
            _GRAMMAR,
            keywords=_GRAMMAR.keywords
            - {"oneOf", "uniqueItems", "propertyNames", "contains", "minContains", "maxContains"}
            - {"dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"}
            - {"minProperties", "maxProperties"},  # accepted only where every property is required
            patterns="simple",
            formats=_FORMATS | {"uri"},
        ),
        replace(
            _GRAMMAR,
            name="xgrammar",
            version="0.2",
            keywords=_SHAPE
            | _REFS
            | _LENGTHS
            | _ANNOTATIONS
            | (_BOUNDS - {"multipleOf"})
            | {"const", "pattern", "format", "minItems", "maxItems", "prefixItems"},
            patterns="linear",
            formats=_FORMATS | {"uri"},
        ),
        replace(
            _GRAMMAR,
            name="gbnf",
            version="2026-10",
            keywords=_SHAPE
            | _REFS
            | _LENGTHS
            | _ANNOTATIONS
            | {"const", "pattern", "format", "minItems", "maxItems", "prefixItems"}
            | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
            patterns="anchored",
            formats=frozenset({"date", "time", "date-time", "uuid"}),
        ),
    )
}


_FEATURES = "whole enforced type_lists ref_siblings recursion empty_objects root_description".split()
_SIZES = "most_min_items depth properties enum_values characters long_enum likely_depth likely_states".split()


def _intersect_dialects(name: str, version: str, rows: Sequence[Dialect]) -> Dialect:
    """Intersect dialects: each of them accepts a schema of the result unchanged.

    Some features have no intersection. A null that is a type in one row and a flag in another becomes a string. Closed
    objects and optional properties are left to each dialect, which expresses them without a loss. The limits of strict
    mode are left out, because they apply to a request, not to a schema.
    """

    def strictest(field: str, *order: str) -> Any:
        return max((getattr(row, field) for row in rows), key=order.index)

    def smallest(field: str) -> Any:
        return min((most for row in rows if (most := getattr(row, field)) is not None), default=None)

    formats = [row.formats for row in rows if row.formats is not None]
    names = {row.property_name for row in rows if row.property_name is not None}
    features: dict[str, Any] = {field: all(getattr(row, field) for row in rows) for field in _FEATURES}
    return Dialect(
        name,
        version,
        frozenset.intersection(*(row.keywords for row in rows)),
        maps=strictest("maps", "keep", "entries"),
        anything=strictest("anything", "keep", "string"),
        tuples=strictest("tuples", "keep", "object"),
        null="word" if len({row.null for row in rows}) > 1 else rows[0].null,
        enum=strictest("enum", "any", "primitive", "string"),
        refs=strictest("refs", "keep", "inline"),
        declared_required=any(row.declared_required for row in rows),
        lone_any_of=any(row.lone_any_of for row in rows),
        formats=frozenset.intersection(*formats) if formats else None,
        patterns=strictest("patterns", "any", "linear", "simple", "anchored"),
        property_name="".join(f"(?=(?:{name})\\Z)" for name in sorted(names)) + ".*" if names else None,
        **features,
        **{field: smallest(field) for field in _SIZES},
    )


PORTABLE = _intersect_dialects("portable", "2026-10", tuple(DIALECTS.values()))
DIALECTS[PORTABLE.name] = PORTABLE


def _output_row(name: str, row: Dialect, *, any_root: bool = False) -> Dialect:
    """Derive the row for structured outputs; limits on the number of tools do not apply to them."""
    return replace(row, name=f"{name}_output", output=True, any_root=any_root, strict_tools=None)


# The list for `responseJsonSchema` in google-genai 3.1.0 (types.py); annotations and references are no assertions.
_GEMINI_ENFORCED = (
    _ANNOTATIONS
    | _REFS
    | _SHAPE
    | {"format", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "oneOf"}
    | {"then", "else"}  # reported with `if`
)

OUTPUT_DIALECTS: dict[str, Dialect] = {
    row.name: row
    for row in (
        _output_row("openai", _OPENAI),
        _output_row("openai_strict", _OPENAI_STRICT),
        # `output_config.format` is always enforced: an open object or a bound is rejected (anthropic-sdk-python,
        # lib/_parse/_transform.py; a 400 without additionalProperties: veryfront/veryfront-code#3918)
        _output_row("anthropic", _ANTHROPIC_STRICT),
        _output_row("bedrock", _ANTHROPIC_STRICT),
        # `responseSchema` and `responseJsonSchema` accept arrays, enums and references at the root
        _output_row("gemini", _GEMINI, any_root=True),
        replace(_output_row("gemini_json_schema", _GEMINI_JSON, any_root=True), ignored=_ALL - _GEMINI_ENFORCED),
        # the server compiles `format` with the grammar converter of llama.cpp; the fields of tools do not apply
        _output_row("ollama", DIALECTS["gbnf"], any_root=True),
        _output_row("mistral", DIALECTS["mistral"]),
        _output_row("cohere", _COHERE_STRICT),
        *(_output_row(name, DIALECTS[name], any_root=True) for name in ("llguidance", "xgrammar", "gbnf")),
    )
}


def dialect(name: str) -> Dialect:
    """Return the dialect of this name, with or without its version. Raise ConfigError for an unknown name."""
    bare, _, version = name.partition("@")
    found = DIALECTS.get(bare) or OUTPUT_DIALECTS.get(bare)
    if found is None or (version and version != found.version):
        hint = f"use one of {', '.join(row.id for row in (*DIALECTS.values(), *OUTPUT_DIALECTS.values()))}"
        raise ConfigError(f"unknown dialect {name!r}", hint=hint)
    return found


def output_dialect(name: str, *, strict: bool | None) -> Dialect:
    """Return the dialect for structured outputs of the provider whose tools use the dialect `name`.

    `strict` makes a difference only where the provider has a relaxed form.

    >>> output_dialect("openai", strict=True).name, output_dialect("anthropic", strict=None).name
    ('openai_strict_output', 'anthropic_output')
    """
    enforced = OUTPUT_DIALECTS.get(f"{name}_strict_output") if strict else None
    return enforced or OUTPUT_DIALECTS.get(f"{name}_output") or dialect(name)
