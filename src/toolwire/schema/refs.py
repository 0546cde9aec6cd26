"""The references between the definitions of a schema, and the recursive definitions."""

from __future__ import annotations

from collections.abc import Mapping

from .nodes import ArrayNode, Node, ObjectNode, RefNode, TupleNode, UnionNode

__all__ = ["find_cycles", "recursive_definitions", "refs_in"]


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
