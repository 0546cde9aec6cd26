"""Limits on the number of optional parameters and unions in a schema, and the fallbacks beyond them.

A provider that compiles schemas limits the features that make grammars grow. An optional parameter can be made required
with a string for absent (enums and booleans, at no cost), or required and nullable (at the cost of a union). Parameters
are handled in the order of the source.
"""

from __future__ import annotations

from .dialects import Dialect
from .nodes import ArrayNode, BooleanNode, EnumNode, Node, NullNode, ObjectNode, TupleNode, UnionNode, annotate
from .parse import ParsedSchema

__all__ = ["UNSET", "ParameterBudget", "count_parameters"]

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
        """Return the values of a property for which a string can mean absent; None if it has no such values."""
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
        """Return True if the next optional property has to be required and nullable."""
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
