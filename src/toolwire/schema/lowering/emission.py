"""The state of one emission, shared by the modules that emit one kind of node.

`EmitContext` is their interface. It holds the two things that are decided for a whole schema: the budget of optional
parameters and unions, and the replacements of property names that the dialect does not accept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from ...ir.losses import Losses
from ...ir.pointer import JSON, Object
from ..bounds import StepBudget
from ..dialects import Dialect
from ..parsing.nodes import ArrayNode, BooleanNode, EnumNode, Node, NullNode, ObjectNode, TupleNode, UnionNode, annotate
from ..parsing.parser import ParsedSchema
from .codec import Codec

# Limits on the number of optional parameters and unions in a schema, and the fallbacks beyond them.
#
# A provider that compiles schemas limits the features that make grammars grow. An optional parameter can be made
# required with a string for absent (enums and booleans, at no cost), or required and nullable (at the cost of a
# union). Parameters are handled in the order of the source.


UNSET = "(not set)"


class ParameterBudget:
    """The remaining allowance of one schema while it is being emitted."""

    def __init__(self, source: ParsedSchema, dialect: Dialect) -> None:
        """Count the parameters of the source; `is_tight` is True if they exceed a limit of the dialect."""
        self.is_tight = False
        self._optional = self._unions = 0  # how many more may be emitted
        if dialect.optional_parameters is None or dialect.union_parameters is None:
            return
        optional, unions = count_parameters([source.root, *source.defs.values()])
        self.is_tight = optional > dialect.optional_parameters or unions > dialect.union_parameters
        self._optional = dialect.optional_parameters
        self._unions = max(dialect.union_parameters - unions, 0)

    def drop_null(self, node: Node) -> Node:
        """Remove null from the node of an optional property: it can be absent, and null would cost a union."""
        if not isinstance(node, UnionNode):
            return node
        branches = [branch for branch in node.branches if not isinstance(branch, NullNode)]
        if len(branches) != 1 or len(branches) == len(node.branches):
            return node
        self._unions += 1
        return annotate(branches[0], node, override=True)

    def unset_values(self, node: Node) -> EnumNode | None:
        """Return the values of an optional property that can be sent as an enum of strings with `UNSET` for absent.

        None if it has other values: assertions that nodes have no field for could not be kept (`unmodelled`), floats and
        null have several spellings, and values must differ as text without case, in which models write True and true.
        """
        if node.unmodelled:
            return None
        if isinstance(node, BooleanNode):
            return EnumNode((True, False), annotations=node.annotations, at=node.at)
        if (
            isinstance(node, EnumNode)
            and UNSET not in node.values
            and all(type(v) in (str, int, bool) for v in node.values)
        ):
            labels = {str(value).lower() for value in node.values}
            return node if len(labels) == len(node.values) else None
        return None

    def must_fill(self) -> bool:
        """Use up the allowance for one optional property; return True if it has to be required and nullable instead.

        When both allowances are used up, it stays optional, and the schema exceeds a limit of the dialect.
        """
        if not self.is_tight:
            return False
        if self._optional > 0:
            self._optional -= 1
            return False
        if self._unions > 0:
            self._unions -= 1
            return True
        return False


def count_parameters(nodes: list[Node]) -> tuple[int, int]:
    """Count the optional parameters and the properties that are unions, in the nodes and all nodes below them."""
    optional = unions = 0
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ObjectNode):
            others = node.others
            optional += len(node.properties.keys() - node.required) + (others is not None and bool(node.properties))
            unions += sum(isinstance(inner, UnionNode) for inner in node.properties.values())
            pending += [*node.properties.values(), *([others] if others is not None else [])]
        elif isinstance(node, ArrayNode):
            pending += [node.items] if node.items is not None else []
        elif isinstance(node, TupleNode):
            pending += node.items
        elif isinstance(node, UnionNode):
            pending += node.branches
    return optional, unions


class Emitted(NamedTuple):
    """A schema of the dialect, and the codec of its values; None: they are unchanged."""

    schema: Object
    codec: Codec | None = None


class CountBound(NamedTuple):
    """A bound on a number of items: the keyword to emit, the keyword of the source, and the value."""

    keyword: str
    source: str
    value: int | None


class EmitContext(Protocol):
    """The emitter, as passed to the function that emits a node. `emit` handles the nodes inside it."""

    dialect: Dialect
    losses: Losses
    defs: dict[str, Object]
    steps: StepBudget
    budget: ParameterBudget

    def find_target(self, pointer: str) -> Node | None: ...
    def emit(self, node: Node, depth: int) -> Emitted: ...
    def emit_null(self, node: Node) -> Emitted: ...
    def emit_any(self, node: Node) -> Emitted: ...
    def add_description(
        self, schema: Object, node: Node, remarks: list[str], codec: Codec | None = ..., *, repeats: bool = ...
    ) -> Object: ...
    def describe(self, node: Node, codec: Codec | None) -> str: ...
    def can_repeat(self, node: Node, keyword: str) -> bool: ...
    def add_counts(self, out: Object, remarks: list[str], node: Node, counts: Sequence[CountBound]) -> None: ...
    def accepts_null(self, node: Node) -> bool: ...
    def make_nullable(self, schema: Object) -> Object: ...
    def close_object(self, schema: Object) -> Object: ...
    def report_unenforced(self, node: Node, keyword: str, detail: str = ...) -> None: ...
    def report_pattern(self, node: Node, pattern: str, is_sent: bool) -> None: ...
    def report_omitted(self, node: Node, keyword: str, detail: str) -> None: ...
    def report_rewrite(self, node: Node, concept: str, detail: str, keyword: str | None = ...) -> None: ...


class PropertyNames:
    """The property names of one object, without collisions."""

    def __init__(self, pattern: str | None, names: Collection[str]) -> None:
        self._pattern = pattern
        self._taken = set(names)
        self._next: dict[str, int] = {}

    def legal_name(self, name: str) -> str:
        """Return the name itself if the dialect accepts it; otherwise a similar name that is not taken."""
        if self._pattern is None or is_legal(self._pattern, name):
            return name
        clean = re.sub(r"[^a-zA-Z0-9_]+", "_", name)[:50].strip("_") or "property"
        if not re.match(r"[a-zA-Z_]", clean):
            clean = f"_{clean}"
        return self.allocate(clean)

    def allocate(self, name: str) -> str:
        """Return the name with a number appended if it is taken, and mark it as taken."""
        candidate, number = name, self._next.get(name, 2)
        while candidate in self._taken:
            candidate, number = f"{name}_{number}", number + 1
        self._taken.add(candidate)
        self._next[name] = number  # lower numbers are taken: many names of one stem cost one step each
        return candidate


def is_legal(pattern: str, name: str) -> bool:
    return _is_legal_cached(pattern, name) if len(name) <= _MAX_CACHED_NAME else _is_legal(pattern, name)


def _is_legal(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None


_MAX_CACHED_NAME = 256  # characters; the number of entries is no bound for the memory of longer names
_is_legal_cached = lru_cache(4096)(_is_legal)


def mentions_illegal(pattern: str | None, schema: JSON) -> bool:
    """Return True if a schema names a property that is renamed in the dialect."""
    return pattern is not None and any(not is_legal(pattern, name) for name in _property_names(schema))


def _property_names(schema: JSON) -> Iterator[str]:
    """Yield the property names that a schema mentions. Data such as `enum` is searched as well."""
    pending = [schema]
    while pending:
        item = pending.pop()
        if type(item) is list:
            pending += item
        elif type(item) is dict:
            yield from _string_items(item.get("required"))
            for keyword in ("properties", "dependentSchemas", "dependentRequired", "dependencies"):
                if type(item.get(keyword)) is dict:
                    yield from item[keyword]
                    for names in item[keyword].values():
                        yield from _string_items(names)
            pending += item.values()


def _string_items(value: JSON) -> Iterator[str]:
    return (item for item in (value if type(value) is list else ()) if type(item) is str)
