"""Mine a corpus in shards, and write its candidates, the texts with calls, and the counts of every tool."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.value import Value
from ...run.values.records import Store
from ..language_model import LanguageModel
from ..run_folder import RunFolder, write_atomically
from ..shards import job_key, run_shards
from .corpus import AugmentedText, CorpusText
from .execution import CallExecutor
from .mining import CallCandidate, MiningSettings, build_corpus, decide, mine_texts
from .mining_tool import MiningTool

__all__ = ["CANDIDATES", "CORPUS", "MiningReport", "ToolCounts", "mine_corpus"]

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

    Every worker with equal settings and inputs gets the same results. A finished shard is not computed again.
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

        shards = run_shards(store, job, list(map(_fingerprint, parts)), work, lease=lease, progress=progress)
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


def _fingerprint(texts: Sequence[CorpusText]) -> str:
    return hashlib.sha256(msgspec.json.encode(texts)).hexdigest()


def _count(name: str, decided: Sequence[CallCandidate]) -> ToolCounts:
    own = [one for one in decided if one.tool == name]
    reasons = Counter(one.reason for one in own if one.reason)
    return ToolCounts(
        name,
        positions=len({(one.text, one.position) for one in own}),
        samples=sum(one.samples for one in own),
        candidates=len(own),
        executed=sum(one.result is not None for one in own),
        kept=sum(not one.reason for one in own),
        reasons=dict(reasons.most_common()),
    )


def _write_rows(folder: RunFolder, name: str, rows: Sequence[CallCandidate] | Sequence[AugmentedText]) -> None:
    write_atomically(folder.path / name, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
