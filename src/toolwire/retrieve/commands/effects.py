"""Judge the effect of a command line with the curated tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir.tools import Effect
from ...ir.value import Value
from .command import SystemCommand
from .effect_table import EFFECTS, OPTION_EFFECTS, READ_ONLY

__all__ = ["CommandEffect", "default_effect", "judge_effect"]

_ORDER = ("read", "write", "delete", "network", "program")
_LABELS = {
    "read": "reads",
    "write": "writes",
    "delete": "deletes or ends",
    "network": "uses the network",
    "program": "runs other programs",
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


def judge_effect(words: Sequence[str], options: Collection[str], *, has_operands: bool) -> CommandEffect:
    """Return the effect of a command with the given options."""
    listed = _find_listed(words)
    if listed is None:
        return CommandEffect(("write",), is_known=False)
    name, kinds = listed
    use = READ_ONLY.get(" ".join(words))
    if use is not None and use.options.issuperset(options) and (use.takes_operands or not has_operands):
        return CommandEffect(("read",), is_read_only=True)
    found = set(kinds)
    effects = OPTION_EFFECTS.get(name, {})
    matched = [effects[option] for option in options if option in effects]
    if use is not None and not (matched and use.options.union(effects).issuperset(options)):
        found.add("write")  # an option that the table does not list
    if matched == ["read"]:
        found = {"read"}
    else:
        found.update(matched)
    return CommandEffect(tuple(kind for kind in _ORDER if kind in found and (kind != "read" or len(found) == 1)))


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
