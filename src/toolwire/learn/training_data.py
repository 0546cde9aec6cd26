"""Read a training file, split off held-out items, and turn items into rows of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from ..ir.errors import ConfigError, ProtocolError
from ..stream.strict import parse, parse_object
from ..text.engine.format import Format
from .chat_rendering import TrainingRow, encode_segments, render_segments, start_of_text, text_segments
from .example_files import MAX_ROW, RejectedExample, read_examples
from .examples import Example
from .toolformer.corpus import AugmentedText, result_spans

__all__ = ["TrainingItem", "build_rows", "read_training_file", "split_held_out"]

TrainingItem: TypeAlias = Example | AugmentedText
"""A conversation, or a text with inline calls."""

_SplitItem = TypeVar("_SplitItem", bound=TrainingItem)


def read_training_file(
    path: str | Path, *, on_rejected: Callable[[RejectedExample], None] | None = None
) -> list[TrainingItem]:
    """Read a file of conversations in any training format, or of texts (`{"text": …}`), as mining writes them."""
    file = Path(path)
    items: list[TrainingItem] = list(
        _read_texts(file) if _has_texts(file) else read_examples(file, on_rejected=on_rejected)
    )
    if not items:
        raise ConfigError(f"{file} has no examples to train on")
    return items


def split_held_out(items: Sequence[_SplitItem], share: float, seed: int) -> tuple[list[_SplitItem], list[_SplitItem]]:
    """Return (training items, held-out items). Items with an equal prompt are on the same side."""
    if not 0 <= share < 1:
        raise ConfigError(f"the held-out share must be at least 0 and below 1, got {share}")
    sides: tuple[list[_SplitItem], list[_SplitItem]] = ([], [])
    for item in items:
        key = item.user_text if isinstance(item, Example) else str(item.source)
        digest = sha256(f"{seed}/{key}".encode("utf-8", "surrogatepass")).digest()
        sides[int.from_bytes(digest[:8]) < share * 2**64].append(item)
    return sides


def build_rows(
    items: Sequence[TrainingItem], tokenizer: Any, form: Format, *, max_length: int, mask_results: bool = False
) -> tuple[list[TrainingRow], Counter[str]]:
    """Return the rows of the items, and the reasons for items without a row with their counts.

    A row longer than `max_length` is left out, not truncated: the model would learn to stop early. `mask_results`
    leaves the results of inline calls out of the loss.
    """
    rows: list[TrainingRow] = []
    skipped: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Example):
            segments = render_segments(item, tokenizer, form)
        else:
            spans = result_spans(item) if mask_results else ()
            segments = text_segments(item.text, spans, tokenizer.eos_token, start=start_of_text(tokenizer))
        row = encode_segments(segments, tokenizer)
        if not row.trained_count:
            skipped["no answer to learn from"] += 1
        elif len(row.tokens) > max_length:
            skipped[f"longer than {max_length} tokens"] += 1
        else:
            rows.append(row)
    return rows, skipped


def _has_texts(file: Path) -> bool:
    """Return whether the first row is a text instead of a conversation."""
    try:
        with file.open("rb") as stream:
            line = b"\n"
            while line and not line.strip():
                line = stream.readline(MAX_ROW)  # a longer row is not complete, and the reader of examples reports it
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    try:
        first = parse(line)
    except ProtocolError:
        return False  # perhaps an array over several lines; the reader of examples reports the error
    return isinstance(first, dict) and isinstance(first.get("text"), str) and "messages" not in first


def _read_texts(file: Path) -> list[AugmentedText]:
    items = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = {"source": number, **parse_object(line)}
            items.append(msgspec.convert(row, AugmentedText))
        except (ProtocolError, msgspec.MsgspecError) as error:
            reason = error.message if isinstance(error, ProtocolError) else error
            hint = 'write lines such as {"text": "The sum is [Calculator(3 + 4)] → 7 apples."}'
            raise ConfigError(f"{file}, line {number}: {reason}", hint=hint) from None
    return items
