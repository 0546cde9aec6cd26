"""Files of training examples, read and written row by row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from ..ir.errors import ConfigError, EncodeError, ProtocolError, ToolwireError
from ..ir.losses import Loss
from ..ir.pointer import Object
from ..ir.text import to_bytes
from ..ir.value import Value
from ..stream.strict import parse_object
from . import formats
from .examples import Example, TrainingFormat

MAX_ROW = 16 * 1024 * 1024  # bytes of one row, which is parsed in memory; a long conversation has some MB
MAX_ARRAY = 512 * 1024 * 1024  # bytes of a file that is one JSON array


class RejectedExample(Value, frozen=True):
    """An example that cannot be used: its location (`file:line`), a short reason to count by, and the details."""

    source: str
    reason: str
    detail: str


def read_examples(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    on_rejected: Callable[[RejectedExample], None] | None = None,
) -> Iterator[Example]:
    """Yield the examples of a file: JSON Lines, or one JSON array.

    `format` is the name of a training format; None detects it from the rows. An invalid row raises ProtocolError
    with the file, the line and a pointer, unless `on_rejected` receives it.
    """
    file = Path(path)
    chosen = None if format is None else formats.get(format)
    for number, data in _rows_of(file):
        place = f"{file.name}:{number}"
        try:
            row = parse_object(data, limit=MAX_ROW)
            chosen, example = _decode_row(row, chosen, fixed=format is not None)
        except ProtocolError as error:
            if on_rejected is None:
                raise _at(place, error) from None
            on_rejected(RejectedExample(place, "invalid row", f"{error.message} at {error.pointer or '/'}"))
            continue
        yield example if example.source else msgspec.structs.replace(example, source=place)


def _decode_row(row: Object, chosen: TrainingFormat | None, *, fixed: bool) -> tuple[TrainingFormat, Example]:
    """Decode a row in the format of the rows before it.

    The first rows of a file may fit several formats, as those without calls do. If a later row does not fit, its format
    is detected, unless it is `fixed`. Raise ProtocolError if it fits neither.
    """
    found = chosen or formats.detect(row)
    try:
        return found, found.decode(row)
    except ProtocolError:
        other = found if fixed else formats.detect(row)
        if other is found:
            raise
        return other, other.decode(row)


def _at(place: str, error: ToolwireError) -> ProtocolError:
    hint = error.hint or "correct or remove this row"
    return ProtocolError(f"{place}: {error.message}", pointer=error.pointer, hint=hint)


def _rows_of(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each row: its line, or its position in the array.

    Raises `ConfigError` for an unreadable file or too large array, and `ProtocolError` for a too long line.
    """
    try:
        with file.open("rb") as stream:
            if stream.peek(64).lstrip()[:1] == b"[":
                size = os.fstat(stream.fileno()).st_size
                if size > MAX_ARRAY:
                    raise ConfigError(f"{file} is too large for one array: {size} bytes", hint="use JSON Lines")
                yield from _array_rows(file, stream.read())
                return
            number = 0
            while line := stream.readline(MAX_ROW + 1):
                number += 1
                if len(line) > MAX_ROW:
                    raise ProtocolError(
                        f"{file.name}:{number}: the line exceeds {MAX_ROW} bytes", hint="split the file"
                    )
                if line.strip():
                    yield number, line
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None


def _array_rows(file: Path, data: bytes) -> Iterator[tuple[int, bytes]]:
    try:
        rows = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{file.name} is not a JSON array: {error}", hint="use JSON Lines") from None
    for number, row in enumerate(rows, 1):
        yield number, bytes(row)


def write_examples(
    path: str | Path,
    examples: Iterable[Example],
    format: str,  # noqa: A002
    *,
    on_loss: Callable[[Example, Loss], None] | None = None,
    on_rejected: Callable[[RejectedExample], None] | None = None,
) -> int:
    """Write examples as JSON Lines and return their number. A reader never sees a part of the file.

    `on_loss` receives the parts that the format cannot contain. An example that the format cannot express raises
    EncodeError, unless `on_rejected` receives it. Raise ConfigError for a format that is only read, and if the file
    cannot be written.
    """
    chosen = formats.get(format)
    if chosen.encode is None:
        raise ConfigError(
            f"the format {format} is only read", hint=f"write one of {', '.join(formats.names(writable=True))}"
        )
    file = Path(path)
    part = file.with_name(file.name + ".part")
    count = 0
    try:
        with part.open("wb") as stream:
            for example in examples:
                line = _encode_line(example, chosen, on_loss, on_rejected)
                if line is not None:
                    stream.write(line)
                    count += 1
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return count


def _encode_line(
    example: Example,
    chosen: TrainingFormat,
    on_loss: Callable[[Example, Loss], None] | None,
    on_rejected: Callable[[RejectedExample], None] | None,
) -> bytes | None:
    """Return an example as a line and report its losses.

    An example that the format cannot express is given to `on_rejected` and None is returned; without `on_rejected`,
    `EncodeError` is raised.
    """
    assert chosen.encode is not None
    try:
        row, losses = chosen.encode(example)
        line = to_bytes(row) + b"\n"
    except EncodeError as error:
        if on_rejected is None:
            raise
        place = example.source or example.id
        on_rejected(RejectedExample(place, f"not expressible in {chosen.name}", str(error)))
        return None
    if on_loss is not None:
        for loss in losses:
            on_loss(example, loss)
    return line
