"""The report about a LiteLLM file: skipped models, ignored settings, and settings with another effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

NoteKind: TypeAlias = Literal["skipped", "ignored", "changed"]

_MAX_LOCATIONS = 4
_ORDER = ("skipped", "ignored", "changed")


class ImportNote(NamedTuple):
    """One setting: `skipped` is a model that cannot be used, `changed` a setting whose effect differs here."""

    kind: NoteKind
    location: str  # the path of the key, such as `router_settings.allowed_fails`
    meaning: str  # its effect in LiteLLM, or the reason for skipping
    instead: str = ""
    model: str = ""


class ReportRow(NamedTuple):
    """Notes with the same text, and their locations."""

    kind: NoteKind
    locations: tuple[str, ...]
    meaning: str
    instead: str

    @property
    def where(self) -> str:
        rest = len(self.locations) - _MAX_LOCATIONS
        shown = ", ".join(self.locations[:_MAX_LOCATIONS])
        return f"{shown} and {rest} more" if rest > 0 else shown


class ImportReport:
    """Collect notes while a file is read."""

    def __init__(self) -> None:
        self.notes: list[ImportNote] = []

    def skip(self, location: str, reason: str, instead: str = "", *, model: str = "") -> None:
        self.notes.append(ImportNote("skipped", location, reason, instead, model))

    def ignore(self, location: str, meaning: str, instead: str = "") -> None:
        self.notes.append(ImportNote("ignored", location, meaning, instead))

    def change(self, location: str, meaning: str, instead: str = "") -> None:
        self.notes.append(ImportNote("changed", location, meaning, instead))


def group_notes(notes: Iterable[ImportNote]) -> list[ReportRow]:
    """Group notes with the same text: a setting of thirty models is one row. Skipped models come first."""
    groups: dict[tuple[NoteKind, str, str], list[str]] = {}
    for note in notes:
        location = f"{note.model} ({note.location})" if note.model else note.location
        groups.setdefault((note.kind, note.meaning, note.instead), []).append(location)
    rows = [ReportRow(kind, tuple(found), meaning, instead) for (kind, meaning, instead), found in groups.items()]
    return sorted(rows, key=lambda row: _ORDER.index(row.kind))
