"""Emit objects, maps and tuples for a dialect."""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.pointer import Object
from ...ir.text import dumps
from ..dialects import Dialect
from ..parsing.nodes import (
    AnyNode,
    ArrayNode,
    EnumNode,
    NeverNode,
    Node,
    ObjectNode,
    TupleNode,
    annotate,
    is_free,
    parse_count,
)
from . import codec as codecs
from . import scalars
from .codec import Codec, FieldCodec
from .emission import UNSET, CountBound, EmitContext, Emitted, PropertyNames


def emit_tuple(emitter: EmitContext, node: TupleNode, depth: int) -> Emitted:
    """Emit a tuple as `prefixItems`, or as an object with one property per item where the dialect has none.

    A tuple without items of its own is an array. A trailing null that such an object cannot hold is a loss.
    """
    if not node.items:
        max_items = node.max_items if node.rest is not None else 0
        return emitter.emit(annotate(ArrayNode(node.rest, node.min_items, max_items, at=node.at), node), depth)
    if emitter.dialect.tuples == "keep" and "prefixItems" in emitter.dialect.keywords:
        return _emit_prefix_items(emitter, node, depth)
    emitter.report_rewrite(node, "tuple", "sent as an object with one property per item")
    items = node.items if node.max_items is None else node.items[: node.max_items]
    shape, rest_name = _tuple_object(node, items)
    for index, item in enumerate(items):
        if index >= node.min_items and emitter.accepts_null(item):
            emitter.losses.add(item.at, "null", "weakened", "a trailing null in the list arrives as absent")
    emitted = emit_object(emitter, shape, depth)
    codec = codecs.tuple_codec([emitter.accepts_null(item) for item in items], rest_name)
    if emitted.codec is not None:
        inner, outer = codec, emitted.codec
        codec = Codec(lambda value: inner.lift(outer.lift(value)), lambda value: outer.encode(inner.encode(value)))
    return Emitted(emitter.add_description(emitted.schema, node, [], codec), codec)


def _tuple_object(node: TupleNode, items: tuple[Node, ...]) -> tuple[ObjectNode, str | None]:
    """Return a tuple as an object, and the name of the property for items after the first ones."""
    places: dict[str, Node] = {f"item_{index}": item for index, item in enumerate(items)}
    required = {f"item_{index}" for index in range(min(node.min_items, len(items)))}
    most = None if node.max_items is None else node.max_items - len(items)
    rest_name = None
    if node.rest is not None and most != 0:
        rest_name = "rest"
        least = max(node.min_items - len(items), 0)
        places[rest_name] = ArrayNode(node.rest, least, most, at=node.at, origins=node.origins)
        required |= {rest_name} if least else set()
    return ObjectNode(places, frozenset(required), closed=True, at=node.at), rest_name


def _emit_prefix_items(emitter: EmitContext, node: TupleNode, depth: int) -> Emitted:
    """Emit a tuple unchanged, as an array with `prefixItems`."""
    emitted = [emitter.emit(item, depth + 1) for item in node.items]
    rest = None
    out: Object = {"type": "array", "prefixItems": [item.schema for item in emitted]}
    if node.rest is None:
        out["items"] = False
    elif not isinstance(node.rest, AnyNode):
        rest = emitter.emit(node.rest, depth + 1)
        out["items"] = rest.schema
    if node.min_items:
        out["minItems"] = node.min_items
    if node.max_items is not None:
        out["maxItems"] = node.max_items
    item_codecs = [item.codec for item in emitted]
    rest_codec = None if rest is None else rest.codec
    has_codec = rest_codec is not None or any(codec is not None for codec in item_codecs)
    codec = codecs.positional_codec(item_codecs, rest_codec) if has_codec else None
    return Emitted(emitter.add_description(out, node, [], codec), codec)


def emit_object(emitter: EmitContext, node: ObjectNode, depth: int, *, root: bool = False) -> Emitted:
    """Emit an object. Without properties, it is a list of entries or the constant {} where the dialect requires that.

    The root stays an object with properties in any case.
    """
    if all(isinstance(inner, NeverNode) for inner in node.properties.values()) and not root:
        node = _drop_forbidden(emitter, node)
    if not node.properties and not root:
        others = node.others
        if others is not None and emitter.dialect.maps == "entries":
            return _emit_map(emitter, node, others, depth)
        if others is None and not emitter.dialect.empty_objects:
            return scalars.emit_enum(emitter, annotate(EnumNode(({},), at=node.at, origins=node.origins), node))
    return _emit_properties(emitter, node, depth)


def _emit_properties(emitter: EmitContext, node: ObjectNode, depth: int) -> Emitted:
    """Emit an object property by property.

    Optional properties become required and nullable, or get a string for absent, where the dialect requires it.
    """
    dialect = emitter.dialect
    keys = PropertyNames(dialect.property_name, node.properties)
    known: list[FieldCodec] = []
    properties: Object = {}
    required: list[str] = []
    for name, inner in node.properties.items():
        if isinstance(inner, NeverNode):
            _emit_forbidden(emitter, node, inner, keys.legal_name(name), properties)
            continue
        optional, drops_null = name not in node.required, False
        if optional and emitter.budget.is_tight:
            drops_null = emitter.accepts_null(inner)
            inner = emitter.budget.drop_null(inner)
            if (unset := emitter.budget.unset_values(inner)) is not None:
                lowered_name = keys.legal_name(name)
                known.append(_emit_with_unset(emitter, name, lowered_name, inner, unset, properties))
                required.append(lowered_name)
                continue
        emitted = emitter.emit(inner, depth + 1)
        lowered_name = keys.legal_name(name)
        if lowered_name != name:
            emitter.report_rewrite(inner, "property name", f"renamed to {lowered_name!r}")
        is_filled = optional and (dialect.optional == "nullable" or emitter.budget.must_fill())
        schema = emitted.schema
        if is_filled:
            if emitter.accepts_null(inner):
                detail = "null means absent: an explicit null arrives as absent"
                emitter.losses.add(inner.at, "null", "rewritten", detail, "info")
            schema = emitter.make_nullable(schema)
        if is_filled or not optional:
            required.append(lowered_name)
        properties[lowered_name] = schema
        known.append(FieldCodec(name, lowered_name, emitted.codec, is_filled, drops_null=drops_null))
    return _complete_object(emitter, node, depth, known, properties, required, keys)


def _drop_forbidden(emitter: EmitContext, node: ObjectNode) -> ObjectNode:
    """Return an object whose properties are all forbidden without them, in a dialect without boolean schemas."""
    if not node.properties or emitter.dialect.anything == "keep":
        return node
    for inner in node.properties.values():
        _emit_forbidden(emitter, node, inner, "", {})
    return replace(node, properties={})


def _emit_forbidden(emitter: EmitContext, node: ObjectNode, inner: Node, lowered_name: str, properties: Object) -> None:
    """Emit a property that no value matches as false; without boolean schemas, drop it."""
    if emitter.dialect.anything == "keep":
        properties[lowered_name] = False
    else:
        emitter.losses.add(inner.at or node.at, "property", "dropped", "no value can match it", "error")


def _emit_with_unset(
    emitter: EmitContext, name: str, lowered_name: str, node: Node, enum: EnumNode, properties: Object
) -> FieldCodec:
    """Emit an optional property as a required one, with a string that means absent."""
    emitter.report_rewrite(node, "optional property", f"sent as required, with {UNSET!r} for absent")
    labels = [value if type(value) is str else dumps(value) for value in enum.values]
    schema: Object = {"type": "string", "enum": [*labels, UNSET]}
    inner = codecs.enum_codec(enum.values, labels)
    properties[lowered_name] = emitter.add_description(schema, node, [], inner)
    return FieldCodec(name, lowered_name, inner, is_filled=True, absent=UNSET, drops_null=True)


def _complete_object(
    emitter: EmitContext,
    node: ObjectNode,
    depth: int,
    known: list[FieldCodec],
    properties: Object,
    required: list[str],
    keys: PropertyNames,
) -> Emitted:
    """Add the keywords for undeclared keys and the description to an object whose properties are emitted.

    Where the dialect has no maps, a property with a list of entries holds the undeclared keys. Without a changed value,
    the result has no codec.
    """
    dialect = emitter.dialect
    more, more_codec, more_fills = None, None, False
    remarks: list[str] = []
    out: Object = {"type": "object", "properties": properties, "required": required}
    others = node.others
    if others is not None and dialect.maps == "entries":
        more = keys.allocate("additional_properties")
        emitted = _emit_map(emitter, ObjectNode(at=node.at), others, depth + 1)
        more_codec, more_fills = emitted.codec, dialect.optional == "nullable" or emitter.budget.must_fill()
        properties[more] = emitter.make_nullable(emitted.schema) if more_fills else emitted.schema
        if more_fills:
            required.append(more)
    else:
        node = _emit_patterns(emitter, node, depth, out)
        more_codec = _emit_undeclared(emitter, node, depth, out, remarks)
    out = emitter.close_object(out)
    if dialect.closed and others is None and not node.closed:
        emitter.report_rewrite(node, "open object", "closed: undeclared properties cannot be written")
    changes = (
        more is not None
        or more_codec is not None
        or any(f.codec or f.is_filled or f.drops_null or f.name != f.lowered_name for f in known)
    )
    codec = codecs.object_codec(known, more, more_codec, more_fills) if changes else None
    out = emitter.add_description(out, node, remarks, codec, repeats=more is None)
    return Emitted(_drop_empty_required(out, dialect), codec)


def _emit_undeclared(
    emitter: EmitContext, node: ObjectNode, depth: int, out: Object, remarks: list[str]
) -> Codec | None:
    """Emit `additionalProperties` into `out`, or as a remark and a loss; return the codec of such values, or None."""
    can, others = emitter.dialect.keywords, node.others
    if others is not None:
        if not node.properties and "patternProperties" not in out and is_free(node):
            del out["properties"]  # an object that declares nothing is any object
            return None
        inner = emitter.emit(others, depth + 1)
        if "additionalProperties" in can:
            out["additionalProperties"] = inner.schema or True
        else:
            remarks.append(f"additionalProperties: {scalars.short_value(inner.schema or True)}")
            emitter.report_unenforced(node, "additionalProperties")
        return inner.codec
    if node.closed and "additionalProperties" in can:
        out["additionalProperties"] = False
    elif node.closed:
        detail = "other properties are rejected when the arguments are validated"
        emitter.report_omitted(node, "additionalProperties", detail)
    return None


def _emit_patterns(emitter: EmitContext, node: ObjectNode, depth: int, out: Object) -> ObjectNode:
    """Emit `patternProperties` into `out` and return the node without them.

    Where the dialect does not have the keyword, or a value would change, the node is returned as it is.
    """
    if not node.patterns or "patternProperties" not in emitter.dialect.keywords:
        return node
    emitted = {
        pattern: None if isinstance(inner, NeverNode) else emitter.emit(inner, depth + 1)
        for pattern, inner in node.patterns.items()
    }
    if any(inner is not None and inner.codec is not None for inner in emitted.values()):
        return node
    out["patternProperties"] = {key: False if inner is None else inner.schema for key, inner in emitted.items()}
    unmodelled = {keyword: value for keyword, value in node.unmodelled.items() if keyword != "patternProperties"}
    return replace(node, patterns={}, unmodelled=unmodelled)


def _emit_map(emitter: EmitContext, node: ObjectNode, others: Node, depth: int) -> Emitted:
    """Emit a map as a list of entries; bounds on the number of properties become bounds on the number of entries."""
    emitter.report_rewrite(node, "map", "sent as a list of keys and values")
    inner = emitter.emit(others, depth + 1)
    codec = codecs.map_codec(inner.codec)
    entry = {"type": "object", "properties": {"key": {"type": "string"}, "value": inner.schema}}
    out: Object = {"type": "array", "items": emitter.close_object({**entry, "required": ["key", "value"]})}
    remarks = ["a list of key and value pairs"]
    low, high = (parse_count(node.unmodelled.get(keyword)) for keyword in _PROPERTY_COUNTS)
    counts = (CountBound("minItems", "minProperties", low or None), CountBound("maxItems", "maxProperties", high))
    emitter.add_counts(out, remarks, node, counts)
    if out.get("minItems", 0) > 1:
        emitter.report_unenforced(node, "minProperties", "sent as minItems: a key that is repeated counts twice")
    rest = {keyword: value for keyword, value in node.unmodelled.items() if keyword not in _PROPERTY_COUNTS}
    return Emitted(emitter.add_description(out, replace(node, unmodelled=rest), remarks, codec), codec)


_PROPERTY_COUNTS = ("minProperties", "maxProperties")


def _drop_empty_required(out: Object, dialect: Dialect) -> Object:
    if not out["required"] and dialect.optional != "nullable":
        del out["required"]
    return out
