"""Numbers whose text is not the one that JSON would have: `+33`, `0x1F`, `-0`.

Where the schema expects a number, the notation does not matter. Where it expects text, the text is the one that the
model wrote (`+33`, a telephone number), and where it accepts both, the arguments are ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ir.errors import BrokenJSON
from ..ir.pointer import JSON, child_pointer, split
from ..ir.value import Value
from ..stream.repair import repair_json
from .coerce import resolve_refs
from .fits import RefResolver, fits
from .nodes import AnyNode, ArrayNode, Node, ObjectNode, TupleNode, UnionNode
from .steps import RepairStep

__all__ = ["Spellings", "ambiguous_spelling", "find_spellings", "parse_as_written", "written_arguments"]

_MAX_CHECKED = 8


class Spellings(Value, frozen=True):
    """The text of each number by its path, and the paths where the schema may accept both."""

    texts: dict[str, str]
    doubtful: tuple[str, ...]


def written_arguments(written: JSON, layers: Iterable[RepairStep]) -> JSON:
    """Remove the layers that `unwrap` removed from the value, from the value as written."""
    for layer in layers:
        if type(written) is str:
            written = parse_as_written(written)
        if type(written) is list:
            written = written[0] if layer.name == "unwrapped_list" else written
        elif type(written) is dict and layer.path:
            written = written[split(layer.path)[0]]
    return parse_as_written(written) if type(written) is str else written


def parse_as_written(text: str) -> JSON:
    """Parse the value in `text`, with numbers as text if theirs is not canonical; return other text unchanged."""
    try:
        found = repair_json(text, finished=False)
    except BrokenJSON:
        return text
    return found.value if found.as_written is None else found.as_written


def find_spellings(root: Node, value: JSON, written: JSON, target: RefResolver) -> Spellings:
    """Compare a value with the value as written; they differ only where a number has another text."""
    if value is written:
        return Spellings({}, ())
    texts, doubtful = dict[str, str](), list[str]()
    pending: list[tuple[list[Node], JSON, JSON, str]] = [(_branches([root], target), value, written, "")]
    while pending:
        nodes, item, text, path = pending.pop()
        if type(item) in (int, float) and type(text) is str:
            texts[path] = text
            is_doubtful = any(fits(node, item, target) for node in nodes) and any(
                fits(node, text, target) for node in nodes
            )
            if is_doubtful and text != "-0":  # -0 is JSON, which is never read in another way
                doubtful.append(path)
        elif type(item) is dict and type(text) is dict:
            pending += [
                (_branches(_members(nodes, key), target), inner, text[key], child_pointer(path, key))
                for key, inner in item.items()
                if key in text
            ]
        elif type(item) is list and type(text) is list:
            pending += [
                (_branches(_items(nodes, index), target), inner, other, child_pointer(path, index))
                for index, (inner, other) in enumerate(zip(item, text, strict=False))
            ]
    return Spellings(texts, tuple(doubtful))


def ambiguous_spelling(
    value: JSON, spellings: Spellings, accepts: Callable[[JSON], bool]
) -> tuple[str, str, JSON] | None:
    """Return a path, its text, and the value with that text, if both are valid; None if no number is ambiguous."""
    if not spellings.doubtful or not accepts(value):
        return None
    for count, path in enumerate(spellings.doubtful):
        text = spellings.texts[path]
        alternative = _replace(value, split(path), text)
        if count >= _MAX_CHECKED or accepts(alternative):
            return path, text, alternative
    return None


def _replace(value: JSON, path: list[str], text: str) -> JSON:
    """Return a copy of `value` with `text` at `path`."""
    if not path:
        return text
    if type(value) is dict:
        return {**value, path[0]: _replace(value[path[0]], path[1:], text)}
    assert type(value) is list
    at = int(path[0])
    return [*value[:at], _replace(value[at], path[1:], text), *value[at + 1 :]]


def _branches(nodes: Iterable[Node | None], target: RefResolver) -> list[Node]:
    """Resolve references and unions. Nodes without a type are left out: they do not ask for text."""
    pending, found, seen = [node for node in nodes if node is not None], list[Node](), set[int]()
    while pending:
        node = resolve_refs(pending.pop(), target)
        if isinstance(node, UnionNode):
            if id(node) not in seen:  # a union may refer to itself
                seen.add(id(node))
                pending += node.branches
        elif not isinstance(node, AnyNode):
            found.append(node)
    return found


def _members(nodes: list[Node], key: str) -> list[Node | None]:
    return [node.properties.get(key, node.others) for node in nodes if isinstance(node, ObjectNode)]


def _items(nodes: list[Node], index: int) -> list[Node | None]:
    arrays: list[Node | None] = [node.items for node in nodes if isinstance(node, ArrayNode)]
    tuples = [node for node in nodes if isinstance(node, TupleNode)]
    return arrays + [node.items[index] if index < len(node.items) else node.rest for node in tuples]
