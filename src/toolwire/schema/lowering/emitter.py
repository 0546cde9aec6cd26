"""Emit nodes as a schema of a dialect, with the codec that converts arguments in both directions.

A constraint that a dialect cannot express gets another shape (undone by the codec), or is stated in the description
(and checked by the validator afterwards). The first is reported for information only; the second is a loss at the
keyword.
"""

from __future__ import annotations

import re
from functools import cached_property

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.pointer import Object
from ..bounds import StepBudget, json_size
from ..dialects import Dialect
from ..parsing.nodes import (
    AnyNode,
    ArrayNode,
    BooleanNode,
    EnumNode,
    NeverNode,
    Node,
    NullNode,
    NumberNode,
    ObjectNode,
    RefNode,
    StringNode,
    TupleNode,
    UnionNode,
    annotate,
    recursive_definitions,
    refs_in,
)
from ..parsing.parser import ParsedSchema
from . import codec as codecs
from . import objects, scalars, unions
from .annotations import AnnotationEmitter
from .codec import Codec
from .emission import CountBound, Emitted, ParameterBudget, PropertyNames, count_parameters

MAX_UNROLL = 2
"""Levels of a definition inside itself that are emitted; the rest is JSON in a string."""
MAX_NODES = 3_000
"""A schema that grows beyond this by unrolling is JSON in a string from there on: it would be useless."""
_NODES, _NODES_PER_VALUE = 100, 2
"""The limit of a small schema, in proportion to its size: inlined references double with every level."""
MAX_NESTING = 80
"""Nodes being emitted at once; deeper ones, by inlined references, are JSON in a string."""
_POSTPONED_NESTING = 16
"""Nodes being emitted at once beyond which a definition is emitted later, from an empty stack."""
_STEPS, _STEPS_PER_VALUE = 1_000, 8
"""Steps for comparing union branches, in proportion to the size of the schema."""
_REPEATED, _REPEATED_PER_VALUE = 20_000, 4
"""The total size of the output; inlined references repeat the same descriptions and enums."""


class Emitter(AnnotationEmitter):
    """Emits one schema in one dialect."""

    def __init__(self, source: ParsedSchema, dialect: Dialect, losses: Losses, changed: frozenset[str]) -> None:
        """Prepare to emit `source`. `changed`: definitions whose values an earlier pass found to change their shape."""
        super().__init__(source, dialect, losses)
        self.defs: dict[str, Object] = {}
        self.changed = set(changed)  # definitions whose values change their shape
        self._source = source
        self._names: dict[str, str] = {}  # definition → its name under `$defs`
        self._free_names = PropertyNames(None, ())
        self._codecs: dict[str, Codec | None] = {}
        self._ref_stack: list[str] = []  # targets being emitted, to detect recursion
        self._definition_stack = [""]  # the definitions being emitted; "" is the root
        self._refs: dict[str, set[str]] = {}  # definition → those that it refers to
        self._postponed: list[str] = []  # definitions to emit from an empty stack
        self._nodes = StepBudget(min(MAX_NODES, _NODES + source.size * _NODES_PER_VALUE))
        self._nesting = 0
        self._remaining_size = StepBudget(_REPEATED + source.size * _REPEATED_PER_VALUE)
        self.steps = StepBudget(_STEPS + source.size * _STEPS_PER_VALUE)
        self.budget = ParameterBudget(source, dialect)

    def find_target(self, pointer: str) -> Node | None:
        return self._source.root if pointer == "" else self._source.defs.get(pointer)

    def affected_definitions(self) -> frozenset[str]:
        """Return the definitions whose values change, or that refer to such a definition."""
        referrers: dict[str, list[str]] = {}
        for source, targets in self._refs.items():
            for target in targets:
                referrers.setdefault(target, []).append(source)
        found = set(self.changed)
        pending = list(found)
        while pending:
            for source in referrers.get(pending.pop(), ()):
                if source not in found:
                    found.add(source)
                    pending.append(source)
        return frozenset(found)

    def emit_root(self) -> Emitted:
        emitted = self._emit_root()
        while self._postponed:
            self._write_definition(self._postponed.pop())
        return emitted

    def _emit_root(self) -> Emitted:
        """Emit the root: as it is where the dialect accepts any type there, otherwise as an object.

        A root of another type is wrapped in the property `value`. A root that accepts no value is reported and becomes
        an empty object.
        """
        node = self._source.root
        if self.dialect.any_root and not isinstance(node, NeverNode):
            return self.emit(node, 0)
        seen = 0
        while isinstance(node, RefNode) and seen < MAX_UNROLL + 8:
            found = self.find_target(node.target)
            node = AnyNode(at=node.at) if found is None else annotate(found, node, override=True)
            seen += 1
        if isinstance(node, AnyNode) and not self.dialect.output:
            node = annotate(ObjectNode(rest=AnyNode(at=node.at), at=node.at, origins=node.origins), node)
        if isinstance(node, NeverNode):
            self.losses.add(node.at, "schema", "weakened", "no value can match it", "error")
            node = ObjectNode(at=node.at, annotations=node.annotations)
        if isinstance(node, UnionNode) and not self.dialect.enforced:
            node = _merge_branches(node) or node
        if isinstance(node, ObjectNode):
            self.root_object = node
            return objects.emit_object(self, node, 0, root=True)
        self.losses.add(
            node.at, "root", "rewritten", "the root must be an object: the value is wrapped in `value`", "info"
        )
        inner = self.emit(node, 1)
        schema = self.close_object({"type": "object", "properties": {"value": inner.schema}, "required": ["value"]})
        return Emitted(schema, codecs.wrapper_codec("value", inner.codec))

    def emit(self, node: Node, depth: int) -> Emitted:
        """Emit one node. `depth`: the number of objects around it; `_nesting` counts the calls on the Python stack."""
        self._nodes.spend()
        self._nesting += 1
        try:
            return self._emit(node, depth)
        finally:
            self._nesting -= 1

    def _emit(self, node: Node, depth: int) -> Emitted:  # noqa: C901
        """Dispatch on the type of the node; beyond a limit, fall back to JSON in a string.

        A node that accepts no value is reported, and emitted like a node that accepts any.
        """
        too_deep = self.dialect.depth is not None and depth >= self.dialect.depth
        if (too_deep and isinstance(node, (ObjectNode, TupleNode))) or self._nesting > MAX_NESTING:
            return self._emit_json_string(node, "nested too deeply")
        if self._nodes.exhausted or self._remaining_size.exhausted or not self._remaining_size.spend(_size(node)):
            return self._emit_json_string(node, "too large")
        if isinstance(node, ObjectNode):
            return objects.emit_object(self, node, depth)
        if isinstance(node, StringNode):
            return scalars.emit_string(self, node)
        if isinstance(node, NumberNode):
            return scalars.emit_number(self, node)
        if isinstance(node, EnumNode):
            return scalars.emit_enum(self, node, depth)
        if isinstance(node, ArrayNode):
            return self._emit_array(node, depth)
        if isinstance(node, UnionNode):
            return unions.emit_union(self, node, depth)
        if isinstance(node, RefNode):
            return self._emit_ref(node, depth)
        if isinstance(node, TupleNode):
            return objects.emit_tuple(self, node, depth)
        if isinstance(node, BooleanNode):
            return Emitted(self.add_description({"type": "boolean"}, node, []))
        if isinstance(node, NullNode):
            return self.emit_null(node)
        if isinstance(node, NeverNode):
            self.losses.add(node.at, "schema", "weakened", "no value can match it", "error")
        return self.emit_any(node)

    def emit_null(self, node: Node) -> Emitted:
        if self.dialect.null != "type":
            codec = codecs.enum_codec([None], ["null"])
            return Emitted(self.add_description({"type": "string", "enum": ["null"]}, node, [], codec), codec)
        return Emitted(self.add_description({"type": "null"}, node, []))

    # scalars

    def emit_any(self, node: Node) -> Emitted:
        if self.dialect.anything == "keep":
            return Emitted(self.add_description({}, node, []))
        self.report_rewrite(node, "any value", "sent as JSON in a string")
        codec = codecs.json_string_codec()
        return Emitted(self.add_description({"type": "string"}, node, ["JSON text"], codec), codec)

    def _emit_json_string(self, node: Node, cause: str) -> Emitted:
        """Emit a value that the dialect cannot describe as JSON in a string, which is checked when it is lifted."""
        self.losses.add(node.at, "schema", "weakened", f"{cause}: sent as JSON in a string")
        annotations = {} if self._remaining_size.exhausted else node.annotations
        plain = replace(node, unmodelled={}, annotations=annotations)
        codec = codecs.json_string_codec()
        return Emitted(self.add_description({"type": "string"}, plain, ["JSON text"], codec), codec)

    # containers

    def _emit_array(self, node: ArrayNode, depth: int) -> Emitted:
        """Emit an array with its item schema and the bounds that the dialect has; the others are stated."""
        inner = self.emit(node.items or AnyNode(at=node.at), depth)
        out: Object = {"type": "array"}
        if inner.schema or self.dialect.anything != "keep":
            out["items"] = inner.schema
        remarks: list[str] = []
        counts = (
            CountBound("minItems", "minItems", node.min_items or None),
            CountBound("maxItems", "maxItems", node.max_items),
        )
        self.add_counts(out, remarks, node, counts)
        codec = None if inner.codec is None else codecs.array_codec(inner.codec)
        return Emitted(self.add_description(out, node, remarks, codec), codec)

    def close_object(self, schema: Object) -> Object:
        if self.dialect.closed:
            schema["additionalProperties"] = False
        return schema

    # combinations

    def accepts_null(self, node: Node) -> bool:
        """Return True if null fits the node. A reference to a union or another reference is not followed."""
        if isinstance(node, UnionNode):
            return any(self.accepts_null(branch) for branch in node.branches)
        if isinstance(node, RefNode):
            found = self.find_target(node.target)
            return found is not None and not isinstance(found, (RefNode, UnionNode)) and self.accepts_null(found)
        return isinstance(node, (NullNode, AnyNode)) or (isinstance(node, EnumNode) and None in node.values)

    def make_nullable(self, schema: Object) -> Object:
        """Extend an emitted schema by null in the form of the dialect: `nullable`, a type list or `anyOf`."""
        if self.dialect.null == "nullable":
            return self._nullable_flag(schema)
        if "$ref" in schema or ("anyOf" not in schema and "type" not in schema):
            rest = {key: value for key, value in schema.items() if key == "description"}
            inner = {key: value for key, value in schema.items() if key != "description"}
            return {"anyOf": [inner, {"type": "null"}], **rest}
        if "anyOf" in schema:
            if any(branch.get("type") == "null" for branch in schema["anyOf"]):
                return schema
            return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
        kinds = schema["type"] if type(schema["type"]) is list else [schema["type"]]
        out = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
        if "enum" in out and None not in out["enum"]:
            out["enum"] = [*out["enum"], None]
        return out

    def _nullable_flag(self, schema: Object) -> Object:
        if "anyOf" not in schema:
            return {**schema, "nullable": True}
        first, *others = schema["anyOf"]
        return {**schema, "anyOf": [{**first, "nullable": True}, *others]}

    def _emit_ref(self, node: RefNode, depth: int) -> Emitted:
        """Emit a reference as `$ref`, or inline its target where the dialect has no references or no recursion.

        A recursive target is inlined up to `MAX_UNROLL` times, then sent as JSON in a string.
        """
        found = self.find_target(node.target)
        if found is None:
            return self.emit_any(node)
        recursive = node.target in self._ref_stack
        if self.dialect.refs == "inline" or not self.dialect.recursion:
            if self._ref_stack.count(node.target) > MAX_UNROLL or (
                recursive and not self.dialect.recursion and self._ref_stack.count(node.target) >= MAX_UNROLL
            ):
                return self._emit_json_string(annotate(found, node, override=True), "the definition contains itself")
            must_inline = self.dialect.refs == "inline" or node.target in self._recursive_names
            if must_inline or self._is_better_inline(node, found):
                self._ref_stack.append(node.target)
                inner = self.emit(annotate(found, node, override=True), depth)
                self._ref_stack.pop()
                return inner
        return self._emit_kept_ref(node)

    def _is_better_inline(self, node: RefNode, found: Node) -> bool:
        """Return True if keywords beside `$ref` would need a union around it, and the dialect limits unions.

        A definition that counts against a limit itself, or has references, stays where it is.
        """
        limited = not self.dialect.ref_siblings and self.dialect.union_parameters is not None
        has_siblings = bool(node.unmodelled) or not node.annotations.keys() <= {"title"}
        return limited and has_siblings and not refs_in(found) and count_parameters([found]) == (0, 0)

    @cached_property
    def _recursive_names(self) -> frozenset[str]:
        return recursive_definitions(self._source.root, self._source.defs)

    def _emit_kept_ref(self, node: RefNode) -> Emitted:
        """Emit a `$ref`, and its definition on first use.

        The codec of a definition that is still being emitted is looked up later, by `ref_codec`.
        """
        target = node.target
        self._refs.setdefault(self._definition_stack[-1], set()).add(target)
        if target not in self._names:
            self._names[target] = self._name_for(target)
            if self._nesting > _POSTPONED_NESTING:
                self._postponed.append(target)
            else:
                self._write_definition(target)
        ref: Object = {"$ref": f"#/$defs/{self._names[target]}"}
        codec = self._codecs.get(target)
        if target not in self._codecs and target in self.changed:
            codec = codecs.ref_codec(self._codecs, target)
            node = self.without_values(node)
        out = self.add_description({}, self.drop_weak_siblings(node), [], codec)
        if out:
            ref = {"anyOf": [ref], **out} if not self.dialect.ref_siblings else {**ref, **out}
        return Emitted(ref, codec)

    def _write_definition(self, target: str) -> None:
        """Emit a definition into `defs`, and record in `changed` that its values change their shape."""
        node = self.find_target(target)
        assert node is not None
        self._ref_stack.append(target)
        self._definition_stack.append(target)
        emitted = self.emit(node, 0)
        self._definition_stack.pop()
        self._ref_stack.pop()
        self.defs[self._names[target]] = emitted.schema
        self._codecs[target] = emitted.codec
        if emitted.codec is not None:
            self.changed.add(target)

    def _name_for(self, target: str) -> str:
        return self._free_names.allocate(re.sub(r"[^a-zA-Z0-9_]+", "_", target.rpartition("/")[2]) or "root")


def _size(node: Node) -> int:
    """Measure the text that a node repeats wherever it is emitted, in the units of `json_size`."""
    if not node.annotations and not node.unmodelled and not isinstance(node, EnumNode):
        return 1
    return json_size([node.annotations, node.unmodelled, *(node.values if isinstance(node, EnumNode) else ())])


def _merge_branches(node: UnionNode) -> ObjectNode | None:
    """Merge branches that differ only in `required` into one object, or return None if they differ otherwise.

    The object requires the properties that all branches require; the alternatives stay as an unmodelled assertion.
    """
    first, *others = node.branches
    if not isinstance(first, ObjectNode):
        return None
    required = first.required
    for other in others:
        if (
            not isinstance(other, ObjectNode)
            or other.properties.keys() != first.properties.keys()
            or (other.rest, other.patterns) != (first.rest, first.patterns)
        ):
            return None
        if any(
            replace(inner, at="", origins={}) != replace(first.properties[name], at="", origins={})
            for name, inner in other.properties.items()
        ):
            return None
        required &= other.required
    wanted = [{"required": sorted(branch.required)} for branch in node.branches if isinstance(branch, ObjectNode)]
    keyword = "oneOf" if node.one_of else "anyOf"
    alternatives = AnyNode(unmodelled={keyword: wanted}, at=node.at)
    return annotate(annotate(replace(first, required=required), node, override=True), alternatives)
