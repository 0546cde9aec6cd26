"""The events of a run that executes elsewhere, by position.

A position names an event of the log: `ROW.NUMBER`, the row of an append and the events since then. A reader that was
interrupted continues after the position of the last event that it received, and reads no row before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from ..ir.errors import ConfigError
from ..ir.request import Message
from ..ir.value import Value
from ..run.session.events import EventKind, RunEvent, decode_events
from ..run.values.records import PAGE_ROWS, RunStore

POLL = 0.5  # seconds; a turn of a model takes longer


class RunUpdate(Value, frozen=True):
    """An event of a stored run. `messages`: the messages that it adds to the conversation. `at`: seconds since the epoch."""

    position: str
    kind: EventKind
    at: float
    messages: tuple[Message, ...] = ()


def read_updates(runs: RunStore, run_id: str, after: str = "") -> Iterator[RunUpdate]:
    """Iterate over the events that a run has now, from the first one after a position."""
    row, number = _parse_position(after)
    stored = runs.get(run_id)
    stop = 0 if stored is None else stored.rows
    skipped, lines = number, b""
    position, number = row, 0
    while row < stop:
        for data in runs.rows(run_id, row, min(stop, row + PAGE_ROWS)):
            row += 1
            *complete, lines = (lines + data).split(b"\n")
            for event in decode_events(line + b"\n" for line in complete):
                number += 1
                if number > skipped:
                    yield _make_update(f"{position}.{number}", event)
            if not lines:  # the next row begins with an event, so a reader can begin there
                position, number, skipped = row, 0, 0


def follow_updates(runs: RunStore, run_id: str, after: str = "", *, poll: float = POLL) -> Iterator[RunUpdate | None]:
    """Iterate over the events of a run as they are stored, without end. None: there is no further event yet."""
    while True:
        for update in read_updates(runs, run_id, after):
            after = update.position
            yield update
        yield None
        time.sleep(poll)


def _make_update(position: str, event: RunEvent) -> RunUpdate:
    added = [item for splice in event.splices if splice.field == "request.messages" for item in splice.items]
    return RunUpdate(position, event.kind, event.at, msgspec.convert(added, tuple[Message, ...]))


def _parse_position(position: str) -> tuple[int, int]:
    if not position:
        return 0, 0
    row, _, number = position.partition(".")
    if not (row.isdecimal() and number.isdecimal()):
        raise ConfigError(f"invalid position {position!r}", hint="pass the position of an update")
    return int(row), int(number)
