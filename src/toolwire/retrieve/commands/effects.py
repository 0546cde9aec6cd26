"""Judge the effect of a command line with the curated tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir.tools import Effect
from ...ir.value import Value
from .command import SystemCommand
from .effect_table import ARCHIVE_LIST, ARCHIVE_LIST_OPTIONS, EFFECTS, OPTION_EFFECTS, usual_name
from .read_only_table import READ_ONLY, is_read_only

__all__ = ["CommandEffect", "default_effect", "judge_effect"]

_ORDER = ("read", "write", "delete", "network", "program")
_LABELS = {
    "read": "reads",
    "write": "writes",
    "delete": "deletes or ends",
    "network": "uses the network",
    "program": "may run other programs",
}


class CommandEffect(Value, frozen=True):
    """The effect of a command line. `is_known`: the command is in the tables. `is_read_only`: it may run unasked."""

    kinds: tuple[str, ...]
    is_known: bool = True
    is_read_only: bool = False

    @property
    def text(self) -> str:
        """A description for a person."""
        shown = ", ".join(_LABELS[kind] for kind in self.kinds)
        return shown if self.is_known else f"unknown, may write (assumed: {shown})"


def judge_effect(words: Sequence[str], vector: Sequence[str], options: Collection[str] = ()) -> CommandEffect:
    """Return the effect of a written command line. `options`: the names of its options, without their values."""
    if is_read_only(words, vector):
        return CommandEffect(("read",), is_read_only=True)
    words, vector = (usual_name(words[0]), *words[1:]), (usual_name(words[0]), *vector[1:])
    listed = _find_listed(words)
    if listed is None:
        return CommandEffect(("write",), is_known=False)
    name, kinds = listed
    effects = OPTION_EFFECTS.get(name, {})
    matched = [effects[option] for option in options if option in effects]
    found = set(kinds).union(*(one.split() for one in matched))
    if _is_unlisted(words, vector, options):
        found.add("write")
    elif _lists_archive(name, vector, options):
        found = {"read"}
    only_reads = found <= {"read", "program"}
    return CommandEffect(tuple(kind for kind in _ORDER if kind in found and (kind != "read" or only_reads)))


def _is_unlisted(words: Sequence[str], vector: Sequence[str], options: Collection[str]) -> bool:
    """Return True for a use of a reading or sending command that no table describes: it may write."""
    name = " ".join(words)
    effects = OPTION_EFFECTS.get(name, {})
    use = READ_ONLY.get(name)
    if use is None:
        return EFFECTS.get(name) == "network" and not effects.keys() >= set(options)
    rest = [word for word in vector[len(words) :] if word.partition("=")[0] not in effects]
    return len(rest) == len(vector) - len(words) or not use.admits(rest)


def _lists_archive(name: str, vector: Sequence[str], options: Collection[str]) -> bool:
    """Return True for `tar --list` of a local file. A name with a colon is a file of another machine."""
    is_list = name == "tar" and not ARCHIVE_LIST.isdisjoint(options) and ARCHIVE_LIST_OPTIONS.issuperset(options)
    return is_list and not any(":" in word for word in vector)


def _find_listed(words: Sequence[str]) -> tuple[str, frozenset[str]] | None:
    """Return the longest prefix of the words in the table, with its effects. A subcommand is not its program."""
    for length in range(len(words), 0, -1):
        name = " ".join(words[:length])
        kinds = EFFECTS.get(name)
        if kinds is not None and not (length < len(words) and name in READ_ONLY):
            return name, frozenset(kinds.split())
    return None


def default_effect(command: SystemCommand) -> Effect:
    """Return the effect of the tool of a command: `read` only if the table lists it."""
    return "read" if command.name in READ_ONLY else "write"
