"""The texts to mine, and the texts with calls that mining returns (C* of the paper).

A call inside a text has the text format `toolformer`: `[Calculator(400 / 1400)] → 0.29`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from ...ir.errors import ConfigError, ProtocolError
from ...ir.parts import ToolCall
from ...ir.tools import Tool
from ...ir.value import Value
from ...stream.strict import parse
from ...text import get
from ..chat_rendering import TrainingRow, encode_segments, start_of_text, text_segments
from ..language_model import LanguageModel
from ..run_folder import reading

ARROW = "→"
_FORMAT = get("toolformer")
_MAX_RESULT = 400  # characters of a result inside a text; longer than a passage of the search tool


class InlineCall(Value, frozen=True):
    """A call with its result at a position of a text. `call` is its text without brackets: `Calculator(8 - 2)`."""

    position: int
    call: str
    result: str


def format_call(call: str | ToolCall, result: str | None = None) -> str:
    """Return a call with its result as text; without `result`, the call alone.

    >>> format_call("Calculator(400 / 1400)", "0.29")
    '[Calculator(400 / 1400)] → 0.29'
    """
    text = _FORMAT.calls.write([call]) if isinstance(call, ToolCall) else f"[{call}]"
    return text if result is None else f"{text} {ARROW} {' '.join(result.split())[:_MAX_RESULT]}"


def parse_call(text: str, tools: Iterable[Tool]) -> ToolCall | None:
    """Return the complete call of a text such as `Calculator(8 - 2)`; None if it is not a call of one of `tools`."""
    calls = _FORMAT.parse(f"[{text}]", list(tools)).calls
    return calls[0] if len(calls) == 1 and calls[0].state == "complete" else None


def call_span(before: str, call: str | ToolCall, result: str | None) -> str:
    """Return the text to insert after `before`. One space separates it from the text on either side."""
    text = format_call(call, result)
    return f"{text} " if not before or before[-1].isspace() else f" {text}"


def insert_calls(text: str, calls: Sequence[InlineCall]) -> str:
    """Insert calls with their results at their positions.

    >>> insert_calls("She needs 6 cups.", [InlineCall(9, "Calculator(8 - 2)", "6")])
    'She needs [Calculator(8 - 2)] → 6 6 cups.'
    """
    pieces, start = [], 0
    for call in sorted(calls, key=lambda one: one.position):
        before = text[start : call.position]
        pieces += [before, call_span(text[: call.position], call.call, call.result)]
        start = call.position
    return "".join([*pieces, text[start:]])


Objective: TypeAlias = Literal["paper", "masked"]

_MAX_TEXT = 20_000  # characters; several times `MiningSettings.max_length` tokens, beyond which a text is not mined
_MAX_TEXTS = 10_000_000  # all are held in memory; parts can be mined separately


class CorpusText(Value, frozen=True):
    """A text, and the date on which it was written if it is known (ISO 8601), for the calendar."""

    text: str
    date: str | None = None


class AugmentedText(Value, frozen=True):
    """A text with its calls inserted. `source` is the number of the original text; without calls it is unchanged."""

    text: str
    source: int
    calls: tuple[InlineCall, ...] = ()


def read_texts(path: str | Path) -> list[CorpusText]:
    """Return the texts of JSON Lines with `text` and optional `date` (.jsonl), or one text per line.

    Raises `ConfigError` for an unreadable file, an invalid line, no texts or too many.
    """
    file = Path(path)
    with reading(file):
        lines = file.read_bytes().splitlines()
    texts: list[CorpusText] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        texts.append(_read_line(file, number, line))
        if len(texts) > _MAX_TEXTS:
            raise ConfigError(f"{file} has more than {_MAX_TEXTS} texts", hint="mine it in parts")
    if not texts:
        raise ConfigError(f"{file} has no texts", hint='write lines such as {"text": "She has 3 + 4 = 7 apples."}')
    return texts


def augment_texts(originals: Sequence[str], calls: Iterable[tuple[int, InlineCall]]) -> list[AugmentedText]:
    """Return every text, with its calls inserted. Texts without calls stay as they are, as in the paper."""
    by_text: dict[int, list[InlineCall]] = {}
    for number, call in calls:
        by_text.setdefault(number, []).append(call)
    rows = []
    for number, text in enumerate(originals):
        own = sorted(by_text.get(number, ()), key=lambda call: call.position)
        rows.append(AugmentedText(insert_calls(text, own), number, tuple(own)))
    return rows


def result_spans(row: AugmentedText) -> list[tuple[int, int]]:
    """Return the character spans of the results in an augmented text, for a loss that leaves them out."""
    spans, added = [], 0
    for call in row.calls:
        before = row.text[: call.position + added]
        with_result, without = call_span(before, call.call, call.result), call_span(before, call.call, None)
        start = call.position + added + len(without.rstrip())
        end = call.position + added + len(with_result.rstrip())
        spans.append((start, end))
        added += len(with_result)
    return spans


def corpus_rows(
    model: LanguageModel, rows: Iterable[AugmentedText], objective: Objective = "paper"
) -> list[TrainingRow]:
    """Return texts with calls as rows for `train`.

    `paper` trains every token, as the paper does. `masked` has no loss on results, because the tool writes them. Raise
    ConfigError for another objective.
    """
    if objective not in get_args(Objective):
        raise ConfigError(f"unknown objective {objective!r}", hint=f"use one of {', '.join(get_args(Objective))}")
    start, end = start_of_text(model.tokenizer), model.decode([model.end_token])
    found = []
    for row in rows:
        spans = result_spans(row) if objective == "masked" else ()
        found.append(encode_segments(text_segments(row.text, spans, end, start=start), model.tokenizer))
    return found


def _read_line(file: Path, number: int, line: bytes) -> CorpusText:
    """Return a line as a text: JSON in .jsonl and .json files, plain text in others.

    Raises `ConfigError` if it is invalid or too long.
    """
    try:
        if file.suffix in (".jsonl", ".json"):
            text = msgspec.convert(parse(line), CorpusText)
        else:
            text = CorpusText(line.decode())
    except (ProtocolError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = error.message if isinstance(error, ProtocolError) else error
        raise ConfigError(
            f"{file}, line {number}: {reason}", hint='write lines such as {"text": "She has 3 + 4 = 7 apples."}'
        ) from None
    if len(text.text) > _MAX_TEXT:
        raise ConfigError(f"{file}, line {number} is longer than {_MAX_TEXT} characters", hint="split the text")
    return text
