"""Export training data: collect examples, check, de-duplicate, balance and split them, then write one format.

    with ExampleExport(ExportSettings(format="trl", dedupe="exact")) as export:
        export.collect(["traces/"])
        export.plan()                      # the report of losses and rejected examples, before anything is written
        export.write("train.jsonl")

Examples wait in a temporary file; only their keys are in memory.

Rows can be retriever-aware, as Gorilla trains on: retrieved specifications of tools beside the question.

    for row in add_specifications(examples, index, k=3):
        row.example, row.gold_found

The model learns to judge the specifications: with `gold="retrieved"` the right one may be missing, as it may be
missing in use. The calls to learn stay the same.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from ..ir.errors import ConfigError, EncodeError
from ..ir.losses import Action, Loss, Severity
from ..ir.parts import Part, Text, ToolCall
from ..ir.request import Message
from ..ir.text import dumps, to_bytes
from ..ir.tools import Tool
from ..ir.value import Value
from ..stream.strict import parse_object
from . import formats
from .example_files import RejectedExample, write_examples
from .example_selection import (
    ExampleKey,
    balance,
    check_example,
    hide_tools,
    hold_out_tools,
    is_held_out,
    key_of,
    tool_counts,
)
from .example_sources import collect_examples
from .examples import Example, is_result_message

if TYPE_CHECKING:
    from ..retrieve.index import ToolIndex


GoldMode: TypeAlias = Literal["retrieved", "kept", "first", "oracle"]
Placement: TypeAlias = Literal["tools", "prompt"]
_GOLD_MODES = ("retrieved", "kept", "first", "oracle")
_INTRODUCTION = "Use this API documentation for reference:"
_MAX_QUERY = 8_000  # characters; as in retrieve/index.py


class SpecifiedExample(Value, frozen=True):
    """An example with the specifications that it was given, and whether the search found all called tools."""

    example: Example
    gold_found: bool


def add_specifications(
    examples: Iterable[Example],
    index: ToolIndex,
    *,
    k: int = 3,
    gold: GoldMode = "retrieved",
    place: Placement = "tools",
    excluded: frozenset[str] = frozenset(),
) -> Iterator[SpecifiedExample]:
    """Replace the tools of each example by the `k` that a search for its question finds.

    `gold`: "retrieved" changes nothing about the result of the search; "kept" replaces its last tools by the called
    ones that it did not find; "first" puts the called ones first; "oracle" gives only those. `place`: "tools" puts
    declarations into the tools of the example, "prompt" puts them as JSON after the question, with no tools. Tools
    named in `excluded` are not searched: for examples of the training set, the test set's tools. Raise ConfigError if
    `k` is not positive or `gold` is unknown.
    """
    if k < 1:
        raise ConfigError(f"k must be positive, got {k}")
    if gold not in _GOLD_MODES:
        raise ConfigError(f"unknown gold mode {gold!r}", hint=f"use one of {', '.join(_GOLD_MODES)}")
    allow = (lambda one: one.tool.name not in excluded) if excluded else None
    for example in examples:
        number = _question_index(example)
        if number is None:
            yield SpecifiedExample(example, gold_found=not example.calls)
            continue
        query = example.messages[number].text[:_MAX_QUERY]
        found = [hit.tool for hit in index.search(query, k, allow=allow)] if query.strip() else []
        called = _called_tools(example, index)
        missing = set(called) - {tool.name for tool in found}
        tools = _choose(found, called, k, gold)
        changed = replace(example, tools=tools) if place == "tools" else _into_prompt(example, number, tools)
        yield SpecifiedExample(changed, gold_found=not missing)


def _question_index(example: Example) -> int | None:
    """Return the last user message with text before the first call; the last one of all if there is no call."""
    found = None
    for number, message in enumerate(example.messages):
        if message.role == "user" and not is_result_message(message) and message.text:
            found = number
        if found is not None and any(isinstance(part, ToolCall) for part in message.parts):
            break
    return found


def _called_tools(example: Example, index: ToolIndex) -> dict[str, Tool]:
    """Return the declarations of the called tools, of the example itself or of the index."""
    own = {tool.name: tool for tool in example.tools}
    return {name: own.get(name) or index.find(name) or Tool(name) for name in example.called_names}


def _choose(found: list[Tool], called: dict[str, Tool], k: int, gold: GoldMode) -> tuple[Tool, ...]:
    """Return the tools of an example: the retrieved ones, with the called ones treated as `gold` requires.

    `kept` adds called tools that were not found, at the end, in place of the last other tools.
    """
    if gold == "retrieved":
        return tuple(found)
    if gold == "oracle":
        return tuple(called.values())
    others = [tool for tool in found if tool.name not in called]
    if gold == "first":
        return (*called.values(), *others[: max(0, k - len(called))])
    missing = [tool for name, tool in called.items() if all(one.name != name for one in found)]
    room = max(0, k - len(called))
    kept_others = {tool.name for tool in others[:room]}
    kept = [tool for tool in found if tool.name in called or tool.name in kept_others]
    return (*kept, *missing)


def _into_prompt(example: Example, number: int, tools: tuple[Tool, ...]) -> Example:
    """Append the specifications to the question, one JSON object in a line, and remove the tools."""
    lines = [_INTRODUCTION, *(dumps(_specification(tool)) for tool in tools)] if tools else []
    message = example.messages[number]
    text = "\n".join([message.text, *lines])
    others: tuple[Part, ...] = tuple(part for part in message.parts if not isinstance(part, Text))
    changed = Message(message.role, (Text(text), *others), message.extra)
    messages = (*example.messages[:number], changed, *example.messages[number + 1 :])
    return replace(example, messages=messages, tools=())


def _specification(tool: Tool) -> dict[str, object]:
    fields = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {name: value for name, value in fields.items() if value is not None}


Dedupe: TypeAlias = Literal["exact", "near"]
Side: TypeAlias = Literal["train", "test"]
_MAX_DETAILS = 50  # rejected examples in a report; the rest is only counted by reason


class ExportSettings(Value, frozen=True, kw_only=True):
    """The options of an export. `split` holds out tools or examples; `share` is the share of them in the test set."""

    format: str
    source_format: str | None = None
    include_failed: bool = False
    check: bool = False
    dedupe: Dedupe | None = None
    max_per_tool: int | None = None
    min_per_tool: int | None = None
    split: Literal["by-tool", "by-example"] | None = None
    share: float = 0.1  # the usual tenth: enough to measure, and nine tenths to train on
    seed: int = 0
    k: int = 3  # specifications per example, as the default of `retrieve.call`, for which such examples train a model
    gold: GoldMode = "retrieved"
    place: Placement = "tools"


class LossCount(Value, frozen=True):
    """One kind of loss: the number of examples that have it, and the first of them."""

    concept: str
    action: Action
    severity: Severity
    detail: str
    count: int
    first: str


class ExportReport(Value, frozen=True):
    """The result of a plan: examples per side, examples per tool and side, losses, and rejected examples by reason.

    `details` has the first rejected examples. `gold_found` is the share of examples whose called tools were all found
    by the search for specifications; None without one.
    """

    examples: dict[str, int]
    tools: dict[str, dict[str, int]]
    losses: tuple[LossCount, ...]
    rejected: dict[str, int]
    details: tuple[RejectedExample, ...]
    held_out: tuple[str, ...] = ()
    gold_found: float | None = None


class ExampleExport:
    """An export in three steps: `collect`, `plan` and `write`. `index` adds retrieved specifications."""

    def __init__(self, settings: ExportSettings, index: ToolIndex | None = None) -> None:
        """Open a temporary file for the collected examples.

        Raises `ConfigError` for a format that cannot be written.
        """
        if formats.get(settings.format).encode is None:
            writable = ", ".join(formats.names(writable=True))
            raise ConfigError(f"the format {settings.format} is only read", hint=f"write one of {writable}")
        self.settings = settings
        self._index = index
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115
        self._keys: dict[int, ExampleKey] = {}
        self._seen: set[bytes] = set()
        self._rejected: Counter[str] = Counter()
        self._details: list[RejectedExample] = []
        self._sides: dict[int, Side] = {}
        self._held_out: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def collect(self, sources: Iterable[str | Path], progress: Callable[[int, int], None] | None = None) -> int:
        """Read examples of files and folders, store the usable examples, and return their number.

        Invalid examples and duplicates are counted as rejected. `progress` receives the files, and all files.
        """
        given = self.settings
        before = len(self._keys)
        self._spool.seek(0, 2)
        for example in collect_examples(
            sources,
            given.source_format,
            include_failed=given.include_failed,
            on_rejected=self._reject,
            progress=progress,
        ):
            problem = self._problem_of(example)
            if problem is not None:
                self._reject(problem)
                continue
            key = key_of(example)
            digest = key.near if given.dedupe == "near" else key.exact
            if given.dedupe is not None and digest in self._seen:
                self._reject(RejectedExample(example.source, f"duplicate ({given.dedupe})", example.user_text[:80]))
                continue
            self._seen.add(digest)
            self._keys[len(self._keys)] = key
            self._spool.write(to_bytes(msgspec.to_builtins(example)) + b"\n")
        return len(self._keys) - before

    def _problem_of(self, example: Example) -> RejectedExample | None:
        incomplete = next((call for call in example.calls if call.state != "complete"), None)
        if incomplete is not None:
            return RejectedExample(example.source, f"{incomplete.state} call", incomplete.name)
        found = check_example(example) if self.settings.check else []
        return RejectedExample(example.source, f"check: {found[0].rule}", str(found[0])) if found else None

    def _reject(self, rejected: RejectedExample) -> None:
        self._rejected[rejected.reason] += 1
        if len(self._details) < _MAX_DETAILS:
            self._details.append(rejected)

    def plan(self, progress: Callable[[int, int], None] | None = None) -> ExportReport:
        """Choose the examples of each side and report all losses; nothing is written.

        Examples that the format cannot express are removed from their side and counted as rejected.
        """
        self._choose_sides()
        encode = formats.get(self.settings.format).encode
        assert encode is not None
        losses: dict[tuple[str, Action, Severity], LossCount] = {}
        found = searched = 0
        for number, example, gold_found in self._prepared():
            searched += 1
            if progress is not None:
                progress(number, len(self._keys))
            found += gold_found
            try:
                row, lost = encode(example)
                to_bytes(row)
            except EncodeError as error:
                self._reject(RejectedExample(example.source, f"not expressible in {self.settings.format}", str(error)))
                del self._sides[number]
                continue
            _count_losses(lost, example.source, losses)
        return ExportReport(
            dict(sorted(Counter(self._sides.values()).items())),
            self._tools_by_side(),
            tuple(sorted(losses.values(), key=lambda one: (-_SEVERITY_RANK[one.severity], -one.count, one.concept))),
            dict(self._rejected.most_common()),
            tuple(self._details),
            tuple(sorted(self._held_out)),
            found / searched if self._index is not None and searched else None,
        )

    def _choose_sides(self) -> None:
        """Balance the tools, and assign each remaining example to training or held-out data.

        Examples that the balance leaves out are counted as rejected.
        """
        given = self.settings
        left_out = balance(
            self._keys, max_per_tool=given.max_per_tool, min_per_tool=given.min_per_tool, seed=given.seed
        )
        self._rejected.update(left_out.values())
        chosen = {number: key for number, key in self._keys.items() if number not in left_out}
        if given.split == "by-tool":
            names = {name for key in chosen.values() for name in key.called}
            self._held_out = hold_out_tools(names, given.share, given.seed)
        self._sides = {number: self._side_of(key) for number, key in chosen.items()}

    def _side_of(self, key: ExampleKey) -> Side:
        given = self.settings
        if given.split == "by-tool":
            return "train" if self._held_out.isdisjoint(key.called) else "test"
        if given.split == "by-example":
            return "test" if is_held_out(key, given.share, given.seed) else "train"
        return "train"

    def _tools_by_side(self) -> dict[str, dict[str, int]]:
        every = tool_counts(self._keys[number] for number in self._sides)
        sides: dict[str, dict[str, int]] = {
            side: tool_counts(self._keys[number] for number, one in self._sides.items() if one == side)
            for side in dict.fromkeys(sorted(self._sides.values()))
        }
        return {name: {side: counts.get(name, 0) for side, counts in sides.items()} for name in every}

    def _prepared(self) -> Iterator[tuple[int, Example, bool]]:
        """Yield the chosen examples as they will be encoded, and whether the search found their tools."""
        self._spool.seek(0)
        for number, line in enumerate(self._spool):
            side = self._sides.get(number)
            if side is None:
                continue
            example = formats.get("toolwire").decode(parse_object(line))
            hidden = self._held_out if side == "train" else frozenset()
            example, gold_found = hide_tools(example, hidden), False
            if self._index is not None:
                given = self.settings
                (specified,) = add_specifications(
                    [example], self._index, k=given.k, gold=given.gold, place=given.place, excluded=hidden
                )
                example, gold_found = specified.example, specified.gold_found
            yield number, example, gold_found

    def write(self, path: str | Path) -> dict[str, int]:
        """Write the planned examples; return the number of rows in each file.

        With a split, FILE.jsonl becomes FILE.train.jsonl and FILE.test.jsonl.
        """
        return {str(file): self._write_side(file, side) for side, file in self.files(path).items()}

    def files(self, path: str | Path) -> dict[Side, Path]:
        """Return the files that `write` creates."""
        target = Path(path)
        if self.settings.split is None:
            return {"train": target}
        sides: tuple[Side, Side] = ("train", "test")
        return {side: target.with_name(f"{target.stem}.{side}{target.suffix or '.jsonl'}") for side in sides}

    def _write_side(self, target: Path, side: Side) -> int:
        chosen = (example for number, example, _ in self._prepared() if self._sides[number] == side)
        return write_examples(target, chosen, self.settings.format)


_SEVERITY_RANK: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


def _count_losses(lost: Iterable[Loss], source: str, losses: dict[tuple[str, Action, Severity], LossCount]) -> None:
    """Count each kind of loss once for an example."""
    kinds = {(loss.concept, loss.action, loss.severity): loss for loss in reversed(list(lost))}
    for kind, loss in kinds.items():
        known = losses.get(kind)
        if known is None:
            losses[kind] = LossCount(*kind, loss.detail, 1, f"{source} {loss.path}".strip())
        else:
            losses[kind] = LossCount(*kind, known.detail, known.count + 1, known.first)
