"""TW020 to TW042: what in a schema is refused, ignored or collapsed, and by whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeAlias

from ..ir.pointer import JSON, Object
from ..schema.conform import violations, walk
from ..schema.dialects import DIALECTS
from ..schema.disjoint import disjoint
from ..schema.lowering import lower
from ..schema.nodes import Node, Record, Union
from ..schema.patterns import acceptable
from ..schema.read import Source, read
from ..schema.refs import recursive_definitions
from ..schema.strain import doubts
from .findings import Hit, registering

__all__ = ["SCHEMA_CHECKS", "Schema", "schema_rule"]

SchemaCheck: TypeAlias = Callable[["Schema"], Iterator[Hit]]
_COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "enum", "const")
_KEYWORDS = DIALECTS["openai"].keywords | DIALECTS["gemini"].keywords | {"$schema", "$id", "$comment", "$anchor", "id"}
_KEYWORDS |= {"definitions", "additionalItems", "dependencies", "readOnly", "writeOnly", "example", "contentEncoding"}
_KEYWORDS |= {"contentMediaType", "$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$vocabulary", "discriminator"}


class Schema:
    """A schema, and what several rules want to know about it: each is found out once."""

    def __init__(self, root: Object) -> None:
        self.root = root
        self._violations: dict[str, list[str]] = {}

    @cached_property
    def nodes(self) -> list[tuple[str, Object]]:
        """Every subschema, with a pointer to it."""
        return [(at, node) for at, node, _ in walk(self.root)]

    @cached_property
    def source(self) -> Source:
        return read(self.root)

    def target(self, pointer: str) -> Node | None:
        return self.source.root if pointer == "" else self.source.defs.get(pointer)

    def violations(self, dialect: str) -> list[str]:
        """What a dialect does not take."""
        if dialect not in self._violations:
            self._violations[dialect] = violations(self.root, DIALECTS[dialect])
        return self._violations[dialect]


SCHEMA_CHECKS: dict[str, SchemaCheck] = {}
schema_rule = registering(SCHEMA_CHECKS)


@schema_rule("TW020", "error", "all", "the root is not of type object", 'say "type": "object"')
def root_type(schema: Schema) -> Iterator[Hit]:
    if schema.root.get("type") != "object":
        yield Hit("/type", f"it is {schema.root.get('type')!r}")


@schema_rule(
    "TW021", "error", "anthropic openai openai_strict", "a combinator at the root", "put the union under one property"
)
def root_combinator(schema: Schema) -> Iterator[Hit]:
    for keyword in _COMBINATORS:
        if keyword in schema.root:
            yield Hit(f"/{keyword}", "the root of a schema is one object")


@schema_rule(
    "TW022", "error", "anthropic", "a property name that Anthropic refuses", "letters, digits, _ . -, up to 64"
)
def property_names(schema: Schema) -> Iterator[Hit]:
    legal = re.compile(r"[a-zA-Z0-9_.-]{1,64}").fullmatch
    for at, node in schema.nodes:
        properties = node.get("properties")
        for name in properties if type(properties) is dict else ():
            if not legal(name):
                yield Hit(f"{at}/properties", f"{name!r}")


def _of(dialect: str, *marks: str) -> SchemaCheck:
    def check(schema: Schema) -> Iterator[Hit]:
        for found in schema.violations(dialect):
            at, _, words = found.partition(": ")
            if any(mark in words for mark in marks):
                yield Hit("" if at == "/" else at, words)

    return check


@schema_rule("TW023", "error", "gemini", "a keyword that Gemini's `parameters` refuse", "send it lowered")
def unknown_to_gemini(schema: Schema) -> Iterator[Hit]:
    known = DIALECTS["gemini"].keywords | {"$schema", "$id", "$comment"}  # noise that is easily left out
    for at, node in schema.nodes:
        for keyword, value in node.items():
            if keyword not in known and not (keyword == "additionalProperties" and type(value) is bool):
                yield Hit(f"{at}/{keyword}", f"{keyword} is not known there")


schema_rule("TW024", "error", "gemini", "a type or enum that Gemini's `parameters` refuse", "send it lowered")(
    _of("gemini", "type is one word", "an enum of something", "without a type", "beside anyOf")
)
schema_rule("TW025", "error", "gemini openai_strict", "an array without items", "say what the items are")(
    _of("gemini", "an array without items")
)
schema_rule("TW026", "error", "gemini", "a required property that is not there", "declare it, or do not require it")(
    _of("gemini", "required property that is not there")
)
schema_rule("TW029", "error", "openai_strict gemini_json_schema", "something beside $ref", "wrap the reference")(
    _of("openai_strict", "stands beside $ref")
)
schema_rule("TW034", "error", "openai_strict", "larger than strict mode allows", "split the tool")(
    _of("openai_strict", "nested deeper", "more than 5000 properties", "more than 1000 enum values", "characters")
)


@schema_rule("TW027", "error", "all", "a reference that leads nowhere", "define it under $defs")
def dangling(schema: Schema) -> Iterator[Hit]:
    for finding in schema.source.findings:
        if "leads nowhere" in finding.what:
            yield Hit(finding.at, finding.what)


@schema_rule(
    "TW028", "error", "anthropic_strict gemini", "a schema that contains itself", "bound the depth, or send it lowered"
)
def contains_itself(schema: Schema) -> Iterator[Hit]:
    recursive = recursive_definitions(schema.source.root, schema.source.defs)
    for target in schema.source.defs:
        if target in recursive:
            yield Hit(target, "it contains itself")


@schema_rule(
    "TW030",
    "warning",
    "openai_strict",
    "an optional property, which strict mode does not have",
    "nullable, lifted back",
)
def optional(schema: Schema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        properties = node.get("properties")
        if type(properties) is dict:
            required = set(node.get("required", ()))
            for name in (name for name in properties if name not in required):
                yield Hit(f"{at}/properties/{name}", "optional")


@schema_rule(
    "TW031",
    "error",
    "openai_strict anthropic_strict gemini",
    "a map that collapses to an empty object",
    "a list of entries",
)
def collapsing_map(schema: Schema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        if node.get("type") != "object" or not at or node.get("properties"):
            continue
        if node.get("additionalProperties") is not False:
            yield Hit(at, "keys that are not known beforehand")


@schema_rule("TW032", "warning", "anthropic_strict", "a constraint that is not enforced", "check arguments yourself")
def unenforced(schema: Schema) -> Iterator[Hit]:
    for loss in lower(schema.root, "anthropic_strict").losses:
        if loss.action == "weakened" and loss.severity == "warning":
            yield Hit(loss.path, f"{loss.concept}: {loss.detail}")


@schema_rule("TW033", "warning", "openai_strict", "a default, which strict mode refuses", "say it in the description")
def defaults(schema: Schema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        if "default" in node:
            yield Hit(f"{at}/default", f"{node['default']!r}")


@schema_rule("TW035", "warning", "gemini", "deeper or larger than Gemini likes", "flatten it, shorten names and enums")
def strained(schema: Schema) -> Iterator[Hit]:
    for doubt in doubts(schema.root, DIALECTS["gemini_json_schema"]):
        yield Hit("", doubt)


@schema_rule("TW036", "warning", "all", "a oneOf whose branches may overlap", "give each branch a tag of its own")
def overlapping(schema: Schema) -> Iterator[Hit]:
    for node in _nodes(schema.source):
        if isinstance(node, Union) and node.one_of and not disjoint(list(node.branches), schema.target):
            yield Hit(node.at, "more than one branch may match")


def _nodes(source: Source) -> Iterator[Node]:
    waiting: list[Node] = [source.root, *source.defs.values()]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Record):
            waiting.extend([*node.properties.values(), *([node.rest] if node.rest is not None else [])])
        elif isinstance(node, Union):
            waiting.extend(node.branches)
        elif (items := getattr(node, "items", None)) is not None:
            waiting.extend(items if isinstance(items, tuple) else [items])


@schema_rule("TW037", "error", "all", "something that can never match", "mend the contradiction")
def unsatisfiable(schema: Schema) -> Iterator[Hit]:
    for finding in schema.source.findings:
        if "can ever match" in finding.what or "can never match" in finding.what or "forbidden" in finding.what:
            yield Hit(finding.at, finding.what)
    for at, node in schema.nodes:
        for low, high in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
            if _number(node.get(low)) and _number(node.get(high)) and node[low] > node[high]:
                yield Hit(f"{at}/{low}", f"{low} {node[low]} is more than {high} {node[high]}")


def _number(value: JSON) -> bool:
    return type(value) in (int, float)


@schema_rule("TW038", "warning", "all", "a word that JSON Schema does not have", "remove it, or spell it right")
def unknown_keyword(schema: Schema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        for keyword in node:
            if keyword not in _KEYWORDS and not keyword.startswith("x-"):
                yield Hit(f"{at}/{keyword}", f"{keyword!r} means nothing here")
        if type(node.get("required")) is bool:
            yield Hit(f"{at}/required", "`required` is a list of names on the object, not a flag on the property")


@schema_rule("TW039", "warning", "llguidance xgrammar gbnf", "what grammar engines do not take", "a simpler pattern")
def grammar(schema: Schema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        pattern = node.get("pattern")
        if type(pattern) is str and not acceptable(pattern, "linear"):
            yield Hit(f"{at}/pattern", "it looks around or back")
        if _number(node.get("maxLength")) and node["maxLength"] > 2000:
            yield Hit(f"{at}/maxLength", f"{node['maxLength']} is unrolled into a grammar")
        if node.get("uniqueItems") is True:
            yield Hit(f"{at}/uniqueItems", "it is not enforced")


@schema_rule(
    "TW042",
    "warning",
    "all",
    "a pattern that is not checked before a call is run",
    "write it without lookaround, backreferences and large repetitions",
)
def unchecked_pattern(schema: Schema) -> Iterator[Hit]:
    for one in schema.source.unchecked:
        yield Hit(one.at, one.reason)


@schema_rule("TW040", "warning", "all", "a keyword of an older draft", "write 2020-12")
def old_draft(schema: Schema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        if type(node.get("items")) is list:
            yield Hit(f"{at}/items", "a tuple is `prefixItems` now")
        for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
            if type(node.get(keyword)) is bool:
                yield Hit(f"{at}/{keyword}", "it is a number now")
        if "definitions" in node and "$schema" not in schema.root:
            yield Hit(f"{at}/definitions", "it is `$defs` now")
