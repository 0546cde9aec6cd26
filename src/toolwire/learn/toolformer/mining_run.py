"""A mining run: open its tools, mine a corpus in shards, and write the results.

Tools are given by a file with settings, or by name. Search, questions and translation use an installed dictionary, or a file:

    calculator,calendar,convert,search,qa,translate
    search=passages.txt,qa=answers.tsv,translate=entries.tsv
    search=gcide.index,translate=freedict-deu-eng.index

The results are the candidates, the texts with calls, and the counts of every tool.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ...ir.errors import ConfigError
from ...ir.value import Value
from ...net.executors import open_results
from ...run.executor import Executor, map_items
from ..language_model import LanguageModel, open_model
from ..run_folder import RunFolder, job_key, reading, shard_name, write_atomically
from .candidates import CallExecutor
from .corpus import AugmentedText, CorpusText, read_texts
from .dictionaries import PassageIndex, dictionary_files, installed_dictionary, read_passages, read_translations
from .mining import CallCandidate, MiningSettings, build_corpus, decide, mine_texts
from .mining_tool import MiningTool, calculator_tool, calendar_tool, convert_tool, qa_tool, search_tool, translate_tool

_KINDS = ("calculator", "calendar", "convert", "search", "qa", "translate")
_HINT = "use calculator, calendar, convert, search, qa or translate; the last three also with a file: search=FILE"
# WordNet defines nouns, verbs and many names. The French dictionary is small, and its entries are clean.
_DICTIONARIES = {"search": "wn", "qa": "wn", "translate": "freedict-fra-eng"}


class ListedTool(Value, frozen=True, forbid_unknown_fields=True):
    """A tool of a list: its kind, its data file, and settings that replace its own."""

    kind: str
    file: str | None = None
    today: str | None = None
    call_probability: float | None = None
    positions: int | None = None
    samples: int | None = None
    threshold: float | None = None


def read_tool_list(text: str) -> list[ListedTool]:
    """Return the tools named in a text with commas, or in a JSON file with a list of entries.

    Paths in the file are relative to its folder. A tool without its file gets the installed dictionary. Raises
    `ConfigError` for an unreadable or empty list and an invalid entry, `MissingExtra` without the dictionary.
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
    if not entries:
        raise ConfigError("there is no tool", hint=_HINT)
    return [_complete(row) for row in entries]


def open_tools(entries: Sequence[ListedTool]) -> list[MiningTool]:
    """Open the tools of a list. Tools with the same dictionary share its index."""
    passages = cache(lambda index: PassageIndex(read_passages(index)))
    return [_open(one, passages) for one in entries]


def tool_files(entries: Sequence[ListedTool]) -> list[Path]:
    """Return the data files of the tools. A dictionary has two."""
    files: list[Path] = []
    for path in (Path(entry.file) for entry in entries if entry.file):
        files += dictionary_files(path) if path.suffix == ".index" else [path]
    return files


def open_miner(
    model: str, device: str, dtype: str, entries: list[ListedTool]
) -> tuple[LanguageModel, list[MiningTool]]:
    """Open a model and listed tools, as a worker does."""
    return open_model(model, device=device, dtype=dtype), open_tools(entries)


def _complete(entry: ListedTool) -> ListedTool:
    if entry.kind not in _KINDS:
        raise ConfigError(f"unknown tool {entry.kind!r}", hint=_HINT)
    if entry.kind in _DICTIONARIES:
        path = entry.file or installed_dictionary(_DICTIONARIES[entry.kind], entry.kind)
        return msgspec.structs.replace(entry, file=str(path))
    if entry.file is not None:
        raise ConfigError(f"the tool {entry.kind} has no file", hint=_HINT)
    return entry


def _open(entry: ListedTool, passages: Callable[[Path], PassageIndex]) -> MiningTool:
    """Return the listed tool, with the settings that the entry overrides. `passages` opens a dictionary."""
    names = ("call_probability", "positions", "samples", "threshold")
    settings = {name: getattr(entry, name) for name in names if getattr(entry, name) is not None}
    file = Path(entry.file or "")
    is_dictionary = file.suffix == ".index"
    if entry.kind == "calendar":
        return calendar_tool(entry.today, **settings)
    if entry.kind == "search":
        return search_tool(passages(file) if is_dictionary else [one.text for one in read_texts(file)], **settings)
    if entry.kind == "qa":
        return qa_tool(passages(file) if is_dictionary else _read_pairs(file), **settings)
    if entry.kind == "translate":
        return translate_tool(read_translations(file) if is_dictionary else _read_pairs(file), **settings)
    return calculator_tool(**settings) if entry.kind == "calculator" else convert_tool(**settings)


def _read_pairs(file: Path) -> Mapping[str, str]:
    """Read two columns separated by a tab. Raise ConfigError for a line without two columns."""
    pairs: dict[str, str] = {}
    for number, one in enumerate(read_texts(file), 1):
        left, tab, right = one.text.partition("\t")
        if not tab or not left.strip() or not right.strip():
            raise ConfigError(f"{file}, entry {number} has no two columns", hint="separate two texts by a tab")
        pairs[left.strip()] = right.strip()
    return pairs


Opener: TypeAlias = Callable[[], tuple[LanguageModel, Sequence[MiningTool]]]
"""Opens the model and the tools of a run in another process, which gets it pickled."""

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
    *,
    shard_size: int = 32,
    executor: Executor | None = None,
    reopen: Opener | None = None,
    results: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MiningReport:
    """Mine `texts` in shards, and write the results to `folder`. A finished shard is not computed again.

    The results are equal for every `executor`. Its workers open the model and the tools with `reopen`. The results of
    shards are stored in `folder/shards`, or in the folder or at the URL `results`. Raise ConfigError if `shard_size` is
    not positive.
    """
    if shard_size < 1:
        raise ConfigError(f"shard_size must be positive, got {shard_size}")
    parts = [(first, texts[first : first + shard_size]) for first in range(0, len(texts), shard_size)]
    job = job_key([folder.manifest["settings"], shard_size], sorted(folder.manifest["inputs"].values()))
    names = [
        shard_name(job, number, hashlib.sha256(msgspec.json.encode(part)).hexdigest())
        for number, (_, part) in enumerate(parts)
    ]
    with CallExecutor(tools) as calls:
        work = _ShardMiner(model, tools, calls, settings, reopen)
        stored = open_results(results or folder.path / "shards")
        shards = map_items(work, parts, executor=executor, results=stored, names=names, progress=progress)
    candidates = [one for shard in shards for one in msgspec.json.decode(shard, type=list[CallCandidate])]
    decided = decide(candidates, tools, settings)
    augmented = build_corpus([one.text for one in texts], decided)
    report = MiningReport(
        len(texts), sum(bool(row.calls) for row in augmented), tuple(_count(tool.name, decided) for tool in tools)
    )
    _write_rows(folder, CANDIDATES, decided)
    _write_rows(folder, CORPUS, augmented)
    folder.write_json(REPORT, report)
    return report


class _ShardMiner:
    """Mines a shard: the number of its first text, and its texts. Another process opens the model and the tools itself."""

    def __init__(
        self,
        model: LanguageModel,
        tools: Sequence[MiningTool],
        calls: CallExecutor,
        settings: MiningSettings,
        reopen: Opener | None,
    ) -> None:
        self._opened: tuple[LanguageModel, Sequence[MiningTool], CallExecutor] | None = (model, tools, calls)
        self._settings = settings
        self._reopen = reopen
        self._threads = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process. Raise ConfigError if it cannot open the model there."""
        if self._reopen is None:
            raise ConfigError("mining with workers needs `reopen`")
        import torch

        # Sums of floats depend on the number of threads, so all workers have the parent's.
        return {**self.__dict__, "_opened": None, "_threads": torch.get_num_threads()}

    def __call__(self, shard: tuple[int, Sequence[CorpusText]]) -> bytes:
        first, texts = shard
        model, tools, calls = self._opened or self._open()
        return msgspec.json.encode(mine_texts(model, texts, tools, self._settings, executor=calls, first=first))

    def _open(self) -> tuple[LanguageModel, Sequence[MiningTool], CallExecutor]:
        import torch

        torch.set_num_threads(self._threads)
        assert self._reopen is not None
        model, tools = self._reopen()
        self._opened = model, tools, CallExecutor(tools)
        return self._opened


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
