"""Ask a model every entry, and count right answers and errors. A run in a folder continues where it stopped.

answers = ClientAnswers(ModelClient("openai/gpt-5.6-mini"))            # any provider, wire or gateway
answers = LocalAnswers(open_model("smollm2"), "hermes", mask=True)     # a local model in a text format
report = evaluate_bfcl(answers, select_entries(["simple_python"], limit=100))
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ..run_folder import RunFolder
from .entries import CALL_CATEGORIES, MULTI_TURN_CATEGORIES, BFCLEntry, read_bfcl
from .judgement import BFCLAnswer, EvaluatedAnswer, classify_answer
from .report import BFCLReport

__all__ = ["AnswerSource", "evaluate_bfcl", "select_entries"]

_ANSWERS = "answers.jsonl"
_REPORT = "report.json"


class AnswerSource(Protocol):
    """A model that answers entries, in any order."""

    @property
    def settings(self) -> Object:
        """The settings that determine the answers, for the manifest of a run."""
        ...

    def answers(self, entries: Sequence[BFCLEntry]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        """Yield each entry with its answer as soon as it is known."""
        ...


def select_entries(
    categories: Iterable[str] = CALL_CATEGORIES, *, limit: int | None = None, seed: int = 0
) -> list[BFCLEntry]:
    """Return the entries of `categories`; with `limit`, a random sample of all of them, in the order of the files.

    Multi-turn categories are refused: their score depends on the state of a simulated world after each turn.
    """
    chosen = tuple(dict.fromkeys(categories))
    refused = [one for one in chosen if one in MULTI_TURN_CATEGORIES]
    if refused:
        raise ConfigError(f"the category {refused[0]} cannot be evaluated", hint="use categories with one turn")
    entries = list(read_bfcl(chosen))
    if limit is None or limit >= len(entries):
        return entries
    if limit < 1:
        raise ConfigError(f"the limit must be positive, got {limit}")
    return [entries[index] for index in sorted(random.Random(seed).sample(range(len(entries)), limit))]


def evaluate_bfcl(
    source: AnswerSource,
    entries: Sequence[BFCLEntry],
    *,
    run: RunFolder | None = None,
    on_answer: Callable[[int, int], None] | None = None,
) -> BFCLReport:
    """Ask the model all entries and return its score.

    With `run`, every answer is appended to its log, and entries of the log are not asked again, except those that
    failed with an upstream error. `on_answer` receives the number of answers so far and of all.
    """
    wanted = {entry.id for entry in entries}
    done = {row.id: row for row in _stored_answers(run) if row.id in wanted and row.outcome != "upstream_error"}
    missing = [entry for entry in entries if entry.id not in done]
    if on_answer is not None:
        on_answer(len(done), len(entries))
    for entry, answer in source.answers(missing):
        row = classify_answer(entry, answer)
        done[entry.id] = row
        if run is not None:
            run.append(_ANSWERS, [row])
        if on_answer is not None:
            on_answer(len(done), len(entries))
    settings = {**source.settings, "entries": len(entries)}
    report = BFCLReport.count((done[entry.id] for entry in entries), settings)
    if run is not None:
        run.write_json(_REPORT, report.document())
    return report


def _stored_answers(run: RunFolder | None) -> Iterator[EvaluatedAnswer]:
    for row in () if run is None else run.rows(_ANSWERS):
        yield msgspec.convert(row, EvaluatedAnswer)
