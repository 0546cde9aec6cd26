r"""Numbers and property names in another notation than the expected one.

Numbers whose text is not the one that JSON would have: `+33`, `0x1F`, `1_000`, `-0`. Where the schema expects a number,
the notation does not matter. Where it expects text, the text is the one that the model wrote (`+33`, a telephone
number), and where it accepts both, the arguments are ambiguous.

Property names that differ from a declared one only in characters that no name has: `"lat "`, `max\_results` as Markdown
escapes it, `"'lat'"`. Where the declared name is absent, it is the one that was meant. Another case, and other
separators (`maxResults` for `max_results`), are guesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..ir.errors import BrokenJSON
from ..ir.pointer import JSON, Object, child_pointer, split
from ..ir.value import Value
from ..stream.repair import repair_json
from .coerce import coercion_budget, resolve_refs
from .fits import RefResolver, fits
from .nodes import AnyNode, ArrayNode, Node, ObjectNode, TupleNode, UnionNode
from .step_budget import StepBudget
from .steps import RepairStep

__all__ = [
    "Renamed",
    "Spellings",
    "ambiguous_spelling",
    "find_spellings",
    "parse_as_written",
    "rename_members",
    "written_arguments",
]

_MAX_CHECKED = 8
_NOISE = r"[\s\u200b\u2060\ufeff\"'`\u2018\u2019\u201c\u201d]"  # spaces and quotes
_NAME_NOISE = re.compile(rf"\A{_NOISE}++|{_NOISE}++\Z|\\")
_SEPARATOR = re.compile(r"[\W_]++")


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
            if layer.name == "named_list":
                written = {split(layer.path)[0]: written}
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


class Renamed(Value, frozen=True):
    """A value with declared property names, and the paths of keys that several names or values claim."""

    value: JSON
    steps: tuple[RepairStep, ...] = ()
    doubtful: tuple[str, ...] = ()


def rename_members(root: Node, value: JSON, target: RefResolver, *, guess: bool = False) -> Renamed:
    """Replace misspelt property names by the declared ones. `guess`: the case may differ, too."""
    renaming = _Renaming(target, coercion_budget(value), guess)
    renamed = renaming.rename([root], value, "")
    return Renamed(renamed, tuple(renaming.steps), tuple(renaming.doubtful))


class _Renaming:
    """One walk over a value; `steps` are its changes, `doubtful` the paths of keys that it left."""

    __slots__ = ("_budget", "_guess", "_target", "doubtful", "steps")

    def __init__(self, target: RefResolver, budget: StepBudget, guess: bool) -> None:
        self._target = target
        self._budget = budget
        self._guess = guess
        self.steps: list[RepairStep] = []
        self.doubtful: list[str] = []

    def rename(self, nodes: Iterable[Node | None], value: JSON, path: str) -> JSON:
        if type(value) is dict:
            nodes = _branches(nodes, self._target)
            names = self._new_names([node for node in nodes if isinstance(node, ObjectNode)], value, path)
            renamed: Object = {}
            for key, item in value.items():
                name = names.get(key) or key
                inner_path = child_pointer(path, name)
                if name != key:
                    self.steps.append(RepairStep("key_case" if self._guess else "key_spelling", inner_path))
                renamed[name] = self.rename(_members(nodes, name), item, inner_path)
            return renamed
        if type(value) is list:
            nodes = _branches(nodes, self._target)
            return [
                self.rename(_items(nodes, index), item, child_pointer(path, index)) for index, item in enumerate(value)
            ]
        return value

    def _new_names(self, nodes: list[ObjectNode], value: Object, path: str) -> dict[str, str]:
        """Return the declared names of misspelt keys, where exactly one key is a spelling of exactly one name."""
        declared = {name for node in nodes for name in node.properties}
        misspelt = [key for key in value if key not in declared and (self._guess or _NAME_NOISE.search(key))]
        is_known = bool(misspelt and declared) and not any(node.patterns for node in nodes)
        if not is_known or not self._budget.spend(len(declared) + len(value)):
            return {}
        keys, names = self._by_spelling(misspelt), self._by_spelling(declared)
        renamed: dict[str, str] = {}
        for spelling in keys.keys() & names.keys():
            found, (key, *others) = names[spelling], keys[spelling]
            if others or len(found) > 1 or found[0] in value:
                self.doubtful.append(child_pointer(path, key))
            else:
                renamed[key] = found[0]
        return renamed

    def _by_spelling(self, texts: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for text in texts:
            spelling = _SEPARATOR.sub("", text).casefold() if self._guess else _NAME_NOISE.sub("", text)
            found.setdefault(spelling, []).append(text)
        return found


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
