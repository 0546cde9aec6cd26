"""Read JSON Schema into nodes: every draft, OpenAPI's `nullable`, and common deviations of tool declarations.

    parse_schema({"type": ["string", "null"]})  →  Union(String, Null)

Where JSON Schema accepts more than authors intend, it is read as generators and models do:

- keywords of one type without a `type` mean that type, unless a combinator beside them names another;
- undeclared keys are not allowed, unless the source opens the object: `additionalProperties`, `patternProperties`,
  `unevaluatedProperties`, or no properties at all. Conditions (`if`, `dependentSchemas`, …) declare keys, too;
- the arguments of a tool are an object, and an object at the root without properties has none. For structured outputs
  (`output`), such an object is any object, as elsewhere.

Keywords beside `$ref` count since draft 2019-09; a schema that declares an older draft is read as that draft.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from ...ir.pointer import JSON, Object, child_pointer, join, resolve
from ..bounds import StepBudget, json_size
from ..keywords import (
    ANNOTATIONS,
    ASSERTING,
    COMBINED,
    DESCRIPTIVE,
    EVALUATING,
    KEYWORDS_BY_TYPE,
    MISPLACED,
    READ_KEYWORDS,
    TYPED,
    TYPES,
    UNMODELLED,
    Identifiers,
    old_draft_number,
)
from ..validation.patterns import UncheckedPattern, unchecked_patterns
from .conditions import Conditions, has_conditions
from .intersection import Intersection
from .membership import fits
from .nodes import (
    NODE_KINDS,
    AnyNode,
    ArrayNode,
    BooleanNode,
    EnumNode,
    NeverNode,
    Node,
    NullNode,
    ObjectNode,
    RefNode,
    TupleNode,
    UnionNode,
    annotate,
    any_of,
    hashable_key,
    is_json_type,
    parse_count,
    parse_number,
    parse_string,
)

DEPTH = 64
"""Deeper schemas are not read; they accept any value."""

_STEPS, _STEPS_PER_VALUE = 100, 4
"""The budget of intersections. The tools of public servers need less than one step per JSON value."""
_MAX_NESTING = 16
"""Nodes being read at once beyond which a reference is read later, from an empty stack."""
_MAX_HOPS = 3  # definitions that only name another one; with more, the reference stays
_REFERENCES = ("$ref", "$recursiveRef", "$dynamicRef")


class SchemaDefect(NamedTuple):
    """A defect of the schema itself."""

    at: str
    message: str


class ParsedSchema(NamedTuple):
    """A schema as nodes.

    `defs` are the targets of its references, `ignored_keywords` the keywords without a meaning here, both by JSON pointer.
    `unchecked` are patterns that the local validator does not check.
    """

    root: Node
    defs: dict[str, Node]
    defects: tuple[SchemaDefect, ...]
    ignored_keywords: tuple[str, ...] = ()
    size: int = 0
    """The size of the document (`json_size`), from which allowances for further work are derived."""
    unchecked: tuple[UncheckedPattern, ...] = ()
    document: JSON = None
    """The schema itself, to which pointers refer."""
    implied_types: tuple[tuple[str, str], ...] = ()
    """Locations of schemas without a type that accept values of any other type, too; and the type that is read."""


def parse_schema(schema: JSON, *, output: bool = False) -> ParsedSchema:
    reader = _SchemaParser(schema, output)
    root = reader.parse_node(schema, "", 0)
    reader.read_postponed()
    findings, unread = tuple(dict.fromkeys(reader.defects)), tuple(reader.ignored_keywords)
    unchecked = tuple(unchecked_patterns(schema))
    implied = tuple(dict.fromkeys(reader.implied_types))
    return ParsedSchema(root, reader.defs, findings, unread, reader.size, unchecked, schema, implied)


class _SchemaParser:
    """Reads one document; collects its definitions, defects and ignored keywords."""

    def __init__(self, document: JSON, output: bool) -> None:
        self.document = document
        self._is_output = output
        self.size = json_size(document)
        self.defs: dict[str, Node] = {}
        self.defects: list[SchemaDefect] = []
        self.ignored_keywords: list[str] = []
        self.implied_types: list[tuple[str, str]] = []
        self._is_typed = False  # the next schema is a part of a schema with a type
        self._reading: set[str] = set()  # definitions being read or postponed
        self._nesting = 0
        self._postponed: list[str] = []  # definitions to read from an empty stack
        self._identifiers: Identifiers | None = None
        self._ref_excludes_siblings = old_draft_number(document) is not None
        self._intersection = Intersection(self._find_target, StepBudget(_STEPS + self.size * _STEPS_PER_VALUE))
        budget = StepBudget(_STEPS + self.size * _STEPS_PER_VALUE)
        self._conditions = Conditions(self.parse_node, self._follow_ref, self._resolve_node, budget)

    def parse_node(self, schema: JSON, at: str, depth: int) -> Node:
        self._nesting += 1
        is_typed, self._is_typed = self._is_typed, False
        try:
            return self._parse_node(schema, at, depth, is_typed)
        finally:
            self._nesting -= 1

    def _parse_node(self, schema: JSON, at: str, depth: int, is_typed: bool) -> Node:
        """Read one schema: its own keywords, combinators and conditions, then annotations and unmodelled keywords.

        Ignored keywords and defects are recorded; a defective schema accepts any value. `is_typed`: the schema is a
        part of a schema that states a type.
        """
        if schema is True:
            return AnyNode(at=at)
        if schema is False:
            return NeverNode(at=at)
        if type(schema) is not dict:
            self.defects.append(
                SchemaDefect(at, f"a schema must be an object or a boolean, got {type(schema).__name__}")
            )
            return AnyNode(at=at)
        if depth > DEPTH:
            self.defects.append(SchemaDefect(at, f"nested deeper than {DEPTH}"))
            return AnyNode(at=at)
        if not schema.keys() <= READ_KEYWORDS:
            self.ignored_keywords += [at + join(keyword) for keyword in schema if keyword not in READ_KEYWORDS]
        if self._ref_excludes_siblings and "$ref" in schema:
            schema = self._drop_siblings(schema, at)
        node = self._own_node(schema, at, depth)
        is_typed = is_typed or self._states_type(schema, at, node)
        if not COMBINED.isdisjoint(schema):
            node = self._with_combined(node, schema, at, depth, is_typed)
        if isinstance(node, (ObjectNode, UnionNode)) and has_conditions(schema):
            node = self._with_conditional(node, schema, at, depth)
        if schema.get("nullable") is True and not isinstance(node, (AnyNode, NullNode)):
            node = _add_null(node, at)
        if DESCRIPTIVE.isdisjoint(schema):
            return node
        annotations = {key: schema[key] for key in ANNOTATIONS if key in schema}
        unmodelled = {key: schema[key] for key in UNMODELLED if _is_meaningful(key, schema.get(key))}
        if "if" in unmodelled:
            unmodelled["if"] = {key: schema[key] for key in ("if", "then", "else") if key in schema}
        return annotate(node, AnyNode(annotations=annotations, unmodelled=unmodelled, at=at), override=True)

    def _states_type(self, schema: Object, at: str, node: Node) -> bool:
        """Return True if a schema, or a combinator in it, states a type; otherwise record the type of its node.

        The arguments of a tool are always an object.
        """
        if not TYPED.isdisjoint(schema) or _has_typed_part(schema) or not (at or self._is_output):
            return True
        if type(node) in NODE_KINDS:
            self.implied_types.append((at, NODE_KINDS[type(node)]))
        return False

    def _with_combined(self, node: Node, schema: Object, at: str, depth: int, is_typed: bool) -> Node:
        implied = TYPED.isdisjoint(schema)
        for part in self._combined_nodes(schema, at, depth, is_typed):
            node = self._combine_untyped(node, part, at) if implied else self._intersect(node, part, at)
            implied = implied and isinstance(part, AnyNode)
        return node

    def _with_conditional(self, node: ObjectNode | UnionNode, schema: Object, at: str, depth: int) -> Node:
        """Add the properties that only conditions mention; beyond the budget, report a defect instead."""
        extended = self._conditions.extend(node, schema, at, depth)
        if extended is None:
            self.defects.append(
                SchemaDefect(at, "too many conditions: properties that only they mention are not described")
            )
        return node if extended is None else extended

    def _combined_nodes(self, schema: Object, at: str, depth: int, is_typed: bool) -> Iterable[Node]:
        """Yield the nodes of references and combinators; all of them apply at once."""
        for keyword in _REFERENCES:
            if type(schema.get(keyword)) is str:
                yield self._parse_ref(schema[keyword], at, keyword)
        for index, part in enumerate(_schema_list(schema.get("allOf"))):
            yield self._parse_part(part, f"{at}/allOf/{index}", depth + 1, is_typed)
        for keyword in ("anyOf", "oneOf"):
            branches = [
                self._parse_part(part, f"{at}/{keyword}/{index}", depth + 1, is_typed)
                for index, part in enumerate(_schema_list(schema.get(keyword)))
            ]
            if branches:
                yield any_of(branches, keyword == "oneOf", at)

    def _parse_part(self, schema: JSON, at: str, depth: int, is_typed: bool) -> Node:
        self._is_typed = is_typed
        return self.parse_node(schema, at, depth)

    def _own_node(self, schema: Object, at: str, depth: int) -> Node:
        """Read `type`, `enum` and the keywords of the type."""
        types = self._declared_types(schema, at)
        if types is not None and not MISPLACED[types[0]].isdisjoint(schema):
            self._ignore_misplaced(schema, types, at)
        if "const" in schema or type(schema.get("enum")) is list:
            return self._narrow_enum(self._parse_enum(schema, types, at), schema, types, at, depth)
        if types is None:
            return AnyNode(at=at)
        node = any_of([self._parse_type(name, schema, at, depth) for name in types], one_of=False, at=at)
        return replace(node, origins={"anyOf": f"{at}/type"}) if isinstance(node, UnionNode) else node

    def _ignore_misplaced(self, schema: Object, types: list[str], at: str) -> None:
        """Record keywords of other types than the declared ones: they never apply."""
        misplaced = frozenset.intersection(*(MISPLACED[name] for name in types))
        self.ignored_keywords += [at + join(keyword) for keyword in schema if keyword in misplaced]

    def _narrow_enum(self, node: Node, schema: Object, types: list[str] | None, at: str, depth: int) -> Node:
        """Remove the values of an enum that the other keywords of the same schema exclude."""
        if not isinstance(node, EnumNode) or ASSERTING.isdisjoint(schema):
            return node
        names = types or [name for name in TYPES if any(is_json_type(value, name) for value in node.values)]
        return self._intersect(
            node, any_of([self._parse_type(name, schema, at, depth) for name in names], one_of=False, at=at), at
        )

    def _declared_types(self, schema: Object, at: str) -> list[str] | None:
        """Return the declared types, or the type that the other keywords imply; None for any type.

        An unknown type is recorded as a defect.
        """
        declared = schema.get("type")
        names = declared if type(declared) is list else [declared]
        # Gemini's spelling
        normalised = [name.lower() if type(name) is str and name.isupper() else name for name in names]
        known = [name for name in normalised if name in TYPES]
        if known:
            return ["number"] if set(known) == {"number", "integer"} else list(dict.fromkeys(known))
        if declared is not None:
            self.defects.append(SchemaDefect(f"{at}/type", f"unknown type {declared!r}"))
        if "const" in schema or "enum" in schema:
            return None
        meant = [
            name for name in ("object", "array", "string", "number") if not KEYWORDS_BY_TYPE[name].isdisjoint(schema)
        ]
        return meant[:1] or None

    def _parse_enum(self, schema: Object, types: list[str] | None, at: str) -> Node:
        """Read `enum` and `const` without duplicates and without values that `type` excludes.

        If no value is left, that is a defect, and the node is Never.
        """
        keyword = "const" if "const" in schema else "enum"
        values = [schema["const"]] if keyword == "const" else schema["enum"]
        if "const" in schema and type(schema.get("enum")) is list:
            listed = frozenset(map(hashable_key, schema["enum"]))
            values = [value for value in values if hashable_key(value) in listed]
        unique: dict[Hashable, JSON] = {}
        for value in values:
            if types is None or any(is_json_type(value, name) for name in types):
                unique.setdefault(hashable_key(value), value)
        if not unique:
            self.defects.append(
                SchemaDefect(f"{at}/{keyword}", f"no value of {keyword} has the declared type: nothing can ever match")
            )
            return NeverNode(at=at)
        origins = {"enum": f"{at}/const"} if keyword == "const" else {}
        return EnumNode(tuple(unique.values()), at=at, origins=origins)

    def _parse_type(self, name: str, schema: Object, at: str, depth: int) -> Node:
        """Read the keywords of one declared type."""
        if name == "object":
            return self._parse_object(schema, at, depth)
        if name == "array":
            return self._parse_array(schema, at, depth)
        if name == "string":
            return parse_string(schema, at)
        if name in ("number", "integer"):
            return parse_number(name == "integer", schema, at)
        return BooleanNode(at=at) if name == "boolean" else NullNode(at=at)

    def _parse_object(self, schema: Object, at: str, depth: int) -> Node:
        """Read an object with its properties, patterns and the schema of all other keys.

        Required properties without a schema of their own are added. A required property that is forbidden or can never
        match makes the object Never, and is a defect.
        """
        names = schema.get("required")
        required = frozenset(name for name in names if type(name) is str) if type(names) is list else frozenset()
        patterns = self._parse_schemas(schema, "patternProperties", at, depth)
        properties = self._parse_schemas(schema, "properties", at, depth)
        if patterns:
            properties = {key: self._with_patterns(key, node, patterns, at) for key, node in properties.items()}
        keyword = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
        extra = schema.get(keyword)
        if keyword == "unevaluatedProperties" and not EVALUATING.isdisjoint(schema):
            extra = True if extra else None  # keys that other schemas evaluate are neither forbidden nor constrained
        rest: Node | None = None
        if extra is True or type(extra) is dict:
            rest = self.parse_node(extra, f"{at}/{keyword}", depth + 1)
        # an object that declares nothing is any object, except for the arguments of a tool: these have no parameters
        is_free = extra is None and not properties and not patterns
        if is_free and (at or self._is_output or not COMBINED.isdisjoint(schema)):
            rest = AnyNode(at=at)
        for name in sorted(required - properties.keys()):
            if extra is False and not patterns:
                self.defects.append(SchemaDefect(f"{at}/required", f"{name!r} is both required and forbidden"))
                return NeverNode(at=at)
            is_other = rest is not None and self._intersection.pattern_nodes(name, patterns) == []
            undeclared = rest if rest is not None and is_other else AnyNode(at=f"{at}/required")
            properties[name] = self._with_patterns(name, undeclared, patterns, at)
        impossible = [name for name in required if isinstance(properties[name], NeverNode)]
        if impossible:
            self.defects.append(SchemaDefect(f"{at}/required", f"{impossible[0]!r} is required, but can never match"))
            return NeverNode(at=at)
        unmodelled = {"patternProperties": schema["patternProperties"]} if patterns else {}
        origins = {"additionalProperties": f"{at}/{keyword}"} if keyword == "unevaluatedProperties" else {}
        return ObjectNode(
            properties, required, rest, extra is False, patterns, unmodelled=unmodelled, at=at, origins=origins
        )

    def _parse_schemas(self, schema: Object, keyword: str, at: str, depth: int) -> dict[str, Node]:
        """Read the schemas under a keyword whose value is an object of schemas."""
        values = schema.get(keyword)
        if type(values) is not dict:
            return {}
        return {
            key: self.parse_node(value, child_pointer(at, keyword, key), depth + 1) for key, value in values.items()
        }

    def _with_patterns(self, key: str, node: Node, patterns: dict[str, Node], at: str) -> Node:
        """Intersect the node of a property with the nodes of all patterns that its name matches.

        The first property for which the budget does not suffice is a defect.
        """
        exhausted = self._intersection.budget.exhausted
        matching = self._intersection.pattern_nodes(key, patterns)
        if self._intersection.budget.exhausted and not exhausted:
            message = f"too many patterns and properties to compare: from {key!r} on, patterns are not applied to them"
            self.defects.append(SchemaDefect(f"{at}/patternProperties", message))
        for other in matching or ():
            node = self._intersect(node, other, at)
        return node

    def _parse_array(self, schema: Object, at: str, depth: int) -> Node:
        """Read an array or a tuple: `prefixItems`, or a list under `items` up to draft 2019-09."""
        low, high = parse_count(schema.get("minItems")) or 0, parse_count(schema.get("maxItems"))
        items, first = schema.get("items"), schema.get("prefixItems")
        rest_items = items
        if type(items) is list:
            first, rest_items = items, schema.get("additionalItems")
        if type(first) is list and first:
            keyword = "items" if type(items) is list else "prefixItems"
            nodes = tuple(
                self.parse_node(part, f"{at}/{keyword}/{index}", depth + 1) for index, part in enumerate(first)
            )
            rest: Node | None = (
                None if rest_items is False or (high is not None and high <= len(nodes)) else AnyNode(at=at)
            )
            if type(rest_items) is dict:
                rest_keyword = "items" if keyword == "prefixItems" else "additionalItems"
                rest = self.parse_node(rest_items, f"{at}/{rest_keyword}", depth + 1)
            return TupleNode(nodes, rest, low, high, at=at)
        if items is False:
            return NeverNode(at=at) if low else ArrayNode(None, low, 0, at=at, origins={"maxItems": f"{at}/items"})
        return ArrayNode(None if items is None else self.parse_node(items, f"{at}/items", depth + 1), low, high, at=at)

    def _parse_ref(self, uri: str, at: str, keyword: str) -> Node:
        """Return a reference, and read its target on first use; one that cannot be resolved accepts any value."""
        target = self._resolve_pointer(uri, at, keyword)
        if target is None:
            self.defects.append(SchemaDefect(f"{at}/{keyword}", f"{uri!r} cannot be resolved in this document"))
            return AnyNode(at=at, unmodelled={keyword: uri})
        if target not in self.defs and target not in self._reading:
            self._reading.add(target)
            if self._nesting > _MAX_NESTING:
                self._postponed.append(target)
            else:
                self._parse_definition(target)
        return RefNode(target, at=at)

    def _parse_definition(self, target: str) -> None:
        self.defs[target] = self.parse_node(resolve(self.document, target), target, 1)
        self._reading.discard(target)

    def read_postponed(self) -> None:
        """Read the definitions at the end of long chains of references, which would exceed the recursion limit."""
        while self._postponed:
            self._parse_definition(self._postponed.pop())

    def _resolve_pointer(self, uri: str, at: str, keyword: str = "$ref") -> str | None:
        if self._identifiers is None:
            self._identifiers = Identifiers(self.document)
        return self._identifiers.resolve(uri, at, keyword)

    def _follow_ref(self, uri: str, at: str) -> tuple[JSON, str] | None:
        target = self._resolve_pointer(uri, at)
        return None if target is None else (resolve(self.document, target), target)

    def _drop_siblings(self, schema: Object, at: str) -> Object:
        """Keep the reference and its annotations: up to draft 7, all other keywords beside `$ref` are ignored."""
        kept = {"$ref", "nullable", "$defs", "definitions", *ANNOTATIONS}
        self.ignored_keywords += [
            at + join(keyword) for keyword in schema if keyword in READ_KEYWORDS and keyword not in kept
        ]
        return {keyword: value for keyword, value in schema.items() if keyword in kept}

    def _combine_untyped(self, own_node: Node, other: Node, at: str) -> Node:
        """Combine keywords without a `type` with a combinator: they constrain only values of their own type."""
        kind, found = NODE_KINDS.get(type(own_node)), self._resolve_node(other)
        if kind is None or not isinstance(found, UnionNode):
            return self._narrow(own_node, other, at)
        if all(NODE_KINDS.get(type(self._resolve_node(branch))) in (None, kind) for branch in found.branches):
            return self._intersect(own_node, other, at)
        joined = any_of([self._narrow(own_node, branch, at) for branch in found.branches], found.one_of, found.at)
        return annotate(joined, found, override=True)

    def _narrow(self, own_node: Node, other: Node, at: str) -> Node:
        """Intersect with a node of the same type; a node of another type is not constrained by untyped keywords.

        Of an enum, only the values of this type are tested, and unfit ones removed.
        """
        kind, found = NODE_KINDS.get(type(own_node)), self._resolve_node(other)
        if isinstance(found, EnumNode) and kind is not None:
            budget = self._intersection.budget
            values = [
                item
                for item in found.values
                if not is_json_type(item, kind) or fits(own_node, item, self._find_target, budget)
            ]
            return found if budget.exhausted else replace(found, values=tuple(values)) if values else NeverNode(at=at)
        return self._intersect(own_node, other, at) if NODE_KINDS.get(type(found), kind) == kind else other

    def _resolve_node(self, node: Node) -> Node:
        """Follow references; `AnyNode` if the chain is too long, or a target is still being read."""
        for _ in range(_MAX_HOPS):
            if not isinstance(node, RefNode):
                return node
            node = self._find_target(node.target) or AnyNode()
        return AnyNode()

    def _intersect(self, node: Node, other: Node, at: str) -> Node:
        """Intersect two nodes, and report as defects an exhausted budget and schemas that exclude each other."""
        exhausted = self._intersection.budget.exhausted
        result = self._intersection.intersect(node, other)
        unknown = isinstance(result, AnyNode) and not isinstance(node, AnyNode) and not isinstance(other, AnyNode)
        if self._intersection.budget.exhausted and (unknown or not exhausted):
            self.defects.append(SchemaDefect(at, "too many combinations to intersect: described as any value"))
        unread = any(isinstance(item, RefNode) and self._find_target(item.target) is None for item in (node, other))
        if unread and isinstance(result, ObjectNode) and not result.closed:
            return replace(result, rest=result.rest or AnyNode(at=at))  # the keys of the definition are not known yet
        if isinstance(result, NeverNode) and not isinstance(node, NeverNode) and not isinstance(other, NeverNode):
            self.defects.append(SchemaDefect(at, "the combined schemas exclude each other: nothing can ever match"))
        return result

    def _find_target(self, target: str) -> Node | None:
        """Return a definition; None while it is being read: it contains itself by `allOf`."""
        return None if target in self._reading else self.defs.get(target)


def _has_typed_part(schema: Object) -> bool:
    """Return True if a combinator beside the keywords of a schema states its type."""
    if any(keyword in schema for keyword in _REFERENCES):
        return True
    if any(type(part) is dict and not TYPED.isdisjoint(part) for part in _schema_list(schema.get("allOf"))):
        return True
    return any(
        all(type(part) is dict and not TYPED.isdisjoint(part) for part in parts)
        for keyword in ("anyOf", "oneOf")
        if (parts := _schema_list(schema.get(keyword)))
    )


def _schema_list(value: JSON) -> list[JSON]:
    return value if type(value) is list else []


def _add_null(node: Node, at: str) -> Node:
    """Extend a node by null, for `nullable`."""
    if not isinstance(node, EnumNode):
        return UnionNode((node, NullNode(at=at)), at=at, origins={"anyOf": f"{at}/nullable"})
    return node if None in node.values else replace(node, values=(*node.values, None))


def _is_meaningful(keyword: str, value: JSON) -> bool:
    if value == {}:
        return keyword in ("not", "if", "contains")
    if value is None or (keyword == "minProperties" and value == 0):
        return False
    return value is not False if keyword == "uniqueItems" else True
