"""A mining run: open its tools, mine a corpus in shards, and write the results.

Tools are given by a file with settings, or by name with their data files:

    calculator,calendar,convert,search=passages.txt,qa=answers.tsv,translate=entries.tsv

The results are the candidates, the texts with calls, and the counts of every tool.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.value import Value
from ...run.values.records import Store
from ..language_model import LanguageModel
from ..run_folder import RunFolder, job_key, reading, run_shards, write_atomically
from .candidates import CallExecutor
from .corpus import AugmentedText, CorpusText, read_texts
from .mining import CallCandidate, MiningSettings, build_corpus, decide, mine_texts
from .mining_tool import MiningTool, calculator_tool, calendar_tool, convert_tool, qa_tool, search_tool, translate_tool

_KINDS = ("calculator", "calendar", "convert", "search", "qa", "translate")
_HINT = "use calculator, calendar, convert, search=FILE, qa=FILE or translate=FILE"


class ListedTool(Value, frozen=True, forbid_unknown_fields=True):
    """A tool of a list: its kind, its data file, and settings that replace the paper's."""

    kind: str
    file: str | None = None
    today: str | None = None
    call_probability: float | None = None
    positions: int | None = None
    samples: int | None = None
    threshold: float | None = None


def read_tool_list(text: str) -> list[ListedTool]:
    """Return the tools named in a text with commas, or in a JSON file with a list of entries.

    Paths in the file are relative to its folder. Raises `ConfigError` for an unreadable or empty list and an invalid
    entry.
    """
    path = Path(text)
    if path.suffix == ".json":
        with reading(text):
            data = path.read_bytes()
        try:
            entries = msgspec.json.decode(data, type=list[ListedTool])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{text}: {error}", hint='write a list such as [{"kind": "calculator"}]') from None
        folder = path.parent
        entries = [msgspec.structs.replace(row, file=str(folder / row.file)) if row.file else row for row in entries]
    else:
        parts = [part.strip().partition("=") for part in text.split(",") if part.strip()]
        entries = [ListedTool(kind, file or None) for kind, _, file in parts]
    for row in entries:
        _check(row)
    if not entries:
        raise ConfigError("there is no tool", hint=_HINT)
    return entries


def open_tools(entries: list[ListedTool]) -> list[MiningTool]:
    """Open the tools of a list."""
    return [_open(one) for one in entries]


def _check(entry: ListedTool) -> None:
    if entry.kind not in _KINDS:
        raise ConfigError(f"unknown tool {entry.kind!r}", hint=_HINT)
    needs_file = entry.kind in ("search", "qa", "translate")
    if needs_file != (entry.file is not None):
        message = "needs a file" if needs_file else "has no file"
        raise ConfigError(f"the tool {entry.kind} {message}", hint=_HINT)


def _open(entry: ListedTool) -> MiningTool:
    """Return the listed tool, with the settings that the entry overrides."""
    names = ("call_probability", "positions", "samples", "threshold")
    settings = {name: getattr(entry, name) for name in names if getattr(entry, name) is not None}
    if entry.kind == "calendar":
        return calendar_tool(entry.today, **settings)
    if entry.kind in _WITH_FILE:
        make, read = _WITH_FILE[entry.kind]
        return make(read(entry.file or ""), **settings)
    return calculator_tool(**settings) if entry.kind == "calculator" else convert_tool(**settings)


def _read_pairs(file: str) -> Mapping[str, str]:
    """Read two columns separated by a tab. Raise ConfigError for a line without two columns."""
    pairs: dict[str, str] = {}
    for number, one in enumerate(read_texts(file), 1):
        left, tab, right = one.text.partition("\t")
        if not tab or not left.strip() or not right.strip():
            raise ConfigError(f"{file}, entry {number} has no two columns", hint="separate two texts by a tab")
        pairs[left.strip()] = right.strip()
    return pairs


_WITH_FILE: dict[str, tuple[Callable[..., MiningTool], Callable[[str], Any]]] = {
    "search": (search_tool, lambda file: [passage.text for passage in read_texts(file)]),
    "qa": (qa_tool, _read_pairs),
    "translate": (translate_tool, _read_pairs),
}


CANDIDATES, CORPUS, REPORT = "candidates.jsonl", "corpus.jsonl", "report.json"


class ToolCounts(Value, frozen=True):
    """The numbers of one tool. `reasons` counts the candidates that were not kept."""

    tool: str
    positions: int
    samples: int
    candidates: int
    executed: int
    kept: int
    reasons: dict[str, int]


class MiningReport(Value, frozen=True):
    """The result of a mining run: `texts` in total, `augmented` of them with calls."""

    texts: int
    augmented: int
    tools: tuple[ToolCounts, ...]


def mine_corpus(
    model: LanguageModel,
    texts: Sequence[CorpusText],
    tools: Sequence[MiningTool],
    settings: MiningSettings,
    folder: RunFolder,
    store: Store,
    *,
    shard_size: int = 32,
    lease: float = 120.0,
    progress: Callable[[int, int], None] | None = None,
) -> MiningReport:
    """Mine `texts` together with the other workers of `store`, and write the results to `folder`.

    Every worker with equal settings and inputs gets the same results. A finished shard is not computed again. Raise
    ConfigError if `shard_size` is not positive.
    """
    if shard_size < 1:
        raise ConfigError(f"shard_size must be positive, got {shard_size}")
    parts = [texts[first : first + shard_size] for first in range(0, len(texts), shard_size)]
    job = job_key([folder.manifest["settings"], shard_size], sorted(folder.manifest["inputs"].values()))

    with CallExecutor(tools) as executor:

        def work(number: int) -> list[Any]:
            first = number * shard_size
            found = mine_texts(model, parts[number], tools, settings, executor=executor, first=first)
            return msgspec.to_builtins(found)  # type: ignore[no-any-return]

        fingerprints = [hashlib.sha256(msgspec.json.encode(part)).hexdigest() for part in parts]
        shards = run_shards(store, job, fingerprints, work, lease=lease, progress=progress)
    candidates = [one for shard in shards for one in msgspec.convert(shard, list[CallCandidate])]
    decided = decide(candidates, tools, settings)
    augmented = build_corpus([one.text for one in texts], decided)
    report = MiningReport(
        len(texts), sum(bool(row.calls) for row in augmented), tuple(_count(tool.name, decided) for tool in tools)
    )
    _write_rows(folder, CANDIDATES, decided)
    _write_rows(folder, CORPUS, augmented)
    folder.write_json(REPORT, report)
    return report


def _count(name: str, decided: Sequence[CallCandidate]) -> ToolCounts:
    """Count a tool's candidates by outcome, the most frequent reason for rejection first."""
    own = [candidate for candidate in decided if candidate.tool == name]
    reasons = Counter(candidate.reason for candidate in own if candidate.reason)
    return ToolCounts(
        name,
        positions=len({(candidate.text, candidate.position) for candidate in own}),
        samples=sum(candidate.samples for candidate in own),
        candidates=len(own),
        executed=sum(candidate.result is not None for candidate in own),
        kept=sum(not candidate.reason for candidate in own),
        reasons=dict(reasons.most_common()),
    )


def _write_rows(folder: RunFolder, name: str, rows: Sequence[CallCandidate] | Sequence[AugmentedText]) -> None:
    write_atomically(folder.path / name, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
