r"""Numbers and property names in another notation than the expected one.

Numbers whose text is not the one that JSON would have: `+33`, `0x1F`, `1_000`, `-0`. Where the schema expects a number,
the notation does not matter. Where it expects text, the text is the one that the model wrote (`+33`, a telephone
number), and where it accepts both, the arguments are ambiguous.

Property names that differ from a declared one only in characters that no name has: `"lat "`, `max\_results` as Markdown
escapes it, `"'lat'"`, full-width letters. Where the declared name is absent, it is the one that was meant. Another case,
and other separators (`maxResults` for `max_results`), are guesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ...ir.errors import BrokenJSON
from ...ir.pointer import JSON, Object, child_pointer, split
from ...ir.value import Value
from ...stream.repair import repair_json
from ..bounds import StepBudget
from ..parsing.membership import RefResolver, fits, text_matches
from ..parsing.nodes import AnyNode, ArrayNode, Node, ObjectNode, TupleNode, UnionNode
from .coercion import RepairStep, coercion_budget, resolve_refs

_MAX_CHECKED = 8  # numbers whose text is validated as well; beyond it the call is reported as ambiguous, the safe side
_NOISE = r"[\s\u200b-\u200d\u2060\ufeff\"'`\u2018\u2019\u201c\u201d]"  # spaces and quotes
# backslashes, no width
_NAME_NOISE = re.compile(rf"\A{_NOISE}++|(?<!{_NOISE}){_NOISE}++\Z|[\\\u200b-\u200d\u2060\ufeff]")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}  # the block repeats U+0021 to U+007E
_SEPARATOR = re.compile(r"[\W_]++")


class Spellings(Value, frozen=True):
    """The text of each number by its path, and the paths where the schema may accept both."""

    texts: dict[str, str]
    doubtful: tuple[str, ...]


def written_arguments(written: JSON, layers: Iterable[RepairStep]) -> JSON:
    """Return the value as written without the layers that `unwrap` removed from the parsed value."""
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
    """Compare a value with the value as written, and collect the numbers that have another text than JSON's.

    A number is doubtful if the schema accepts it both as a number and as that text.
    """
    if value is written:
        return Spellings({}, ())
    texts, doubtful = dict[str, str](), list[str]()
    pending: list[tuple[list[Node], JSON, JSON, str]] = [(find_branches([root], target), value, written, "")]
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
                (find_branches(_members(nodes, key), target), inner, text[key], child_pointer(path, key))
                for key, inner in item.items()
                if key in text
            ]
        elif type(item) is list and type(text) is list:
            pending += [
                (find_branches(_items(nodes, index), target), inner, other, child_pointer(path, index))
                for index, (inner, other) in enumerate(zip(item, text, strict=False))
            ]
    return Spellings(texts, tuple(doubtful))


def ambiguous_spelling(
    value: JSON, spellings: Spellings, accepts: Callable[[JSON], bool]
) -> tuple[str, str, JSON] | None:
    """Return a path, its text, and the value with that text, if the value is valid both with the number and the text.

    None if no number is ambiguous. Numbers beyond the limit of checks count as ambiguous.
    """
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
    """A value with declared property names, and the paths of keys that may be other spellings of declared names."""

    value: JSON
    steps: tuple[RepairStep, ...] = ()
    doubtful: tuple[str, ...] = ()


def rename_members(root: Node, value: JSON, target: RefResolver, *, guess: bool = False) -> Renamed:
    """Replace misspelt property names by the declared ones. `guess`: the case may differ, too.

    If that would cost too much, no name is replaced: the same slip is repaired everywhere or nowhere.
    """
    budget = coercion_budget(value)
    renaming = _Renaming(target, budget, guess)
    renamed = renaming.rename([root], value, "")
    if budget.exhausted:
        return Renamed(value, (), (*renaming.doubtful, *(step.path for step in renaming.steps)))
    return Renamed(renamed, tuple(renaming.steps), tuple(renaming.doubtful))


class _Renaming:
    """One walk over a value; `steps` are its changes, `doubtful` the paths of keys that it left."""

    __slots__ = ("_budget", "_declared", "_guess", "_target", "doubtful", "steps")

    def __init__(self, target: RefResolver, budget: StepBudget, guess: bool) -> None:
        self._target = target
        self._budget = budget
        self._guess = guess
        self._declared: dict[tuple[int, ...], dict[str, list[str]]] = {}  # names by spelling, of nodes by their ids
        self.steps: list[RepairStep] = []
        self.doubtful: list[str] = []

    def rename(self, nodes: Iterable[Node | None], value: JSON, path: str) -> JSON:
        """Return the value with declared names for misspelt keys, at all levels, and record the steps.

        `nodes` are the possible schemas of the value, `path` is its pointer.
        """
        if type(value) is dict:
            nodes = find_branches(nodes, self._target)
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
            nodes = find_branches(nodes, self._target)
            return [
                self.rename(_items(nodes, index), item, child_pointer(path, index)) for index, item in enumerate(value)
            ]
        return value

    def _new_names(self, nodes: list[ObjectNode], value: Object, path: str) -> dict[str, str]:
        """Return the declared names of misspelt keys, where exactly one key is a spelling of exactly one name.

        Other misspelt keys are recorded in `doubtful`, and so is a key that a pattern may match, and all if the budget
        ends.
        """
        self._budget.spend(len(nodes) + len(value))
        misspelt: dict[str, list[str]] = {}
        for key in value:
            if not any(key in node.properties for node in nodes) and (self._guess or self._spelling(key) != key):
                misspelt.setdefault(self._spelling(key), []).append(key)
        names = self._declared_names(nodes) if misspelt else {}
        renamed: dict[str, str] = {}
        for spelling, (key, *others) in misspelt.items():
            meant = names.get(spelling, [])
            is_taken = bool(others) or len(meant) > 1 or any(name in value for name in meant)
            if meant and (is_taken or self._budget.exhausted or self._matches_pattern(nodes, key)):
                self.doubtful.append(child_pointer(path, key))
            elif meant:
                renamed[key] = meant[0]
        return renamed

    def _declared_names(self, nodes: list[ObjectNode]) -> dict[str, list[str]]:
        """Return the declared names by their spelling, computed once per group of nodes."""
        ids = tuple(map(id, nodes))
        if ids not in self._declared:
            declared = dict.fromkeys(name for node in nodes for name in node.properties)
            self._budget.spend(len(declared))
            self._declared[ids] = {}
            for name in declared:
                self._declared[ids].setdefault(self._spelling(name), []).append(name)
        return self._declared[ids]

    def _matches_pattern(self, nodes: list[ObjectNode], key: str) -> bool:
        patterns = [pattern for node in nodes for pattern in node.patterns]
        return any(text_matches(pattern, key, self._budget) is not False for pattern in patterns)

    def _spelling(self, name: str) -> str:
        if self._guess:
            return _SEPARATOR.sub("", name).casefold()
        return _NAME_NOISE.sub("", name if name.isascii() else name.translate(_FULL_WIDTH))


def find_branches(nodes: Iterable[Node | None], target: RefResolver) -> list[Node]:
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
