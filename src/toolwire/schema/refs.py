"""Which definitions a schema leads to, and whether one leads back to itself."""

from __future__ import annotations

from .fits import Target
from .nodes import Array, Node, Record, Ref, Tuple, Union

__all__ = ["contains_itself", "refs_in"]


def contains_itself(target: str, look_up: Target) -> bool:
    seen: set[str] = set()
    waiting = [target]
    while waiting:
        found = look_up(waiting.pop())
        for inner in refs_in(found) if found is not None else ():
            if inner == target:
                return True
            if inner not in seen:
                seen.add(inner)
                waiting.append(inner)
    return False


def refs_in(node: Node) -> list[str]:
    if isinstance(node, Ref):
        return [node.target]
    inner: list[Node] = []
    if isinstance(node, Record):
        inner = [*node.properties.values(), *([node.rest] if node.rest is not None else [])]
    elif isinstance(node, Array):
        inner = [node.items] if node.items is not None else []
    elif isinstance(node, Tuple):
        inner = [*node.items, *([node.rest] if node.rest is not None else [])]
    elif isinstance(node, Union):
        inner = list(node.branches)
    return [target for one in inner for target in refs_in(one)]
