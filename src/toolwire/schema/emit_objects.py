"""Emit objects, maps and tuples for a dialect."""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.pointer import Object
from ..ir.text import dumps
from . import codec as codecs
from . import emit_scalars
from .codec import Codec, FieldCodec
from .dialects import Dialect
from .emit_context import EmitContext, Emitted
from .nodes import AnyNode, ArrayNode, EnumNode, NeverNode, Node, ObjectNode, TupleNode
from .parameter_budget import UNSET
from .property_names import PropertyNames

__all__ = ["emit_object", "emit_tuple"]


def emit_tuple(emitter: EmitContext, node: TupleNode, depth: int) -> Emitted:
    """Emit a tuple as `prefixItems`, or as an object with one property per item where the dialect has none."""
    if not node.items:
        max_items = node.max_items if node.rest is not None else 0
        rest = ArrayNode(
            node.rest, node.min_items, max_items, annotations=node.annotations, unmodelled=node.unmodelled, at=node.at
        )
        return emitter.emit(rest, depth)
    if emitter.dialect.tuples == "keep" and "prefixItems" in emitter.dialect.keywords:
        return _emit_prefix_items(emitter, node, depth)
    emitter.report_rewrite(node, "tuple", "sent as an object with one property per item")
    places = {f"item_{index}": item for index, item in enumerate(node.items)}
    required = frozenset(f"item_{index}" for index in range(min(node.min_items, len(node.items))))
    for index, item in enumerate(node.items):
        if index >= node.min_items and emitter.accepts_null(item):
            emitter.report_unenforced(item, "null", "a trailing null in the list arrives as absent")
    rest_name = None
    if node.rest is not None and not (node.max_items is not None and node.max_items <= len(node.items)):
        rest_name = "rest"
        places[rest_name] = ArrayNode(node.rest, at=node.at)
    shape = ObjectNode(
        places, required, None, True, annotations=node.annotations, unmodelled=node.unmodelled, at=node.at
    )
    emitted = emit_object(emitter, shape, depth)
    inner = codecs.tuple_codec([emitter.accepts_null(item) for item in node.items], rest_name)
    if emitted.codec is None:
        return Emitted(emitted.schema, inner)
    outer = emitted.codec
    both = Codec(lambda value: inner.lift(outer.lift(value)), lambda value: outer.encode(inner.encode(value)))
    return Emitted(emitted.schema, both)


def _emit_prefix_items(emitter: EmitContext, node: TupleNode, depth: int) -> Emitted:
    """Emit a tuple unchanged, as an array with `prefixItems`."""
    emitted = [emitter.emit(item, depth + 1) for item in node.items]
    rest = None
    out: Object = {"type": "array", "prefixItems": [one.schema for one in emitted]}
    if node.rest is None:
        out["items"] = False
    elif not isinstance(node.rest, AnyNode):
        rest = emitter.emit(node.rest, depth + 1)
        out["items"] = rest.schema
    if node.min_items:
        out["minItems"] = node.min_items
    if node.max_items is not None:
        out["maxItems"] = node.max_items
    item_codecs = [one.codec for one in emitted]
    rest_codec = None if rest is None else rest.codec
    has_codec = rest_codec is not None or any(codec is not None for codec in item_codecs)
    codec = codecs.positional_codec(item_codecs, rest_codec) if has_codec else None
    return Emitted(emitter.add_description(out, node, []), codec)


def emit_object(emitter: EmitContext, node: ObjectNode, depth: int, *, root: bool = False) -> Emitted:
    """Emit an object property by property.

    Optional properties become required and nullable, or get a string for absent, where the dialect requires it.
    """
    dialect = emitter.dialect
    if node.rest is not None and not node.properties and dialect.maps == "entries" and not root:
        return _emit_map(emitter, node, depth)
    if not node.properties and node.rest is None and not dialect.empty_objects and not root:
        return emit_scalars.emit_enum(emitter, EnumNode(({},), annotations=node.annotations, at=node.at))
    keys = PropertyNames(dialect.property_name, node.properties)
    known: list[FieldCodec] = []
    properties: Object = {}
    required: list[str] = []
    for name, inner in node.properties.items():
        if isinstance(inner, NeverNode):
            emitter.losses.add(inner.at or node.at, "property", "dropped", "no value can match it", "error")
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


def _emit_with_unset(
    emitter: EmitContext, name: str, lowered_name: str, node: Node, enum: EnumNode, properties: Object
) -> FieldCodec:
    """Emit an optional property as a required one, with a string that means absent."""
    emitter.report_rewrite(node, "optional property", f"sent as required, with {UNSET!r} for absent")
    labels = [value if type(value) is str else dumps(value) for value in enum.values]
    schema: Object = {"type": "string", "enum": [*labels, UNSET]}
    properties[lowered_name] = emitter.add_description(schema, node, [])
    inner = codecs.enum_codec(enum.values, labels)
    return FieldCodec(name, lowered_name, inner, True, UNSET, drops_null=True)


def _complete_object(
    emitter: EmitContext,
    node: ObjectNode,
    depth: int,
    known: list[FieldCodec],
    properties: Object,
    required: list[str],
    keys: PropertyNames,
) -> Emitted:
    """Add the keywords for undeclared keys and the description; return no codec if no value changes."""
    dialect = emitter.dialect
    more, more_codec, more_fills = None, None, False
    remarks: list[str] = []
    out: Object = {"type": "object", "properties": properties, "required": required}
    if node.rest is not None and dialect.maps == "entries":
        more = keys.allocate("additional_properties")
        others = replace(node, properties={}, required=frozenset(), annotations={}, unmodelled={}, at=node.at)
        emitted = _emit_map(emitter, others, depth + 1)
        more_codec, more_fills = emitted.codec, dialect.optional == "nullable"
        properties[more] = emitter.make_nullable(emitted.schema) if more_fills else emitted.schema
        if more_fills:
            required.append(more)
    elif node.rest is not None:
        inner = emitter.emit(node.rest, depth + 1)
        more_codec = inner.codec
        if "additionalProperties" in dialect.keywords:
            out["additionalProperties"] = inner.schema or True
        else:
            remarks = [f"additionalProperties: {emit_scalars.shorten(inner.schema or True)}"]
            emitter.report_unenforced(node, "additionalProperties")
    elif node.closed and "additionalProperties" in dialect.keywords:
        out["additionalProperties"] = False
    elif node.closed:
        emitter.report_omitted(
            node, "additionalProperties", "other properties are rejected when the arguments are validated"
        )
    out = emitter.add_description(emitter.close_object(out), node, remarks)
    changes = (
        more is not None
        or more_codec is not None
        or any(f.codec or f.is_filled or f.drops_null or f.name != f.lowered_name for f in known)
    )
    if not changes:
        return Emitted(_drop_empty_required(out, dialect))
    return Emitted(_drop_empty_required(out, dialect), codecs.object_codec(known, more, more_codec, more_fills))


def _emit_map(emitter: EmitContext, node: ObjectNode, depth: int) -> Emitted:
    """Emit a map as a list of entries."""
    emitter.report_rewrite(node, "map", "sent as a list of keys and values")
    inner = emitter.emit(node.rest or AnyNode(at=node.at), depth + 1)
    entry = {"type": "object", "properties": {"key": {"type": "string"}, "value": inner.schema}}
    out: Object = {"type": "array", "items": emitter.close_object({**entry, "required": ["key", "value"]})}
    return Emitted(emitter.add_description(out, node, ["a list of key and value pairs"]), codecs.map_codec(inner.codec))


def _drop_empty_required(out: Object, dialect: Dialect) -> Object:
    if not out["required"] and dialect.optional != "nullable":
        del out["required"]
    return out
