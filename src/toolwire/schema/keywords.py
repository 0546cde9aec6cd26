"""The vocabulary of JSON Schema in all drafts: keywords by purpose, and the identifiers that references resolve to.

Every reader of schema documents decides with these tables which members of a document are subschemas, and which are
data. Only subschemas have identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..ir.pointer import JSON, Object, child_pointer, resolve

DATA = frozenset({"enum", "const", "default", "example", "examples"})
"""Keywords whose value is data, never a schema."""
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose value is an object of subschemas."""
CONDITIONS = frozenset({"if", "dependentSchemas", "dependentRequired", "dependencies"})
"""Assertions that depend on other contents of an object."""
ANNOTATIONS = ("title", "description", "default", "examples", "example", "deprecated")
"""Annotations for the reader of a schema."""
UNMODELLED = (
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentEncoding",
    "contentMediaType",
)
"""Assertions that nodes have no field for."""
TYPED = frozenset({"type", "enum", "const"})
DESCRIPTIVE = frozenset({*ANNOTATIONS, *UNMODELLED})
COMBINED = frozenset({"$ref", "$recursiveRef", "$dynamicRef", "allOf", "anyOf", "oneOf"})
EVALUATING = COMBINED | CONDITIONS
"""Keywords whose subschemas evaluate properties of the same object."""
KEYWORDS_BY_TYPE = {
    "object": frozenset(
        "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
        "dependentRequired dependentSchemas unevaluatedProperties".split()
    ),
    "array": frozenset(
        "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains "
        "unevaluatedItems".split()
    ),
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
KEYWORDS_BY_TYPE["integer"] = KEYWORDS_BY_TYPE["number"]
"""Keywords that imply a type where none is given."""
KIND_OF_KEYWORD = {
    keyword: kind for kind in ("object", "array", "string", "number") for keyword in KEYWORDS_BY_TYPE[kind]
}
"""The type to whose values a keyword applies."""
ASSERTING = frozenset(KIND_OF_KEYWORD)
MISPLACED = {
    kind: ASSERTING - KEYWORDS_BY_TYPE.get(kind, frozenset()) - {"format"}
    for kind in (*KEYWORDS_BY_TYPE, "boolean", "null")
}
"""Keywords that never apply to values of a type. `format` is also an annotation of numbers."""
READ_KEYWORDS = DESCRIPTIVE.union(COMBINED, *KEYWORDS_BY_TYPE.values()) | {
    "type",
    "enum",
    "const",
    "nullable",
    "then",
    "else",
}
READ_KEYWORDS |= {"$defs", "definitions"}
"""All keywords that are read."""
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def copy_schema(schema: JSON, change: Callable[[Object, Object], Object]) -> JSON:
    """Copy a schema; each subschema becomes `change(original, copy)`. Data, such as an `enum`, is not copied."""
    if type(schema) is list:
        return [copy_schema(item, change) for item in schema]
    if type(schema) is not dict:
        return schema
    out: Object = {}
    for keyword, value in schema.items():
        if keyword in DATA:
            out[keyword] = value
        elif keyword in MAPS and type(value) is dict:
            out[keyword] = {key: copy_schema(item, change) for key, item in value.items()}
        else:
            out[keyword] = copy_schema(value, change)
    return change(schema, out)


def has_old_forms(schema: JSON) -> bool:
    """Return True for a form that 2020-12 does not have: a list of `items`, a boolean `exclusiveMinimum`."""
    pending = [schema]
    while pending:
        item = pending.pop()
        if type(item) is list:
            pending += item
        elif type(item) is dict:
            if (
                type(item.get("items")) is list
                or type(item.get("exclusiveMinimum", item.get("exclusiveMaximum"))) is bool
            ):
                return True
            pending += item.values()
    return False


# Resolve references: JSON pointers, anchors, and URIs relative to the enclosing `$id`.
#
# A schema with an `$id` is a resource of its own: `#` and `#/…` in it are relative to it, not to the document. Only
# subschemas have identifiers; the same keys in an `enum`, a `default` or an unknown keyword are data. Nothing is ever
# fetched.


_DEPTH = 64  # as DEPTH in parsing/parser.py: deeper schemas are not read, so that their identifiers do not matter
_PERCENT = re.compile(r"%([0-7][0-9a-fA-F])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?(//[^/]*)?(.*)", re.DOTALL).fullmatch
_OLD_DRAFT = re.compile(r"json-schema\.org/draft-0([3467])/").search
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE = (
    "items additionalItems unevaluatedItems contains additionalProperties unevaluatedProperties propertyNames not if then "
    "else contentSchema"
).split()


def old_draft_number(document: JSON) -> int | None:
    """Return the number of the old draft that `$schema` declares; None for 2019-09 and later, and without `$schema`."""
    declared = document.get("$schema") if type(document) is dict else None
    found = _OLD_DRAFT(declared) if type(declared) is str else None
    return int(found[1]) if found else None


class Identifiers:
    """The identifiers of one document."""

    __slots__ = ("_anchors", "_bases", "_document", "_dynamic", "_keyword", "_resources")

    def __init__(self, document: JSON) -> None:
        """Collect the identifiers of all subschemas, without recursion."""
        self._document = document
        self._keyword = "id" if old_draft_number(document) == 4 else "$id"
        self._resources: dict[str, str] = {"": ""}  # URI → pointer
        self._bases: dict[str, str] = {"": ""}  # pointer → URI of the resource that starts there
        self._anchors: dict[tuple[str, str], str] = {}  # (URI, anchor) → pointer
        self._dynamic: dict[str, int] = {}  # dynamic anchor → number of schemas that declare it
        pending: list[tuple[JSON, str, str, int]] = [(document, "", "", 0)]
        while pending:
            schema, at, base, depth = pending.pop()
            if type(schema) is dict and depth <= _DEPTH:
                base = self._identify(schema, at, base)
                pending += [
                    (inner, inner_pointer, base, depth + 1)
                    for inner, inner_pointer in _subschemas(schema, at)
                    if inner_pointer != at
                ]

    def resolve(self, ref: str, at: str, keyword: str = "$ref") -> str | None:
        """Resolve a reference at the pointer `at` to a JSON pointer; None if it points outside the document.

        None also for a dynamic or recursive reference with several possible targets, which depend on the path to it.
        """
        base = self._base_uri(at)
        uri, _, fragment = (ref if not ref.startswith("#") else base + ref).partition("#")
        if uri != base:
            uri = _join_uri(base, uri)
        resource = self._resources.get(uri)
        if resource is None:
            return None
        if fragment and not fragment.startswith("/"):
            return None if self._is_ambiguous(keyword, fragment) else self._anchors.get((uri, fragment))
        pointer = resource + _PERCENT.sub(lambda found: chr(int(found[1], 16)), fragment)
        try:
            found = resolve(self._document, pointer)
        except (KeyError, IndexError, TypeError, ValueError):
            return None
        recursive = keyword == "$recursiveRef" and type(found) is dict and found.get("$recursiveAnchor") is True
        return None if recursive and len(set(self._resources.values())) > 1 else pointer

    def _is_ambiguous(self, keyword: str, anchor: str) -> bool:
        """Return True if only the validator knows the target: the outermost dynamic anchor on the evaluation path."""
        return keyword == "$dynamicRef" and self._dynamic.get(anchor, 0) > 1

    def _base_uri(self, at: str) -> str:
        """Return the URI of the innermost resource around `at`."""
        while at not in self._bases:
            at = at.rpartition("/")[0]
        return self._bases[at]

    def _identify(self, schema: Object, at: str, base: str) -> str:
        """Record the identifiers of one schema, and return the base URI that applies inside it."""
        identifier = schema.get(self._keyword)
        if type(identifier) is str:
            uri, _, anchor = identifier.partition("#")
            if anchor:  # up to draft 7
                self._anchors[_join_uri(base, uri), anchor] = at
            if uri or not anchor:
                base = _join_uri(base, uri)
                self._resources[base] = self._resources.setdefault(base, at)
                self._bases[at] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if type(name) is str:
                self._anchors[base, name] = at
                self._dynamic[name] = self._dynamic.get(name, 0) + (keyword == "$dynamicAnchor")
        return base


def _subschemas(schema: Object, at: str) -> list[tuple[JSON, str]]:
    """Return the direct subschemas, each with its JSON pointer."""
    found: list[tuple[JSON, str]] = []
    for keyword in MAPS:
        if type(schema.get(keyword)) is dict:
            found += [(inner, child_pointer(at, keyword, key)) for key, inner in schema[keyword].items()]
    for keyword in _LISTS:
        if type(schema.get(keyword)) is list:
            found += [(inner, child_pointer(at, keyword, index)) for index, inner in enumerate(schema[keyword])]
    return found + [
        (schema[keyword], child_pointer(at, keyword)) for keyword in _SINGLE if type(schema.get(keyword)) is dict
    ]


def _join_uri(base: str, uri: str) -> str:
    """Resolve a reference without a fragment (RFC 3986, section 5.2); queries are part of the path here."""
    if not uri or not base:
        return uri or base
    if _SCHEME(uri):
        return uri
    scheme, authority, path = _PARTS(base).groups("")  # type: ignore[union-attr]
    if uri.startswith("//"):
        return scheme + uri
    if not uri.startswith("/"):
        uri = f"{path.rpartition('/')[0]}/{uri}"
    return scheme + authority + _remove_dots(uri)


def _remove_dots(path: str) -> str:
    """Remove `.` and `..` segments from a path (RFC 3986, section 5.2.4)."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[max(len(segments) - 1, 1) :]
        elif segment != ".":
            segments.append(segment)
    return "/".join([*segments, ""] if path.endswith(("/.", "/..")) else segments)
