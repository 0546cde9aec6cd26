"""Nodes: a normalised form of JSON Schema, in which each constraint has one form.

JSON Schema has many forms for one constraint: drafts, combinators, type arrays, `nullable`. Nodes have one. Every
node is a set of JSON values. `annotations` are keywords that exclude no value (`description`, `default`, …).
`unmodelled` are the assertions that nodes have no field for (`not`, `if`, `uniqueItems`, …): they are kept, stated in
the description, and checked by the validator.

    Any  Never  Null  Boolean  String  Number  Enum  Array  Tuple  Object  Union  Ref
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias, TypeVar

from msgspec.structs import force_setattr, replace

from ...ir.pointer import JSON, Object, join
from ...ir.value import Value
from ..keywords import KIND_OF_KEYWORD


def hashable_key(value: JSON) -> Hashable:
    """Return a hashable form of a JSON value, with the equality of JSON: 1 is 1.0, neither is true.

    >>> hashable_key({"a": [1, True]}) == hashable_key({"a": [1.0, True]}), hashable_key(1) == hashable_key(True)
    (True, False)
    """
    if type(value) is dict:
        return dict, frozenset([(key, hashable_key(inner)) for key, inner in value.items()])
    if type(value) is list:
        return list, tuple([hashable_key(inner) for inner in value])
    return (bool, value) if type(value) is bool else value


class _Base(Value, frozen=True, kw_only=True):
    annotations: Object = {}
    unmodelled: Object = {}
    at: str = ""
    """The location in the source: a JSON pointer."""
    origins: dict[str, str] = {}
    """JSON pointers of keywords that come from another location than `at`: a part of `allOf`, or beside `$ref`."""

    def pointer(self, keyword: str) -> str:
        """Return the location of a keyword in the source."""
        return self.origins.get(keyword) or self.at + join(keyword)


class AnyNode(_Base, frozen=True):
    """All values."""


class NeverNode(_Base, frozen=True):
    """No value at all."""


class NullNode(_Base, frozen=True):
    """The value null."""


class BooleanNode(_Base, frozen=True):
    """True or false."""


class StringNode(_Base, frozen=True):
    """Strings with bounds on the length (in characters), a pattern and a format."""

    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None


class NumberNode(_Base, frozen=True):
    """Numbers within bounds."""

    integer: bool = False
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    format: str | None = None
    """The size of the number (`int32`, `double`): an annotation."""


class EnumNode(_Base, frozen=True):
    """A fixed list of values, of any type."""

    values: tuple[JSON, ...] = ()
    keys: frozenset[Hashable] = frozenset()
    """The values in a hashable form, for lookups in constant time. Derived from `values`."""

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.values):  # equal: `replace` changed another field
            force_setattr(self, "keys", frozenset(map(hashable_key, self.values)))


class ArrayNode(_Base, frozen=True):
    """Lists whose items all fit one node."""

    items: Node | None = None
    """None: any items."""
    min_items: int = 0
    max_items: int | None = None


class TupleNode(_Base, frozen=True):
    """Lists whose first items have a node each."""

    items: tuple[Node, ...] = ()
    rest: Node | None = None
    """Items after the first ones; None: there are none."""
    min_items: int = 0
    max_items: int | None = None


class ObjectNode(_Base, frozen=True):
    """Objects, with a node for each declared property."""

    properties: dict[str, Node] = {}
    required: frozenset[str] = frozenset()
    rest: Node | None = None
    """Values of other keys. None: there should be no other keys."""
    closed: bool = False
    """Other keys were forbidden by the source, not only undeclared."""
    patterns: dict[str, Node] = {}
    """Values of undeclared keys that match a pattern. `rest` is for keys that match none."""

    @property
    def others(self) -> Node | None:
        """The values of all undeclared keys, whether they match a pattern or not; None: there should be none."""
        if not self.patterns:
            return self.rest
        found = any_of([*self.patterns.values(), *([] if self.rest is None else [self.rest])], one_of=False, at=self.at)
        return None if isinstance(found, NeverNode) else found


class UnionNode(_Base, frozen=True):
    """The values of any branch; with `one_of`, of exactly one."""

    branches: tuple[Node, ...] = ()
    one_of: bool = False
    """Exactly one branch may match."""


class RefNode(_Base, frozen=True):
    """A reference to a definition; `target` is the JSON pointer of it in the source."""

    target: str = "#"


Node: TypeAlias = (
    AnyNode
    | NeverNode
    | NullNode
    | BooleanNode
    | StringNode
    | NumberNode
    | EnumNode
    | ArrayNode
    | TupleNode
    | ObjectNode
    | UnionNode
    | RefNode
)


NODE_KINDS: dict[type, str] = {
    ObjectNode: "object",
    ArrayNode: "array",
    TupleNode: "array",
    StringNode: "string",
    NumberNode: "number",
    BooleanNode: "boolean",
    NullNode: "null",
}
"""The JSON type of the nodes that have a single one."""


def any_of(branches: list[Node], one_of: bool, at: str) -> Node:
    """Return a flat union without the branches that no value matches.

    It is the only branch itself, or Never without branches. `one_of`: a value must match exactly one branch, so that
    nested unions are not flattened.
    """
    flat: list[Node] = []
    for branch in branches:
        if (
            isinstance(branch, UnionNode)
            and not branch.annotations
            and not branch.unmodelled
            and not (branch.one_of or one_of)
        ):
            flat.extend(branch.branches)
        elif not isinstance(branch, NeverNode):
            flat.append(branch)
    if not flat:
        return NeverNode(at=at)
    return flat[0] if len(flat) == 1 else UnionNode(tuple(flat), one_of, at=at)


def is_free(node: ObjectNode) -> bool:
    """Return True if other keys are allowed only because the source declares nothing about the object."""
    return isinstance(node.rest, AnyNode) and node.rest.at == node.at and not node.rest.unmodelled


_AnyKind = TypeVar("_AnyKind", bound=_Base)


def annotate(node: _AnyKind, by: _Base, *, override: bool = False) -> _AnyKind:
    """Return `node` with the annotations and unmodelled assertions of `by` added.

    All assertions of both are kept, as far as they can apply to the node's kind. Where annotations differ, `node` takes
    precedence, or `by` with `override`. `origins` records which keywords come from another place in the source.
    """
    if not by.annotations and not by.unmodelled:
        return node
    if node.at == by.at and not (by.unmodelled or node.annotations or node.origins or by.origins):
        return replace(node, annotations=by.annotations)
    taken = by.annotations if override else {k: v for k, v in by.annotations.items() if k not in node.annotations}
    kinds = _kinds(node) if by.unmodelled else None
    applicable = {k: v for k, v in by.unmodelled.items() if kinds is None or KIND_OF_KEYWORD.get(k) in (None, *kinds)}
    unmodelled, added = _merge_assertions(node.unmodelled, applicable)
    origins = dict(node.origins)
    for keyword, source in (*((key, key) for key in taken), *added):
        origins[keyword] = by.pointer(source)
        if origins[keyword] == node.at + join(keyword):
            del origins[keyword]
    return replace(node, annotations={**node.annotations, **taken}, unmodelled=unmodelled, origins=origins)


def _kinds(node: _Base) -> frozenset[str] | None:
    """Return the JSON types of the values of a node, to which keywords of other types never apply; None: any type."""
    if isinstance(node, EnumNode):
        return frozenset(_VALUE_KINDS.get(type(value), "boolean") for value in node.values)
    kind = NODE_KINDS.get(type(node))
    return None if kind is None else frozenset({kind})


_VALUE_KINDS: dict[type, str] = {dict: "object", list: "array", str: "string", int: "number", float: "number"}
_STRICTER = {"minProperties": max, "maxProperties": min}


def _merge_assertions(mine: Object, theirs: Object) -> tuple[Object, list[tuple[str, str]]]:
    """Merge unmodelled assertions; return also, for each that comes from `theirs`, its keyword here and there.

    A second value of a keyword is kept as a part of `allOf`.
    """
    merged, added = dict(mine), list[tuple[str, str]]()
    for keyword, value in theirs.items():
        if keyword not in mine:
            merged[keyword] = value
            added.append((keyword, keyword))
        elif mine[keyword] == value:
            continue
        elif keyword in _STRICTER:
            merged[keyword] = _STRICTER[keyword](mine[keyword], value)
            if merged[keyword] != mine[keyword]:
                added.append((keyword, keyword))
        elif keyword == "patternProperties" and not mine[keyword].keys() & value.keys():
            merged[keyword] = {**mine[keyword], **value}
        else:
            parts = value if keyword == "allOf" else [value if keyword == "if" else {keyword: value}]
            merged["allOf"] = [*merged.get("allOf", ()), *parts]
            added.append(("allOf", keyword))
    return merged, added


def parse_string(schema: Object, at: str) -> StringNode:
    """Read the keywords of a string; values of a wrong type are ignored."""
    pattern, name = schema.get("pattern"), schema.get("format")
    return StringNode(
        min_length=parse_count(schema.get("minLength")) or 0,
        max_length=parse_count(schema.get("maxLength")),
        pattern=pattern if type(pattern) is str else None,
        format=name if type(name) is str else None,
        at=at,
    )


def parse_number(integer: bool, schema: Object, at: str) -> NumberNode:
    """Read a number. Draft 4 has boolean exclusive bounds, which turn `minimum` and `maximum` into exclusive ones."""
    low, high = _bound(schema.get("minimum")), _bound(schema.get("maximum"))
    exclusive_minimum, exclusive_maximum = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    name = schema.get("format")
    if exclusive_minimum is True:  # draft 4
        low, exclusive_minimum = None, low
    if exclusive_maximum is True:
        high, exclusive_maximum = None, high
    return NumberNode(
        integer,
        low,
        high,
        _bound(exclusive_minimum),
        _bound(exclusive_maximum),
        _bound(schema.get("multipleOf")),
        name if type(name) is str else None,
        at=at,
    )


def parse_count(value: JSON) -> int | None:
    return int(value) if type(value) in (int, float) and value >= 0 else None


def _bound(value: JSON) -> float | None:
    return value if type(value) in (int, float) else None


_TYPE_CHECKS: dict[str, Callable[[JSON], bool]] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "number": lambda value: type(value) in (int, float),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
}


def is_json_type(value: JSON, name: str) -> bool:
    """Return True if a value is of the JSON type `name`."""
    return _TYPE_CHECKS[name](value)


def recursive_definitions(root: Node, definitions: Mapping[str, Node]) -> frozenset[str]:
    """Return the pointers of the definitions that refer back to themselves; the root is `""`."""
    return find_cycles({"": refs_in(root), **{pointer: refs_in(node) for pointer, node in definitions.items()}})


def find_cycles(graph: Mapping[str, list[str]]) -> frozenset[str]:
    """Return the nodes of a graph from which a path leads back to them.

    Tarjan's algorithm for strongly connected components, iterative and linear: a chain of references may be longer than
    the recursion limit.
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_pointers: dict[str, None] = {}  # visited, not yet in a component; in the order of the visits
    found = {pointer for pointer, targets in graph.items() if pointer in targets}
    for start, targets_of_start in graph.items():
        path = [] if start in order else [(start, iter(targets_of_start))]
        while path:
            pointer, targets = path[-1]
            if pointer not in order:
                order[pointer] = low[pointer] = len(order)
                open_pointers[pointer] = None
            for target in targets:
                if target in graph and target not in order:
                    path.append((target, iter(graph[target])))
                    break
                if target in open_pointers:
                    low[pointer] = min(low[pointer], order[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[pointer])
                if low[pointer] == order[pointer]:
                    found.update(_pop_component(open_pointers, pointer))
    return frozenset(found)


def _pop_component(open_pointers: dict[str, None], first: str) -> list[str]:
    """Remove the component that begins at `first` from the open pointers; empty if it is a single definition."""
    members = [open_pointers.popitem()[0]]
    while members[-1] != first:
        members.append(open_pointers.popitem()[0])
    return members if len(members) > 1 else []


def refs_in(node: Node) -> list[str]:
    """List the targets of all references in a node, without following them."""
    found: list[str] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, RefNode):
            found.append(current.target)
        elif isinstance(current, ObjectNode):
            pending += [*current.properties.values(), *current.patterns.values()]
            pending += [current.rest] if current.rest is not None else []
        elif isinstance(current, ArrayNode):
            pending += [current.items] if current.items is not None else []
        elif isinstance(current, TupleNode):
            pending += [*current.items, *([current.rest] if current.rest is not None else [])]
        elif isinstance(current, UnionNode):
            pending += current.branches
    return found
