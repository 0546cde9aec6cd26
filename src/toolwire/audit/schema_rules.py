"""TW020 to TW043: schema features that providers reject, ignore or collapse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeAlias

from ..ir.pointer import JSON, Object
from ..schema.dialects import DIALECTS, PORTABLE
from ..schema.lowering.conformance import provider_risks, violations, walk
from ..schema.lowering.lowered import lower
from ..schema.parsing.membership import are_disjoint
from ..schema.parsing.nodes import Node, ObjectNode, UnionNode, recursive_definitions
from ..schema.parsing.parser import ParsedSchema, parse_schema
from ..schema.validation.patterns import is_supported
from .findings import Hit, rule_decorator
from .provider_rules.documents import texts_in

SchemaCheck: TypeAlias = Callable[["AuditedSchema"], Iterator[Hit]]
_COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "enum", "const")
_KEYWORDS = DIALECTS["openai"].keywords | DIALECTS["gemini"].keywords | {"$schema", "$id", "$comment", "$anchor", "id"}
_KEYWORDS |= {"definitions", "additionalItems", "dependencies", "readOnly", "writeOnly", "example", "contentEncoding"}
_KEYWORDS |= {"contentMediaType", "$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$vocabulary", "discriminator"}


class AuditedSchema:
    """A schema with properties that several rules use, each computed once."""

    def __init__(self, root: Object) -> None:
        self.root = root
        self._violations: dict[str, list[str]] = {}

    @cached_property
    def nodes(self) -> list[tuple[str, Object]]:
        """Every subschema with its pointer."""
        return [(at, node) for at, node, _ in walk(self.root)]

    @cached_property
    def source(self) -> ParsedSchema:
        return parse_schema(self.root)

    def target(self, pointer: str) -> Node | None:
        return self.source.root if pointer == "" else self.source.defs.get(pointer)

    def violations(self, dialect: str) -> list[str]:
        """Return the violations of a dialect."""
        if dialect not in self._violations:
            self._violations[dialect] = violations(self.root, DIALECTS[dialect])
        return self._violations[dialect]


SCHEMA_CHECKS: dict[str, SchemaCheck] = {}
schema_rule = rule_decorator(SCHEMA_CHECKS)


@schema_rule("TW020", "error", "all", "root type is not object", 'set "type": "object"')
def check_root_type(schema: AuditedSchema) -> Iterator[Hit]:
    if schema.root.get("type") != "object":
        yield Hit("/type", f"the type is {schema.root.get('type')!r}")


@schema_rule(
    "TW021", "error", "anthropic openai openai_strict", "combinator at the root", "move the union into a property"
)
def check_root_combinator(schema: AuditedSchema) -> Iterator[Hit]:
    for keyword in _COMBINATORS:
        if keyword in schema.root:
            yield Hit(f"/{keyword}", "the root of a schema must be a plain object")


@schema_rule(
    "TW022",
    "error",
    "anthropic",
    "property name rejected by Anthropic",
    "use only letters, digits, _ . -, at most 64 characters",
)
def check_property_names(schema: AuditedSchema) -> Iterator[Hit]:
    legal = re.compile(r"[a-zA-Z0-9_.-]{1,64}").fullmatch
    for at, node in schema.nodes:
        properties = node.get("properties")
        for name in properties if type(properties) is dict else ():
            if not legal(name):
                yield Hit(f"{at}/properties/{name}", "the name has other characters, or more than 64")


def _dialect_check(dialect: str, *marks: str) -> SchemaCheck:
    """Make a check that reports the violations of a dialect whose message contains one of `marks`."""

    def check(schema: AuditedSchema) -> Iterator[Hit]:
        for found in schema.violations(dialect):
            at, _, words = found.partition(": ")
            if any(mark in words for mark in marks):
                yield Hit("" if at == "/" else at, words)

    return check


@schema_rule("TW023", "error", "gemini", "keyword rejected by Gemini's `parameters`", "lower the schema")
def check_unknown_to_gemini(schema: AuditedSchema) -> Iterator[Hit]:
    known = DIALECTS["gemini"].keywords | {"$schema", "$id", "$comment"}  # annotations that can be dropped without loss
    for at, node in schema.nodes:
        for keyword, value in node.items():
            if keyword not in known and not (keyword == "additionalProperties" and type(value) is bool):
                yield Hit(f"{at}/{keyword}", f"{keyword} is not supported")


_check_gemini_types = _dialect_check(
    "gemini", "type must be a single name", "an enum with values other", "without a type", "beside anyOf"
)


@schema_rule("TW024", "error", "gemini", "type or enum rejected by Gemini's `parameters`", "lower the schema")
def check_gemini_types(schema: AuditedSchema) -> Iterator[Hit]:
    """Report types that Gemini rejects. `{"type": "null"}` is accepted as a branch of `anyOf` (google-genai, `Type.NULL`)."""
    nulls = {at for at, node in schema.nodes if node.get("type") == "null" and at.rpartition("/")[0].endswith("/anyOf")}
    yield from (hit for hit in _check_gemini_types(schema) if hit.path not in nulls)


schema_rule("TW025", "error", "gemini openai_strict", "array without items", "declare the items")(
    _dialect_check("gemini", "an array without items")
)
schema_rule("TW026", "error", "gemini", "required property not declared", "declare it, or remove it from `required`")(
    _dialect_check("gemini", "required property is not declared")
)
schema_rule("TW029", "error", "openai_strict anthropic_strict", "keyword beside $ref", "wrap the reference")(
    _dialect_check("openai_strict", "beside $ref")
)
schema_rule("TW043", "error", "gemini_json_schema", "constraint beside $ref", "move it to the definition")(
    _dialect_check("gemini_json_schema", "beside $ref")
)
schema_rule("TW034", "error", "openai_strict", "schema too large for strict mode", "split the tool")(
    _dialect_check(
        "openai_strict", "nested deeper", "more than 5000 properties", "more than 1000 enum values", "characters"
    )
)


@schema_rule("TW027", "error", "all", "unresolved reference", "define it under $defs")
def check_dangling_refs(schema: AuditedSchema) -> Iterator[Hit]:
    for finding in schema.source.defects:
        if "cannot be resolved" in finding.message:
            yield Hit(finding.at, finding.message)


@schema_rule("TW028", "error", "anthropic_strict gemini", "recursive schema", "limit the depth, or lower the schema")
def check_recursion(schema: AuditedSchema) -> Iterator[Hit]:
    recursive = recursive_definitions(schema.source.root, schema.source.defs)
    for target in schema.source.defs:
        if target in recursive:
            yield Hit(target, "the definition refers to itself")


@schema_rule(
    "TW030",
    "warning",
    "openai_strict",
    "optional property, not supported in strict mode",
    "make it nullable, and remove null values from the arguments",
)
def check_optional(schema: AuditedSchema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        properties = node.get("properties")
        if type(properties) is dict:
            required = set(texts_in(node.get("required")))
            for name in (name for name in properties if name not in required):
                yield Hit(f"{at}/properties/{name}", "optional")


@schema_rule(
    "TW031",
    "error",
    "openai_strict anthropic_strict gemini",
    "map collapses to an empty object",
    "use a list of entries",
)
def check_collapsing_map(schema: AuditedSchema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        kind = node.get("type")
        if (kind != "object" and not (type(kind) is list and "object" in kind)) or not at or node.get("properties"):
            continue
        if node.get("additionalProperties") is not False:
            yield Hit(at, "the keys are not declared")


@schema_rule("TW032", "warning", "anthropic_strict", "constraint not enforced", "validate the arguments yourself")
def check_unenforced(schema: AuditedSchema) -> Iterator[Hit]:
    for loss in lower(schema.root, "anthropic_strict").losses:
        if loss.action == "weakened" and loss.severity == "warning":
            yield Hit(loss.path, f"{loss.concept}: {loss.detail}")


@schema_rule("TW033", "warning", "openai_strict", "default rejected by strict mode", "state it in the description")
def check_defaults(schema: AuditedSchema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        if "default" in node:
            yield Hit(f"{at}/default", "`default` is not supported")


@schema_rule(
    "TW035", "warning", "gemini", "schema too deep or too large for Gemini", "flatten it, shorten names and enums"
)
def check_provider_risk(schema: AuditedSchema) -> Iterator[Hit]:
    for doubt in provider_risks(schema.root, DIALECTS["gemini_json_schema"]):
        yield Hit("", doubt)


@schema_rule("TW036", "warning", "all", "overlapping oneOf branches", "give each branch a distinct tag")
def check_overlapping(schema: AuditedSchema) -> Iterator[Hit]:
    for node in _all_nodes(schema.source):
        if isinstance(node, UnionNode) and node.one_of and not are_disjoint(list(node.branches), schema.target):
            yield Hit(node.at, "more than one branch may match")


def _all_nodes(source: ParsedSchema) -> Iterator[Node]:
    """Yield the root, the definitions and all nodes below them, without following references."""
    waiting: list[Node] = [source.root, *source.defs.values()]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ObjectNode):
            waiting.extend([*node.properties.values(), *node.patterns.values()])
            waiting.extend([node.rest] if node.rest is not None else [])
        elif isinstance(node, UnionNode):
            waiting.extend(node.branches)
        elif (items := getattr(node, "items", None)) is not None:
            waiting.extend(items if isinstance(items, tuple) else [items])


@schema_rule("TW037", "error", "all", "schema that can never match", "remove the contradiction")
def check_unsatisfiable(schema: AuditedSchema) -> Iterator[Hit]:
    """Report contradictions that the parser found, and lower bounds above upper bounds."""
    for finding in schema.source.defects:
        if (
            "can ever match" in finding.message
            or "can never match" in finding.message
            or "forbidden" in finding.message
        ):
            yield Hit(finding.at, finding.message)
    for at, node in schema.nodes:
        for low, high in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
            if _is_number(node.get(low)) and _is_number(node.get(high)) and node[low] > node[high]:
                yield Hit(f"{at}/{low}", f"{low} {node[low]} is greater than {high} {node[high]}")


def _is_number(value: JSON) -> bool:
    return type(value) in (int, float)


@schema_rule("TW038", "warning", "all", "unknown JSON Schema keyword", "remove it or correct the spelling")
def check_unknown_keyword(schema: AuditedSchema) -> Iterator[Hit]:
    for at, node in schema.nodes:
        for keyword in node:
            if keyword not in _KEYWORDS and not keyword.startswith("x-"):
                yield Hit(f"{at}/{keyword}", f"{keyword!r} is not a keyword")
        if type(node.get("required")) is bool:
            yield Hit(f"{at}/required", "`required` is a list of names on the object, not a flag on the property")


@schema_rule(
    "TW039",
    "warning",
    "llguidance xgrammar gbnf",
    "constraint not supported by grammar engines",
    "use a simpler pattern",
)
def check_grammar(schema: AuditedSchema) -> Iterator[Hit]:
    """Report patterns and limits that grammar engines do not support or enforce, or that enlarge the grammar."""
    for at, node in schema.nodes:
        pattern = node.get("pattern")
        if type(pattern) is str and not is_supported(pattern, "linear"):
            yield Hit(f"{at}/pattern", "the pattern uses lookaround or backreferences")
        if _is_number(node.get("maxLength")) and node["maxLength"] > 2000:
            yield Hit(f"{at}/maxLength", f"maxLength {node['maxLength']} is unrolled into the grammar")
        if node.get("uniqueItems") is True:
            yield Hit(f"{at}/uniqueItems", "uniqueItems is not enforced")


@schema_rule(
    "TW042",
    "warning",
    "all",
    "pattern not checked before the call is executed",
    "avoid lookaround, backreferences and large repetitions",
)
def check_unchecked_pattern(schema: AuditedSchema) -> Iterator[Hit]:
    for one in schema.source.unchecked:
        yield Hit(one.at, one.reason)


@schema_rule("TW040", "warning", "all", "keyword of an older draft", "use draft 2020-12")
def check_old_draft(schema: AuditedSchema) -> Iterator[Hit]:
    """Report keywords with the form or name of a draft before 2020-12."""
    for at, node in schema.nodes:
        if type(node.get("items")) is list:
            yield Hit(f"{at}/items", "2020-12 uses `prefixItems` for tuples")
        for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
            if type(node.get(keyword)) is bool:
                yield Hit(f"{at}/{keyword}", "2020-12 requires a number")
        if "definitions" in node and "$schema" not in schema.root:
            yield Hit(f"{at}/definitions", "2020-12 uses `$defs`")


# TW041: schema features that at least one provider does not accept unchanged. Its import registers the schema rules
# before the quality rules, and that order is the order of findings.


__all__: list[str] = []

# Strict dialects require `additionalProperties: false` and others reject it, so no schema satisfies both. Lowering adds
# or removes it on closed objects without loss; only open objects and maps are reported.
_CLOSING = ("additionalProperties is not false", "additionalProperties is not supported")


@schema_rule(
    "TW041",
    "error",
    "portable",
    "schema not accepted unchanged by every provider",
    "use only the portable core: required properties, plain types, lists with items, string enums, anyOf, descriptions",
    asked=True,
)
def check_not_portable(schema: AuditedSchema) -> Iterator[Hit]:
    """Report each violation of a dialect once, with all dialects that refuse it.

    Messages about additionalProperties are left out for objects that set it to false or leave it out.
    """
    refused: dict[str, list[str]] = {}
    for row in DIALECTS.values():
        for violation in dict.fromkeys(schema.violations(row.name)) if row is not PORTABLE else ():
            refused.setdefault(violation, []).append(row.name)
    closed = {at for at, node in schema.nodes if node.get("additionalProperties", False) is False}
    for violation, providers in refused.items():
        at, _, message = violation.partition(": ")
        at = "" if at == "/" else at
        if message not in _CLOSING or at not in closed:
            yield Hit(at, f"{message} ({', '.join(providers)})")
