"""Rules, their registration, and their findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from ..ir.tools import Tool
from ..ir.value import Value
from .targets import applies_to

__all__ = [
    "CHECKS",
    "LEVELS",
    "RULES",
    "Finding",
    "Hit",
    "Level",
    "Rule",
    "SourceLocation",
    "declare",
    "is_selected",
    "make_finding",
    "rule",
    "rule_decorator",
]

C = TypeVar("C")
Level: TypeAlias = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")


class Hit(NamedTuple):
    """A JSON pointer into the canonical form of the declaration, and a message.

    `providers` are those of the rule's providers that this hit is about, if not all of them.
    """

    path: str
    message: str
    providers: tuple[str, ...] = ()


ToolListCheck: TypeAlias = Callable[[tuple[Tool, ...]], Iterator[tuple[int, Hit]]]
"""Checks all tools of a list; yields each hit with the index of its tool, or -1 for the list itself."""


class SourceLocation(NamedTuple):
    """A file, a line number if the file has one document per line, and a pointer if the input is part of a document."""

    file: str = ""
    line: int = 0
    at: str = ""


class Rule(NamedTuple):
    """A rule. `providers` are those that reject the input or do not handle it as intended."""

    id: str
    level: Level
    providers: tuple[str, ...]
    title: str
    fix: str
    opt_in: bool = False
    """Off by default: checked only if selected, or if its provider is a target."""


class Finding(Value, frozen=True):
    """A problem that a rule reports. `tool` is empty if it is not about a tool; `line` is 0 for the whole file.

    A rule that fires for several properties of a tool gives one finding: `path` is the first, `paths` are all of them.
    """

    rule: str
    level: Level
    providers: tuple[str, ...]
    tool: str
    path: str
    message: str
    fix: str
    file: str = ""
    line: int = 0
    paths: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A stable id, independent of the position of the tool in its list or of the request in its log."""
        return self.fingerprints[0]

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The stable ids of all paths: a new path makes a finding new."""
        places = self.paths or (self.path if self.path or not self.line else f":{self.line}",)
        return tuple(f"{self.rule} {self.tool or self.file} {place}" for place in places)

    @property
    def where(self) -> str:
        """The location for people: file and line, if there is a line, and the pointer."""
        line = f"{self.file}:{self.line}" if self.line else ""
        more = f"(+{len(self.paths) - 1})" if len(self.paths) > 1 else ""
        return " ".join(filter(None, (line, self.path, more))) or "/"


RULES: dict[str, Rule] = {}
"""All rules, for every kind of input."""
CHECKS: dict[str, ToolListCheck] = {}
"""Checks of lists of tools, by rule id."""


def declare(rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False) -> None:
    """Register a rule. Ids are stable: the id of a removed rule is never reused."""
    assert rule_id not in RULES
    RULES[rule_id] = Rule(rule_id, level, tuple(providers.split()), title, fix, asked)


class Registrar(Protocol[C]):
    """The type of the decorators that `rule_decorator` returns. `asked`: the rule is off by default (`opt_in`)."""

    def __call__(
        self, rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False
    ) -> Callable[[C], C]: ...


def rule_decorator(checks: dict[str, C]) -> Registrar[C]:
    """Return a decorator that registers checks in `checks`: rule(id, level, providers, title, fix)."""

    def rule(
        rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False
    ) -> Callable[[C], C]:
        def register(check: C) -> C:
            declare(rule_id, level, providers, title, fix, asked=asked)
            checks[rule_id] = check
            return check

        return register

    return rule


rule = rule_decorator(CHECKS)


def is_selected(
    rule_id: str, select: Collection[str] = (), ignore: Collection[str] = (), targets: Collection[str] = ()
) -> bool:
    """Return True if a rule is enabled. `select` and `ignore` are prefixes of ids."""
    rule = RULES[rule_id]
    if rule_id.startswith(tuple(ignore)) or not applies_to(rule_id, rule.providers, targets):
        return False
    if select:
        return rule_id.startswith(tuple(select))
    return not rule.opt_in or not set(targets).isdisjoint(rule.providers)


def make_finding(location: SourceLocation, rule_id: str, tool: str, path: str, message: str) -> Finding:
    rule = RULES[rule_id]
    return Finding(rule.id, rule.level, rule.providers, tool, path, message, rule.fix, location.file, location.line)
