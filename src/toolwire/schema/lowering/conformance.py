"""Check a schema against a provider's rules: the documented rules of its dialect, and its undocumented limits.

A violation of a dialect would be answered with status 400. A schema beyond the undocumented limits may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...ir.pointer import JSON, Object, child_pointer
from ...ir.text import dumps
from ..dialects import Dialect
from ..dialects import dialect as find_dialect
from ..parsing.nodes import find_cycles
from ..validation.patterns import is_supported
from .emission import is_legal

_COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "enum", "const")
_MAPS = frozenset(("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"))
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems")


def violations(schema: JSON, dialect: Dialect | str) -> list[str]:
    """List the violations, each after its JSON pointer; empty if the dialect accepts the schema."""
    return list(_violations(schema, find_dialect(dialect) if isinstance(dialect, str) else dialect))


def is_conforming(schema: JSON, dialect: Dialect) -> bool:
    return next(_violations(schema, dialect), None) is None


def _violations(schema: JSON, dialect: Dialect) -> Iterator[str]:
    """Yield the violations lazily, so that `is_conforming` stops at the first.

    Limits on the whole schema, such as the number of properties, are checked after all nodes.
    """
    if type(schema) is not dict:
        yield "/: the schema is not an object"
        return
    yield from _root_violations(schema, dialect)
    properties = values = characters = 0
    refs: list[tuple[str, JSON]] = []
    for at, node, depth in walk(schema):
        for problem in _node_violations(node, dialect, schema, is_arguments=not at and not dialect.output):
            yield f"{at or '/'}: {problem}"
        if dialect.depth is not None and "properties" in node and depth >= dialect.depth:
            yield f"{at or '/'}: nested deeper than {dialect.depth} objects"
        if type(node.get("properties")) is dict:
            properties += len(node["properties"])
        if type(node.get("enum")) is list:
            values += len(node["enum"])
        if dialect.characters is not None:
            characters += _count_characters(node)
        if "$ref" in node:
            refs.append((at, node["$ref"]))
    if refs and not dialect.recursion and dialect.refs == "keep" and _is_recursive(refs):
        yield "/: a definition refers to itself"
    optional, unions = parameter_counts(schema) if dialect.optional_parameters is not None else (0, 0)
    for count, maximum, noun in (
        (properties, dialect.properties, "properties"),
        (values, dialect.enum_values, "enum values"),
        (characters, dialect.characters, "characters in names and values"),
        (optional, dialect.optional_parameters, "optional parameters"),
        (unions, dialect.union_parameters, "parameters that are unions"),
    ):
        if maximum is not None and count > maximum:
            yield f"/: more than {maximum} {noun}"


def _is_recursive(refs: list[tuple[str, JSON]]) -> bool:
    """Return True if references lead from a definition back to itself. All outside of `$defs` is one definition."""
    graph: dict[str, list[str]] = {}
    for at, ref in refs:
        if type(ref) is str:
            graph.setdefault(_definition_name(at), []).append(_definition_name(ref.removeprefix("#")))
    return bool(find_cycles(graph))


def _definition_name(pointer: str) -> str:
    return pointer.split("/")[2] if pointer.startswith("/$defs/") else ""


def _count_characters(node: Object) -> int:
    """Count the characters that a dialect's `characters` limits."""
    names = [*_keyword_names(node, "properties"), *_keyword_names(node, "$defs"), *_keyword_names(node, "definitions")]
    values = [*(node["enum"] if type(node.get("enum")) is list else ()), *([node["const"]] if "const" in node else ())]
    return sum(map(len, names)) + sum(len(value if type(value) is str else dumps(value)) for value in values)


def _keyword_names(node: Object, keyword: str) -> Iterable[str]:
    return node[keyword] if type(node.get(keyword)) is dict else ()


def parameter_counts(schema: JSON) -> tuple[int, int]:
    """Count the optional parameters and the parameters that are unions."""
    optional = unions = 0
    for _, node, _ in walk(schema):
        if type(node.get("properties")) is dict:
            required = node.get("required")
            names = [name for name in required if type(name) is str] if type(required) is list else []
            optional += len(node["properties"].keys() - set(names))
            unions += sum(map(_is_union, node["properties"].values()))
    return optional, unions


def _is_union(schema: JSON) -> bool:
    return type(schema) is dict and ("anyOf" in schema or type(schema.get("type")) is list)


def _root_violations(schema: Object, dialect: Dialect) -> Iterator[str]:
    if dialect.any_root:
        return
    if schema.get("type") != "object":
        yield "/: the root is not of type object"
    for keyword in _COMBINATORS:
        if keyword in schema:
            yield f"/{keyword}: not allowed at the root"


def walk(schema: Object) -> Iterator[tuple[str, Object, int]]:
    """Yield every subschema with its pointer and the number of objects around it."""
    pending: list[tuple[str, Object, int]] = [("", schema, 0)]
    while pending:
        at, node, depth = pending.pop()
        yield at, node, depth
        inner = depth + ("properties" in node)
        for keyword, value in node.items():
            if keyword in _MAPS and type(value) is dict:
                around = 0 if keyword in ("$defs", "definitions") else inner
                found = [
                    (child_pointer(at, keyword, key), subschema, around)
                    for key, subschema in value.items()
                    if type(subschema) is dict
                ]
                pending.extend(found)
            elif keyword in _LISTS and type(value) is list:
                found = [
                    (f"{at}/{keyword}/{index}", subschema, depth)
                    for index, subschema in enumerate(value)
                    if type(subschema) is dict
                ]
                pending.extend(found)
            elif keyword in _SINGLE and type(value) is dict:
                pending.append((f"{at}/{keyword}", value, inner if keyword == "additionalProperties" else depth))


def subschemas(node: Object) -> Iterator[Object]:
    """Yield the direct subschemas of a schema."""
    for keyword, value in node.items():
        if keyword in _MAPS and type(value) is dict:
            yield from (subschema for subschema in value.values() if type(subschema) is dict)
        elif keyword in _LISTS and type(value) is list:
            yield from (subschema for subschema in value if type(subschema) is dict)
        elif keyword in _SINGLE and type(value) is dict:
            yield value


def _node_violations(node: Object, dialect: Dialect, root: Object, *, is_arguments: bool) -> list[str]:
    """List the violations of one subschema, apart from its subschemas.

    `root` has the `$defs` of references. `is_arguments`: the node is the object of a tool's arguments.
    """
    problems: list[str] = []
    if not dialect.whole and not node.keys() <= dialect.keywords:
        problems += [f"{keyword} is not supported" for keyword in node if keyword not in dialect.keywords]
    kind = node.get("type")
    if _is_kind(kind, "object") or "properties" in node:
        problems += _object_violations(node, dialect, is_arguments)
    problems += _shape_violations(node, kind, dialect)
    if "enum" in node and type(node["enum"]) is list:
        problems += _enum_violations(node["enum"], kind, dialect)
    if "const" in node and "const" in dialect.keywords:
        problems += _enum_violations([node["const"]], kind, dialect)
    if "$ref" in node:
        problems += _reference_violations(node, dialect, root)
    if "pattern" in node and type(node["pattern"]) is str and not is_supported(node["pattern"], dialect.patterns):
        problems.append("the pattern is not supported")
    if "format" in node and type(node["format"]) is str and dialect.formats is not None:
        is_number = _is_kind(kind, "integer") or _is_kind(kind, "number")
        if node["format"] not in (dialect.number_formats if is_number else dialect.formats):
            problems.append(f"the format {node['format']!r} is not supported")
    low = node.get("minItems")
    if dialect.most_min_items is not None and type(low) is int and low > dialect.most_min_items:
        problems.append(f"minItems is greater than {dialect.most_min_items}")
    return problems


def _is_kind(kind: JSON, name: str) -> bool:
    return kind == name or (type(kind) is list and name in kind)


def _object_violations(node: Object, dialect: Dialect, is_arguments: bool) -> Iterator[str]:
    """Yield the violations of the rules for objects: closed, every property required, legal property names.

    `is_arguments`: the object of a tool's arguments may have no properties.
    """
    declared, required = node.get("properties"), node.get("required")
    properties = declared if type(declared) is dict else {}
    needed = {name for name in required if type(name) is str} if type(required) is list else set[str]()
    undeclared = dialect.closed and type(declared) is not dict
    if undeclared or (not properties and not is_arguments and _is_collapsed(node, dialect)):
        yield "an object without properties"
    if dialect.closed and type(declared) is dict and node.get("additionalProperties") is not False:
        yield "additionalProperties is not false"
    if dialect.optional == "nullable" and needed != properties.keys():
        yield "not every property is required"
    if dialect.declared_required and not needed <= properties.keys():
        yield "a required property is not declared"
    if dialect.property_name is not None:
        for name in dict.fromkeys((*properties, *sorted(needed - properties.keys()))):
            if not is_legal(dialect.property_name, name):
                yield f"the property name {name!r} is not allowed"


def _is_collapsed(node: Object, dialect: Dialect) -> bool:
    """Return True if the provider would read a map, or an object without properties, as one that is always empty."""
    is_map = node.get("additionalProperties") is not False
    return not dialect.empty_objects or (is_map and dialect.maps == "entries" and not dialect.closed)


_TYPE_KEYWORDS = frozenset({"type", "anyOf", "$ref", "enum", "const"})


def _shape_violations(node: Object, kind: JSON, dialect: Dialect) -> Iterator[str]:
    """Yield the violations of the rules for `type`, null and the schema that accepts any value."""
    if dialect.null != "type":  # such dialects have one type per schema, and no type null
        if type(kind) is list or kind == "null":
            yield "type must be a single name other than null"
        if "anyOf" not in node and kind is None:
            yield "a schema without a type"
        if dialect.lone_any_of and "anyOf" in node and len(node) > 1:
            yield "keywords beside anyOf are not supported"
    if not dialect.type_lists and type(kind) is list and len({*map(str, kind)} - {"null"}) > 1:
        yield "type lists several types"
    if dialect.anything == "string":
        if _is_kind(kind, "array") and "items" not in node:
            yield "an array without items"
        if _TYPE_KEYWORDS.isdisjoint(node):
            yield "a schema without a type"
        if _has_boolean(node):
            yield "a boolean schema is not supported"


def _has_boolean(node: Object) -> bool:
    """Return True if the schema of a value that the model writes is a boolean."""
    if type(node.get("items")) is bool:
        return True
    properties, branches = node.get("properties"), node.get("anyOf")
    if type(properties) is dict and bool in map(type, properties.values()):
        return True
    return type(branches) is list and bool in map(type, branches)


def _enum_violations(values: list[JSON], kind: JSON, dialect: Dialect) -> Iterator[str]:
    """Check the types of enum values, and the limits on long enums."""
    if not dialect.whole:
        if dialect.enum == "string" and kind != "string":
            yield "an enum with values other than strings"
        elif not all(is_enum_value(value, dialect) for value in values):
            yield f"an enum with values other than {'strings' if dialect.enum == 'string' else 'scalars'}"
    if (words := enum_length_problem(values, dialect)) is not None:
        yield f"an enum of {words}"


def is_enum_value(value: JSON, dialect: Dialect) -> bool:
    """Return True if the dialect allows the value in an enum."""
    if dialect.enum == "string":
        return type(value) is str and value != ""
    if dialect.enum == "primitive" or dialect.anything == "string":  # a list would need a schema for its items
        return type(value) is not dict and type(value) is not list
    return True


def enum_length_problem(values: list[JSON], dialect: Dialect) -> str | None:
    """Describe the limits that an enum exceeds; None if it exceeds none."""
    if dialect.long_enum is None or len(values) <= dialect.long_enum[0]:
        return None
    if sum(len(value) for value in values if type(value) is str) <= dialect.long_enum[1]:
        return None
    return "more than {} values with more than {} characters".format(*dialect.long_enum)


def _reference_violations(node: Object, dialect: Dialect, root: Object) -> Iterator[str]:
    """Yield the violations of a `$ref`: not supported, outside the document, or without a target."""
    ref = node.get("$ref")
    if ref is None:
        return
    if not dialect.ref_siblings and not _allowed_beside_ref(dialect, node is root).issuperset(node):
        yield "keywords beside $ref are not supported"
    if not dialect.recursion and dialect.refs == "inline":
        yield "$ref is not supported"
    if type(ref) is not str or not ref.startswith("#"):
        yield f"the reference {ref!r} points outside the document"
    elif ref.startswith("#/$defs/") and ref[8:] not in root.get("$defs", {}):
        yield f"the reference {ref!r} cannot be resolved"


def _allowed_beside_ref(dialect: Dialect, is_root: bool) -> frozenset[str]:
    """Return the keywords that are allowed beside `$ref` where others are not: Gemini accepts some annotations."""
    annotations = ("description", "default", *(("title",) if is_root else ())) if dialect.whole else ()
    return frozenset({"$ref", "$defs", *annotations})


# Schemas that a provider may reject because of undocumented limits: deep ones, and those with many states.
#
# For a provider that compiles a schema into an automaton, text (names, enums) and every possible item of a bounded
# list cost states. The estimate counts a state for each character and two around each value, times the number of
# items.


_MAX_STATES = 10**9  # ends the estimate; each provider that counts states rejects far fewer


def provider_risks(schema: Object, dialect: Dialect) -> Iterator[str]:
    """Yield the reasons why the dialect's provider may reject a schema that breaks none of its rules."""
    if dialect.likely_depth is not None:
        depth = max(around for _, _, around in walk(schema))
        if depth > dialect.likely_depth:
            yield f"{depth} levels of nested objects; some models reject more than {dialect.likely_depth}"
    if dialect.likely_states is not None:
        states = estimated_states(schema)
        if states > dialect.likely_states:
            yield f"about {states} states; schemas with {dialect.likely_states} have been rejected"


def estimated_states(schema: Object) -> int:
    """Estimate the states of the automaton for a schema: its texts, repeated as often as the arrays around them allow.

    >>> estimated_states({"type": "object", "properties": {"tags": {"type": "array", "maxItems": 10, "items": {"enum": ["ab"]}}}})
    48
    """
    total = 0
    pending = [(schema, 1)]
    while pending and total < _MAX_STATES:
        node, multiplicity = pending.pop()
        total += multiplicity * (2 + _text_length(node))
        items = node.get("maxItems")
        inner = multiplicity * items if type(items) is int and items > 1 else multiplicity
        pending += [(subschema, inner) for subschema in subschemas(node)]
    return min(total, _MAX_STATES)


def _text_length(node: Object) -> int:
    """Count the characters that the model may have to write."""
    properties, values = node.get("properties"), node.get("enum")
    names = sum(map(len, properties)) if type(properties) is dict else 0
    return names + (sum(map(_value_length, values)) if type(values) is list else 0)


def _value_length(value: JSON) -> int:
    return len(value) if type(value) is str else 1
