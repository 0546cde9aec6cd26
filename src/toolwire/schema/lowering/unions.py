"""Emit unions for a dialect, so that lifting can distinguish every branch from the others."""

from __future__ import annotations

from collections import Counter

from ...ir.pointer import Object
from ..parsing.membership import are_disjoint, resolve_node
from ..parsing.nodes import AnyNode, ArrayNode, Node, NullNode, ObjectNode, RefNode, TupleNode, UnionNode, annotate
from . import codec as codecs
from . import scalars
from .codec import Codec
from .emission import EmitContext, Emitted, PropertyNames


def emit_union(emitter: EmitContext, node: UnionNode, depth: int) -> Emitted:
    """Emit a union as `anyOf`; null becomes a flag or a type instead of a branch where the dialect allows it.

    References to the union itself are dropped, a single branch is emitted alone, and a branch that accepts anything
    stands for the whole union. Branches that lifting could not distinguish are wrapped or reported.
    """
    flagged = emitter.dialect.null != "word"  # else null is a branch like the others
    branches: list[Node] = [
        branch
        for branch in node.branches
        if not (flagged and isinstance(branch, NullNode)) and not _is_self_reference(emitter, branch)
    ]
    nulls = [branch for branch in node.branches if flagged and isinstance(branch, NullNode)]
    null = bool(nulls)
    _report_overlap(emitter, node)
    if not branches:
        return emitter.emit_null(node)
    for branch in nulls:
        for keyword in branch.annotations:
            emitter.report_omitted(branch, keyword, "null is not a branch of its own in the dialect")
    if any(isinstance(branch, AnyNode) and not branch.unmodelled for branch in branches):
        return emitter.emit_any(annotate(AnyNode(at=node.at, origins=node.origins), node))
    if len(branches) == 1:
        inner = emitter.emit(annotate(branches[0], node, override=True), depth)
        return Emitted(emitter.make_nullable(inner.schema) if null else inner.schema, inner.codec)
    emitted = _wrap_overlapping(emitter, branches, [emitter.emit(branch, depth) for branch in branches], node)
    out: Object = {"anyOf": [inner for branch in emitted for inner in _flatten_union(branch.schema)]}
    if null:
        out = emitter.make_nullable(out)
    codec = None
    if any(branch.codec is not None for branch in emitted):
        records: list[Node] = [branch for branch in branches if isinstance(branch, ObjectNode)]
        if len(records) > 1 and not are_disjoint(records, emitter.find_target, emitter.steps):
            keyword = "oneOf" if node.one_of else "anyOf"
            emitter.report_unenforced(node, keyword, "lifted arguments may match the wrong branch")
        codec = codecs.union_codec(
            [(branch, form.codec) for branch, form in zip(branches, emitted, strict=True)], emitter.find_target
        )
    if emitter.dialect.lone_any_of:
        return Emitted(_describe_first_branch(emitter, out, node, codec), codec)
    return Emitted(emitter.add_description(out, node, [], codec), codec)


def _is_self_reference(emitter: EmitContext, node: Node) -> bool:
    """Return True for a reference to the union that contains it: it adds nothing to the union."""
    pending, seen = [node], set()
    while pending:
        current = pending.pop()
        if isinstance(current, UnionNode):
            pending.extend(current.branches)
        elif isinstance(current, RefNode):
            if current.target in seen and isinstance(node, RefNode) and current.target == node.target:
                return True
            target = emitter.find_target(current.target)
            if current.target not in seen and target is not None:
                pending.append(target)
            seen.add(current.target)
    return False


def _report_overlap(emitter: EmitContext, node: UnionNode) -> None:
    if node.one_of and not are_disjoint(list(node.branches), emitter.find_target, emitter.steps):
        emitter.report_unenforced(node, "oneOf", "the branches may overlap: that exactly one matches is not enforced")


def _describe_first_branch(emitter: EmitContext, out: Object, node: Node, codec: Codec | None) -> Object:
    """Move the description of a union to its first branch, because the dialect allows nothing beside `anyOf`."""
    description = emitter.describe(node, codec)
    if description and out["anyOf"]:
        first = out["anyOf"][0]
        own_description = first.get("description")
        out["anyOf"][0] = {
            **first,
            "description": f"{description}: {own_description}"
            if own_description and own_description != description
            else description,
        }
    return out


def _wrap_overlapping(emitter: EmitContext, branches: list[Node], emitted: list[Emitted], node: Node) -> list[Emitted]:
    """Wrap each branch that could be mistaken for another one in the lowered form in an object of its own.

    Only a branch whose values change their shape, and whose type another branch has, too, needs that; it is reported.
    """
    kinds = [_schema_kinds(branch.schema) for branch in emitted]
    shared = {kind for kind, times in Counter(kind for each in kinds for kind in each).items() if times > 1}
    out: list[Emitted] = []
    names = PropertyNames(None, {key for branch in emitted for key in _property_names(emitter, branch.schema)})
    ambiguous_lists = _ambiguous_lists(emitter, branches, emitted)
    for number, (branch, own_kinds) in enumerate(zip(emitted, kinds, strict=True)):
        changed = branch.codec is not None and (branch.codec.reshapes or number in ambiguous_lists)
        if not changed or own_kinds.isdisjoint(shared):
            out.append(branch)
            continue
        name = names.allocate("value")
        emitter.report_rewrite(node, "union", f"one branch is wrapped in `{name}`, to distinguish it from the others")
        schema = emitter.close_object({"type": "object", "properties": {name: branch.schema}, "required": [name]})
        out.append(Emitted(schema, codecs.wrapper_codec(name, branch.codec)))
    return out


def _ambiguous_lists(emitter: EmitContext, branches: list[Node], emitted: list[Emitted]) -> frozenset[int]:
    """Return the numbers of the list branches if an emitted item of one can be mistaken for an item of another.

    `["1"]` may be a list of strings or a list of JSON texts. An empty list fits several, but is emitted the same for
    each.
    """
    nodes = {number: resolve_node(branch, emitter.find_target) for number, branch in enumerate(branches)}
    lists = {number: node for number, node in nodes.items() if isinstance(node, (ArrayNode, TupleNode))}
    if len(lists) < 2:
        return frozenset()
    written = [_item_kinds(emitter, emitted[number].schema) for number in lists]
    if max(Counter(kind for kinds in written for kind in kinds).values(), default=0) < 2:
        return frozenset()
    items = [node.items for node in lists.values() if isinstance(node, ArrayNode) and node.items is not None]
    objects = len(items) == len(lists) and all(kinds == {"object"} for kinds in written)
    if objects and are_disjoint(list(items), emitter.find_target, emitter.steps):
        return frozenset()
    return frozenset(lists)


def _item_kinds(emitter: EmitContext, schema: Object) -> set[str]:
    return _schema_kinds(_definition(emitter, _definition(emitter, schema).get("items", {})))


def _definition(emitter: EmitContext, schema: Object) -> Object:
    """Return the emitted definition that a reference points to, as far as it has been emitted."""
    ref = schema.get("$ref")
    return emitter.defs.get(ref.rpartition("/")[2], {}) if type(ref) is str else schema


def _property_names(emitter: EmitContext, schema: Object) -> set[str]:
    """Return the names of the properties of a schema, also of objects in its branches or in a definition that it refers to."""
    found, pending, seen = set[str](), [schema], set[str]()
    while pending:
        item = pending.pop()
        ref = item.get("$ref")
        if type(ref) is str and ref not in seen:
            seen.add(ref)
            pending.append(_definition(emitter, item))
        found.update(item.get("properties", ()))
        pending += item.get("anyOf", ())
    return found


def _flatten_union(schema: Object) -> list[Object]:
    """Return the branches of a schema that is only a union; otherwise the schema itself."""
    return schema["anyOf"] if set(schema) == {"anyOf"} else [schema]


def _schema_kinds(schema: Object) -> set[str]:
    """Return the JSON types that a schema may accept."""
    if "anyOf" in schema:
        return set().union(*(_schema_kinds(branch) for branch in schema["anyOf"]))
    declared_type = schema.get("type")
    if declared_type is None:
        return set(scalars.TYPE_NAMES.values()) | {"object"}
    kinds = set(declared_type if type(declared_type) is list else [declared_type])
    return kinds | {"number"} if "integer" in kinds else kinds
